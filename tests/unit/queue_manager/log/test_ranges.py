from hypothesis import given
from hypothesis import strategies as st

from queue_manager.log.range_set import RangeSet

offsets = st.integers(0, 60)
ranges = st.lists(st.tuples(offsets, offsets), max_size=25)


def build(pairs: list[tuple[int, int]]) -> tuple[RangeSet, set[int]]:
    result = RangeSet()
    for start, end in pairs:
        result.add(start, end)
    return result, {offset for start, end in pairs for offset in range(start, end)}


def members(ranges: RangeSet) -> set[int]:
    """What the set holds; its ranges must be in order, apart from each other, and not empty."""
    flat = [bound for pair in zip(ranges.starts, ranges.ends, strict=True) for bound in pair]
    assert flat == sorted(set(flat))
    return {o for start, end in zip(ranges.starts, ranges.ends, strict=True) for o in range(start, end)}


@given(ranges)
def test_added_ranges_merge(pairs: list[tuple[int, int]]) -> None:
    result, expected = build(pairs)
    assert members(result) == expected
    assert [offset for offset in range(62) if result.contains(offset)] == sorted(expected)


@given(ranges, ranges)
def test_intersection_and_union(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    first, first_set = build(one)
    second, second_set = build(other)
    assert members(first.intersection(second)) == first_set & second_set
    first.add_all(second)
    assert members(first) == first_set | second_set
    assert members(second) == second_set


@given(ranges, offsets, offsets)
def test_questions_about_a_stretch(pairs: list[tuple[int, int]], start: int, end: int) -> None:
    result, expected = build(pairs)
    stretch = set(range(start, end))
    assert members(result.complement(start, end)) == stretch - expected
    if start < end:
        assert result.overlaps(start, end) == bool(stretch & expected)
    floor = start
    while floor in expected:
        floor += 1
    assert result.floor_from(start) == floor


@given(ranges, offsets)
def test_drop_before(pairs: list[tuple[int, int]], offset: int) -> None:
    result, expected = build(pairs)
    copy = result.copy()
    result.drop_before(offset)
    assert members(result) == {member for member in expected if member >= offset}
    assert members(copy) == expected


@given(ranges, ranges)
def test_discarded_ranges_are_out(pairs: list[tuple[int, int]], gone: list[tuple[int, int]]) -> None:
    result, expected = build(pairs)
    for start, end in gone:
        result.discard(start, end)
        expected -= set(range(start, end))
        assert members(result) == expected
