"""What was read can be written as it is: into another queue, and as Spark's Kafka source would have it."""

import pika
import pytest

from tests.e2e import amqp
from tests.spark.helpers import Queue, Source

KEYS = ("eu", None, "eu/x", "a.b", "big")


@pytest.fixture(scope="module")
def source(broker):
    """A stream with a message for each of `KEYS`; one came by an exchange."""
    source = Source(broker, "b1")
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_bind(source.name, "amq.topic", "a.#")
    for number, key in enumerate(KEYS):
        exchange, address = "", f"$queue/b1/{key}" if key else "b1"
        if key == "a.b":
            exchange, address = "amq.topic", key
        headers = {"n": str(number), "raw": b"\xff\x00"}
        channel.basic_publish(
            exchange, address, str(number), pika.BasicProperties(headers=headers, message_id=f"m{number}")
        )
    amqp.close_quietly(connection)
    source.wait_for(len(KEYS))
    return source


def load(spark, source, **options):
    return spark.read.format("sluice").options(**source.options(**options)).load()


def save(frame, into, **options):
    frame.write.format("sluice").options(**into.options(wait="visible", **options)).mode("append").save()


def rows(frame, *columns):
    return [tuple(row) for row in frame.orderBy("offset").select(*columns).collect()]


def test_what_was_read_is_written_with_its_routing_keys_and_properties(spark, broker, source):
    big = Source(broker, "big")
    read = load(spark, source)
    assert rows(read, "routing_key") == [(key,) for key in KEYS]
    save(read, big)
    kept = ("routing_key", "headers", "message_id", "payload")
    assert rows(load(spark, big), *kept) == rows(read, *kept)
    again = Queue(broker, "again")
    save(load(spark, big), again)
    deliveries = again.take(len(KEYS))
    assert sorted(delivery.method.routing_key for delivery in deliveries) == sorted(
        f"$queue/again/{key}" if key else "again" for key in KEYS
    )


def test_addresses_of_another_queue_lose_its_name_only(spark, broker):
    queue = Queue(broker, "readdressed")
    frame = spark.sql("select 'x' payload, explode(array('$queue/b1/eu', '$queue/b1')) routing_key")
    save(frame, queue)
    assert {delivery.method.routing_key for delivery in queue.take(2)} == {
        "$queue/readdressed/eu",
        "readdressed",
    }


def test_the_columns_of_kafkas_source_can_be_read_and_written(spark, broker, source):
    copy = Source(broker, "kafka-copy")
    read = load(spark, source, columns="kafka")
    assert read.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    wanted = [
        (
            None if key is None else key.encode(),
            str(number).encode(),
            "b1",
            [("n", str(number).encode()), ("raw", b"\xff\x00")],
        )
        for number, key in enumerate(KEYS)
    ]
    assert rows(read, "key", "value", "topic", "headers") == wanted
    save(read, copy)
    kept = ("key", "value", "headers")
    assert rows(load(spark, copy, columns="kafka"), *kept) == rows(read, *kept)
    # as jobs for Kafka write: texts, and headers made by hand
    sink = Queue(broker, "from-kafka")
    save(
        read.selectExpr(
            "cast(key as string) key",
            "cast(value as string) value",
            "array(struct('h' as key, cast('v' as binary) as value)) headers",
        ),
        sink,
    )
    deliveries = sink.take(len(KEYS))
    assert {delivery.method.routing_key for delivery in deliveries} >= {"$queue/from-kafka/eu", "from-kafka"}
    assert all(delivery.headers == {"h": "v"} for delivery in deliveries)
