"""Where a consumer of a stream wants to begin: `x-stream-offset` in all its forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from config import limits
from queue_manager.errors import InvalidArgument

NAME: Final = "x-stream-offset"

FIRST: Final = "first"
LAST: Final = "last"
NEXT: Final = "next"
OFFSET: Final = "offset"
TIMESTAMP: Final = "timestamp"

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "D": 86_400_000,
    "d": 86_400_000,
    "W": 7 * 86_400_000,
    "w": 7 * 86_400_000,
    "M": 30 * 86_400_000,
    "Y": 365 * 86_400_000,
    "y": 365 * 86_400_000,
}
_INTERVAL: Final = re.compile(r"(?:[0-9]{1,12}(?:\.[0-9]{1,6})?(?:ms|[smhDdWwMYy]))+")
_PART: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|[smhDdWwMYy])")
_MS_FROM: Final = 10**12  # a `timestamp=` at or above is milliseconds, below it is seconds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A place to begin at: `kind` is one of this module's words, `value` the offset or the time in ms."""

    kind: str
    value: int = 0


def parse_interval_ms(text: str) -> int:
    """Return milliseconds of an interval such as `7D`, `1.5h`, `1h30m` (s, m, h, D, W, M = 30 days, Y = 365
    days).

    Raises ValueError.
    """
    text = text.strip()
    if not _INTERVAL.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not an interval: write a number and s, m, h, D, W, M or Y")
    total_ms = 0
    for number, unit in _PART.findall(text):
        whole, _, fraction = number.partition(".")
        unit_ms = _UNITS_MS[unit]
        total_ms += int(whole) * unit_ms
        if fraction:
            total_ms += int(fraction) * unit_ms // 10 ** len(fraction)
    if total_ms > limits.DURATION_MS_MAX:
        raise ValueError(f"{text[:40]!r} is too long: at most ten years")
    return total_ms


def parse_start(value: object, now_ms: int) -> StreamStart:
    """Return the place `value` names: a word, an integer, a datetime, or text of these; raises
    InvalidArgument.
    """
    if isinstance(value, datetime):
        return StreamStart(TIMESTAMP, _to_ms(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return _offset(value)
    if not isinstance(value, str):
        raise InvalidArgument(f"{NAME} is a word, an offset or a time, not {value!r}")
    text = value.strip()
    if text in (FIRST, LAST, NEXT):
        return StreamStart(text)
    if _is_number(text):
        return _offset(int(text))
    key, separator, number = text.partition("=")
    if separator and key == OFFSET and _is_number(number):
        return _offset(int(number))
    if separator and key == TIMESTAMP and _is_number(number):
        at = int(number)
        return StreamStart(TIMESTAMP, at if at >= _MS_FROM else at * 1_000)
    try:
        return StreamStart(TIMESTAMP, max(0, now_ms - parse_interval_ms(text)))
    except ValueError:
        raise InvalidArgument(
            f"{NAME} is first, last, next, an offset, offset=N, timestamp=ms or an interval such as 1h, "
            f"not {text[:60]!r}"
        ) from None


def _offset(number: int) -> StreamStart:
    if not 0 <= number <= limits.STREAM_OFFSET_MAX:
        raise InvalidArgument(f"{NAME}: an offset is 0 or more, not {number}")
    return StreamStart(OFFSET, number)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19


def _to_ms(value: datetime) -> int:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return max(0, (moment - _EPOCH) // _MS)


_MS: Final = datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC) - _EPOCH
