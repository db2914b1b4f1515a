"""The bounds of a read that follow from `where`: of streams only what may match is read.

Spark looks at the rows all the same, so a bound need not be sharp. It takes a reader that looks at filters
only where `spark.sql.python.filterPushdown.enabled` is set, and refuses it elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from spark_bridge.offsets import TIMESTAMP_MS_MIN

_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"
QUEUE_COLUMNS: Final = ("queue", "topic")
CLOCK_BACK_MS: Final = 60_000  # what a broker's clock may have been put back: later messages may be earlier
OFFSET_END: Final = 1 << 56


def is_asked_for_filters() -> bool:
    """Return whether this is the worker that plans a read with filters."""
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    names = (getattr(specification, "name", ""), *sys.argv[1:2], *sys.modules.keys() & {_WORKER})
    return _WORKER in names


@dataclass(slots=True)
class Bounds:
    """Which messages may match: of these `queues` (None: all), offsets `[first, end)`, published from
    `from_ms` on (-1: always) and before `until_ms` (-1: always).
    """

    queues: frozenset[str] | None = None
    first: int = 0
    end: int = OFFSET_END
    from_ms: int = -1
    until_ms: int = -1

    def narrow(self, filters: Iterable[Filter]) -> None:
        """Take account of conditions that must all hold; those of other kinds bound nothing."""
        for one in filters:
            attribute: tuple[str, ...] = getattr(one, "attribute", ())
            if len(attribute) != 1:
                continue
            value = getattr(one, "value", None)
            if attribute[0] in QUEUE_COLUMNS:
                self._narrow_queues(one, value)
            elif attribute[0] == "offset" and isinstance(value, int):
                self._narrow_offsets(one, value)
            elif attribute[0] == "timestamp" and isinstance(value, datetime):
                self._narrow_times(one, _ms_of(value))

    def _narrow_queues(self, one: Filter, value: Any) -> None:
        if isinstance(one, EqualTo):
            names = frozenset((value,))
        elif isinstance(one, In):
            names = frozenset(value)
        else:
            return
        self.queues = names if self.queues is None else self.queues & names

    def _narrow_offsets(self, one: Filter, value: int) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            self.first = max(self.first, value)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            self.end = min(self.end, max(0, value + 1))

    def _narrow_times(self, one: Filter, value_ms: int) -> None:
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual) and value_ms >= TIMESTAMP_MS_MIN:
            self.from_ms = max(self.from_ms, value_ms)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            until_ms = max(0, value_ms + 1 + CLOCK_BACK_MS)
            self.until_ms = until_ms if self.until_ms < 0 else min(self.until_ms, until_ms)


def _ms_of(moment: datetime) -> int:
    """Return a moment in whole ms; one without a zone is of the driver's, as Spark has it."""
    return int((moment if moment.tzinfo else moment.astimezone(UTC)).timestamp() * 1_000)
