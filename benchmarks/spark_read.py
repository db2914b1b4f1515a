"""Reading a stream from Spark, local[2], the broker on the same machine: rows a second.

    python -m benchmarks.spark_read [--rows 400000] [--rounds 3]

Rows of 100 bytes, written by Spark before. Needs the extra `spark` and Java: `make bench-spark`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.brokers import SluiceMQ
from benchmarks.spark_write import measured, payloads, session
from spark_bridge import wire
from spark_bridge.client import Connection
from spark_bridge.settings import ConnectionSettings

QUEUE = "spark-stream"
STREAM = {"x-queue-type": "stream"}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    spark = session()
    with tempfile.TemporaryDirectory(prefix="sluicemq-spark-") as directory:
        broker = SluiceMQ(Path(directory))
        broker.start()
        try:
            measure(spark, broker, arguments.rows, arguments.rounds)
        finally:
            spark.stop()
            broker.clear()


def measure(spark: Any, broker: SluiceMQ, row_count: int, rounds: int) -> None:
    """Fill a stream and read it."""
    options = {"queue": QUEUE, "port": str(broker.amqp_port)}
    with Connection(ConnectionSettings("127.0.0.1", broker.amqp_port)) as connection:
        arguments = b"\0\0" + wire.short(QUEUE) + b"\2" + wire.table(STREAM)
        connection.call(50, 10, arguments, answer=(50, 11))
        payloads(spark, row_count).write.format("sluice").options(**options).mode("append").save()
        while connection.declare(QUEUE, passive=True)[1] < row_count:
            time.sleep(0.1)
    frame = spark.read.format("sluice").options(**options).load()

    def read() -> None:
        total = frame.selectExpr("sum(length(payload))").first()[0]
        assert total == 100 * row_count

    read()
    print(f"batch read: {measured(rounds, row_count, read)}")


if __name__ == "__main__":
    main()
