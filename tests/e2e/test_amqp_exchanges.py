"""Exchanges and bindings: declared, bound, published to, deleted, there again after a crash."""

import pika
import pytest

from tests.e2e import amqp
from tests.e2e.amqp import ChannelClosedByBroker, ConnectionClosedByBroker


@pytest.fixture
def exchange(channel, name):
    """Makes exchanges that are gone after the test: `exchange("topic")`."""
    made = []

    def make(kind="direct", **options):
        made.append(f"{name}-x{len(made)}")
        channel.exchange_declare(made[-1], kind, **options)
        return made[-1]

    yield make
    if channel.is_open:
        for each in made:
            channel.exchange_delete(each)


def take_all(channel, queue):
    """What waits in a queue, in order, and is acknowledged."""
    taken = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        taken.append(got[2].decode())
    return taken


def refusal(call, *arguments, **options):
    """The (code, text) with which the broker closes the channel or connection."""
    with pytest.raises((ChannelClosedByBroker, ConnectionClosedByBroker)) as closed:
        call(*arguments, **options)
    return closed.value.reply_code, closed.value.reply_text.partition(" - ")[2]


@pytest.mark.parametrize(
    ("kind", "binding", "taken", "left"),
    [
        ("direct", "eu", ["eu"], ["us", "", "eu.de"]),
        ("fanout", "any", ["eu", ""], []),
        ("topic", "a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c", ""]),
        ("topic", "a.#.c", ["a.c", "a.b.c", "a.b.b.c"], ["a", "c", ""]),
        ("topic", "#", ["", "a", "a.b"], []),
        ("topic", "*", ["a"], ["", "a.b"]),
    ],
)
def test_an_exchange_passes_on_what_its_binding_takes(channel, exchange, queue, kind, binding, taken, left):
    source = exchange(kind)
    channel.queue_bind(queue, source, binding)
    channel.confirm_delivery()
    for key in taken:
        channel.basic_publish(source, key, key, mandatory=True)
    for key in left:
        with pytest.raises(pika.exceptions.UnroutableError):
            channel.basic_publish(source, key, key, mandatory=True)
    assert take_all(channel, queue) == taken


def test_durable_exchanges_and_bindings_are_there_after_a_crash(own_broker):
    broker = own_broker()
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.queue_declare("jobs", durable=True)
    for kind in ("direct", "fanout", "topic", "headers"):
        channel.exchange_declare(f"x-{kind}", kind, durable=True)
        channel.queue_bind("jobs", f"x-{kind}", "a.b", {"n": 1} if kind == "headers" else None)
    channel.exchange_declare("front", "topic", durable=True, arguments={"alternate-exchange": "x-fanout"})
    channel.exchange_bind("x-direct", "front", "#")
    channel.exchange_declare("gone", "direct", durable=True)
    channel.queue_bind("jobs", "gone", "a.b")
    channel.exchange_delete("gone")
    channel.exchange_declare("in-memory", "direct")
    broker.kill9()
    broker.start()
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    for source in ("x-direct", "x-fanout", "x-topic", "front"):
        channel.basic_publish(source, "a.b", source, mandatory=True)
    channel.basic_publish(
        "x-headers", "", "x-headers", pika.BasicProperties(headers={"n": 1}), mandatory=True
    )
    channel.exchange_declare("front", "topic", durable=True, arguments={"alternate-exchange": "x-fanout"})
    assert take_all(channel, "jobs") == ["x-direct", "x-fanout", "x-topic", "front", "x-headers"]
    for missing in ("gone", "in-memory"):
        assert refusal(connection.channel().exchange_declare, missing, passive=True)[0] == 404
    amqp.close_quietly(connection)
