"""AMQP 1.0: the single active consumer, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocols.amqp10 import performatives as p
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]

ACTIVE = {"rabbitmq:active": True}
WAITING = {"rabbitmq:active": False}


def attached(connect: Connect, queue: str, flow: Any, **options: Any) -> RawAmqp10:
    """A client that receives from a queue, and was told this by the flow behind the attach."""
    client = connect()
    client.begin()
    client.attach_receiver(f"/queues/{queue}", **options)
    if flow is not None:
        assert client.expect(p.Flow).properties == flow
    client.give_credit(10)
    return client


@pytest.mark.parametrize("asked_by", ["queue", "link"])
def test_the_single_active_consumer_is_told_and_the_next_takes_over(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, name: str, asked_by: str
) -> None:
    is_queue = asked_by == "queue"
    channel.queue_declare(
        name, durable=True, arguments={"x-single-active-consumer": True} if is_queue else {}
    )
    properties = None if is_queue else {"single-active": True}
    first = attached(raw_amqp10, name, ACTIVE, properties=properties)
    second = attached(raw_amqp10, name, WAITING, properties=properties)
    amqp.publish(channel, name, "a", "b")
    assert [first.receive().body for _ in range(2)] == [b"a", b"b"]
    first.send(0, p.Detach(1, closed=True))
    assert second.expect(p.Flow).properties == ACTIVE
    assert [second.receive().body for _ in range(2)] == [b"a", b"b"]


def test_a_consumer_that_asks_for_one_at_a_time_waits_for_those_before_it(
    raw_amqp10: Connect, channel: amqp.BlockingChannel, queue: str
) -> None:
    first = attached(raw_amqp10, queue, None)
    second = attached(raw_amqp10, queue, WAITING, properties={"single-active": True})
    assert first.expect(p.Flow).properties == ACTIVE
    amqp.publish(channel, queue, "a", "b")
    assert [first.receive().body for _ in range(2)] == [b"a", b"b"]
    second.send(0, p.Detach(1, closed=True))
    second.expect(p.Detach)
    third = attached(raw_amqp10, queue, None)
    amqp.publish(channel, queue, "c", "d")
    assert {first.receive().body, third.receive().body} == {b"c", b"d"}


def test_consumers_of_a_queue_without_one_are_told_nothing(raw_amqp10: Connect, queue: str) -> None:
    client = attached(raw_amqp10, queue, None)
    client.attach_sender(f"/queues/{queue}")
    client.transfer(message(b"m"), settled=True)
    assert client.receive().body == b"m"
