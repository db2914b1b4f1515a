"""Spark finds data sources in modules called `pyspark_*` by itself: this one makes `sluice` known.

It must not fail on import: one that does takes every other format found this way with it.
"""

from spark_bridge.datasource import SluiceDataSource as DefaultSource

__all__ = ["DefaultSource"]
