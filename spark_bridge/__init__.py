"""SluiceMQ for Spark: write into queues exactly once, read streams, batch and streaming.

    import spark_bridge
    spark_bridge.register(spark)
    df.write.format("sluice").option("queue", "orders").mode("append").save()

Where the distribution `sluicemq-spark` is installed Spark finds the format by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.1.0"


def register(spark: SparkSession) -> None:
    """Make the format `sluice` known to a session."""
    from spark_bridge.datasource import SluiceDataSource

    spark.dataSource.register(SluiceDataSource)
