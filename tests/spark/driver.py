"""A driver to be killed: streams text files into a queue, and stays for ever where it is told to. Lines that
begin with "0-" are scheduled. SOURCE may be `claim:QUEUE`, a work queue, instead of a directory.

    python -m tests.spark.driver QUEUE PORT SOURCE CHECKPOINT CORES [MARK during|before|after]

With a mark it writes the file MARK while its first tasks stage rows, or inside its first commit, before or
after the broker has committed.
"""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from spark_bridge.datasource import SluiceDataSource, StreamWriter
from tests.spark.conftest import CONF

queue, port, source, checkpoint, cores, *stay = sys.argv[1:]
CONFIRM_WINDOW = 20  # so that rows are staged when the next ones are asked for


def stay_for_ever():
    """Until this process is killed."""
    Path(stay[0]).touch()
    time.sleep(600)


class StayingWriter(StreamWriter):
    """Writes its mark and waits to be killed."""

    def write(self, iterator):
        return super().write(self._staying(iterator) if stay[1] == "during" else iterator)

    def _staying(self, batches):
        staged = 0
        for batch in batches:
            if staged > 2 * CONFIRM_WINDOW:
                stay_for_ever()
            yield batch
            staged += batch.num_rows

    def commit(self, messages, batchId):  # type: ignore[override]
        if stay[1] == "after":
            super().commit(messages, batchId)
        stay_for_ever()


class StayingSource(SluiceDataSource):
    """The format, with a writer that stays."""

    def streamWriter(self, schema, overwrite):
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = StayingWriter
        return writer


def rows(spark):
    """Read what SOURCE says."""
    if source.startswith("claim:"):
        claimed = {"queue": source.removeprefix("claim:"), "port": port, "claim": "true"}
        limits = {"maxOffsetsPerTrigger": 700, "offsetsPerPartition": 200}
        return spark.readStream.format("sluice").options(**claimed, **limits).load().select("payload")
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 4).load(source)
    return lines.selectExpr("value payload", "if(value like '0-%', 3000, null) delay")


def main() -> None:
    builder = SparkSession.builder.master(f"local[{cores}]")
    for name, value in CONF.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", CONFIRM_WINDOW)
    spark = builder.config("spark.default.parallelism", cores).getOrCreate()
    spark.dataSource.register(StayingSource if stay else SluiceDataSource)
    query = (
        rows(spark)
        .writeStream.format("sluice")
        .options(queue=queue, port=port, checkpointLocation=checkpoint, confirmWindow=CONFIRM_WINDOW)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
