"""Writing from Spark and reading, local[2], the broker on the same machine: rows a second.

    python -m benchmarks.spark [--only write] [--rows 300000] [--rounds 3]

Writing goes into durable queues; then by the clock: how long after `save()` the last row of an epoch can be
consumed, and how long a list of what is ready takes. Reading is of a stream that Spark filled. Rows of 100
bytes. Needs the extra `spark` and Java: `make bench-spark`. The first write and read do not count.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import command_line
from benchmarks.brokers import SluiceMQ, started
from spark_bridge.client import Connection
from spark_bridge.settings import ConnectionSettings

ROW_BYTES = 100
PARTITIONS = 4
CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
}


def session() -> Any:
    """A local Spark that knows the format."""
    from pyspark.sql import SparkSession

    import spark_bridge

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    builder = SparkSession.builder.master("local[2]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_bridge.register(spark)
    return spark


def payloads(spark: Any, row_count: int) -> Any:
    """Rows of `ROW_BYTES` bytes."""
    return spark.range(0, row_count, 1, PARTITIONS).selectExpr(
        f"cast(rpad(cast(id as string), {ROW_BYTES}, 'x') as binary) payload"
    )


def measured(rounds: int, row_count: int, write: Callable[[], None]) -> str:
    """Rows a second, the median of some rounds."""
    rates = []
    for _ in range(rounds):
        begun = time.monotonic()
        write()
        rates.append(row_count / (time.monotonic() - begun))
    return f"{median(rates):,.0f} rows/s (best {max(rates):,.0f})"


def write(spark: Any, broker: SluiceMQ, row_count: int, rounds: int) -> None:
    """The deliveries one after the other, each into a queue of its own."""
    from pyspark.sql import functions as F

    rows = payloads(spark, row_count)
    named = rows.withColumn("message_id", F.substring(F.col("payload").cast("string"), 1, 12))
    cases = (
        ("exactly-once", rows, "exactly-once"),
        ("exactly-once, each with a message_id", named, "exactly-once"),
        ("at-least-once", rows, "at-least-once"),
    )
    for number, (what, frame, delivery) in enumerate(cases):
        queue = f"spark-{number}"
        broker.target.declare(queue)
        writer = frame.write.format("sluice").mode("append").option("queue", queue)
        writer = writer.option("port", broker.target.amqp_port).option("delivery", delivery)
        if not number:
            writer.save()
        print(f"{what}: {measured(rounds, row_count, writer.save)}")
    for number in range(rounds):
        visible_and_listed(named, broker, f"spark-visible-{number}", row_count)


def visible_and_listed(rows: Any, broker: SluiceMQ, queue: str, row_count: int) -> None:
    """Write one epoch into a new queue, wait until all its rows can be consumed, and list them."""
    with Connection(ConnectionSettings("127.0.0.1", broker.target.amqp_port)) as connection:
        broker.target.declare(queue)
        writer = rows.write.format("sluice").mode("append").option("queue", queue)
        writer.option("port", broker.target.amqp_port).option("delivery", "exactly-once").save()
        saved_s = time.monotonic()
        while connection.count(queue) < row_count:
            time.sleep(0.01)
        print(f"all rows can be consumed {time.monotonic() - saved_s:.2f} s after save()")
    reader = rows.sparkSession.read.format("sluice").option("queue", queue).option("state", "ready")
    begun_s = time.monotonic()
    counted = reader.option("port", broker.target.amqp_port).load().count()
    print(f"a list of {counted:,} ready messages takes {time.monotonic() - begun_s:.2f} s")


def read(spark: Any, broker: SluiceMQ, row_count: int, rounds: int) -> None:
    """Fill a stream and read it."""
    queue = "spark-stream"
    options = {"queue": queue, "port": str(broker.target.amqp_port)}
    with Connection(ConnectionSettings("127.0.0.1", broker.target.amqp_port)) as connection:
        broker.target.declare(queue, arguments={"x-queue-type": "stream"})
        payloads(spark, row_count).write.format("sluice").options(**options).mode("append").save()
        while connection.count(queue) < row_count:
            time.sleep(0.1)
    frame = spark.read.format("sluice").options(**options).load()

    def add_up() -> None:
        total = frame.selectExpr("sum(length(payload))").first()[0]
        assert total == 100 * row_count

    add_up()
    print(f"batch read: {measured(rounds, row_count, add_up)}")


MEASURES = {"write": write, "read": read}


def main() -> None:
    """Print the figures."""
    parser = command_line(__doc__)
    parser.add_argument("--only", choices=MEASURES)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = session()
    for name in [given.only] if given.only else MEASURES:
        with started(SluiceMQ) as broker:
            MEASURES[name](spark, broker, given.rows, given.rounds)
    spark.stop()


if __name__ == "__main__":
    main()
