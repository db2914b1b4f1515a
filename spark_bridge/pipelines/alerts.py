"""Readings to alerts: windows per device, and the rule that tells which of them are out of the ordinary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WARNING: Final = "warning"
CRITICAL: Final = "critical"
READING: Final = ["device", "seq", "ts", "value"]
INSTANT: Final = "yyyy-MM-dd'T'HH:mm:ss'Z'"
LATENESS_BLOCK: Final = 100_000  # offsets


@dataclass(frozen=True, slots=True)
class Rule:
    """`window` and `delay` are intervals such as "1 minute"; a window of fewer readings than `count_min` says
    nothing. `average_max` and `peak_max` are what is ordinary still, as decimal numbers.
    """

    window: str = "1 minute"
    delay: str = "30 seconds"
    average_max: str = "80"
    peak_max: str = "95"
    count_min: int = 3


def alerts(readings: DataFrame, rule: Rule) -> DataFrame:
    """Return the alerts, batch and streaming alike; a stream says one when the watermark has passed its
    window.

    A reading that comes twice counts once: the same device, number, time and value. The time is part of it so
    that Spark may forget it, and a device that counts from 0 again is no trouble.
    """
    once = readings.withWatermark("ts", rule.delay).dropDuplicates(READING)
    windows = once.groupBy(F.window("ts", rule.window), "device").agg(
        F.count("value").alias("readings"),
        F.avg("value").cast("decimal(18,6)").alias("average"),
        F.max("value").alias("peak"),
    )
    return windows.withColumn("severity", _severity(rule)).where("severity IS NOT NULL")


def _severity(rule: Rule) -> F.Column:
    average_max, peak_max = (F.lit(text).cast("decimal(18,6)") for text in (rule.average_max, rule.peak_max))
    tells = F.col("readings") >= rule.count_min
    return F.when(tells & (F.col("peak") > peak_max), CRITICAL).when(
        tells & (F.col("average") > average_max), WARNING
    )


def as_rows(alerts: DataFrame) -> DataFrame:
    """Flatten alerts, with `alert_id`, the same in every computation."""
    return alerts.select(_alert_id().alias("alert_id"), *_columns())


def as_messages(alerts: DataFrame) -> DataFrame:
    """Return alerts as the queue takes them."""
    return alerts.select(
        F.to_json(F.struct(*_columns())).alias("payload"),
        F.col("device").alias("routing_key"),
        _alert_id().alias("message_id"),
        F.lit("application/json").alias("content_type"),
    )


def _alert_id() -> F.Column:
    return F.concat_ws("|", "device", F.date_format("window.start", INSTANT))


def _columns() -> list[F.Column]:
    return [
        F.col("device"),
        F.date_format("window.start", INSTANT).alias("from"),
        F.date_format("window.end", INSTANT).alias("until"),
        F.col("readings"),
        F.col("average"),
        F.col("peak"),
        F.col("severity"),
    ]


def late_windows(readings: DataFrame, rule: Rule) -> DataFrame:
    """Return windows with readings a stream may have dropped: `alert_id`, `late` (how many). For batch only.

    A reading is safe if it is less than `delay` older than the newest one before it in the stream, wherever
    Spark cut the stream into batches. One that is later than that counts or not, as the batches fell.
    """
    blocks = readings.withColumn("block", F.floor(F.col("offset") / LATENESS_BLOCK))
    newest = blocks.groupBy("block").agg(F.max("ts").alias("newest"))  # few rows: one partition will do
    before = Window.orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    newest = newest.select("block", F.max("newest").over(before).alias("newest_before"))
    inside = Window.partitionBy("block").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    rows = blocks.join(newest, "block").withColumn(
        "newest", F.greatest("newest_before", F.max("ts").over(inside))
    )
    is_late = F.coalesce(F.col("ts") <= F.col("newest") - F.expr(f"INTERVAL {rule.delay}"), F.lit(False))
    late = rows.groupBy(*READING).agg(F.min(is_late).alias("late")).where("late")  # safe if one copy is
    windows = late.groupBy(F.window("ts", rule.window), "device").agg(F.count("*").alias("late"))
    return windows.select(_alert_id().alias("alert_id"), "late")
