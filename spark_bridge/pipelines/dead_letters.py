"""Dead letters by queue and reason: those the broker makes, and those of `readings.rejected`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLE_CHARACTERS: Final = 200


def summary(messages: DataFrame) -> DataFrame:
    """Return `queue`, `source`, `reason`, `letters` (how many), `devices`, `first`, `last`, `example`."""
    header = {
        name: F.col("headers").getItem(name)
        for name in ("x-problem", "x-source-queue", "x-last-death-reason", "x-first-death-queue")
    }
    device = F.get_json_object(F.col("payload").cast("string"), "$.device")
    rows = messages.select(
        "queue",
        F.coalesce(header["x-source-queue"], header["x-first-death-queue"]).alias("source"),
        F.coalesce(header["x-problem"], header["x-last-death-reason"], F.lit("unknown")).alias("reason"),
        device.alias("device"),
        "timestamp",
        F.substring(F.col("payload").cast("string"), 1, EXAMPLE_CHARACTERS).alias("example"),
    )
    table = rows.groupBy("queue", "source", "reason").agg(
        F.count("*").alias("letters"),
        F.count_distinct("device").alias("devices"),
        F.min("timestamp").alias("first"),
        F.max("timestamp").alias("last"),
        F.max_by("example", "timestamp").alias("example"),
    )
    return table.orderBy("queue", F.desc("letters"), "reason")
