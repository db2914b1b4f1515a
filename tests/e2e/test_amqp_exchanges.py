"""Exchanges and bindings: declared, bound, published to, deleted, there again after a crash."""

from typing import Any

import pika
import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import ChannelClosedByBroker, ConnectionClosedByBroker


@pytest.fixture
def exchange(channel, name):
    """Makes exchanges that are gone after the test: `exchange("topic")`."""
    made: list[Any] = []

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
    [letter] = amqp.Collector(channel, queue, ack=True).wait(1)
    assert (letter.method.exchange, letter.method.routing_key) == (dead, "again")
    assert "CC" not in letter.headers
    assert letter.headers["x-death"][0]["routing-keys"] == [f"{name}-w", "elsewhere"]


def test_a_dead_letter_that_no_queue_takes_stays_failed(channel, name):
    channel.queue_declare(
        f"{name}-w", arguments={"x-dead-letter-exchange": f"{name}-missing"}, exclusive=True
    )
    channel.basic_publish("", f"{name}-w", b"x")
    method, _, _ = channel.basic_get(f"{name}-w")
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get(f"{name}-w") == (None, None, None)


# refusals, in RabbitMQ's words


def declared(kind, **options):
    """Declares an exchange, then once more with what is given."""

    def act(channel, name, **other):
        channel.exchange_declare(name, kind, **options)
        channel.exchange_declare(name, other.pop("kind", kind), **{**options, **other})

    return act


REFUSALS = {
    "unknown type": (lambda ch, n: ch.exchange_declare(n, "none"), 406, "unknown exchange type 'none'"),
    "no type": (lambda ch, n: ch.exchange_declare(n, ""), 406, "invalid exchange type ''"),
    "type of letters": (
        lambda ch, n: ch.exchange_declare(n, "DIRECT"),
        406,
        "unknown exchange type 'DIRECT'",
    ),
    "other type": (
        lambda ch, n: declared("direct")(ch, n, kind="fanout"),
        406,
        "inequivalent arg 'type' for exchange '{}' in vhost '/': received 'fanout' but current is 'direct'",
    ),
    "other durability": (
        lambda ch, n: declared("direct")(ch, n, durable=True),
        406,
        "inequivalent arg 'durable' for exchange '{}' in vhost '/': received 'true' but current is 'false'",
    ),
    "other auto-delete": (
        lambda ch, n: declared("direct")(ch, n, auto_delete=True),
        406,
        "inequivalent arg 'auto_delete' for exchange '{}' in vhost '/': "
        "received 'true' but current is 'false'",
    ),
    "other internal": (
        lambda ch, n: declared("direct", internal=True)(ch, n, internal=False),
        406,
        "inequivalent arg 'internal' for exchange '{}' in vhost '/': received 'false' but current is 'true'",
    ),
    "alternate given": (
        lambda ch, n: declared("direct")(ch, n, arguments={"alternate-exchange": "zz"}),
        406,
        "inequivalent arg 'alternate-exchange' for exchange '{}' in vhost '/': "
        "received the value 'zz' of type 'longstr' but current is none",
    ),
    "alternate left out": (
        lambda ch, n: declared("direct", arguments={"alternate-exchange": "zz"})(ch, n, arguments={}),
        406,
        "inequivalent arg 'alternate-exchange' for exchange '{}' in vhost '/': "
        "received none but current is the value 'zz' of type 'longstr'",
    ),
    "another alternate": (
        lambda ch, n: declared("direct", arguments={"alternate-exchange": "zz"})(
            ch, n, arguments={"alternate-exchange": "yy"}
        ),
        406,
        "inequivalent arg 'alternate-exchange' for exchange '{}' in vhost '/': "
        "received 'yy' but current is 'zz'",
    ),
    "alternate of no text": (
        lambda ch, n: ch.exchange_declare(n, "direct", arguments={"alternate-exchange": 5}),
        406,
        "invalid type 'signedint' for arg 'alternate-exchange' in exchange '{}' in vhost '/'",
    ),
    "passive, missing": (
        lambda ch, n: ch.exchange_declare(n, passive=True),
        404,
        "no exchange '{}' in vhost '/'",
    ),
    "reserved name": (
        lambda ch, n: ch.exchange_declare("amq.foo", "direct"),
        403,
        "exchange name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    "passive, missing and reserved": (
        lambda ch, n: ch.exchange_declare("amq.foo", passive=True),
        404,
        "no exchange 'amq.foo' in vhost '/'",
    ),
    "predeclared as another": (
        lambda ch, n: ch.exchange_declare("amq.direct", "topic", durable=True),
        406,
        "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
        "received 'topic' but current is 'direct'",
    ),
    "default declared": (
        lambda ch, n: ch.exchange_declare("", "direct"),
        403,
        "operation not permitted on the default exchange",
    ),
    "default deleted": (
        lambda ch, n: ch.exchange_delete(""),
        403,
        "operation not permitted on the default exchange",
    ),
    "bound to the default": (
        lambda ch, n: ch.queue_bind("q", "", "k"),
        403,
        "operation not permitted on the default exchange",
    ),
    "predeclared deleted": (
        lambda ch, n: ch.exchange_delete("amq.foo"),
        403,
        "deletion of system exchange 'amq.foo' in vhost '/' not allowed",
    ),
    "publish to none": (
        lambda ch, n: ch.basic_publish(n, "k", b"x"),
        404,
        "no exchange '{}' in vhost '/'",
    ),
    "publish to internal": (
        lambda ch, n: (ch.exchange_declare(n, "direct", internal=True), ch.basic_publish(n, "k", b"x")),
        403,
        "cannot publish to internal exchange '{}' in vhost '/'",
    ),
    "bind, no queue": (
        lambda ch, n: ch.queue_bind(n, "amq.direct", "k"),
        404,
        "no queue '{}' in vhost '/'",
    ),
    "bind, neither": (lambda ch, n: ch.queue_bind(n, n, "k"), 404, "no exchange '{}' in vhost '/'"),
    "bind, no destination": (
        lambda ch, n: ch.exchange_bind(n, "amq.direct"),
        404,
        "no exchange '{}' in vhost '/'",
    ),
    "bind, none declared": (
        lambda ch, n: ch.queue_bind("", "amq.direct", "k"),
        404,
        "no previously declared queue",
    ),
    "headers, unknown match": (
        lambda ch, n: ch.exchange_bind("amq.fanout", "amq.headers", "", {"x-match": "foo"}),
        406,
        'Invalid x-match field value <<"foo">>; expected all, any, all-with-x, or any-with-x',
    ),
    "headers, match of no text": (
        lambda ch, n: ch.exchange_bind("amq.fanout", "amq.headers", "", {"x-match": 5}),
        406,
        "Invalid x-match field type signedint (value 5); expected longstr",
    ),
    "hash, no weight": (
        lambda ch, n: (
            ch.exchange_declare(n, "x-consistent-hash"),
            ch.exchange_bind("amq.fanout", n, "heavy"),
        ),
        406,
        'The binding key must be an integer: <<"heavy">>',
    ),
    "purge, none declared": (lambda ch, n: ch.queue_purge(""), 404, "no previously declared queue"),
    "queue, reserved name": (
        lambda ch, n: ch.queue_declare("amq.foo"),
        403,
        "queue name 'amq.foo' contains reserved prefix 'amq.*'",
    ),
    "queue, missing": (
        lambda ch, n: ch.queue_declare(n, passive=True),
        404,
        "no queue '{}' in vhost '/'",
    ),
    "queue, other durability": (
        lambda ch, n: (
            ch.queue_declare(n, durable=False, auto_delete=True),
            ch.queue_declare(n, durable=True, auto_delete=True),
        ),
        406,
        "inequivalent arg 'durable' for queue '{}' in vhost '/': received 'true' but current is 'false'",
    ),
    "queue, argument given": (
        lambda ch, n: (
            ch.queue_declare(n, auto_delete=True),
            ch.queue_declare(n, auto_delete=True, arguments={"x-message-ttl": 5}),
        ),
        406,
        "inequivalent arg 'x-message-ttl' for queue '{}' in vhost '/': "
        "received the value '5' of type 'signedint' but current is none",
    ),
    "queue, not exclusive": (
        lambda ch, n: (ch.queue_declare(n, exclusive=True), ch.queue_declare(n)),
        405,
        "cannot obtain exclusive access to locked queue '{}' in vhost '/'. It could be originally declared "
        "on another connection or the exclusive property value does not match that of the original "
        "declaration.",
    ),
    "queue, wrong argument": (
        lambda ch, n: ch.queue_declare(n, arguments={"x-expires": 0}),
        406,
        "invalid arg 'x-expires' for queue '{}' in vhost '/': {{value_zero,0}}",
    ),
    "queue, not empty": (
        lambda ch, n: (
            ch.queue_declare(n, exclusive=True),
            ch.basic_publish("", n, b"x"),
            ch.queue_delete(n, if_empty=True),
        ),
        406,
        "queue '{}' in vhost '/' not empty",
    ),
    "stream in memory": (
        lambda ch, n: ch.queue_declare(n, arguments={"x-queue-type": "stream"}),
        406,
        "invalid property 'non-durable' for queue '{}' in vhost '/'",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_have_the_codes_and_texts_that_clients_know(amqp_connect, name, case):
    act, code, text = REFUSALS[case]
    connection = amqp_connect()
    channel = connection.channel()
    channel.confirm_delivery()
    assert refusal(act, channel, name) == (code, text.format(name)[: 255 - len("RESOURCE_LOCKED - ")])
    if connection.is_open:
        connection.channel().exchange_delete(name)


def test_what_is_done_already_or_gone_already_is_no_error(amqp_connect, queue, exchange, name):
    channel = amqp_connect().channel()
    source = exchange("topic")
    channel.exchange_declare(source, "no-such-type", passive=True)
    channel.exchange_declare("amq.direct", "direct", durable=True)
    channel.exchange_delete(f"{name}-missing", if_unused=True)
    for _ in range(2):
        channel.queue_bind(queue, source, "k")
    channel.queue_bind(queue, source, "k", {"other": 1})
    channel.queue_unbind(queue, source, "k")
    channel.basic_publish(source, "k", b"bound by the other")
    channel.queue_unbind(queue, source, "k", {"other": 1})
    for _ in range(2):
        channel.queue_unbind(queue, source, "k")
    channel.queue_unbind(f"{name}-missing", source, "k")
    channel.queue_unbind(queue, f"{name}-missing", "k")
    channel.exchange_unbind(f"{name}-missing", source, "k")
    channel.basic_publish(source, "k", b"unbound")
    assert take_all(channel, queue) == ["bound by the other"]


def test_an_exchange_in_use_stays(channel, amqp_connect, exchange, queue):
    source = exchange("direct")
    into = exchange("fanout")
    channel.queue_bind(queue, source, "k")
    channel.exchange_bind(into, source, "k")
    refused = refusal(amqp_connect().channel().exchange_delete, source, if_unused=True)
    assert refused == (406, f"exchange '{source}' in vhost '/' in use")
    channel.exchange_delete(into, if_unused=True)  # where something leads is not in use by that


def test_the_empty_name_is_the_last_declared_queue_and_its_key(channel, exchange):
    source = exchange("direct")
    name = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind("", source)
    channel.basic_publish(source, name, b"x")
    assert take_all(channel, name) == ["x"]


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel, amqp_connect, queue, name):
    for each in ("a", "b"):
        channel.exchange_declare(f"{name}-{each}", "fanout", auto_delete=True)
    channel.exchange_bind(f"{name}-b", f"{name}-a")
    channel.queue_bind(queue, f"{name}-b")
    channel.queue_unbind(queue, f"{name}-b")
    for each in ("a", "b"):
        assert refusal(amqp_connect().channel().exchange_declare, f"{name}-{each}", passive=True)[0] == 404


def test_a_full_queue_keeps_nothing_from_the_others_and_the_publisher_hears_once(raw_amqp, name):
    connection = raw_amqp()
    connection.open_channel()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    for each, arguments in (("full", full), ("free", {})):
        declare = commands.Queue.Declare(0, f"{name}-{each}", exclusive=True, arguments=arguments)
        connection.call(1, declare, commands.Queue.DeclareOk)
        bind = commands.Queue.Bind(0, f"{name}-{each}", "amq.direct", name)
        connection.call(1, bind, commands.Queue.BindOk)
    connection.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    connection.publish(1, name, b"1", exchange="amq.direct")
    assert connection.read_confirms(1) == [1]
    connection.publish(1, name, b"2", exchange="amq.direct")
    assert connection.expect(commands.Basic.Nack).delivery_tag == 2
    for each, left in (("full", 1), ("free", 2)):
        look = commands.Queue.Declare(0, f"{name}-{each}", passive=True)
        assert connection.call(1, look, commands.Queue.DeclareOk).message_count == left


# the types beyond the specification's


def test_consistent_hashing_keeps_keys_together_and_weighs(channel, exchange, name):
    source = exchange("x-consistent-hash")
    for each, weight in (("a", "1"), ("b", "3")):
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", source, weight)
    for _ in range(2):
        for key in range(200):
            channel.basic_publish(source, f"key-{key}", str(key))
    taken = [take_all(channel, f"{name}-{each}") for each in "ab"]
    assert all(bodies[: len(bodies) // 2] == bodies[len(bodies) // 2 :] for bodies in taken)
    assert sum(map(len, taken)) == 400
    assert 40 <= len(taken[0]) <= 160


@pytest.mark.parametrize("hashed", ["message_id", "correlation_id", "timestamp"])
def test_consistent_hashing_by_a_property(channel, exchange, name, hashed):
    source = exchange("x-consistent-hash", arguments={"hash-property": hashed})
    for each in "ab":
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", source, "1")
    for number in range(60):
        value = number % 20
        properties = pika.BasicProperties(**{hashed: value if hashed == "timestamp" else f"m-{value}"})
        channel.basic_publish(source, f"{number}", str(value), properties)
    channel.basic_publish(source, "without", "without")
    taken = [take_all(channel, f"{name}-{each}") for each in "ab"]
    assert set(taken[0]).isdisjoint(taken[1])
    assert all(taken)
    assert sum(map(len, taken)) == 61


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        (
            {"hash-property": "message_id", "hash-header": "h"},
            "hash-header and hash-property are mutually exclusive",
        ),
    ],
)
def test_consistent_hashing_by_what_cannot_be_is_refused(channel, name, arguments, reason):
    code, text = refusal(channel.exchange_declare, f"{name}-x", "x-consistent-hash", arguments=arguments)
    assert (code, reason in text) == (406, True)


def test_consistent_hashing_by_a_header(channel, exchange, name):
    source = exchange("x-consistent-hash", arguments={"hash-header": "device"})
    for each in "ab":
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", source, "1")
    for number in range(60):
        properties = pika.BasicProperties(headers={"device": number % 20})
        channel.basic_publish(source, f"{number}", str(number % 20), properties)
    taken = [take_all(channel, f"{name}-{each}") for each in "ab"]
    assert set(taken[0]).isdisjoint(taken[1])
    assert all(taken)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("x-random", marks=pytest.mark.extension), pytest.param("x-local-random", id="local")],
)
def test_random_choice_gives_each_message_to_one(channel, exchange, name, kind):
    source = exchange(kind)
    for each in "ab":
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", source, "")
    for number in range(100):
        channel.basic_publish(source, "", str(number))
    taken = [take_all(channel, f"{name}-{each}") for each in "ab"]
    assert sorted(map(int, taken[0] + taken[1])) == list(range(100))
    assert min(map(len, taken)) > 20


def test_a_binding_of_a_local_random_exchange_has_no_routing_key(amqp_connect, exchange, queue):
    refused = refusal(amqp_connect().channel().queue_bind, queue, exchange("x-local-random"), "k")
    assert refused == (406, "Non empty binding 'k' key not permitted")


def test_modulus_hashing_keeps_keys_together_whatever_bindings_are_called(channel, exchange, name):
    source = exchange("x-modulus-hash")
    for each in "ab":
        channel.queue_declare(f"{name}-{each}", exclusive=True)
        channel.queue_bind(f"{name}-{each}", source, "any" if each == "a" else "")
    for number in range(60):
        channel.basic_publish(source, f"k{number % 20}", f"k{number % 20}")
    taken = [take_all(channel, f"{name}-{each}") for each in "ab"]
    assert set(taken[0]).isdisjoint(taken[1])
    assert all(taken)
    assert len(taken[0] + taken[1]) == 60


@pytest.mark.extension  # RabbitMQ has it as a plug-in of others
def test_delayed_messages_come_when_they_are_due(channel, amqp_connect, exchange, queue):
    source = exchange("x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_bind(queue, source, "k")
    channel.confirm_delivery()
    later = pika.BasicProperties(headers={"x-delay": 300})
    channel.basic_publish(source, "k", b"later", later, mandatory=True)
    channel.basic_publish(source, "k", b"now", mandatory=True)
    refused = refusal(amqp_connect().channel().exchange_declare, f"{source}-2", "x-delayed-message")
    assert refused == (406, "Invalid argument, 'x-delayed-type' must be an existing exchange type")
    assert take_all(channel, queue) == ["now"]
    consumer = amqp.Collector(channel, queue, ack=True)
    assert consumer.wait(1)[0].body == b"later"


def test_alternate_exchanges_take_what_is_left_and_cycles_end(channel, exchange, queue, name):
    channel.exchange_declare(f"{name}-a", "direct", arguments={"alternate-exchange": f"{name}-b"})
    channel.exchange_declare(f"{name}-b", "direct", arguments={"alternate-exchange": f"{name}-a"})
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish(f"{name}-a", "left", b"x", mandatory=True)
    channel.queue_bind(queue, f"{name}-b", "left")
    channel.basic_publish(f"{name}-a", "left", b"x", mandatory=True)
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    assert method.exchange == f"{name}-a"
    for each in "ab":
        channel.exchange_delete(f"{name}-{each}")
