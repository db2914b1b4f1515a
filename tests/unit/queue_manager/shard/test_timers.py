"""Timers: who is called when."""

from __future__ import annotations

from queue_manager.shard.timers import Timers


class Caller:
    def __init__(self) -> None:
        self.calls: list[int] = []

    def on_timer(self, now_ms: int) -> None:
        self.calls.append(now_ms)


def test_the_earliest_time_asked_for_counts() -> None:
    timers = Timers()
    caller = Caller()
    timers.set(caller, 20)
    timers.set(caller, 10)
    timers.set(caller, 30)
    assert timers.next_ms() == 10
    timers.fire(9)
    assert caller.calls == []
    timers.fire(15)
    assert caller.calls == [15]
    assert timers.next_ms() is None
    timers.fire(100)
    assert caller.calls == [15]


def test_the_driver_is_told_only_of_an_earlier_time() -> None:
    timers = Timers()
    timers.set(Caller(), 20)
    assert timers.is_earlier
    timers.look()
    timers.set(Caller(), 30)
    assert not timers.is_earlier
    timers.set(Caller(), 10)
    assert timers.is_earlier


def test_who_is_forgotten_is_not_called() -> None:
    timers = Timers()
    caller, other = Caller(), Caller()
    timers.set(caller, 10)
    timers.set(other, 20)
    timers.forget(caller)
    assert timers.next_ms() == 20
    timers.fire(30)
    assert (caller.calls, other.calls) == ([], [30])


def test_who_asks_again_when_called_is_called_again() -> None:
    timers = Timers()

    class Again(Caller):
        def on_timer(self, now_ms: int) -> None:
            super().on_timer(now_ms)
            timers.set(self, now_ms + 10)

    again = Again()
    timers.set(again, 10)
    for now_ms in (10, 15, 20, 30):
        timers.fire(now_ms)
    assert again.calls == [10, 20, 30]


def test_who_wants_to_go_on_at_once_waits_for_the_next_turn() -> None:
    timers = Timers()

    class Greedy(Caller):
        def on_timer(self, now_ms: int) -> None:
            super().on_timer(now_ms)
            timers.set(self, now_ms)

    greedy, other = Greedy(), Caller()
    timers.set(greedy, 10)
    timers.set(other, 20)
    timers.fire(20)
    assert (greedy.calls, other.calls) == ([20], [20])
    assert timers.next_ms() == 20


def test_who_is_forgotten_by_another_that_is_called_is_not_called() -> None:
    timers = Timers()
    other = Caller()

    class Killer(Caller):
        def on_timer(self, now_ms: int) -> None:
            timers.forget(other)

    timers.set(Killer(), 10)
    timers.set(other, 10)
    timers.fire(10)
    assert other.calls == []
