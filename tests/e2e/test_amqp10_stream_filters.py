"""Streams read by the value that publishers gave each message for filters: AMQP 1.0 and 0.9.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from tests.e2e import amqp
from tests.e2e.raw_amqp10 import RawAmqp10, message

Connect = Callable[..., RawAmqp10]

VALUES = ("a", "b", None, "a", "c")


def filters(values: Any, *, unfiltered: bool | None = None) -> dict[t.Symbol, Any]:
    names = {"rabbitmq:stream-offset-spec": "first", "rabbitmq:stream-filter": values}
    if unfiltered is not None:
        names["rabbitmq:stream-match-unfiltered"] = unfiltered
    return {
        t.Symbol(name): t.Described(t.Symbol(name), value)
        for name, value in names.items()
        if value is not None
    }


@pytest.fixture
def stream(channel: amqp.BlockingChannel, name: str, raw_amqp10: Connect) -> str:
    """A stream of five messages, published over AMQP 1.0 and 0.9.1 in turns; bodies are their places."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    client = raw_amqp10()
    client.begin()
    client.attach_sender(f"/queues/{name}")
    for number, value in enumerate(VALUES):
        named = {} if value is None else {"x-stream-filter-value": value}
        if number % 2:
            channel.basic_publish("", name, b"%d" % number, pika.BasicProperties(headers=named))
        else:
            client.transfer(message(b"%d" % number, annotations=named))
            client.outcomes(1)
    return name


@pytest.mark.parametrize(
    ("values", "unfiltered", "expected"),
    [
        ("a", None, [0, 3]),
        (["a", "c"], False, [0, 3, 4]),
        ("b", True, [1, 2]),
        (["nothing"], None, []),
        (None, True, [0, 1, 2, 3, 4]),
    ],
    ids=str,
)
def test_a_stream_gives_the_values_that_a_link_asks_for(
    raw_amqp10: Connect, stream: str, values: Any, unfiltered: bool | None, expected: list[int]
) -> None:
    client = raw_amqp10()
    client.begin()
    wanted = filters(values, unfiltered=unfiltered)
    answer = client.attach_receiver(f"/queues/{stream}", filter=wanted)
    assert answer.source.filter == wanted
    client.give_credit(10)
    assert [client.receive().body for _ in expected] == [b"%d" % number for number in expected]
    assert client.is_silent()


@pytest.mark.parametrize("values", [[], 1, ["a", 2], ["x"] * 101], ids=str)
def test_a_filter_that_is_none_refuses_the_link(raw_amqp10: Connect, stream: str, values: Any) -> None:
    client = raw_amqp10()
    client.begin()
    source = p.Source(f"/queues/{stream}", filter=filters(values))
    assert client.attach(p.Attach("r", 1, c.RECEIVER, source=source, target=p.Target())).source is None
    detach = client.expect(p.Detach)
    assert detach.error is not None
    assert detach.error.condition == c.INVALID_FIELD


def test_a_queue_takes_no_filter_of_streams(raw_amqp10: Connect, queue: str) -> None:
    client = raw_amqp10()
    client.begin()
    answer = client.attach_receiver(f"/queues/{queue}", filter=filters("a"))
    assert answer.source.filter == {}


def test_amqp_0_9_1_asks_for_the_same(channel: amqp.BlockingChannel, stream: str) -> None:
    arguments = {"x-stream-offset": "first", "x-stream-filter": ["c"], "x-stream-match-unfiltered": True}
    channel.basic_qos(prefetch_count=10)
    reader = amqp.Collector(channel, stream, ack=True, arguments=arguments)
    reader.wait(2)
    assert reader.bodies() == ["2", "4"]


@pytest.mark.parametrize("name_of", ["x-stream-filter", "x-stream-match-unfiltered"])
def test_amqp_0_9_1_refuses_filters_of_streams_on_queues(
    channel: amqp.BlockingChannel, queue: str, name_of: str
) -> None:
    value: Any = "a" if name_of == "x-stream-filter" else True
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_consume(queue, lambda *_: None, arguments={name_of: value})
    assert caught.value.reply_code == 406
