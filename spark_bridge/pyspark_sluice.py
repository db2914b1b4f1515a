"""Spark finds data sources in modules called `pyspark_*` by itself: this one makes `sluice` known.

It must not fail on import: one that does takes every other format found this way with it.
"""

from pyspark.version import __version__

from spark_bridge.errors import SparkTooOld
from spark_bridge.version import check_pyspark

try:
    check_pyspark(__version__)
except SparkTooOld:
    from spark_bridge.too_old import TooOldSource as DefaultSource
else:
    from spark_bridge.datasource import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
