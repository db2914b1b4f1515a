"""Administration over HTTP: every subject of `/api/v1`, who may do what, and requests made up at random."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import argon2
import httpx
import pika
import pytest
import yaml

from config import limits
from tests.e2e import amqp, staging
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import MqttClient

EXAMPLES_PER_OPERATION = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 3


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20) as client:
        yield client


def test_queue_is_made_changed_purged_and_deleted(api: httpx.Client, name: str) -> None:
    made = api.put(f"/queues/{name}", json={"limits": {"max_depth": 5}, "groups": ["kitchen"]})
    assert made.status_code == 200, made.text
    assert (made.json()["policy"]["depth_max"], made.json()["groups"]) == (5, ["kitchen"])
    changed = api.put(f"/queues/{name}", json={"visibility_timeout": "7s"})
    assert changed.json()["policy"]["visibility_timeout_ms"] == 7000
    assert api.put(f"/queues/{name}", json={"type": "stream"}).status_code == 409
    assert api.put(f"/queues/{name}", json={"limit": 1}).status_code == 400
    for _ in range(3):
        assert api.post(f"/queues/{name}/messages", json={"body": "x"}).status_code == 200
    assert api.delete(f"/queues/{name}", params={"if_empty": True}).status_code == 409
    assert api.post(f"/queues/{name}/purge").json() == {"count": 3}
    assert api.delete(f"/queues/{name}", params={"if_empty": True}).json() == {"count": 0}
    assert api.get(f"/queues/{name}").status_code == 404


def test_a_setting_that_is_not_named_stays_and_null_takes_one_away(api: httpx.Client, name: str) -> None:
    api.put(f"/queues/{name}", json={"dlq": "dead", "limits": {"message_ttl": "1m"}})
    changed = api.put(f"/queues/{name}", json={"limits": {"max_depth": 7}}).json()
    assert changed["changed"] == {"limits.max_depth": {"before": 0, "after": 7}}
    policy = changed["policy"]
    assert (policy["dead_letter"], policy["message_ttl_ms"], policy["depth_max"]) == ("dead", 60_000, 7)
    policy = api.put(f"/queues/{name}", json={"dlq": None}).json()["policy"]
    assert (policy["dead_letter"], policy["depth_max"]) == ("", 7)


def test_names_of_the_broker_are_refused(broker: BrokerProcess, api: httpx.Client) -> None:
    rabbit = str(api.base_url).replace("/api/v1/", "/api")
    for refused in (
        api.put("/queues/amq.mine", json={}),
        api.put("/exchanges/amq.mine", json={"type": "direct"}),
        httpx.put(f"{rabbit}/queues/%2F/amq.mine", json={}, auth=("guest", "guest"), timeout=20),
        httpx.put(
            f"{rabbit}/exchanges/%2F/amq.mine", json={"type": "direct"}, auth=("guest", "guest"), timeout=20
        ),
    ):
        assert refused.status_code in (401, 403), refused.text
        assert "amq.*" in refused.text
    assert api.get("/queues/amq.mine").status_code == 404


def test_messages_are_published_browsed_moved_and_copied(api: httpx.Client, name: str) -> None:
    api.put(f"/queues/{name}", json={})
    api.put(f"/queues/{name}-2", json={})
    message = {
        "body": "/w==",
        "encoding": "base64",
        "headers": {"a": 1},
        "properties": {"content_type": "x/y"},
    }
    published = api.post(f"/queues/{name}/messages", json=message)
    assert published.json() == {"queues": [name]}
    api.post(f"/queues/{name}/messages", json={"body": "second"})
    page = api.get(f"/queues/{name}/messages", params={"limit": 1}).json()
    [first] = page["items"]
    assert (first["body"], first["encoding"], first["body_bytes"]) == ("/w==", "base64", 1)
    assert (first["headers"], first["properties"]) == ({"a": 1}, {"content_type": "x/y"})
    rest = api.get(f"/queues/{name}/messages", params={"after": page["next"]}).json()
    assert [each["body"] for each in rest["items"]] == ["second"]
    assert api.post(f"/queues/{name}/move", json={"to": f"{name}-2", "limit": 1}).json() == {"count": 1}
    assert api.post(f"/queues/{name}/copy", json={"to": f"{name}-2"}).json() == {"count": 1}
    assert (api.get(f"/queues/{name}").json()["ready"], api.get(f"/queues/{name}-2").json()["ready"]) == (
        1,
        2,
    )


def test_group_is_made_shown_reset_and_deleted(api: httpx.Client, name: str) -> None:
    api.put(f"/queues/{name}", json={})
    group = f"/queues/{name}/groups/vip%40eu%2F%23"  # vip@eu/#
    assert api.put(f"/queues/{name}/groups/vip", json={"pattern": "eu/#"}).status_code == 200
    assert api.put(f"/queues/{name}/groups/vip", json={"pattern": "eu/#"}).status_code == 409
    api.post(f"/queues/{name}/messages", json={"body": "x", "topic": f"$queue/{name}/eu/1"})
    assert api.get(group).json()["lag"] == 1
    assert api.post(f"{group}/reset", json={"to": "latest"}).json()["lag"] == 0
    assert [each["group_id"] for each in api.get(f"/queues/{name}/groups").json()] == ["vip@eu/#"]
    assert api.delete(group).status_code == 204
    assert api.get(group).status_code == 404


def test_failed_message_is_listed_with_its_group_and_tried_again(
    api: httpx.Client, channel: amqp.BlockingChannel, name: str
) -> None:
    api.put(f"/queues/{name}", json={})
    api.post(f"/queues/{name}/messages", json={"body": "bad"})
    method, _, _ = channel.basic_get(name)
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.connection.process_data_events(0)
    [failed] = api.get(f"/queues/{name}/messages", params={"state": "failed", "group": ""}).json()["items"]
    assert (failed["body"], failed["attempts"]) == ("bad", 1)
    assert api.post(f"/queues/{name}/redrive", json={"offsets": [failed["offset"]]}).json() == {"count": 1}
    assert api.get(f"/queues/{name}").json()["ready"] == 1


def test_scheduled_message_is_cancelled(api: httpx.Client, channel: amqp.BlockingChannel, queue: str) -> None:
    headers = pika.BasicProperties(headers={"x-delay": 600_000})
    channel.basic_publish("", queue, b"later", headers)
    [item] = api.get(f"/queues/{queue}/messages", params={"state": "scheduled"}).json()["items"]
    path = f"/queues/{queue}/scheduled/{item['message_id'].replace('/', '%2F')}"
    assert api.delete(path).status_code == 204
    assert api.delete(path).status_code == 404


def test_exchange_is_declared_bound_and_deleted(
    api: httpx.Client, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    assert api.put(f"/exchanges/x-{name}", json={"type": "topic"}).status_code == 204
    assert api.put(f"/exchanges/x-{name}", json={"type": "fanout"}).status_code == 409
    binding = {"source": f"x-{name}", "destination": queue, "routing_key": "a.*"}
    assert api.post("/bindings", json=binding).status_code == 204
    [found] = api.get("/bindings", params={"source": f"x-{name}"}).json()
    assert (found["destination"], found["routing_key"]) == (queue, "a.*")
    assert api.delete(f"/exchanges/x-{name}", params={"if_unused": True}).status_code == 409
    assert api.post("/bindings/remove", json=binding).status_code == 204
    assert api.delete(f"/exchanges/x-{name}", params={"if_unused": True}).status_code == 204


def test_connection_is_listed_with_its_consumers_and_closed(
    api: httpx.Client, broker: BrokerProcess, queue: str
) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port))
    connection.channel().basic_consume(queue, lambda *_: None)
    found = None
    after = 0
    while after is not None:
        page = api.get("/connections", params={"after": after, "limit": 1}).json()
        for each in page["items"]:
            for channel in each["description"]["channels"]:
                found = each if any(c["queue"] == queue for c in channel["consumers"]) else found
        after = page["next"]
    assert found is not None
    assert api.get(f"/connections/{found['id']}").json()["peer"] == found["peer"]
    assert api.delete(f"/connections/{found['id']}", params={"reason": "go away"}).status_code == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="go away"):
        connection.process_data_events(time_limit=10)
    assert api.delete("/connections/999999").status_code == 404


def test_sessions_are_listed_with_what_waits_for_them(
    own_broker: Callable[..., BrokerProcess], mqtt: Callable[..., MqttClient]
) -> None:
    broker = own_broker()
    for client_id in ("c", "a", "b"):
        client = mqtt(broker, client_id=client_id, clean=False, SessionExpiryInterval=600)
        client.subscribe("lamps/#", qos=1)
        if client_id != "b":
            client.disconnect()
    mqtt(broker).publish("lamps/1", b"on!", qos=1)
    with httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20) as api:
        page = api.get("/sessions", params={"limit": 2}).json()
        rest = api.get("/sessions", params={"after": page["next"]}).json()
        away = api.get("/sessions", params={"away": True}).json()
    assert [each["client_id"] for each in page["items"] + rest["items"]] == ["a", "b", "c"]
    assert (page["total"], rest["next"]) == (3, None)
    assert [each["client_id"] for each in away["items"]] == ["a", "c"]
    first, second = page["items"]
    assert (first["connected"], first["subscriptions"], first["dropped"]) == (False, 1, 0)
    assert (first["queued"], first["queued_bytes"]) == (1, 3)
    assert first["expires_at_ms"] > time.time() * 1000
    assert (second["connected"], second["expires_at_ms"]) == (True, None)


def test_retained_messages_are_listed_by_topic_filter(
    api: httpx.Client, mqtt: Callable[..., MqttClient], name: str
) -> None:
    client = mqtt()
    client.publish(f"{name}/b/x", b"four", qos=1, retain=True, MessageExpiryInterval=600)
    client.publish(f"{name}/a/x", b"1", qos=0, retain=True)
    client.publish(f"{name}/a/y", b"1", qos=1, retain=True)
    page = api.get("/retained", params={"filter": f"{name}/+/x", "limit": 1}).json()
    rest = api.get("/retained", params={"filter": f"{name}/+/x", "after": page["next"]}).json()
    assert (page["total"], rest["total"], rest["next"]) == (2, 2, None)
    first, second = page["items"] + rest["items"]
    assert (first["topic"], first["qos"], first["body_bytes"]) == (f"{name}/a/x", 0, 1)
    assert (second["topic"], second["qos"], second["body_bytes"]) == (f"{name}/b/x", 1, 4)
    assert first["expires_at_ms"] is None
    assert second["expires_at_ms"] == second["received_at_ms"] + 600_000
    assert api.get("/retained", params={"filter": "a/#/b"}).status_code == 400


def test_staged_epochs_are_listed_by_producer(
    api: httpx.Client, channel: amqp.BlockingChannel, queue: str
) -> None:
    assert api.get(f"/queues/{queue}/epochs").json() == {"items": [], "total": 0, "next": None}
    staging.stage(channel, queue, "x", "y", producer="p1", epoch=3)
    staging.commit(channel, queue, (0, "a", 2), producer="p1", epoch=3)
    staging.stage(channel, queue, "abc", producer="p2")
    staging.stage(channel, queue, "abc", producer="p2", attempt="b")
    page = api.get(f"/queues/{queue}/epochs", params={"limit": 1}).json()
    rest = api.get(f"/queues/{queue}/epochs", params={"after": page["next"]}).json()
    [first], [second] = page["items"], rest["items"]
    assert (first["producer"], first["epoch"], first["row_count"]) == ("p1", 3, 2)
    assert (second["producer"], second["epoch"], second["committed_at_ms"]) == ("p2", None, None)
    assert (second["staged_attempts"], second["staged_rows"], second["staged_bytes"]) == (2, 2, 6)
    assert api.get("/queues/nobody/epochs").status_code == 404


def test_configuration_is_shown_and_checked(api: httpx.Client) -> None:
    assert api.get("/configuration").json()["queue_manager"]["auto_create"] is True
    wrong = {"text": "log: {level: loud}\nqueue: []\n"}
    problems = api.post("/configuration/check", json=wrong).json()["problems"]
    assert len(problems) == 2
    assert "log.level" in problems[0]
    assert api.post("/configuration/check", json={"text": "log: {level: info}"}).json() == {"problems": []}


def test_large_or_exploding_configuration_is_not_checked_to_its_end(api: httpx.Client) -> None:
    large = {"text": "#" * limits.CONFIG_CHECK_BYTES_MAX + "\n"}
    assert "sluicemq config check" in api.post("/configuration/check", json=large).json()["problems"][0]
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for level in range(1, 9):
        bomb += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    [problem] = api.post("/configuration/check", json={"text": bomb}).json()["problems"]
    assert f"more than {limits.CONFIG_ALIASED_VALUES_MAX} values by aliases" in problem


def test_readiness_waits_for_the_store(api: httpx.Client) -> None:
    assert api.get("/ready").json() == {"status": "ok"}


def test_users_may_do_what_their_permissions_and_tags_say(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    worker = {"vhost": "/", "configure": "", "write": "^out$", "read": "^in$"}
    users = [
        {"name": "worker", "password": hashed, "permissions": [worker]},
        {"name": "watcher", "password": hashed, "tags": ["monitoring"], "permissions": [{"vhost": "/"}]},
        {"name": "boss", "password": hashed, "tags": ["administrator"], "permissions": [{"vhost": "/"}]},
    ]
    path = tmp_path / "users.yaml"
    path.write_text(yaml.safe_dump({"users": users}))
    access = {"users_file": str(path), "anonymous": "never"}
    config = {"access": access, "queues": [{"name": "in"}, {"name": "out"}]}
    broker = own_broker(config)
    table = [
        # method, path, body, statuses of: nobody, worker, watcher, boss
        ("GET", "/api/v1/health", None, (200, 200, 200, 200)),
        ("GET", "/api/v1/overview", None, (401, 403, 200, 200)),
        ("GET", "/metrics", None, (401, 403, 200, 200)),
        ("GET", "/", None, (401, 403, 200, 200)),
        ("GET", "/api/v1/queues/in/messages", None, (401, 200, 200, 200)),
        ("GET", "/api/v1/queues/out/messages", None, (401, 403, 200, 200)),
        ("POST", "/api/v1/queues/out/messages", {"body": "x"}, (401, 200, 403, 200)),
        ("POST", "/api/v1/queues/in/messages", {"body": "x"}, (401, 403, 403, 200)),
        ("POST", "/api/v1/queues/in/move", {"to": "out"}, (401, 200, 403, 200)),
        ("POST", "/api/v1/queues/out/move", {"to": "in"}, (401, 403, 403, 200)),
        ("PUT", "/api/v1/queues/new", {}, (401, 403, 403, 200)),
        ("PUT", "/api/v1/exchanges/new", {}, (401, 403, 403, 204)),
        ("DELETE", "/api/v1/connections/1", None, (401, 403, 403, 404)),
        ("GET", "/api/v1/sessions", None, (401, 403, 200, 200)),
        ("GET", "/api/v1/users", None, (401, 403, 403, 200)),
        ("PUT", "/api/v1/users/boss", {}, (401, 403, 403, 200)),
        ("DELETE", "/api/v1/users/new", None, (401, 403, 403, 404)),
        ("GET", "/users", None, (401, 403, 403, 200)),
        ("GET", "/api/v1/configuration", None, (401, 403, 200, 200)),
        ("POST", "/api/v1/configuration/reload", None, (401, 403, 403, 200)),
        ("GET", "/api/overview", None, (401, 401, 200, 200)),
        ("GET", "/api/definitions", None, (401, 401, 401, 200)),
    ]
    with httpx.Client(base_url=broker.http_url, trust_env=False, timeout=20) as client:
        for method, target, body, wanted in table:
            statuses = []
            for user in (None, "worker", "watcher", "boss"):
                auth = None if user is None else (user, "secret")
                answer = client.request(method, target, json=body, auth=auth)
                statuses.append(answer.status_code)
            assert tuple(statuses) == wanted, (method, target)
        first = client.get("/api/v1/users", params={"limit": 2}, auth=("boss", "secret"))
        page = first.json()
        assert ([user["name"] for user in page["items"]], page["total"]) == (["boss", "watcher"], 3)
        rest = client.get("/api/v1/users", params={"after": page["next"]}, auth=("boss", "secret")).json()
        assert (rest["items"][0]["permissions"][0]["write"], rest["next"]) == ("^out$", None)
        shown = first.text + client.get("/users", auth=("boss", "secret")).text
        assert "argon2" not in shown


def test_accounts_are_made_changed_and_removed_at_once_and_kept_in_the_users_file(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    hashed = argon2.PasswordHasher(time_cost=1, memory_cost=1024).hash("secret")
    path = tmp_path / "users.yaml"
    boss_account = {
        "name": "boss",
        "password": hashed,
        "tags": ["administrator"],
        "permissions": [{"vhost": "/"}],
    }
    path.write_text(yaml.safe_dump({"users": [boss_account]}))
    broker = own_broker({"access": {"users_file": str(path), "anonymous": "never"}})
    boss, reader = ("boss", "secret"), ("reader", "a b\u00fc")

    def overview(auth: tuple[str, str]) -> int:
        return client.get("/overview", auth=auth).status_code

    with httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20) as client:
        account = {
            "password": reader[1],
            "scram": True,
            "tags": ["monitoring"],
            "permissions": [{"read": "^in"}],
        }
        made = client.put("/users/reader", json=account, auth=boss)
        assert made.status_code == 200, made.text
        assert (made.json()["tags"], made.json()["permissions"][0]["read"]) == (["monitoring"], "^in")
        assert client.get("/users/reader", auth=boss).json() == made.json()
        assert overview(reader) == 200
        changed = client.put("/users/reader", json={"tags": [], "max_connections": 3}, auth=boss).json()
        assert (changed["tags"], changed["max_connections"]) == ([], 3)
        assert changed["permissions"] == made.json()["permissions"]
        assert overview(reader) == 403
        for body, status in (
            ({"permissions": [{"read": "("}]}, 400),
            ({"permissions": [{}, {}]}, 400),
            ({"tags": ["king"]}, 400),
            ({"scram": True}, 400),
            ({"password": ""}, 400),
            ({"hash": "x"}, 400),
        ):
            refused = client.put("/users/reader", json=body, auth=boss)
            assert refused.status_code == status, body
        assert client.put("/users/boss", json={"tags": []}, auth=boss).status_code == 409
        assert client.delete("/users/boss", auth=boss).status_code == 409
        assert client.put("/users/boss", json={"password": "other"}, auth=boss).status_code == 200
        assert overview(boss) == 401
        boss = ("boss", "other")
        broker.restart(kill=True)
    with httpx.Client(base_url=f"{broker.http_url}/api/v1", trust_env=False, timeout=20) as client:
        assert client.get("/users/reader", auth=boss).json() == changed
        assert client.delete("/users/reader", auth=reader).status_code == 403
        assert client.delete("/users/reader", auth=boss).status_code == 204
        assert client.delete("/users/reader", auth=boss).status_code == 404
        assert overview(reader) == 401
    assert path.stat().st_mode & 0o777 == 0o600
    assert "a b\u00fc" not in path.read_text() + broker.log


def test_accounts_are_refused_where_there_is_no_users_file(api: httpx.Client) -> None:
    refused = api.put("/users/reader", json={"password": "secret"})
    assert (refused.status_code, "access.users_file" in refused.text) == (400, True)
    assert api.delete("/users/reader").status_code == 404


@pytest.mark.timeout(110)
@pytest.mark.parametrize("which", ["http", "mqcore"])
def test_requests_made_up_at_random_are_answered_as_documented(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, which: str
) -> None:
    broker = own_broker({"queues": [{"name": "q"}]}, arguments=["--mqcore", "0"])
    document = "/api/v1/openapi.json" if which == "http" else "/"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{broker.ports[which]}{document}",
            "--checks=not_a_server_error,status_code_conformance,content_type_conformance,"
            "response_schema_conformance",
            *(
                f"--max-examples={EXAMPLES_PER_OPERATION}",
                "--phases=fuzzing",
                "--seed=1",
                "--request-timeout=20",
                "--no-color",
            ),
            "--exclude-operation-id=fetch_message",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert broker.alive
    assert "internal_error" not in broker.log
