"""How jobs come to the broker: as users who may do little, at several addresses; what is said of failures."""

import re

import pytest

from tests.spark.helpers import Queue, Source
from tests.spark.test_write import expected, numbers, write


def read(spark, queue, **options):
    return spark.read.format("sluice").options(**queue.options(**options)).load()


def test_a_user_with_write_alone_writes_and_one_with_read_alone_reads_and_lists(spark, broker, tmp_path):
    from pyspark.errors import PySparkException

    queue, stream = Queue(broker, "granted-queue"), Source(broker, "granted-stream")
    writer = {"username": "writer", "password": "writer", "wait": "visible"}
    write(numbers(spark, 10), queue, **writer)
    write(numbers(spark, 10), stream, **writer)
    reader = {"username": "reader", "password": "reader"}
    assert read(spark, queue, state="ready", **reader).count() == 10
    assert read(spark, stream, **reader).count() == 10
    query = (
        spark.readStream.format("sluice")
        .options(**stream.options(startingOffsets="latest", group="granted-group", **reader))
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    with pytest.raises(PySparkException, match="403 .*granted-queue.*'writer'.*reading needs read on it"):
        read(spark, queue, state="ready", username="writer", password="writer").count()
    assert queue.bodies(10) == expected(10)


def test_the_addresses_of_a_broker_are_tried_in_turn(spark, broker):
    queue = Queue(broker, "addressed")
    hosts = f"127.0.0.1:1,127.0.0.1:{broker.amqp_port}"
    write(numbers(spark, 10), queue, host=hosts)
    options = {"queue": queue.name, "url": f"amqp://guest:guest@{hosts}/", "state": "ready"}
    assert spark.read.format("sluice").options(**options).load().count() == 10


def test_a_wrong_option_of_a_streaming_read_is_said_in_the_first_line(spark, broker, tmp_path):
    from pyspark.errors import StreamingQueryException

    source = Source(broker, "wrongly-read")
    for options, reason in (
        ({"startingOffset": "latest"}, "unknown option startingoffset"),
        ({"startingOffsets": "latest"}, "startingOffsets latest needs option group"),
        ({"port": 1, "connectTimeout": "300ms"}, r"no connection to localhost:1 within 0\.3 s"),
        ({"queue": "nowhere"}, "no queue 'nowhere'"),
    ):
        query = (
            spark.readStream.format("sluice")
            .options(**source.options(**options))
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        with pytest.raises(StreamingQueryException, match=reason) as caught:
            query.awaitTermination(60)
        first = str(caught.value).splitlines()[0]
        assert re.search(reason, first), first
