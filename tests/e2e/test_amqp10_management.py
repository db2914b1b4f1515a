"""AMQP 1.0: queues, exchanges and bindings by the link pair of `/management`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e.raw_amqp10 import Management, RawAmqp10

Connect = Callable[..., RawAmqp10]


@pytest.fixture
def management(raw_amqp10: Connect) -> Management:
    return Management(raw_amqp10())


def test_a_queue_is_declared_looked_at_purged_and_deleted(management: Management, name: str) -> None:
    path = f"/queues/{name}"
    made = management.ask("PUT", path, {"arguments": {"x-max-length": t.ULong(5)}})
    assert made.status == 201
    assert (made.body["name"], made.body["durable"], made.body["type"]) == (name, True, "classic")
    assert made.body["arguments"] == {"x-max-length": 5, "x-queue-type": "classic"}
    assert management.ask("PUT", path, {"arguments": {"x-max-length": 5}}).status == 200
    other = management.ask("PUT", path, {"arguments": {"x-max-length": 6}})
    assert other.status == 409
    assert "inequivalent arg 'x-max-length'" in other.body
    found = management.ask("GET", path)
    assert (found.status, found.body["message_count"], found.body["consumer_count"]) == (200, 0, 0)
    assert management.ask("DELETE", f"{path}/messages").body == {"message_count": 0}
    assert management.ask("DELETE", path).body == {"message_count": 0}
    assert management.ask("DELETE", path).status == 200
    assert management.ask("GET", path).status == 404
    assert management.ask("DELETE", f"{path}/messages").status == 404


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_queue_tells_the_type_that_it_was_declared_with(
    management: Management, name: str, kind: str
) -> None:
    path = f"/queues/{name}"
    assert management.ask("PUT", path, {"arguments": {"x-queue-type": kind}}).status == 201
    assert management.ask("GET", path).body["type"] == kind
    management.ask("DELETE", path)


def test_a_queue_is_not_redeclared_as_one_of_another_type(management: Management, name: str) -> None:
    path = f"/queues/{name}"
    management.ask("PUT", path, {"arguments": {"x-queue-type": "quorum"}})
    other = management.ask("PUT", path, {"arguments": {"x-queue-type": "classic"}})
    assert other.status == 409
    assert "received 'classic' but current is 'quorum'" in other.body
    assert management.ask("PUT", path, {}).status == 200  # it says none
    management.ask("DELETE", path)


def test_everybody_may_look_at_an_exclusive_queue(
    raw_amqp10: Connect, management: Management, name: str
) -> None:
    client = raw_amqp10()
    Management(client).ask("PUT", f"/queues/{name}", {"exclusive": True})
    found = management.ask("GET", f"/queues/{name}")
    assert (found.status, found.body["exclusive"]) == (200, True)
    assert management.ask("DELETE", f"/queues/{name}").status == 409


def test_exchanges_and_bindings_come_and_go(management: Management, name: str) -> None:
    exchange = f"/exchanges/{name}"
    assert management.ask("PUT", exchange, {"type": "topic"}).status == 204
    assert management.ask("PUT", exchange, {"type": "fanout"}).status == 409
    management.ask("PUT", f"/queues/{name}", {})
    for arguments in ({}, {"x": 1}):
        body = {
            "source": name,
            "destination_queue": name,
            "binding_key": "a.#",
            "arguments": arguments,
        }
        assert management.ask("POST", "/bindings", body).status == 204
    asked = f"/bindings?src={name}&dstq={name}&key=a.%23"
    found = management.ask("GET", asked).body
    assert sorted(len(each["arguments"]) for each in found) == [0, 1]
    plain, other = sorted(found, key=lambda each: len(each["arguments"]))
    assert plain["location"] == f"/bindings/src={name};dstq={name};key=a.%23;args="
    assert management.ask("DELETE", other["location"]).status == 204
    assert management.ask("GET", asked).body == [plain]
    assert management.ask("DELETE", plain["location"]).status == 204
    assert management.ask("GET", asked).body == []
    assert management.ask("DELETE", exchange).status == 204
    assert management.ask("DELETE", exchange).status == 204
    management.ask("DELETE", f"/queues/{name}")


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/nonsense", None, 404),
        ("GET", "nonsense", None, 404),
        ("PATCH", "/queues/x", None, 405),
        ("PUT", "/queues/x", None, 400),
        ("PUT", "/queues/x", {"color": "red"}, 400),
        ("PUT", "/queues/x", {"durable": "yes"}, 400),
        ("PUT", "/queues/", {}, 400),
        ("PUT", "/queues/%zz", {}, 400),
        ("PUT", "/queues/amq.x", {}, 403),
        ("PUT", "/queues/x", {"arguments": {"x-nonsense": 1}}, 409),
        ("PUT", "/exchanges/", {}, 403),
        ("PUT", "/exchanges/x", {"type": "nonsense"}, 400),
        ("PUT", "/exchanges/amq.x", {}, 403),
        ("DELETE", "/exchanges/amq.topic", None, 403),
        ("POST", "/bindings", {"source": "not-there", "destination_queue": "not-there"}, 400),
        ("POST", "/bindings", {"source": "", "destination_queue": "x"}, 403),
        ("POST", "/bindings", {"source": "amq.topic"}, 400),
        ("PUT", "/auth/tokens", "text", 400),
    ],
)
def test_a_mistake_is_answered_and_costs_nothing_else(
    management: Management, method: str, path: str, body: Any, status: int
) -> None:
    assert management.ask(method, path, body).status == status
    assert management.ask("GET", "/bindings?src=amq.topic&dstq=x&key=k").status == 200


def test_a_request_without_a_way_back_is_answered_all_the_same(management: Management) -> None:
    assert management.ask("GET", "/queues/x", reply_to=None).status == 400


def test_links_at_management_that_are_no_pair_are_refused(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    client.begin()
    attach = p.Attach("x", 0, c.SENDER, 1, 0, p.Source(), p.Target("/management"), initial_delivery_count=0)
    assert client.attach(attach).target is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.INVALID_FIELD


def test_a_pair_that_lost_an_end_is_told_so_and_attached_anew(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    management = Management(client)
    client.send(0, p.Detach(1, True))
    client.expect(p.Detach)
    payload = p.encode(p.Properties(to="/queues/q", subject="GET", reply_to="$me"))
    client.transfer(payload, settled=True)
    ended = client.expect(p.Detach)
    assert ended.error is not None
    assert ended.error.condition == c.PRECONDITION_FAILED
    client.send(0, p.Detach(0, True))
    management.attach()
    assert management.ask("GET", "/queues/not-there").status == 404


def test_a_request_has_a_largest_size(raw_amqp10: Connect) -> None:
    client = raw_amqp10()
    Management(client)
    client.transfer_in_parts(bytes(limits.AMQP10_REQUEST_BYTES_MAX + 1))
    while not isinstance(ended := client.read().body, p.Detach):  # type: ignore[union-attr]
        assert isinstance(ended, p.Flow)
    assert ended.error is not None
    assert ended.error.condition == c.MESSAGE_SIZE_EXCEEDED
