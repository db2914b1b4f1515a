"""Durations and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits, units


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("0s", 0),
        ("1ms", 1),
        ("500ms", 500),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        ("1h30m", 5_400_000),
        ("1s500ms", 1_500),
        (" 30s ", 30_000),
    ],
)
def test_valid_duration_is_read(text: str, duration_ms: int) -> None:
    assert units.parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize(
    "text", ["", "30", "s", "30 s", "1.5s", "-1s", "30S", "30sec", "30s1h", "1s1s", "infinite", "٣s", "1e3s"]
)
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_duration_ms(text)


def test_number_without_a_unit_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match="30 has no unit: write 30s"):
        units.parse_duration_ms("30")


def test_duration_beyond_the_longest_is_refused() -> None:
    assert units.parse_duration_ms("3650d") == limits.DURATION_MS_MAX
    with pytest.raises(ValueError, match="at most 3650d"):
        units.parse_duration_ms("3650d1ms")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("17", 17),
        ("17B", 17),
        ("64KiB", 65_536),
        ("10MiB", 10 * 1024 * 1024),
        ("2GiB", 2 * 1024**3),
        ("1TiB", 1024**4),
        ("1kB", 1_000),
        ("1KB", 1_000),
        ("5MB", 5_000_000),
        ("1GB", 10**9),
        ("10 MiB", 10 * 1024 * 1024),
    ],
)
def test_valid_size_is_read(text: str, size_bytes: int) -> None:
    assert units.parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MiB", "1.5MiB", "-1", "10mib", "10M", "10  MiB", "1MiB2KiB", "٣KiB"])
def test_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_size_bytes(text)


def test_size_beyond_the_largest_is_refused() -> None:
    assert units.parse_size_bytes("1TiB") == limits.SIZE_BYTES_MAX
    with pytest.raises(ValueError, match="at most 1TiB"):
        units.parse_size_bytes("1025GiB")


@given(st.integers(0, limits.DURATION_MS_MAX))
def test_formatted_duration_reads_back(duration_ms: int) -> None:
    assert units.parse_duration_ms(units.format_duration_ms(duration_ms)) == duration_ms


@given(st.integers(0, limits.SIZE_BYTES_MAX))
def test_formatted_size_reads_back(size_bytes: int) -> None:
    assert units.parse_size_bytes(units.format_size_bytes(size_bytes)) == size_bytes


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_duration_scales_with_its_number(number: int, unit: str) -> None:
    one_ms = units.parse_duration_ms(f"1{unit}")
    if number * one_ms <= limits.DURATION_MS_MAX:
        assert units.parse_duration_ms(f"{number}{unit}") == number * one_ms


@given(st.text() | st.from_regex(r"[0-9]{0,30} ?[a-zA-Z]{0,4}[0-9]{0,3}", fullmatch=True))
def test_arbitrary_text_is_a_value_in_range_or_a_value_error(text: str) -> None:
    try:
        assert 0 <= units.parse_duration_ms(text) <= limits.DURATION_MS_MAX
    except ValueError:
        pass
    try:
        assert 0 <= units.parse_size_bytes(text) <= limits.SIZE_BYTES_MAX
    except ValueError:
        pass
