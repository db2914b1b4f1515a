"""Lists of a queue's messages in one state, read by a real local Spark."""

import pytest

from tests.e2e import amqp
from tests.spark.helpers import Queue

pytestmark = pytest.mark.long


def load(spark, listed, **options):
    return spark.read.format("sluice").options(**listed.options(**options)).load()


def test_failed_done_and_waiting_messages(spark, broker):
    queue = Queue(broker, "listed")
    connection = amqp.connect(broker.amqp_port)
    channel = connection.channel()
    channel.confirm_delivery()
    bodies = list(map(str, range(2_500)))  # several pages
    amqp.publish(channel, queue.name, *bodies, headers={"k": 1}, message_id="m")
    channel.basic_qos(prefetch_count=30)
    consumer = amqp.Collector(channel, queue.name)
    taken = consumer.wait(30)
    for delivery in taken[:10]:
        channel.basic_reject(delivery.tag, requeue=False)
    for delivery in taken[10:15]:
        channel.basic_ack(delivery.tag)
    amqp.count(channel, queue.name)
    failed = load(spark, queue, state="failed").collect()
    assert [bytes(row.payload).decode() for row in failed] == bodies[:10]
    row = failed[0]
    assert (row.queue, row.offset, row.routing_key, row.exchange) == ("listed", 0, None, "")
    assert (row.headers, row.message_id, row.state, row.attempts) == ({"k": "1"}, "m", "failed", 1)
    assert row.state_timestamp >= row.timestamp
    done = load(spark, queue, state="done", includeHeaders="false").collect()
    assert [(row.offset, row.headers) for row in done] == [(offset, None) for offset in range(10, 15)]
    held = load(spark, queue, state="in_flight").collect()
    assert {row.consumer for row in held} == {held[0].consumer}
    assert held[0].consumer
    ready = load(spark, queue, state="ready")
    offsets = [row.offset for row in ready.select("offset").collect()]
    assert offsets == list(range(15 + len(held), 2_500))
    assert ready.first().state_timestamp is None
    amqp.close_quietly(connection)


def test_what_cannot_be_listed(spark, broker):
    from pyspark.errors import PySparkException

    queue = Queue(broker, "unlisted")
    for options, reason in (
        ({"state": "gone"}, "option state is one of ready"),
        ({"state": "failed", "startingOffsets": "earliest"}, "option startingOffsets is for streams"),
        ({"state": "failed", "group": "nobody"}, "no consumer group 'nobody'"),
        ({"state": "failed", "queue": "nowhere"}, "no queue 'nowhere'.*option"),
    ):
        with pytest.raises(PySparkException, match=reason):
            load(spark, queue, **options).collect()
