"""Writing from a real local Spark: each row is in the queue once, whatever is tried again."""

import os
import re
import shutil
import time

import pytest

from tests.spark.helpers import Queue
from tests.waiting import until


def write(frame, into, **options):
    frame.write.format("sluice").options(**into.options(**options)).mode("append").save()


def numbers(spark, count, parts=4):
    from pyspark.sql import functions as F

    return spark.range(0, count, 1, parts).select(F.col("id").cast("string").alias("payload"))


def expected(count):
    return sorted(str(number) for number in range(count))


def test_a_task_that_fails_and_is_tried_again(spark, broker, tmp_path):
    from pyspark.sql import functions as F

    queue = Queue(broker, "retried")
    mark = str(tmp_path / "failed")

    def fail_once(text):
        if text == "2500":
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return text
            raise RuntimeError("the first attempt fails in the middle")
        return text

    frame = numbers(spark, 4_000).select(F.udf(fail_once, "string")("payload").alias("payload"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "25")
    try:
        write(frame, queue)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert os.path.exists(mark)
    assert queue.bodies(4_000) == expected(4_000)


def test_rows_of_a_job_that_waits_can_all_be_consumed_when_it_is_over(spark, broker):
    queue = Queue(broker, "awaited")
    rows = numbers(spark, 100_000).selectExpr("payload", "concat('m-', payload) message_id")
    write(rows, queue, wait="visible")
    assert queue.count() == 100_000


def test_rows_with_a_delay_or_a_time_enter_the_queue_when_they_are_due(spark, broker):
    queue = Queue(broker, "scheduled")
    rows = numbers(spark, 3_000).selectExpr(
        "payload",
        "if(payload % 3 = 1, 4000, null) delay",
        "if(payload % 3 = 2, timestamp_millis(unix_millis(current_timestamp()) + 4000), null) deliver_at",
    )
    began = time.monotonic()
    write(rows, queue, wait="visible")
    if time.monotonic() - began < 3:
        assert queue.count() == 1_000
    assert queue.bodies(3_000) == expected(3_000)
    assert time.monotonic() - began >= 4


def test_all_columns_arrive(spark, broker):
    queue = Queue(broker, "columns")
    frame = spark.sql(
        "select binary('b') payload, 'eu/x' routing_key, map('k', 'v') headers, 'm-1' message_id,"
        " 'text/plain' content_type, 'c-1' correlation_id, '60000' expiration, 7 priority,"
        " timestamp'2026-01-01 00:00:00' timestamp"
    )
    write(frame, queue)
    delivery = queue.take(1)[0]
    properties = delivery.properties
    assert delivery.body == b"b"
    assert delivery.method.routing_key == "$queue/columns/eu/x"
    assert delivery.headers == {"k": "v"}
    assert (properties.message_id, properties.content_type, properties.correlation_id) == (
        "m-1",
        "text/plain",
        "c-1",
    )
    assert (properties.expiration, properties.priority, properties.delivery_mode) == ("60000", 7, 2)
    assert properties.timestamp == 1_767_225_600


def test_what_cannot_be_written_is_said_at_once(spark, broker):
    from pyspark.errors import PySparkException

    queue = Queue(broker, "refusing", **{"x-max-length": 2, "x-overflow": "reject-publish"})
    good = numbers(spark, 3, 1)
    large = good.selectExpr("repeat('x', 2000) payload")
    for frame, options, reason in (
        (large, {"queue": "small"}, "message of 2000 bytes is larger than the queue's limit of 1000"),
        (good.selectExpr("1 payload"), {}, "column payload is binary or string, not int"),
        (good.selectExpr("payload", "1 message_id"), {}, "column message_id is string, not int"),
        (good, {"quue": "x"}, "unknown option quue"),
        (good, {"delivery": "maybe"}, "option delivery is one of"),
        (good.withColumnRenamed("payload", "body"), {}, "column 'body' cannot be written"),
        (good, {"epoch": 1}, "option epoch needs option producerId"),
        (good, {"queue": "nowhere"}, "no queue 'nowhere'"),
        (good, {"username": "nobody"}, "options username, password"),
        (good, {"port": 1, "connectTimeout": "500ms"}, "options host, port, connectTimeout"),
        (good, {}, "no room for the 3 rows of the epoch"),
    ):
        with pytest.raises(PySparkException, match=reason) as caught:
            write(frame, queue, **options)
        first = "\n".join(str(caught.value).splitlines()[:2])  # before an error of a task Spark says which
        assert re.search(reason, first), first
        assert "Traceback" not in first
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        good.write.format("sluice").options(**queue.options()).mode("overwrite").save()
    assert queue.bodies(0) == []


def test_other_deliveries(spark, broker):
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    queue = Queue(broker, "other")
    write(numbers(spark, 50), queue, delivery="at-least-once")
    assert queue.bodies(50) == expected(50)
    named = numbers(spark, 50).withColumn("message_id", F.col("payload"))
    for _ in range(2):
        write(named, queue, delivery="idempotent")
    assert queue.bodies(50) == expected(50)
    with pytest.raises(PySparkException, match="another body"):
        write(named.withColumn("payload", F.lit("other")), queue, delivery="idempotent")


def test_a_job_that_may_be_repeated(spark, broker):
    queue = Queue(broker, "repeated")
    for epoch in (0, 0, 1, 1):
        write(numbers(spark, 10), queue, producerId="nightly", epoch=epoch)
    assert queue.bodies(20) == sorted(expected(10) * 2)


class Stream:
    """A streaming query over text files, run until it has taken all of them."""

    def __init__(self, spark, queue, directory):
        from pyspark.sql import functions as F

        self.spark = spark
        self.queue = queue
        self.source = directory / "in"
        self.checkpoint = directory / "checkpoint"
        self.source.mkdir()
        self.payload = F.col("value")

    def add(self, name, lines):
        (self.source / f".{name}").write_text("".join(f"{line}\n" for line in lines))
        (self.source / f".{name}").rename(self.source / name)

    def start(self, **options):
        frame = self.spark.readStream.format("text").load(str(self.source))
        return (
            frame.repartition(3)
            .select(self.payload.alias("payload"))
            .writeStream.format("sluice")
            .options(**self.queue.options(**options))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self):
        assert self.start().awaitTermination(60)

    def forget_commit(self, number):
        """As after a crash between the sink's commit and Spark's own."""
        for name in (str(number), f".{number}.crc"):
            (self.checkpoint / "commits" / name).unlink()


def test_a_stream_that_repeats_an_epoch(spark, broker, tmp_path):
    from pyspark.errors import StreamingQueryException

    queue = Queue(broker, "streamed")
    stream = Stream(spark, queue, tmp_path)
    stream.add("first", range(100))
    stream.run()
    shutil.copytree(stream.checkpoint, tmp_path / "old")
    stream.forget_commit(0)
    stream.add("second", range(100, 150))
    stream.run()
    stream.forget_commit(1)
    stream.run()
    assert queue.bodies(150) == expected(150)
    # an old checkpoint counts epochs again that the queue has: silence would lose what is new in them
    stream.checkpoint = tmp_path / "old"
    stream.forget_commit(0)
    with pytest.raises(StreamingQueryException, match="older than what the queue has"):
        stream.run()
    assert queue.bodies(0) == []


def test_a_stream_that_is_stopped_while_it_writes(spark, broker, tmp_path):
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as F

    mark = tmp_path / "reached"

    def stay(text):
        if text == "90" and not mark.exists():
            mark.touch()
            time.sleep(60)
        return text

    queue = Queue(broker, "stopped")
    stream = Stream(spark, queue, tmp_path)
    stream.add("lines", range(100))
    stream.payload = F.udf(stay, "string")("value")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        query = stream.start(confirmWindow=5)
        until(mark.exists, 60)
        query.stop()
        stream.run()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert queue.bodies(100) == expected(100)
    stream.add("more", range(1))
    query = stream.start(queue="nowhere")
    with pytest.raises(StreamingQueryException, match="no queue 'nowhere'"):
        query.awaitTermination(60)
