"""`x-stream-offset` in all its forms."""

from datetime import UTC, datetime

import pytest

from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import (
    FIRST,
    LAST,
    NEXT,
    OFFSET,
    TIMESTAMP,
    StreamStart,
    parse_interval_ms,
    parse_start,
)

NOW_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("value", "start"),
    [
        ("first", StreamStart(FIRST)),
        ("last", StreamStart(LAST)),
        (" next ", StreamStart(NEXT)),
        (0, StreamStart(OFFSET, 0)),
        (2**40, StreamStart(OFFSET, 2**40)),
        ("17", StreamStart(OFFSET, 17)),
        ("offset=17", StreamStart(OFFSET, 17)),
        ("timestamp=1706745600000", StreamStart(TIMESTAMP, 1_706_745_600_000)),
        ("timestamp=1706745600", StreamStart(TIMESTAMP, 1_706_745_600_000)),
        (datetime(2024, 2, 1, tzinfo=UTC), StreamStart(TIMESTAMP, 1_706_745_600_000)),
        (datetime(2024, 2, 1), StreamStart(TIMESTAMP, 1_706_745_600_000)),
        ("1h", StreamStart(TIMESTAMP, NOW_MS - HOUR_MS)),
        ("30m", StreamStart(TIMESTAMP, NOW_MS - HOUR_MS // 2)),
        ("7D", StreamStart(TIMESTAMP, NOW_MS - 7 * 24 * HOUR_MS)),
        ("1h30m", StreamStart(TIMESTAMP, NOW_MS - HOUR_MS * 3 // 2)),
    ],
)
def test_forms(value, start):
    assert parse_start(value, NOW_MS) == start


@pytest.mark.parametrize(
    "value",
    [
        "",
        "First",
        "1x",
        "offset=",
        "offset=-1",
        "timestamp=now",
        -1,
        2**63,
        True,
        None,
        1.5,
        [],
        "h",
        "1" * 20,
    ],
)
def test_refused(value):
    with pytest.raises(InvalidArgument, match="x-stream-offset"):
        parse_start(value, NOW_MS)


@pytest.mark.parametrize(
    ("text", "interval_ms"),
    [
        ("7D", 604_800_000),
        ("2W", 1_209_600_000),
        ("1.5h", 5_400_000),
        ("36h", 129_600_000),
        ("1Y", 31_536_000_000),
        ("1M", 2_592_000_000),
        ("1m", 60_000),
        ("250ms", 250),
        ("1m500ms", 60_500),
    ],
)
def test_intervals(text, interval_ms):
    assert parse_interval_ms(text) == interval_ms


@pytest.mark.parametrize("text", ["", "7", "D", "11Y", "-1h", "1 h", "1.h"])
def test_no_intervals(text):
    with pytest.raises(ValueError, match="interval|ten years"):
        parse_interval_ms(text)
