"""Wills that wait are published by what their user may do when they are due, not when they were asked for."""

import argon2
import httpx
import pytest
import yaml

from tests.e2e.test_mqtt5_features import will_of

HASHED = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
DELAY_S = 8


def account(name, write=".*", **more):
    permissions = {"vhost": "/", "configure": ".*", "write": write, "read": ".*"}
    return {"name": name, "password": HASHED, "permissions": [permissions], **more}


@pytest.mark.parametrize("change", ["reload", "restart"])
def test_will_of_a_user_who_was_removed_or_narrowed_meanwhile_is_not_published(
    own_broker, mqtt, tmp_path, change
):
    path = tmp_path / "users.yaml"
    boss = account("boss", tags=["administrator"])
    path.write_text(
        yaml.safe_dump({"users": [boss, account("kept"), account("narrowed"), account("removed")]})
    )
    broker = own_broker({"access": {"users_file": str(path), "anonymous": "never"}}, timed=True)
    login = {"username": "boss", "password": "secret"}
    watcher = mqtt(broker, client_id="watcher", SessionExpiryInterval=600, **login)
    watcher.subscribe("#", 1)
    for user in ("removed", "narrowed", "kept"):
        will = will_of(f"gone/{user}", DELAY_S)
        mqtt(broker, username=user, password="secret", will=will, SessionExpiryInterval=60).drop()
    watcher.publish("waits until all of that is stored", "", 1)
    watcher.take(1)
    path.write_text(yaml.safe_dump({"users": [boss, account("kept"), account("narrowed", "^other")]}))
    if change == "restart":
        broker.restart(kill=True)
        watcher = mqtt(broker, client_id="watcher", clean=False, SessionExpiryInterval=600, **login)
    else:
        told = httpx.post(
            f"{broker.http_url}/api/v1/configuration/reload",
            auth=("boss", "secret"),
            trust_env=False,
            timeout=20,
        )
        assert told.status_code == 200
    broker.pass_time(DELAY_S + 0.5)
    (message,) = watcher.take(1, 10)
    if message.topic == "waits until all of that is stored":  # the acknowledgement was not, before the kill
        (message,) = watcher.take(1, 10)
    assert message.topic == "gone/kept"
    assert watcher.quiet()
    lines = [line for line in broker.log.splitlines() if "mqtt.will_refused" in line]
    assert sorted("gone/removed" in line for line in lines) == [False, True]
