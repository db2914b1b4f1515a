"""The credit of consumers in one round of a dispatch."""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace

from queue_manager.claims.claim import Pool
from queue_manager.dispatch.by_key.key_binding import Seat


class Round:
    """The credit of the consumers that may be given keys nobody has.

    `seats` are in order of their turn. A message placed for a seat spends credit there, if there is some.
    """

    __slots__ = ("_by_load", "_in_turn", "_left", "_pools", "_seats", "total")

    def __init__(self, seats: list[Seat]) -> None:
        self._left: dict[Seat, int] = {}
        self._pools: dict[Pool, int] = {}
        self.total = 0
        for seat in seats:
            consumer = seat.consumer
            credit = consumer.credit()
            self._left[seat] = credit
            pool = consumer.pool
            if pool is None:
                self.total += credit
            elif pool not in self._pools:
                self._pools[pool] = pool.free()
                self.total += self._pools[pool]
        self._seats = seats
        self._in_turn = deque(seats)
        self._by_load = [(len(seat.bindings), index) for index, seat in enumerate(seats)]
        heapify(self._by_load)

    def spend(self, seat: Seat) -> None:
        """Note that a message was placed for `seat`."""
        left = self._left.get(seat, 0)
        if left > 0:
            self._left[seat] = left - 1
            pool = seat.consumer.pool
            if pool is not None and pool in self._pools:
                self._pools[pool] -= 1

    def has_credit(self, seat: Seat) -> bool:
        """Return whether `seat` may be given something that is nobody's yet."""
        if self._left[seat] <= 0:
            return False
        pool = seat.consumer.pool
        return pool is None or self._pools.get(pool, 1) > 0

    def for_key(self) -> Seat | None:
        """Return the seat for a key that has none: with credit, and the fewest keys. It counts as bound
        there.
        """
        by_load = self._by_load
        while by_load:
            load, index = by_load[0]
            seat = self._seats[index]
            if self.has_credit(seat):
                heapreplace(by_load, (load + 1, index))
                return seat
            heappop(by_load)
        return None

    def for_anybody(self) -> Seat | None:
        """Return the seat for a message without a key: the next in turn with credit."""
        in_turn = self._in_turn
        while in_turn:
            seat = in_turn[0]
            if self.has_credit(seat):
                in_turn.rotate(-1)
                return seat
            in_turn.popleft()
        return None
