"""Policies and operators' policies: they hold at once, for what is there and what comes, over a crash."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from typer.testing import CliRunner

from broker.cli import app
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerFailed, BrokerProcess
from tests.e2e.raw_mqtt import RawMqtt
from tests.waiting import until

Put = Callable[..., httpx.Response]


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"{broker.http_url}/api", auth=("guest", "guest"), trust_env=False) as client:
        yield client


@pytest.fixture
def put(api: httpx.Client, name: str) -> Iterator[Put]:
    """Sets policies for what has the test's name, which are gone after it: `put({"max-length": 1})`."""
    made: list[str] = []

    def set_policy(
        definition: dict[str, Any], *, operator: bool = False, called: str = "p", **entry: Any
    ) -> httpx.Response:
        path = f"{'operator-policies' if operator else 'policies'}/%2F/{name}-{called}"
        made.append(path)
        return api.put(path, json={"pattern": f"^{name}", "definition": definition, **entry})

    yield set_policy
    for path in dict.fromkeys(made):
        api.delete(path)


def shown(api: httpx.Client, queue: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/queues/%2F/{queue}").json()
    return found


def is_full(channel: amqp.BlockingChannel, queue: str) -> bool:
    try:
        channel.basic_publish("", queue, b"x")
    except pika.exceptions.NackError:
        return True
    return False


def test_a_policy_holds_at_once_for_queues_there_and_to_come_and_no_more_when_deleted(
    api: httpx.Client, put: Put, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.confirm_delivery()
    channel.queue_declare(f"{name}-old", durable=True)
    assert not is_full(channel, f"{name}-old")
    assert put({"max-length": 1, "overflow": "reject-publish"}).status_code == 201
    channel.queue_declare(f"{name}-new", durable=True)
    assert not is_full(channel, f"{name}-new")
    for queue in (f"{name}-old", f"{name}-new"):
        assert is_full(channel, queue)
        found = shown(api, queue)
        assert (found["policy"], found["operator_policy"]) == (f"{name}-p", None)
        assert found["effective_policy_definition"] == {"max-length": 1, "overflow": "reject-publish"}
        assert found["arguments"] == {}
        channel.queue_declare(queue, durable=True)  # nobody need know of it
    assert put({"max-length": 2, "overflow": "reject-publish"}).status_code == 204
    assert [is_full(channel, f"{name}-old") for _ in range(2)] == [False, True]
    assert api.delete(f"/policies/%2F/{name}-p").status_code == 204
    assert not is_full(channel, f"{name}-old")
    assert shown(api, f"{name}-old")["policy"] is None
    for queue in (f"{name}-old", f"{name}-new"):
        channel.queue_delete(queue)


@pytest.mark.parametrize(
    ("declared", "policy", "operator", "most"),
    [
        (None, 3, None, 3),
        (2, 3, None, 2),
        (4, 3, None, 3),
        (None, 3, 2, 2),
        (None, 2, 3, 2),
        (4, None, 2, 2),
        (1, 3, 2, 1),
        (None, 0, 2, 0),
    ],
)
def test_the_smallest_bound_holds(
    put: Put,
    channel: amqp.BlockingChannel,
    name: str,
    declared: int | None,
    policy: int | None,
    operator: int | None,
    most: int,
) -> None:
    arguments: dict[str, Any] = {} if declared is None else {"x-max-length": declared}
    channel.queue_declare(name, durable=True, arguments=arguments)
    if policy is not None:
        put({"max-length": policy})
    if operator is not None:
        put({"max-length": operator}, operator=True)
    channel.confirm_delivery()
    for number in range(6):
        channel.basic_publish("", name, str(number))
    kept = [got.body.decode() for _ in range(most) if (got := amqp.get(channel, name))]
    assert (kept, amqp.get(channel, name)) == ([str(number) for number in range(6 - most, 6)], None)
    channel.queue_delete(name)


def test_the_policy_of_the_highest_priority_that_is_for_the_type_holds_alone(
    api: httpx.Client, put: Put, channel: amqp.BlockingChannel, name: str
) -> None:
    for kind in ("classic", "quorum", "stream"):
        channel.queue_declare(f"{name}-{kind}", durable=True, arguments={"x-queue-type": kind})
    put({"max-length": 9}, called="all", priority=0)
    put({"message-ttl": 60_000}, called="quorum", priority=5, **{"apply-to": "quorum_queues"})
    put({"max-age": "1D"}, called="stream", priority=5, **{"apply-to": "streams"})
    put({"max-length": 1}, called="other", priority=9, **{"apply-to": "exchanges"})
    found = {kind: shown(api, f"{name}-{kind}") for kind in ("classic", "quorum", "stream")}
    assert {kind: each["effective_policy_definition"] for kind, each in found.items()} == {
        "classic": {"max-length": 9},
        "quorum": {"message-ttl": 60_000},
        "stream": {"max-age": "1D"},
    }
    settings = api.get(f"/v1/queues/{name}-stream").json()["policy"]
    assert settings["retention_age_ms"] == 86_400_000
    for kind in ("classic", "quorum", "stream"):
        channel.queue_delete(f"{name}-{kind}")


def test_what_was_declared_comes_before_a_policy_where_it_is_no_bound(
    put: Put, channel: amqp.BlockingChannel, name: str
) -> None:
    to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-mine"}
    for queue, arguments in (
        (f"{name}-mine", {}),
        (f"{name}-theirs", {}),
        (f"{name}-a", to),
        (f"{name}-b", {}),
    ):
        channel.queue_declare(queue, durable=True, arguments=arguments)
    put({"dead-letter-exchange": "", "dead-letter-routing-key": f"{name}-theirs"}, pattern=f"^{name}-[ab]$")
    for queue in (f"{name}-a", f"{name}-b"):
        amqp.publish(channel, queue, queue)
        channel.basic_reject(channel.basic_get(queue)[0].delivery_tag, requeue=False)
    for queue, body in ((f"{name}-mine", f"{name}-a"), (f"{name}-theirs", f"{name}-b")):
        got = until(lambda queue=queue: amqp.get(channel, queue))  # type: ignore[misc]
        assert got.body.decode() == body
    for queue in ("mine", "theirs", "a", "b"):
        channel.queue_delete(f"{name}-{queue}")


def test_a_policy_gives_the_delivery_limit_of_a_quorum_queue(
    put: Put, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    put({"delivery-limit": 25})
    amqp.publish(channel, name, "x")
    for _ in range(26):
        channel.basic_reject(channel.basic_get(name)[0].delivery_tag)
    assert amqp.get(channel, name) is None
    channel.queue_delete(name)


def test_a_policy_gives_an_exchange_its_alternate(
    api: httpx.Client, put: Put, channel: amqp.BlockingChannel, queue: str, name: str
) -> None:
    channel.exchange_declare(f"{name}-x", "direct", durable=True)
    channel.exchange_declare("left-of-policies", "fanout")
    channel.queue_bind(queue, "left-of-policies")
    put({"alternate-exchange": "left-of-policies"}, pattern=f"^{name}-x$")
    channel.basic_publish(f"{name}-x", "nowhere", b"left")
    assert amqp.get(channel, queue).body == b"left"  # type: ignore[union-attr]
    assert api.get(f"/exchanges/%2F/{name}-x").json()["policy"] == f"{name}-p"
    for exchange in (f"{name}-x", "left-of-policies"):
        channel.exchange_delete(exchange)


def test_policies_are_there_after_a_crash_and_are_not_written_into_queues(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    place = {"base_url": f"{broker.http_url}/api", "auth": ("guest", "guest"), "trust_env": False}
    with httpx.Client(**place) as api:  # type: ignore[arg-type]
        connection = amqp.connect(broker.amqp_port)
        connection.channel().queue_declare("jobs", durable=True)
        entry = {"pattern": "^jobs", "definition": {"max-length": 1, "overflow": "reject-publish"}}
        assert api.put("/policies/%2F/p", json=entry).status_code == 201
        assert api.put("/v1/queues/jobs", json={"description": "work"}).is_success
        broker.kill9()
        broker.start()
    place["base_url"] = f"{broker.http_url}/api"
    with httpx.Client(**place) as api:  # type: ignore[arg-type]
        channel = amqp.connect(broker.amqp_port).channel()
        channel.confirm_delivery()
        assert [is_full(channel, "jobs") for _ in range(2)] == [False, True]
        assert api.get("/policies").json()[0]["definition"] == entry["definition"]
        assert api.delete("/policies/%2F/p").status_code == 204
        assert not is_full(channel, "jobs")


def test_definitions_take_policies_and_give_them_back(api: httpx.Client, put: Put, name: str) -> None:
    put({"max-length": 1, "dead-letter-exchange": "x"}, priority=3)
    put({"max-length": 7}, operator=True)
    exported = api.get("/definitions").json()
    kinds = ("policies", "parameters")
    mine = {kind: [each for each in exported[kind] if each["name"] == f"{name}-p"] for kind in kinds}
    assert mine["policies"][0]["definition"] == {"max-length": 1, "dead-letter-exchange": "x"}
    assert mine["parameters"][0]["component"] == "operator_policy"
    for kind in ("policies", "operator-policies"):
        assert api.delete(f"/{kind}/%2F/{name}-p").status_code == 204
    assert api.post("/definitions", json=mine).status_code == 204
    again = api.get("/definitions").json()
    assert {kind: [each for each in again[kind] if each["name"] == f"{name}-p"] for kind in kinds} == mine


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"pattern": "("}, "pattern should be regex"),
        ({"definition": {"nope": 1}}, "[nope] are not recognised policy settings"),
        ({"definition": {"max-length": "x"}}, "max-length"),
        ({"definition": {"dead-letter-routing-key": "x"}}, "dead-letter-routing-key"),
        ({"definition": {}}, "definition"),
        ({"priority": "x"}, "priority should be a number"),
        ({"apply-to": "zz"}, "apply-to 'zz' unrecognised"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(
    api: httpx.Client, name: str, entry: dict[str, Any], reason: str
) -> None:
    asked = {"pattern": "a", "definition": {"max-length": 1}, **entry}
    refused = api.put(f"/policies/%2F/{name}", json=asked)
    assert (refused.status_code, reason in refused.json()["reason"]) == (400, True), refused.text
    assert api.get(f"/policies/%2F/{name}").status_code == 404


def test_operators_may_bound_and_nothing_else(api: httpx.Client, put: Put) -> None:
    assert put({"dead-letter-exchange": "x"}, operator=True).status_code == 400


def test_policies_by_command_line_and_in_a_virtual_host(
    api: httpx.Client, broker: BrokerProcess, name: str
) -> None:
    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["policy", *arguments, "--url", broker.http_url, "--vhost", name])
        assert done.exit_code == 0, done.output
        return done.output

    assert api.put(f"/vhosts/{name}").status_code == 201
    assert api.put(f"/queues/{name}/work", json={"durable": True}).status_code == 201
    run("set", "mine", "^work", "max-length=5", "overflow=reject-publish", "--priority", "2")
    run("set", "theirs", "", "max-length=4", "--operator")
    assert api.get(f"/queues/{name}/work").json()["effective_policy_definition"] == {
        "max-length": 4,
        "overflow": "reject-publish",
    }
    listed = json.loads(run("ls", "--json"))
    assert [(each["name"], each["operator"], each["priority"]) for each in listed] == [
        ("mine", False, 2),
        ("theirs", True, 0),
    ]
    run("rm", "theirs", "--operator")
    assert api.get(f"/v1/vhosts/{name}/queues/work").json()["policy"]["depth_max"] == 5
    assert api.get(f"/v1/vhosts/{name}/policies/theirs?operator=true").status_code == 404
    assert api.delete(f"/vhosts/{name}").status_code == 204
    assert api.put(f"/vhosts/{name}").status_code == 201
    assert api.get(f"/policies/{name}").json() == []
    assert api.delete(f"/vhosts/{name}").status_code == 204


def test_a_policy_bounds_what_waits_for_mqtt_sessions_by_client_identifier(
    api: httpx.Client, put: Put, broker: BrokerProcess, name: str
) -> None:
    def bound(client_id: str) -> int:
        listed = httpx.get(
            f"{broker.http_url}/api/v1/sessions", params={"limit": 1000}, trust_env=False
        ).json()
        return next(s["max_queued_messages"] for s in listed["items"] if s["client_id"] == client_id)

    for client_id in (f"{name}-a", f"other-{name}"):
        lasts = b"\x11" + (60).to_bytes(4, "big")  # session expiry interval
        RawMqtt(broker.mqtt_port, client_id=client_id, props=lasts).drop()
    before = bound(f"{name}-a")
    assert put({"max-queued-messages": 7}, **{"apply-to": "mqtt_sessions"}).status_code == 201
    assert (bound(f"{name}-a"), bound(f"other-{name}")) == (7, before)
    assert put({"max-queued-messages": 3}, operator=True, **{"apply-to": "mqtt_sessions"}).status_code == 201
    assert bound(f"{name}-a") == 3
    wrong = put({"max-length": 7}, **{"apply-to": "mqtt_sessions"})
    assert wrong.status_code == 400
    assert "max-length" in wrong.json()["reason"]
    assert put({"max-queued-messages": 7}).status_code == 400


def test_virtual_hosts_begin_with_the_default_policies(own_broker: Callable[..., BrokerProcess]) -> None:
    house = {"name": "house", "pattern": "", "definition": {"max-length": 5}, "operator": True}
    team = {"name": "team", "pattern": "^work", "definition": {"max-length": 2}, "vhost_pattern": "^team-"}
    broker = own_broker({"default_policies": [house, team]})
    with httpx.Client(base_url=broker.http_url, auth=("guest", "guest"), trust_env=False) as api:
        for vhost in ("team-a", "other"):
            assert api.put(f"/api/v1/vhosts/{vhost}", json={}).status_code in (200, 201)
        named = {
            v: [p["name"] for p in api.get(f"/api/policies/{v}").json()] for v in ("team-a", "other", "%2F")
        }
        assert named == {"team-a": ["team"], "other": [], "%2F": []}
        assert [p["name"] for p in api.get("/api/operator-policies/other").json()] == ["house"]
        api.delete("/api/operator-policies/other/house")
        api.put("/api/v1/vhosts/other", json={"description": "changed"})
        assert api.get("/api/operator-policies/other").json() == []  # only what is new begins with them


def test_default_policy_that_is_none_is_refused_at_the_start(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    wrong = {"name": "p", "pattern": "", "definition": {"max-lenght": 5}}
    with pytest.raises(BrokerFailed, match=r"default_policies\[0\].*max-lenght"):
        own_broker({"default_policies": [wrong]})
