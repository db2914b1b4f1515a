"""The broker is killed and comes back in the middle of a write and of a read, which notice nothing."""

import os
import threading
import time

import pytest

from tests.e2e.broker_process import BrokerProcess
from tests.spark.helpers import Queue, Source
from tests.waiting import pass_time, until

pytestmark = pytest.mark.long

WAIT_MAX_S = 60


@pytest.fixture
def own_broker(tmp_path):
    process = BrokerProcess(tmp_path / "broker").start()
    yield process
    process.kill9()


def waiting_at(row, directory):
    """Let rows through; at one of them, once, wait until the broker is gone."""
    reached, gone = str(directory / "reached"), str(directory / "gone")

    def through(payload):
        if int(payload[:8]) == row and not os.path.exists(reached):
            os.close(os.open(reached, os.O_CREAT))
            deadline = time.monotonic() + WAIT_MAX_S
            while not os.path.exists(gone) and time.monotonic() < deadline:
                time.sleep(0.01)
        return payload

    return through


def killed_when_reached(broker, directory):
    """A thread that kills the broker when the row is reached, and starts it again a little later."""

    def run():
        until((directory / "reached").exists, WAIT_MAX_S)
        broker.kill9()
        (directory / "gone").touch()
        pass_time(0.5)
        broker.restart(kill=True, same_amqp_port=True)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def numbers(spark, count, size=8):
    from pyspark.sql import functions as F

    return spark.range(0, count, 1, 4).select(
        F.rpad(F.lpad(F.col("id").cast("string"), 8, "0"), size, "x").alias("payload")
    )


def test_a_write_goes_on_after_the_broker_was_killed(spark, own_broker, tmp_path):
    from pyspark.sql import functions as F

    queue = Queue(own_broker, "written")
    frame = numbers(spark, 20_000).select(
        F.udf(waiting_at(14_500, tmp_path), "string")("payload").alias("payload")
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    thread = killed_when_reached(own_broker, tmp_path)
    try:
        frame.write.format("sluice").options(**queue.options(confirmWindow=100)).mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        thread.join()
    assert (tmp_path / "gone").exists()
    assert queue.bodies(20_000) == [f"{number:08}" for number in range(20_000)]


def test_a_read_goes_on_after_the_broker_was_killed(spark, own_broker, tmp_path):
    from pyspark.sql import functions as F

    stream = Source(own_broker, "read")
    numbers(spark, 20_000, 1_000).write.format("sluice").options(**stream.options()).mode("append").save()
    stream.wait_for(20_000)
    thread = killed_when_reached(own_broker, tmp_path)
    try:
        frame = spark.read.format("sluice").options(**stream.options(offsetsPerPartition=10_000)).load()
        frame = frame.select("offset", F.col("payload").cast("string").alias("payload"))
        through = F.udf(waiting_at(500, tmp_path), "string")
        rows = frame.select("offset", F.substring(through("payload"), 1, 8).alias("payload")).collect()
    finally:
        thread.join()
    assert (tmp_path / "gone").exists()
    assert sorted(row.offset for row in rows) == list(range(20_000))
    assert sorted(row.payload for row in rows) == [f"{number:08}" for number in range(20_000)]
