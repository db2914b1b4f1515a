"""Shovels: messages moved between brokers, or queues of one, as long as a parameter says so. Against
RabbitMQ 4.3.6 at either end it was tried by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
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
from tests.e2e.broker_process import BrokerProcess
from tests.waiting import until

pytestmark = pytest.mark.timeout(180)

MakeBroker = Callable[..., BrokerProcess]
Connect = Callable[..., pika.BlockingConnection]
GUEST = ("guest", "guest")


def put(
    broker: BrokerProcess,
    name: str,
    value: dict[str, Any],
    *,
    login: tuple[str, str] = GUEST,
    component: str = "shovel",
) -> httpx.Response:
    url = f"{broker.http_url}/api/parameters/{component}/%2F/{name}"
    return httpx.put(url, json={"value": value}, auth=login, trust_env=False)


def states(broker: BrokerProcess) -> dict[str, dict[str, Any]]:
    found = httpx.get(f"{broker.http_url}/api/v1/links", trust_env=False).json()
    return {each["name"]: each for each in found}


def get(broker: BrokerProcess, path: str, **more: Any) -> httpx.Response:
    return httpx.get(broker.http_url + path, auth=more.pop("login", GUEST), trust_env=False, **more)


def parameter_names(broker: BrokerProcess) -> list[str]:
    return [each["name"] for each in get(broker, "/api/parameters/shovel").json()]


def confirming(connect: Connect, to: BrokerProcess) -> amqp.BlockingChannel:
    channel = connect(to).channel()
    channel.confirm_delivery()
    return channel


def drained(channel: amqp.BlockingChannel, queue: str, count: int) -> list[amqp.Delivery]:
    """What a queue has, once that are so many."""

    def length() -> int:
        return int(channel.queue_declare(queue, passive=True).method.message_count)

    until(lambda: length() >= count, told=length)
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(amqp.Delivery(*got))
    return found


def test_a_shovel_moves_what_is_there_and_what_comes_with_all_properties(
    own_broker: MakeBroker, amqp_connect: Connect
) -> None:
    old, new = own_broker(), own_broker()
    there, here = confirming(amqp_connect, old), confirming(amqp_connect, new)
    there.queue_declare("work", durable=True)
    here.queue_declare("in", durable=True)
    properties = pika.BasicProperties(
        headers={"n": -5, "deep": {"a": [1, "x", None]}},
        message_id="m1",
        priority=3,
        delivery_mode=2,
        user_id="guest",
    )
    there.basic_publish("", "work", b"first", properties)
    value = {
        "src-uri": f"amqp://guest:guest@127.0.0.1:{old.amqp_port}",
        "src-queue": "work",
        "dest-uri": "amqp://",
        "dest-queue": "in",
    }
    assert put(new, "s", value).status_code == 201
    for number in range(100):
        there.basic_publish("", "work", b"%d" % number)
    there.basic_publish("", "work", b"large" * 100_000)
    first, *rest = drained(here, "in", 102)
    assert first.headers.pop("x-original-user-id") == "guest"
    properties.user_id = None
    assert (first.properties, first.body) == (properties, b"first")
    assert [each.body for each in rest] == [*[b"%d" % n for n in range(100)], b"large" * 100_000]
    until(lambda: there.queue_declare("work", passive=True).method.message_count == 0)

    (shown,) = get(new, "/api/shovels").json()
    assert (shown["name"], shown["state"], shown["forwarded"]) == ("s", "running", 102)
    assert (shown["src_queue"], shown["dest_queue"], shown["src_uri"]) == (
        "work",
        "in",
        f"amqp://127.0.0.1:{old.amqp_port}",
    )
    # as RabbitMQ: Terraform compares it with what it would set
    told = get(new, "/api/parameters/shovel/%2F/s").json()
    assert told["value"]["src-uri"] == f"amqp://guest:guest@127.0.0.1:{old.amqp_port}"
    told = get(new, "/api/v1/parameters/shovel/s").json()
    assert told["value"]["src-uri"] == f"amqp://guest:***@127.0.0.1:{old.amqp_port}"
    for path in ("/api/parameters", "/api/v1/parameters/shovel", "/links", "/api/v1/links"):
        assert "guest:guest" not in get(new, path).text
    assert "guest:guest" not in new.log
    assert 'sluicemq_link_up{component="shovel",vhost="/",name="s"} 1\n' in get(new, "/metrics").text
    assert 'sluicemq_link_messages_total{component="shovel",vhost="/",name="s"} 102' in (
        get(new, "/metrics").text
    )
    assert put(new, "s", {**told["value"]}).status_code == 400  # *** is no password
    url = f"{new.http_url}/api/shovels/vhost/%2F/s"
    assert httpx.delete(url, auth=GUEST, trust_env=False).status_code == 204
    assert states(new) == {}
    there.basic_publish("", "work", b"stays")
    assert drained(there, "work", 1)[0].body == b"stays"


@pytest.mark.parametrize("killed", ["source", "target"])
def test_nothing_is_lost_when_either_broker_is_killed(
    own_broker: MakeBroker, amqp_connect: Connect, killed: str
) -> None:
    source, target = own_broker(), own_broker()
    channel = confirming(amqp_connect, source)
    channel.queue_declare("work", durable=True)
    confirming(amqp_connect, target).queue_declare("in", durable=True)
    other = {"source": target, "target": source}[killed]  # runs the shovel in turn
    victim = {"source": source, "target": target}[killed]
    uri = f"amqp://127.0.0.1:{victim.amqp_port}"
    value = {"src-uri": uri if killed == "source" else "amqp://", "src-queue": "work"}
    value |= {"dest-uri": uri if killed == "target" else "amqp://", "dest-queue": "in"}
    count = 4_000
    for number in range(count):
        channel.basic_publish("", "work", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    assert put(other, "s", {**value, "reconnect-delay": 0.2}).status_code == 201
    until(lambda: states(other)["s"]["moved"] > 0)
    victim.kill9()
    assert states(other)["s"]["moved"] < count
    victim.ports_wanted = dict(victim.ports)
    victim.start()
    until(lambda: states(other)["s"]["state"] == "running" and states(other)["s"]["restarts"])
    here = amqp_connect(target).channel()
    found: set[bytes] = set()

    def all_there() -> bool:
        while (got := here.basic_get("in", auto_ack=True))[0] is not None:
            found.add(got[2])
        return len(found) == count

    until(all_there, told=lambda: len(found))


def test_nothing_is_lost_when_the_broker_of_the_shovel_is_killed(
    own_broker: MakeBroker, amqp_connect: Connect
) -> None:
    broker = own_broker()
    channel = confirming(amqp_connect, broker)
    count = 2_000
    for queue in ("a", "b"):
        channel.queue_declare(queue, durable=True)
    for number in range(count):
        channel.basic_publish("", "a", b"%d" % number)
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    assert put(broker, "s", {**value, "prefetch-count": 20}).status_code == 201
    until(lambda: states(broker)["s"]["moved"] > 100)
    broker.kill9()
    broker.start()
    bodies = {each.body for each in drained(confirming(amqp_connect, broker), "b", count)}
    assert len(bodies) == count


def test_a_shovel_ends_with_what_was_there_or_after_a_number(
    own_broker: MakeBroker, amqp_connect: Connect
) -> None:
    broker = own_broker()
    channel = confirming(amqp_connect, broker)
    for queue in ("a", "b", "c", "d"):
        channel.queue_declare(queue, durable=True)
    for number in range(30):
        channel.basic_publish("", "a", b"%d" % number)
        channel.basic_publish("", "c", b"%d" % number)
    here = {"src-uri": "amqp://", "dest-uri": "amqp://"}
    put(broker, "all", {**here, "src-queue": "a", "dest-queue": "b", "src-delete-after": "queue-length"})
    put(broker, "some", {**here, "src-queue": "c", "dest-queue": "d", "src-delete-after": 7})
    until(lambda: not parameter_names(broker))
    assert [each.body for each in drained(channel, "b", 30)] == [b"%d" % n for n in range(30)]
    assert [each.body for each in drained(channel, "d", 7)] == [b"%d" % n for n in range(7)]
    assert [each.body for each in drained(channel, "c", 23)] == [b"%d" % n for n in range(7, 30)]
    broker.kill9()
    broker.start()
    assert parameter_names(broker) == []


def test_an_exchange_goes_to_an_exchange_with_headers_and_properties_set(
    own_broker: MakeBroker, amqp_connect: Connect
) -> None:
    broker = own_broker()
    channel = confirming(amqp_connect, broker)
    channel.queue_declare("out", durable=True)
    channel.queue_bind("out", "amq.topic", "a.#")
    value = {
        "src-uri": "amqp://",
        "src-exchange": "amq.fanout",
        "dest-uri": "amqp://",
        "dest-exchange": "amq.topic",
        "add-forward-headers": True,
        "add-timestamp-header": True,
        "dest-publish-properties": {"content_type": "x/y", "delivery_mode": 2},
        "ack-mode": "on-publish",
    }
    assert put(broker, "s", value).status_code == 201
    until(lambda: states(broker)["s"]["state"] == "running")
    channel.basic_publish("amq.fanout", "a.b", b"x", pika.BasicProperties(headers={"k": 1}))
    (got,) = drained(channel, "out", 1)
    assert (got.method.exchange, got.method.routing_key) == ("amq.topic", "a.b")
    assert (got.properties.content_type, got.properties.delivery_mode) == ("x/y", 2)
    assert got.headers.pop("x-shovelled-timestamp") > 1_700_000_000
    (hop,) = got.headers.pop("x-shovelled")
    assert got.headers == {"k": 1}
    assert hop.pop("shovelled-by")
    assert hop == {
        "shovel-type": "dynamic",
        "shovel-name": "s",
        "shovel-vhost": "/",
        "src-uri": "amqp://",
        "src-exchange": "amq.fanout",
        "dest-uri": "amqp://",
        "dest-exchange": "amq.topic",
    }


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "Must specify 'src-exchange' or 'src-queue'\nKey"),
        ({"src-uri": "x", "dest-uri": "amqp://", "src-queue": "q"}, "not a valid URI"),
        (
            {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "foo": 1},
            "Unrecognised term foo",
        ),
        (
            {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "src-exchange": "e"},
            "Cannot specify 'src-exchange' and 'src-queue'",
        ),
        (
            {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-protocol": "amqp10"},
            "dest-protocol should be one of [amqp091], actually was 'amqp10'",
        ),
        (
            {
                "src-uri": "amqp://u:secret@h?x=1",
                "dest-uri": "amqp://",
                "src-queue": "q",
                "prefetch-count": "a",
            },
            "prefetch-count should be a number, actually was 'a'",
        ),
    ],
)
def test_a_shovel_that_cannot_be_is_refused_with_its_reason(
    broker: BrokerProcess, value: dict[str, Any], told: str
) -> None:
    answer = put(broker, "bad", value)
    assert answer.status_code == 400
    problems = answer.json()["reason"].split("\n")
    assert problems[0] == "Validation failed"
    assert told.split("\n")[0] in answer.json()["reason"]
    assert "secret" not in answer.text
    assert put(broker, "bad", value, component="nonsense").status_code == 400


def test_only_policymakers_make_shovels_and_only_to_what_they_may_use(
    own_broker: MakeBroker, tmp_path: Any
) -> None:
    hash_of = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash
    mine = [{"vhost": "/", "configure": "^my", "write": "^my", "read": "^my"}]
    users = [
        {"name": "maker", "password": hash_of("maker"), "tags": ["policymaker"], "permissions": mine},
        {"name": "clerk", "password": hash_of("clerk"), "tags": ["management"], "permissions": mine},
    ]
    path = tmp_path / "users.yaml"
    save_users(path, UsersSettings.model_validate({"users": users}))
    broker = own_broker({"access": {"users_file": str(path)}})
    here = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "my-a"}
    assert put(broker, "s", {**here, "dest-queue": "my-b"}, login=("clerk", "clerk")).status_code == 401
    refused = put(broker, "s", {**here, "dest-queue": "others"}, login=("maker", "maker"))
    assert refused.status_code == 401
    assert "access to queue 'others' in vhost '/' refused for user 'maker'" in refused.json()["reason"]
    assert put(broker, "s", here, login=("maker", "maker")).status_code == 401
    assert put(broker, "s", {**here, "dest-queue": "my-b"}, login=("maker", "maker")).status_code == 201
    until(lambda: "kind=shovel" in broker.log and "link.running" in broker.log)


def test_shovels_come_and_go_with_the_command_definitions_and_virtual_hosts(
    own_broker: MakeBroker,
) -> None:
    broker, other = own_broker(), own_broker()

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["shovel", *arguments, "--url", broker.http_url])
        assert done.exit_code == 0, done.output
        return done.stdout

    login = "amqp://u:secret@127.0.0.1:1"
    assert run("add", "s", f"src-uri={login}", "src-queue=a", "dest-uri=amqp://", "dest-queue=b")
    (shown,) = json.loads(run("ls", "--json"))
    assert shown["value"]["src-uri"] == "amqp://u:***@127.0.0.1:1"
    until(lambda: states(broker)["s"]["reason"])
    assert "secret" not in run("ls")
    document = get(broker, "/api/definitions").json()
    (entry,) = document["parameters"]
    assert (entry["component"], entry["value"]["src-uri"]) == ("shovel", login)
    answer = httpx.post(
        f"{other.http_url}/api/definitions?verbose=true", json=document, auth=GUEST, trust_env=False
    )
    assert answer.json()["made"]["parameters"] == 1
    assert get(other, "/api/definitions").json()["parameters"] == document["parameters"]
    assert run("rm", "s")
    assert json.loads(run("ls", "--json")) == []

    api = f"{other.http_url}/api"
    httpx.put(f"{api}/vhosts/v", json={}, auth=GUEST, trust_env=False).raise_for_status()
    value = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
    within = f"{api}/parameters/shovel/v/in-it"
    httpx.put(within, json={"value": value}, auth=GUEST, trust_env=False).raise_for_status()
    until(lambda: [each["state"] for each in get(other, "/api/v1/vhosts/v/links").json()] == ["running"])
    assert get(other, "/api/v1/vhosts/v/queues/b").status_code == 200
    httpx.delete(f"{api}/vhosts/v", auth=GUEST, trust_env=False).raise_for_status()
    assert parameter_names(other) == ["s"]
