"""The format `sluice` of PySpark 4.0, which finds formats by itself but does not have what this one needs."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.version import __version__

from spark_bridge.errors import said_plainly
from spark_bridge.version import check_pyspark


class TooOldSource(DataSource):
    """Says which PySpark is needed, whatever is asked of it."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "sluice"

    @said_plainly
    def __init__(self, options: dict[str, str]) -> None:
        check_pyspark(__version__)
        super().__init__(options)
