"""What of a stream is read that follows from `where`."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from spark_bridge.pushdown import CLOCK_BACK_MS, OFFSET_END, Bounds

OFFSET, TIME, QUEUE = ("offset",), ("timestamp",), ("queue",)
AT = datetime(2026, 1, 1, tzinfo=UTC)
AT_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([IsNotNull(OFFSET), GreaterThanOrEqual(OFFSET, 5), LessThan(OFFSET, 9)], Bounds(None, 5, 10)),
        ([GreaterThan(OFFSET, 5), LessThanOrEqual(OFFSET, 9), EqualTo(OFFSET, 7)], Bounds(None, 7, 8)),
        ([LessThan(OFFSET, -3)], Bounds(None, 0, 0)),
        ([Not(EqualTo(OFFSET, 7)), EqualTo(("headers", "offset"), 7)], Bounds()),
        ([EqualTo(QUEUE, "a")], Bounds(frozenset("a"))),
        ([In(QUEUE, ("a", "b")), In(("topic",), ("b", "c"))], Bounds(frozenset("b"))),
        ([GreaterThan(TIME, AT)], Bounds(None, 0, OFFSET_END, AT_MS)),
        ([LessThan(TIME, AT)], Bounds(None, 0, OFFSET_END, -1, AT_MS + 1 + CLOCK_BACK_MS)),
        ([GreaterThan(TIME, datetime(1970, 1, 1, tzinfo=UTC))], Bounds()),
    ],
)
def test_bounds_follow_from_conditions_on_queue_offset_and_time(filters, bounds):
    found = Bounds()
    found.narrow(filters)
    assert found == bounds
