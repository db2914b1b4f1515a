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


# CC and BCC


@pytest.mark.parametrize("kind", ["", "direct", "topic"])
def test_copies_go_to_further_routing_keys_once_to_each_queue(channel, exchange, name, kind):
    queues = [f"{name}-{letter}" for letter in "abc"]
    source = exchange(kind) if kind else ""
    for each in queues:
        channel.queue_declare(each, exclusive=True)
        if kind:
            channel.queue_bind(each, source, each)
    headers = {"CC": [queues[1], queues[0], 7], "BCC": [queues[2]], "kept": 1}
    channel.confirm_delivery()
    channel.basic_publish(source, queues[0], b"x", pika.BasicProperties(headers=headers), mandatory=True)
    for each in queues:
        method, properties, _ = channel.basic_get(each, auto_ack=True)
        assert (method.exchange, method.routing_key) == (source, queues[0])
        assert properties.headers == {"CC": headers["CC"], "kept": 1}
        assert channel.basic_get(each) == (None, None, None)


def test_a_copy_alone_is_a_route(channel, queue, name):
    channel.confirm_delivery()
    copy = pika.BasicProperties(headers={"CC": [queue]})
    channel.basic_publish("", f"{name}-missing", b"x", copy, mandatory=True)
    assert take_all(channel, queue) == ["x"]


def test_what_comes_back_has_no_blind_copies(channel, name):
    channel.confirm_delivery()
    headers = {"CC": [f"{name}-a"], "BCC": [f"{name}-b"]}
    with pytest.raises(pika.exceptions.UnroutableError) as returned:
        channel.basic_publish("", name, b"x", pika.BasicProperties(headers=headers), mandatory=True)
    assert returned.value.messages[0].properties.headers == {"CC": [f"{name}-a"]}


def test_copies_that_are_no_list_close_the_channel(amqp_connect, queue):
    channel = amqp_connect().channel()
    channel.confirm_delivery()
    refused = refusal(channel.basic_publish, "", queue, b"x", pika.BasicProperties(headers={"CC": "a"}))
    assert refused == (406, 'invalid message: {unacceptable_type_in_header,"CC",longstr}')


# dead letters


def test_dead_letters_go_through_any_exchange_to_all_its_queues(channel, exchange, name):
    dead = exchange("topic")
    waiting = {"x-message-ttl": 1, "x-dead-letter-exchange": dead}
    channel.queue_declare(f"{name}-w", arguments=waiting, exclusive=True)
    for each in ("one", "two"):
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", dead, f"{name}.#" if each == "one" else f"{name}-w")
    headers = {"CC": [f"{name}.copy"]}
    channel.basic_publish("", f"{name}-w", b"x", pika.BasicProperties(headers=headers, delivery_mode=2))
    for each in ("one", "two"):
        consumer = amqp.Collector(channel, f"{name}-{each}", ack=True)
        [letter] = consumer.wait(1)
        assert (letter.method.exchange, letter.method.routing_key) == (dead, f"{name}-w")
        death = letter.headers["x-death"][0]
        assert (death["reason"], death["queue"], death["exchange"]) == ("expired", f"{name}-w", "")
        assert death["routing-keys"] == [f"{name}-w", f"{name}.copy"]
        assert letter.headers["CC"] == [f"{name}.copy"]


def test_a_dead_letter_with_another_key_has_no_copies(channel, exchange, queue, name):
    dead = exchange("direct")
    channel.queue_bind(queue, dead, "again")
    arguments = {"x-dead-letter-exchange": dead, "x-dead-letter-routing-key": "again"}
    channel.queue_declare(f"{name}-w", arguments=arguments, exclusive=True)
    channel.basic_publish("", f"{name}-w", b"x", pika.BasicProperties(headers={"CC": ["elsewhere"]}))
    method, _, _ = channel.basic_get(f"{name}-w")
    channel.basic_reject(method.delivery_tag, requeue=False)
    method, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert (method.exchange, method.routing_key) == (dead, "again")
    assert "CC" not in properties.headers
    assert properties.headers["x-death"][0]["routing-keys"] == [f"{name}-w", "elsewhere"]


def test_a_dead_letter_that_no_queue_takes_stays_failed(channel, name):
    channel.queue_declare(
        f"{name}-w", arguments={"x-dead-letter-exchange": f"{name}-missing"}, exclusive=True
    )
    channel.basic_publish("", f"{name}-w", b"x")
    method, _, _ = channel.basic_get(f"{name}-w")
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get(f"{name}-w") == (None, None, None)
