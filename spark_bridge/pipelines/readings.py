"""Messages of devices to readings, batch and streaming alike.

A reading is JSON: `device`, `seq` (a number that tells the device's readings of one moment apart), `ts` (when
it was taken, ISO 8601) and `value`; or `"tick": true` instead of `value`: the device lives and has nothing to
say, which moves the watermark all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# decimals: sums of doubles depend on the order of rows, and an epoch that is repeated must be the same
FIELDS: Final = "device string, seq bigint, ts timestamp, value decimal(18,6), tick boolean"
# devices become routing keys
DEVICE: Final = r"^[A-Za-z0-9_.:-]{1,64}\z"
CORRUPT: Final = "_corrupt"


def parsed(messages: DataFrame, ahead_max: str) -> DataFrame:
    """Return each message with the fields of its reading and `problem`, null where there is none.

    `ahead_max` is an interval: a device whose clock is further ahead of the broker's than that would move the
    watermark for all the others, whose readings were late then.
    """
    text = F.col("payload").cast("string")
    options = {"columnNameOfCorruptRecord": CORRUPT, "timeZone": "UTC"}
    reading = F.from_json(text, f"{FIELDS}, {CORRUPT} string", options)
    rows = messages.withColumn("reading", reading)
    field = {name: F.col(f"reading.{name}") for name in ("device", "seq", "ts", "value", "tick", CORRUPT)}
    problem = (
        F.when(F.col("reading").isNull() | field[CORRUPT].isNotNull(), "malformed")
        .when(field["device"].isNull() | ~field["device"].rlike(DEVICE), "device")
        .when(field["seq"].isNull(), "seq")
        .when(field["ts"].isNull(), "ts")
        .when(field["value"].isNull() & ~F.coalesce(field["tick"], F.lit(False)), "value")
        .when(field["ts"] > F.col("timestamp") + F.expr(f"INTERVAL {ahead_max}"), "ahead")
    )
    return rows.withColumn("problem", problem).select(
        *messages.columns, *(field[name] for name in ("device", "seq", "ts", "value")), "problem"
    )


def valid(rows: DataFrame) -> DataFrame:
    """Return the readings proper."""
    return rows.where("problem IS NULL").select("offset", "device", "seq", "ts", "value")


def rejected(rows: DataFrame) -> DataFrame:
    """Return what cannot be used, as messages: the payload as it came, and the reason in the headers."""
    return rows.where("problem IS NOT NULL").select(
        "payload",
        F.concat_ws(":", "queue", F.col("offset").cast("string")).alias("message_id"),
        F.create_map(
            F.lit("x-problem"), "problem",
            F.lit("x-source-queue"), "queue",
            F.lit("x-source-offset"), F.col("offset").cast("string"),
            F.lit("x-source-topic"), "routing_key",
        ).alias("headers"),
    )  # fmt: skip
