"""Consecutive publishes that each have different properties, in one chunk of input."""

import pytest
from pamqp import commands, header
from pamqp import frame as pamqp_frame

from tests.e2e import amqp
from tests.e2e.amqp import Collector
from tests.e2e.raw_amqp import BODY, RawAmqp, frame, method_frame
from tests.e2e.staging import commit

COUNT = 300


def batch(key: str, messages, *, mandatory: bool = False) -> bytes:
    """The frames of publishes given as (body, properties)."""
    return b"".join(
        method_frame(1, commands.Basic.Publish(0, "", key, mandatory))
        + pamqp_frame.marshal(header.ContentHeader(0, len(body), commands.Basic.Properties(**fields)), 1)
        + (frame(BODY, 1, body) if body else b"")
        for body, fields in messages
    )


def plain(number: int) -> tuple[bytes, dict[str, object]]:
    fields = {"message_id": f"id-{number}", "headers": {"n": number}, "delivery_mode": 1 + number % 2}
    return b"%d" % number * (number % 4), fields


@pytest.fixture
def publisher(raw_amqp):
    connection = raw_amqp()
    connection.open_channel(confirm=True)
    return connection


def check(deliveries, first: int = 0) -> None:
    for number, delivery in enumerate(deliveries, first):
        body, fields = plain(number)
        assert delivery.body == body
        assert delivery.properties.message_id == fields["message_id"]
        assert delivery.properties.delivery_mode == fields["delivery_mode"]
        assert delivery.headers["n"] == number


def test_bodies_and_properties_arrive_in_order(publisher, channel, queue):
    publisher.send_bytes(batch(queue, map(plain, range(COUNT))))
    assert sorted(publisher.read_confirms(COUNT)) == list(range(1, COUNT + 1))
    assert amqp.count(channel, queue) == COUNT
    consumer = Collector(channel, queue, ack=True)
    check(consumer.wait(COUNT))


def test_delivery_mode_without_a_meaning_among_varied_messages_is_taken(publisher, channel, queue):
    frames = batch(queue, [(b"x", {"message_id": f"id-{n}", "delivery_mode": 2}) for n in range(5)])
    frames = frames.replace(b"\x02\x04id-3", b"\x03\x04id-3")  # which pamqp does not encode
    publisher.send_bytes(frames)
    publisher.read_confirms(5)
    assert [channel.basic_get(queue)[1].delivery_mode for _ in range(5)] == [2, 2, 2, 3, 2]


@pytest.mark.extension
def test_groups_and_streams_add_headers_to_varied_messages(publisher, channel, name):
    channel.queue_declare(name, durable=True)
    channel.queue_declare(f"{name}-s", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_qos(prefetch_count=100)
    for queue in (name, f"{name}-s"):
        group = Collector(channel, queue, ack=True, arguments={"x-consumer-group": "g"})
        alone = None
        if queue != name:
            alone = Collector(channel, queue, ack=True, arguments={"x-stream-offset": "first"})
        publisher.send_bytes(batch(queue, map(plain, range(COUNT))))
        check(group.wait(COUNT))
        assert [d.headers["x-offset"] for d in group.deliveries] == list(range(COUNT))
        assert {d.headers["x-group-id"] for d in group.deliveries} == {"g"}
        if alone is not None:
            check(alone.wait(COUNT))
            assert [d.headers["x-stream-offset"] for d in alone.deliveries] == list(range(COUNT))
            assert "x-group-id" not in alone.deliveries[0].headers
        channel.queue_delete(queue)


@pytest.mark.extension
def test_messages_with_options_among_varied_ones_are_honoured(publisher, channel, queue):
    """Deduplicated, expiring at once, scheduled: each amid messages that ask for nothing."""
    messages = [plain(number) for number in range(60)]
    asking = [
        {"headers": {"x-deduplication-id": "same"}},
        {"headers": {"x-deduplication-id": "same"}},
        {"expiration": "0"},
        {"headers": {"x-delay": 3_600_000}},
        {"priority": 3},
    ]
    for at, fields in enumerate(asking):
        messages.insert(20 + 5 * at, (b"asks %d" % max(at, 1), fields))
    publisher.send_bytes(batch(queue, messages))
    publisher.read_confirms(65)
    consumer = Collector(channel, queue, ack=True)
    got = [d.body for d in consumer.wait(62)]
    del messages[35], messages[30], messages[25]  # expired, for later, the same as before
    expected = [body for body, _ in messages]
    assert got == expected
    assert len(consumer.wait_quiet()) == 62


def test_full_queue_refuses_exactly_the_messages_without_room(publisher, channel, name):
    arguments = {"x-max-length": 50, "x-overflow": "reject-publish"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    publisher.send_bytes(batch(name, map(plain, range(80))))
    refused: list[int] = []
    accepted = 0
    while accepted + len(refused) < 80:
        method = publisher.read().method
        if isinstance(method, commands.Basic.Nack):
            refused.append(method.delivery_tag)
        else:
            accepted = max(accepted, method.delivery_tag)
    assert (accepted, refused) == (50, list(range(51, 81)))
    assert amqp.count(channel, name) == 50
    consumer = Collector(channel, name, ack=True)
    check(consumer.wait(50))
    channel.queue_delete(name)


def test_unroutable_varied_messages_are_returned(publisher, name):
    publisher.send_bytes(batch(name, map(plain, range(20)), mandatory=True))
    for number in range(20):
        assert publisher.read_content(commands.Basic.Return).body == plain(number)[0]
        assert publisher.expect(commands.Basic.Ack).delivery_tag == number + 1


@pytest.mark.extension
def test_varied_messages_survive_a_kill(own_broker):
    process = own_broker()
    connection = amqp.connect(process.amqp_port)
    connection.channel().queue_declare("q", durable=True, arguments={"x-max-priority": 3})
    raw = RawAmqp(process.amqp_port)
    raw.open_channel(confirm=True)
    raw.send_bytes(batch("q", map(plain, range(COUNT))))
    raw.read_confirms(COUNT)
    process.kill9()
    process.start()
    connection = amqp.connect(process.amqp_port)
    consumer = Collector(connection.channel(), "q", ack=True)
    check(consumer.wait(COUNT))
    connection.close()


@pytest.mark.extension
@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 5}, {"x-queue-type": "stream"}])
def test_staged_rows_keep_properties_and_order(publisher, channel, name, arguments):
    def row(number: int, part: int) -> tuple[bytes, dict[str, object]]:
        staged = {"producer": "job", "epoch": 0, "part": part, "attempt": "a"}
        headers = {"mine": part, **{f"x-stage-{key}": value for key, value in staged.items()}}
        return b"%d" % number, {"message_id": f"id-{number}", "headers": headers, "delivery_mode": 2}

    channel.queue_declare(name, durable=True, arguments=arguments)
    channel.basic_qos(prefetch_count=100)
    for first in range(0, COUNT, 50):  # parts 1 and 0 take turns
        rows = [row(number, (first + 50) // 50 % 2) for number in range(first, first + 50)]
        # each row twice has the same properties as the one before: then it is not varied
        publisher.send_bytes(batch(name, [*rows, row(first + 49, (first + 50) // 50 % 2)]))
    publisher.read_confirms(COUNT + COUNT // 50)
    assert amqp.count(channel, name) == 0
    rows_each = (COUNT + COUNT // 50) // 2
    assert commit(channel, name, (0, "a", rows_each), (1, "a", rows_each))["status"] == "committed"
    consumer = Collector(
        channel,
        name,
        ack=True,
        arguments={"x-stream-offset": "first"} if "x-queue-type" in arguments else None,
    )
    consumer.wait(2 * rows_each)
    halves = [range(first, first + 50) for start in (50, 0) for first in range(start, COUNT, 100)]
    numbers = [number for half in halves for number in (*half, half[-1])]
    assert [int(d.body) for d in consumer.deliveries] == numbers
    assert [d.properties.message_id for d in consumer.deliveries] == [f"id-{n}" for n in numbers]
    assert [d.headers["mine"] for d in consumer.deliveries] == [(n + 50) // 50 % 2 for n in numbers]
    assert not any(key.startswith("x-stage") for d in consumer.deliveries for key in d.headers)
    channel.queue_delete(name)
