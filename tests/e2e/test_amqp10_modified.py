"""AMQP 1.0: messages that consumers give back with annotations of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_amqp10 import Delivered, Management, RawAmqp10, message

Connect = Callable[..., RawAmqp10]


def modified(*, failed: bool = False, here: bool = False, **annotations: Any) -> p.Modified:
    named = {t.Symbol(f"x-{name}"): value for name, value in annotations.items()}
    return p.Modified(delivery_failed=failed, undeliverable_here=here, message_annotations=named)


def held(connect: Connect, queue: str, payload: bytes, to: Any = None) -> tuple[RawAmqp10, Delivered]:
    """A client that holds a message it has published."""
    client = connect(to) if to else connect()
    client.begin()
    client.attach_sender(f"/queues/{queue}")
    client.transfer(payload)
    client.outcomes(1)
    client.attach_receiver(f"/queues/{queue}", credit=10)
    return client, client.receive()


def test_annotations_of_modified_are_merged_into_the_message(raw_amqp10: Connect, queue: str) -> None:
    client, got = held(
        raw_amqp10, queue, message(b"m", annotations={"x-kept": 1, "x-changed": 1}, subject="s")
    )
    client.settle(got.transfer.delivery_id or 0, modified(changed="two", new=[True, 2.5]))
    again = client.receive()
    annotations = again.sections[0x72]
    assert annotations["x-changed"] == "two"
    assert annotations["x-new"] == [True, 2.5]
    assert annotations["x-kept"] == 1
    assert (again.body, again.header.delivery_count) == (b"m", 0)
    client.settle(again.transfer.delivery_id or 0, modified(failed=True, new=t.Symbol("other")))
    third = client.receive()
    assert third.sections[0x72]["x-new"] == "other"
    assert third.sections[0x72]["x-changed"] == "two"
    assert third.header == p.Header(durable=True, first_acquirer=False, delivery_count=1)
    assert third.sections[0x73] == again.sections[0x73]


def test_no_client_gives_the_broker_s_own_annotations(raw_amqp10: Connect, queue: str) -> None:
    client, got = held(raw_amqp10, queue, message(b"m"))
    own = {t.Symbol(name): "forged" for name in ("x-routing-key", "x-exchange", "x-opt-deaths")}
    client.settle(got.transfer.delivery_id or 0, p.Modified(message_annotations=own))
    assert client.receive().sections[0x72] == {"x-routing-key": queue, "x-exchange": ""}


@pytest.mark.parametrize("key", [t.Symbol("plain"), "x-text", t.ULong(1)], ids=str)
def test_names_that_no_annotation_can_have_end_the_session(raw_amqp10: Connect, queue: str, key: Any) -> None:
    client, got = held(raw_amqp10, queue, message(b"m"))
    client.settle(got.transfer.delivery_id or 0, p.Modified(message_annotations={key: 1}))
    ended = client.expect(p.End)
    assert ended.error is not None
    assert ended.error.condition == c.INVALID_FIELD


def test_annotations_go_with_a_dead_letter(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str
) -> None:
    channel.queue_declare(f"{name}-dead", durable=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    client, got = held(raw_amqp10, name, message(b"m"))
    client.settle(got.transfer.delivery_id or 0, modified(here=True, why="too hot"))
    client.attach_receiver(f"/queues/{name}-dead", 2, credit=1)
    annotations = client.receive().sections[0x72]
    assert annotations["x-why"] == "too hot"
    assert annotations["x-first-death-reason"] == "rejected"
    (death,) = annotations["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["count"]) == (name, "rejected", 1)


def test_annotations_are_headers_of_what_came_by_amqp_0_9_1(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"m", pika.BasicProperties(headers={"mine": 1}))
    client = raw_amqp10()
    client.begin()
    client.attach_receiver(f"/queues/{queue}", credit=1)
    client.settle(client.receive().transfer.delivery_id or 0, modified(seen=t.UInt(3)))
    client.send(0, p.End())
    client.expect(p.End)
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert properties.headers == {"mine": 1, "x-seen": 3}


def test_annotations_are_there_after_a_restart(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({})
    client = raw_amqp10(broker)
    client.begin()
    Management(client, begin=False).ask("PUT", "/queues/lasting", {})
    client, got = held(raw_amqp10, "lasting", message(b"m"), broker)
    client.settle(got.transfer.delivery_id or 0, modified(failed=True, seen="yes"))
    client.receive()
    # a message that is confirmed later, in a commit of the same queue, tells that the first is on the disk
    client.send(0, p.Detach(1, closed=True))
    client.expect(p.Detach)
    client.transfer(message(b"later"))
    client.outcomes(1)
    assert broker.stop() == 0
    broker.start()
    client = raw_amqp10(broker)
    client.begin()
    client.attach_receiver("/queues/lasting", credit=1)
    again = client.receive()
    assert again.sections[0x72]["x-seen"] == "yes"
    assert again.header.delivery_count == 1


@pytest.fixture
def quorum(raw_amqp10: Connect, name: str) -> str:
    """A queue that counts attempts as quorum queues do."""
    client = raw_amqp10()
    client.begin()
    Management(client, begin=False).ask("PUT", f"/queues/{name}", {"arguments": {"x-queue-type": "quorum"}})
    return name


def test_what_comes_back_to_a_quorum_queue_tells_how_often_it_was_given(
    raw_amqp10: Connect, quorum: str
) -> None:
    client, got = held(raw_amqp10, quorum, message(b"m"))
    assert "x-acquired-count" not in got.sections[0x72]
    told = []
    for state in (p.Released(), p.Modified(), p.Modified(delivery_failed=True)):
        client.settle(got.transfer.delivery_id or 0, state)
        got = client.receive()
        counts = [got.sections[0x72].get(f"x-{kind}-count") for kind in ("acquired", "delivery")]
        told.append((*counts, got.header.delivery_count, got.header.first_acquirer))
    assert told == [(1, None, 0, False), (2, None, 0, False), (3, 1, 1, False)]
    client.send(0, p.Detach(1, True))
    client.expect(p.Detach)
    client.attach_receiver(f"/queues/{quorum}", 2, credit=1)
    counts = client.receive().sections[0x72]
    assert (counts["x-acquired-count"], counts["x-delivery-count"]) == (4, 1)  # a detach is no attempt


def test_a_delivery_time_of_modified_has_the_message_wait_for_it(
    own_broker: Callable[..., BrokerProcess], raw_amqp10: Connect
) -> None:
    broker = own_broker({}, timed=True)
    client = raw_amqp10(broker)
    client.begin()
    Management(client, begin=False).ask("PUT", "/queues/later", {})
    client.attach_sender("/queues/later", 2)
    client.transfer(message(b"spared"), 2)
    client.outcomes(1)
    client, _ = held(raw_amqp10, "later", message(b"failed"), broker)
    client.receive()
    due = {t.Symbol("x-opt-delivery-time"): t.Timestamp(time.time() * 1_000 + 5_000)}
    for number in range(2):
        client.settle(number, p.Modified(delivery_failed=bool(number), message_annotations=due))
    assert client.is_silent()
    broker.pass_time(6)
    again = [client.receive() for _ in range(2)]
    assert sorted((got.body, got.header.delivery_count) for got in again) == [(b"failed", 1), (b"spared", 0)]
