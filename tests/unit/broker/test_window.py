"""broker.mqtt.settling.window: packet identifiers are unique while in use and never 0."""

from hypothesis import given
from hypothesis import strategies as st

from broker.mqtt.settling.window import OutboundWindow


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 100)), max_size=60), st.integers(1, 65_535))
def test_identifiers_in_use_are_never_given_again(steps, start):
    window = OutboundWindow(65_535)
    window._next = start
    held: list[int] = []
    for count, percent in steps:
        ids = window.take(min(count, window.free()))
        assert not set(ids) & set(held)
        assert all(1 <= i <= 65_535 for i in ids)
        held += ids
        released = held[: len(held) * percent // 100]
        window.release(released)
        held = held[len(released) :]
        assert window.in_use == set(held)


def test_a_full_window_wraps_around_what_is_in_use():
    window = OutboundWindow(65_535)
    first = window.take(65_535)
    assert window.free() == 0
    window.release(first[100:110])
    assert window.take(10) == first[100:110]


def test_a_single_identifier_is_given_as_long_as_the_client_allows_it():
    window = OutboundWindow(3)
    window.occupy([2], [])
    assert [window.take_free() for _ in range(3)] == [1, 3, 0]
    window.release([2])
    assert window.take_free() == 4


def test_what_is_to_be_sent_again_is_counted_until_it_was_or_is_finished():
    window = OutboundWindow(2)
    window.occupy([1, 2, 3], [1, 2])
    assert (window.free(), window.room(), window.unsent_count) == (-1, 1, 2)
    window.sent_again([1])
    window.release([2])
    assert (window.free(), window.room(), window.unsent_count) == (0, 0, 0)
