"""The versions of PySpark that the bridge works with."""

from __future__ import annotations

import re
from typing import Final

from spark_bridge.errors import SparkTooOld

PYSPARK_MIN: Final = (4, 1)


def check_pyspark(version: str) -> None:
    """Raise SparkTooOld for a PySpark that does not have what the bridge needs of it."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < PYSPARK_MIN:
        raise SparkTooOld(
            f"sluicemq-spark needs PySpark {PYSPARK_MIN[0]}.{PYSPARK_MIN[1]} or later, and this is {version}:"
            " pip install 'pyspark>=4.1'"
        )
