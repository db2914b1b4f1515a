"""Which deliveries a disposition takes, however large its range is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from broker.amqp10.settling.unsettled import Unsettled

MASK = 0xFFFFFFFF


class Claim(SimpleNamespace):
    """Stands for a claim that is in flight."""

    is_in_flight = True


def unsettled(first: int, count: int) -> Unsettled:
    consumers = SimpleNamespace(holds=lambda claim: True)
    session = SimpleNamespace(hub=None, core=SimpleNamespace(settling=None))
    made = Unsettled(cast(Any, session), cast(Any, consumers))
    made.add(first & MASK, [cast(Any, Claim(number=first + number & MASK)) for number in range(count)])
    return made


near_the_wrap = st.integers(-30, 30)


@given(
    near_the_wrap,
    st.integers(0, 20),
    near_the_wrap,
    st.integers(0, 50),
    st.frozensets(st.integers(0, 19), max_size=8),
)
def test_a_range_takes_what_it_has_of_the_deliveries(
    first: int, count: int, begin: int, size: int, settled: frozenset[int]
) -> None:
    made = unsettled(first, count)
    numbers = {first + number & MASK for number in range(count)}
    for number in settled:
        made.take([(first + number & MASK, first + number & MASK)])
        numbers.discard(first + number & MASK)
    taken = made.take([(begin & MASK, begin + size & MASK)])
    wanted = {begin + number & MASK for number in range(size + 1)}
    assert set(taken) == numbers & wanted
    assert all(claim.number == number for number, claim in taken.items())  # type: ignore[attr-defined]
    assert len(made) == len(numbers - wanted)


def test_the_largest_ranges_take_all_there_is() -> None:
    for begin, end in ((0, MASK), (0, (1 << 31) - 1), (100, 99), (MASK - 5, (1 << 31) - 10)):
        assert len(unsettled(0, 50).take([(begin, end)])) == 50


def test_what_is_restored_is_where_it_was() -> None:
    made = unsettled(MASK - 1, 5)
    taken = made.take([(MASK, 1)])
    assert list(taken) == [MASK, 0, 1]
    assert made.restore(taken) == []
    assert list(made.take([(MASK - 1, 2)])) == [MASK - 1, MASK, 0, 1, 2]
