"""SluiceMQ for Spark: write into queues exactly once, read streams, batch and streaming.

    import spark_bridge
    spark_bridge.register(spark)
    df.write.format("sluice").option("queue", "orders").mode("append").save()

Where the distribution `sluicemq-spark` is installed Spark finds the format by itself.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__version__ = "0.2.0"


def register(spark: SparkSession) -> None:
    """Make the format `sluice` known to a session.

    Spark gives what `--py-files` names to the workers that run tasks, but not to the one on the driver that
    keeps a streaming source's offsets: that one finds the bridge by its environment.
    Raises SparkTooOld.
    """
    from spark_bridge.version import check_pyspark

    check_pyspark(spark.version)
    from spark_bridge.datasource import SluiceDataSource

    # Spark Connect has no context: there the server must have the distribution
    environment = getattr(getattr(spark, "sparkContext", None), "environment", {})
    before = environment.get("PYTHONPATH")
    here = str(Path(__file__).parent.parent)  # a directory or a zip file
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [here, before]))
    try:
        spark.dataSource.register(SluiceDataSource)
    finally:
        if before is None:
            del environment["PYTHONPATH"]
        else:
            environment["PYTHONPATH"] = before
