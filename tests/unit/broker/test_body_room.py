from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.connections.body_room import BodyRoom
from config import limits

MAX = 1_000


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(limits, "UNFINISHED_BYTES_FREE", 10)
    monkeypatch.setattr(limits, "UNFINISHED_TIMEOUT_S", 60)


class Peer:
    """A sender that knows whether it is read from."""

    def __init__(self) -> None:
        self.holds = 0
        self.reading = self

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1


@pytest.fixture
def room():
    return BodyRoom(MAX)


def peers(count: int) -> list[Peer]:
    return [Peer() for _ in range(count)]


def test_who_finds_no_room_waits_until_another_has_finished(room):
    first, second, third = peers(3)
    room.announce(first, 600, 0.0)
    room.announce(second, 600, 0.0)
    room.announce(third, 300, 0.0)
    assert (first.holds, second.holds, third.holds) == (0, 1, 0)
    room.announce(first, 0, 1.0)
    assert (first.holds, second.holds, third.holds) == (0, 0, 0)


def test_who_waits_longest_is_not_overtaken_once_there_is_room(room):
    first, large, small = peers(3)
    room.announce(first, 900, 0.0)
    room.announce(large, 900, 0.0)
    room.announce(small, 200, 0.0)
    room.forget(first, 1.0)
    assert (large.holds, small.holds) == (0, 1)


def test_little_is_free(room):
    first, second = peers(2)
    room.announce(first, MAX, 0.0)
    room.announce(second, 10, 0.0)
    assert second.holds == 0


def test_first_sender_may_announce_more_than_there_is(room):
    first, second = peers(2)
    room.announce(first, 500, 0.0)
    room.announce(second, 400, 0.0)
    room.announce(second, 800, 0.0)
    room.announce(first, 5 * MAX, 0.0)
    assert (first.holds, second.holds) == (0, 1)
    room.forget(first, 0.0)
    assert second.holds == 0


def test_sender_that_becomes_the_oldest_is_let_on_whatever_it_waits_for(room):
    first, second, third = peers(3)
    room.announce(first, 500, 0.0)
    room.announce(second, 300, 0.0)
    room.announce(third, 500, 0.0)
    room.announce(second, 5 * MAX, 0.0)
    assert (second.holds, third.holds) == (1, 1)
    room.forget(first, 0.0)
    assert (second.holds, third.holds) == (0, 1)


def test_oldest_sender_is_overdue_only_while_others_wait(room):
    first, second = peers(2)
    room.announce(first, 900, 0.0)
    assert room.overdue(1_000.0) is None
    room.announce(second, 900, 10.0)
    assert room.overdue(59.0) is None
    room.announce(first, 950, 59.0)
    assert room.overdue(60.0) is first
    room.forget(first, 61.0)
    assert room.overdue(61.0) is None


class Senders(RuleBasedStateMachine):
    """Senders that begin, go on and finish, or go: somebody can always finish, and the bound holds."""

    def __init__(self) -> None:
        super().__init__()
        self.room: BodyRoom[Any] = BodyRoom(MAX)
        self.peers = peers(5)
        self.announced = dict.fromkeys(self.peers, 0)

    @rule(index=st.integers(0, 4), size=st.integers(11, 1_500))
    def announce(self, index, size):
        peer = self.peers[index]
        if not peer.holds:
            self.announced[peer] += size
            self.room.announce(peer, self.announced[peer], 0.0)

    @precondition(lambda self: any(self.announced.values()))
    @rule(data=st.data())
    def finish(self, data):
        able = [peer for peer in self.peers if self.announced[peer] and not peer.holds]
        peer = data.draw(st.sampled_from(able))
        self.announced[peer] = 0
        self.room.announce(peer, 0, 0.0)

    @rule(index=st.integers(0, 4))
    def go(self, index):
        peer = self.peers[index]
        self.announced[peer] = 0
        self.room.forget(peer, 0.0)

    @invariant()
    def bounded_and_alive(self):
        read = [self.announced[peer] for peer in self.peers if not peer.holds and self.announced[peer]]
        assert all(0 <= peer.holds <= 1 for peer in self.peers)
        assert bool(read) == any(self.announced.values())
        assert sum(read) - max(read, default=0) <= MAX


TestSenders = Senders.TestCase
