"""Durations and sizes as people write them: `30s`, `1h30m`, `10MiB`, `1GB`."""

import re
from typing import Final

from config import limits

_DURATION_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SIZE_UNITS_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_DURATION_PART: Final = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)")
_DURATION: Final = re.compile(r"(?:[0-9]{1,18}(?:ms|s|m|h|d))+")
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([A-Za-z]*)")


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of a duration such as `500ms`, `30s`, `5m`, `1h30m`, `7d`, or a bare `0`.

    Whole numbers only, largest unit first. Raises ValueError with a sentence for the user when `text` is
    no duration or is longer than `limits.DURATION_MS_MAX`.
    """
    text = text.strip()
    if text == "0":
        return 0
    if not _DURATION.fullmatch(text):
        if text.isascii() and text.isdigit():
            raise ValueError(f"{text} has no unit: write {text}s, {text}ms, {text}m, {text}h or {text}d")
        raise ValueError(f"{text[:40]!r} is not a duration: write a number and ms, s, m, h or d, such as 30s")
    total_ms = 0
    previous_ms: int | None = None
    for number, unit in _DURATION_PART.findall(text):
        unit_ms = _DURATION_UNITS_MS[unit]
        if previous_ms is not None and unit_ms >= previous_ms:
            raise ValueError(f"{text[:40]!r} is not a duration: the larger unit goes first, such as 1h30m")
        previous_ms = unit_ms
        total_ms += int(number) * unit_ms
    if total_ms > limits.DURATION_MS_MAX:
        raise ValueError(f"{text[:40]} is too long: at most {format_duration_ms(limits.DURATION_MS_MAX)}")
    return total_ms


def parse_size_bytes(text: str) -> int:
    """Return the bytes of a size such as `64KiB`, `10MiB`, `1GB` (decimal) or a bare number of bytes.

    Raises ValueError with a sentence for the user when `text` is no size or exceeds `limits.SIZE_BYTES_MAX`.
    """
    text = text.strip()
    match = _SIZE.fullmatch(text)
    unit_bytes = _SIZE_UNITS_BYTES.get(match[2] or "B") if match else None
    if match is None or unit_bytes is None:
        raise ValueError(
            f"{text[:40]!r} is not a size: write a number of bytes, or a number and "
            "KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000)"
        )
    size_bytes = int(match[1]) * unit_bytes
    if size_bytes > limits.SIZE_BYTES_MAX:
        raise ValueError(f"{text[:40]} is too large: at most {format_size_bytes(limits.SIZE_BYTES_MAX)}")
    return size_bytes


def format_duration_ms(duration_ms: int) -> str:
    """Return the shortest text that `parse_duration_ms` reads back as `duration_ms` (>= 0): `90000` is
    `1m30s`.
    """
    if duration_ms == 0:
        return "0"
    parts = []
    for unit, unit_ms in reversed(_DURATION_UNITS_MS.items()):
        number, duration_ms = divmod(duration_ms, unit_ms)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts)


def format_size_bytes(size_bytes: int) -> str:
    """Return the size in the largest binary unit that divides it, else in bytes: `65536` is `64KiB`."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        number, rest = divmod(size_bytes, _SIZE_UNITS_BYTES[unit])
        if number and not rest:
            return f"{number}{unit}"
    return f"{size_bytes}B"
