"""Bans of clients, users and addresses, and of clients that connect too often."""

from typing import Any

import argon2
import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from config.access_settings import UsersSettings
from config.users_file import save_users
from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, MqttClient, MqttRefused
from tests.waiting import until

pytestmark = pytest.mark.extension


def ban(broker, kind: str, value: str, **wanted: Any) -> dict[str, Any]:
    path = value.replace("/", "%2F")
    answer = httpx.put(f"{broker.http_url}/api/v1/bans/{kind}/{path}", json=wanted, trust_env=False)
    answer.raise_for_status()
    return dict(answer.json())


def unban(broker, kind: str, value: str) -> int:
    path = value.replace("/", "%2F")
    return httpx.delete(f"{broker.http_url}/api/v1/bans/{kind}/{path}", trust_env=False).status_code


def refused(broker, client_id: str, version: int = V5) -> int:
    client = MqttClient(broker.mqtt_port, client_id=client_id, version=version)
    try:
        with pytest.raises(MqttRefused) as told:
            client.connect()
    finally:
        client.end()
    return int(told.value.code.value)


def test_a_banned_client_is_sent_away_and_kept_out_also_after_a_kill(own_broker, mqtt, name):
    broker = own_broker()
    client = mqtt(broker, client_id=name)
    bystander = mqtt(broker)
    made = ban(broker, "client_id", name, reason="noisy")
    assert (made["value"], made["reason"], made["until_ms"]) == (name, "noisy", None)
    assert client.disconnected.wait(10)
    assert int(client.disconnect_reason.value) == 0x98
    assert refused(broker, name) == 0x8A
    assert refused(broker, name, V311) == 135  # paho's word for CONNACK 5
    assert bystander.publish("a", "x") in (0, 0x10)
    broker.kill9()
    broker.start()
    assert refused(broker, name) == 0x8A
    metrics = httpx.get(f"{broker.http_url}/metrics", trust_env=False).text
    assert "sluicemq_bans 1\n" in metrics
    assert "sluicemq_banned_logins_total 1\n" in metrics
    assert name in httpx.get(f"{broker.http_url}/bans", trust_env=False).text
    assert unban(broker, "client_id", name) == 204
    assert unban(broker, "client_id", name) == 404
    mqtt(broker, client_id=name)


def test_a_ban_ends_when_its_time_is_over(own_broker, mqtt, name):
    broker = own_broker(timed=True)
    ban(broker, "client_id", name, **{"for": "9s"})
    assert refused(broker, name) == 0x8A
    broker.pass_time(9.5)
    mqtt(broker, client_id=name)
    assert httpx.get(f"{broker.http_url}/api/v1/bans", trust_env=False).json() == []


def test_banned_users_and_networks_are_kept_out_and_nobody_bans_themselves(own_broker, amqp_connect):
    broker = own_broker({"access": {"anonymous": "loopback"}})
    ban(broker, "address", "10.1.2.3/8")
    assert [
        each["value"] for each in httpx.get(f"{broker.http_url}/api/v1/bans", trust_env=False).json()
    ] == ["10.0.0.0/8"]
    connection = amqp_connect(broker)
    channel = connection.channel()
    for kind, value in (("address", "127.0.0.1"), ("address", "127.0.0.0%2F8")):
        answer = httpx.put(f"{broker.http_url}/api/v1/bans/{kind}/{value}", json={}, trust_env=False)
        assert answer.status_code == 409, answer.text
    channel.queue_declare("still-in")
    for kind, value in (("address", "nowhere"), ("colour", "red")):
        assert (
            httpx.put(f"{broker.http_url}/api/v1/bans/{kind}/{value}", json={}, trust_env=False).status_code
            == 400
        )


def test_a_client_that_connects_too_often_is_banned_for_a_while(own_broker, mqtt, amqp_connect, name):
    flapping = {"connects": 3, "window": "10s", "ban": "12s"}
    broker = own_broker({"access": {"flapping": flapping}}, timed=True)
    channel = amqp_connect(broker).channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.rabbitmq.event", "ban.*")
    for _ in range(3):
        mqtt(broker, client_id=name).disconnect()
    broker.pass_time(8)
    mqtt(broker, client_id=f"{name}-other").disconnect()
    assert refused(broker, name) == 0x8A
    until(lambda: amqp.count(channel, queue) == 1)
    told = amqp.get(channel, queue)
    assert told is not None
    assert (told.method.routing_key, told.headers["value"]) == ("ban.created", name)
    assert told.headers["reason"] == "more than 3 connections in 10 s"
    broker.pass_time(8)
    assert refused(broker, name) == 0x8A
    broker.pass_time(5)
    mqtt(broker, client_id=name).disconnect()
    metrics = httpx.get(f"{broker.http_url}/metrics", trust_env=False).text
    assert "sluicemq_flapping_bans_total 1\n" in metrics


def test_bans_are_made_listed_and_removed_by_commands(own_broker):
    broker = own_broker()

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(app, ["ban", *arguments, "--url", broker.http_url])
        assert ran.exit_code == 0, ran.output
        return ran.output

    assert "address 192.0.2.0/24 is banned until" in run(
        "add", "address", "192.0.2.7/24", "--for", "1h", "--reason", "scans"
    )
    run("add", "client_id", "meter")
    listed = run("ls")
    assert "192.0.2.0/24" in listed
    assert "scans" in listed
    run("rm", "client_id", "meter")
    assert "meter" not in run("ls")


def test_a_banned_user_is_sent_away_and_refused_by_every_protocol(own_broker, tmp_path):

    password = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("pw")
    everything = {"vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    root = {"name": "root", "password": password, "tags": ["administrator"], "permissions": [everything]}
    app_user = {"name": "app", "password": password, "tags": ["monitoring"], "permissions": [everything]}
    users = UsersSettings.model_validate({"users": [root, app_user]})
    save_users(tmp_path / "users.yaml", users)
    broker = own_broker({"access": {"users_file": str(tmp_path / "users.yaml")}})
    connection = amqp.connect(broker.amqp_port, user="app", password="pw")
    url = f"{broker.http_url}/api/v1"
    looked = httpx.get(f"{url}/overview", auth=("app", "pw"), trust_env=False)
    assert looked.status_code == 200
    answer = httpx.put(f"{url}/bans/user/app", json={}, auth=("root", "pw"), trust_env=False)
    assert (answer.status_code, answer.json()["by"]) == (200, "root")
    with pytest.raises(pika.exceptions.AMQPError):
        connection.channel()
    with pytest.raises(pika.exceptions.AMQPError):
        amqp.connect(broker.amqp_port, user="app", password="pw")
    assert httpx.get(f"{url}/overview", auth=("app", "pw"), trust_env=False).status_code == 401
    answer = httpx.put(f"{url}/bans/user/root", json={}, auth=("root", "pw"), trust_env=False)
    assert answer.status_code == 409


def test_bans_and_quotas_go_with_definitions(own_broker):
    old, new = own_broker({"access": {"anonymous": "loopback"}}), own_broker()
    ban(old, "client_id", "c", reason="noisy")
    ban(old, "address", "10.0.0.0/8", **{"for": "1h"})
    quotas = {"max_queues": 7, "max_retained": 9}
    httpx.put(f"{old.http_url}/api/v1/vhosts/v", json=quotas, trust_env=False).raise_for_status()
    guest = ("guest", "guest")
    document = httpx.get(f"{old.http_url}/api/definitions", auth=guest, trust_env=False).json()
    document["bans"] += [
        {"kind": "address", "value": "127.0.0.0/8"},
        {"kind": "user", "value": "u", "until_ms": 1},
        {"kind": "shoe", "value": "u"},
    ]
    url = f"{new.http_url}/api/definitions?verbose=true"
    told = httpx.post(url, json=document, auth=guest, trust_env=False).json()
    assert told["made"]["bans"] == 2
    left = [line for line in told["not_taken"] if line.startswith("bans")]
    assert left == [
        "bans: address 127.0.0.0/8: '127.0.0.0/8' is who asks for it, who could not take it back",
        "bans: shoe u: a ban has a kind (client_id, user or address) and a value",
    ]
    before, after = [
        {
            each["value"]: (each["reason"], each["until_ms"])
            for each in httpx.get(f"{broker.http_url}/api/v1/bans", trust_env=False).json()
        }
        for broker in (old, new)
    ]
    assert before.keys() == after.keys() == {"c", "10.0.0.0/8"}
    assert after["c"] == ("noisy", None)
    assert abs(after["10.0.0.0/8"][1] - before["10.0.0.0/8"][1]) <= 1_000
    shown = httpx.get(f"{new.http_url}/api/v1/vhosts/v", trust_env=False).json()
    assert (shown["max_queues"], shown["max_retained"]) == (7, 9)
