"""What a publisher puts on a message over AMQP arrives unchanged."""

import datetime
import decimal
import struct

import pika
import pytest
from pamqp import commands

from tests.e2e import amqp
from tests.e2e.amqp import Collector

ALL_PROPERTIES = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {"tenant": "acme", "try": 3},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "3600000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order.created",
    "user_id": "guest",
    "app_id": "shop",
    "cluster_id": "c",
}


def round_trip(channel, queue, properties: pika.BasicProperties) -> pika.BasicProperties:
    channel.basic_publish("", queue, b"x", properties)
    return channel.basic_get(queue, auto_ack=True)[1]


def test_all_properties_arrive_unchanged(channel, queue):
    received = round_trip(channel, queue, pika.BasicProperties(**ALL_PROPERTIES))
    assert {name: getattr(received, name) for name in ALL_PROPERTIES} == ALL_PROPERTIES


@pytest.mark.parametrize("name", sorted(ALL_PROPERTIES))
def test_single_property_arrives_alone(channel, queue, name):
    received = round_trip(channel, queue, pika.BasicProperties(**{name: ALL_PROPERTIES[name]}))
    kept = {
        other: getattr(received, other) for other in ALL_PROPERTIES if getattr(received, other) is not None
    }
    assert kept == {name: ALL_PROPERTIES[name]}


def test_message_without_properties_arrives_without(channel, queue):
    received = round_trip(channel, queue, pika.BasicProperties())
    assert {name: getattr(received, name) for name in ALL_PROPERTIES} == dict.fromkeys(ALL_PROPERTIES)


def test_headers_of_every_pika_type_arrive_unchanged(channel, queue):
    headers = {
        "text": "grüße",
        "bytes": b"\x00\xff",
        "yes": True,
        "no": False,
        "small": 7,
        "negative": -7,
        "big": 2**40,
        "exact": decimal.Decimal("3.14"),
        "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "nothing": None,
        "table": {"a": {"b": [1, "two", None]}},
        "array": [1, {"x": "y"}, [True]],
        "": "empty name",
    }
    received = round_trip(channel, queue, pika.BasicProperties(headers=headers)).headers
    received["when"] = received["when"].replace(tzinfo=datetime.UTC)
    assert received == headers
    assert [key for key, value in headers.items() if not isinstance(received[key], type(value))] == []


def short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


# RabbitMQ's field types, which clients follow: one entry per type octet
FIELDS = {
    "boolean": b"t\x01",
    "int8": b"b\xfe",
    "uint8": b"B\xfe",
    "int16": b"s\xff\xfe",
    "uint16": b"u\xff\xfe",
    "int32": b"I\xff\xff\xff\xfe",
    "uint32": b"i\xff\xff\xff\xfe",
    "int64": b"l\xff\xff\xff\xff\xff\xff\xff\xfe",
    "float": b"f\x3f\x00\x00\x00",
    "double": b"d\x3f\xe0\x00\x00\x00\x00\x00\x00",
    "decimal": b"D\x02\x00\x00\x01\x3a",
    "long string": b"S" + long("grüße".encode()),
    "string of bytes": b"S" + long(b"\xff\xfe\x00"),
    "byte array": b"x" + long(b"\x00\x01"),
    "timestamp": b"T\x00\x00\x00\x00\x65\x53\xf1\x00",
    "table": b"F" + long(short(b"k") + b"t\x00"),
    "array": b"A" + long(b"t\x01" + b"S" + long(b"x")),
    "void": b"V",
}


def headers_only(*fields: bytes) -> bytes:
    """The property block of a message with just this header table."""
    return b"\x20\x00" + long(b"".join(fields))


@pytest.mark.parametrize("kind", sorted(FIELDS))
def test_header_of_each_field_type_arrives_byte_for_byte(raw_amqp, queue, kind):
    block = headers_only(short(b"h") + FIELDS[kind])
    connection = raw_amqp()
    connection.open_channel()
    connection.publish(1, queue, b"x", block)
    connection.send(1, commands.Basic.Get(0, queue, True))
    assert connection.read_content_bytes(commands.Basic.GetOk)[1][12:] == block


def test_order_and_duplicates_of_headers_are_kept(raw_amqp, queue):
    block = headers_only(
        short(b"z") + FIELDS["int8"], short(b"a") + FIELDS["boolean"], short(b"z") + FIELDS["void"]
    )
    connection = raw_amqp()
    connection.open_channel()
    connection.publish(1, queue, b"x", block)
    connection.send(1, commands.Basic.Get(0, queue, True))
    assert connection.read_content_bytes(commands.Basic.GetOk)[1][12:] == block


def test_header_table_of_60_kilobytes_arrives_unchanged(channel, queue):
    headers = {f"header-{number}": "v" * 500 for number in range(120)}
    assert round_trip(channel, queue, pika.BasicProperties(headers=headers)).headers == headers


def test_equal_and_different_properties_in_turn_arrive_unchanged(channel, queue):
    """The same properties again and again, then different ones in between."""
    expected = []
    for number in range(60):
        kind = "same" if number % 3 else f"other-{number}"
        amqp.publish(channel, queue, str(number), type=kind, headers={"n": number // 5})
        expected.append((str(number), kind, number // 5))
    received = []
    for _ in range(60):
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        received.append((body.decode(), properties.type, properties.headers["n"]))
    assert received == expected


def test_user_id_of_another_user_is_406(channel, queue):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.basic_publish("", queue, b"x", pika.BasicProperties(user_id="somebody-else"))
    assert closed.value.reply_code == 406


def test_names_keys_tags_and_properties_may_have_any_letters(channel, name):
    text = "жук/ñ 猫 🐈"
    queue, exchange = f"очередь-{name}", f"交換-{name}"
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "猫.*")
    properties = pika.BasicProperties(
        headers={text: text, "list": [text]}, correlation_id=text, message_id=text, app_id=text
    )
    channel.basic_publish(exchange, "猫.🐈", text.encode(), properties)
    consumer = Collector(channel, queue, consumer_tag=text)
    (delivery,) = consumer.wait(1)
    assert (delivery.method.consumer_tag, delivery.method.routing_key, delivery.method.exchange) == (
        text,
        "猫.🐈",
        exchange,
    )
    assert (delivery.headers, delivery.properties.correlation_id) == ({text: text, "list": [text]}, text)
    channel.queue_delete(queue)
    channel.exchange_delete(exchange)
