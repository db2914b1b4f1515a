"""Timers: the only place where the queue manager remembers times to come.

Nobody sleeps here. The driver asks `next_ms`, waits by its own clock, and calls `fire`.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Protocol


class Timed(Protocol):
    """An object that is to be called at a time."""

    def on_timer(self, now_ms: int) -> None:
        """Do what is due; ask for the next time by `Timers.set` if there is one."""


class Timers:
    """At most one time to come per `Timed`: the earliest it asked for since it was last called."""

    __slots__ = ("_due", "_heap", "_number", "is_earlier")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timed]] = []
        self._due: dict[Timed, int] = {}
        self._number = 0
        self.is_earlier = False  # the driver has to `look` again

    def set(self, owner: Timed, due_ms: int) -> None:
        """Call `owner` at `due_ms`, unless it will be called earlier anyway."""
        known = self._due.get(owner)
        if known is not None and known <= due_ms:
            return
        self._due[owner] = due_ms
        if not self._heap or due_ms < self._heap[0][0]:
            self.is_earlier = True
        self._number += 1
        heappush(self._heap, (due_ms, self._number, owner))

    def forget(self, owner: Timed) -> None:
        """Do not call `owner` any more."""
        self._due.pop(owner, None)

    def look(self) -> int | None:
        """Tell the driver when `fire` has something to do; `is_earlier` says when that changes."""
        self.is_earlier = False
        return self.next_ms()

    def next_ms(self) -> int | None:
        """Return when `fire` has something to do."""
        heap = self._heap
        while heap and self._due.get(heap[0][2]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def fire(self, now_ms: int) -> None:
        """Call everybody whose time has come, once: who wants to go on at once is called the next time."""
        called = []
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            owner = heappop(self._heap)[2]
            called.append(owner)
            del self._due[owner]
        for owner in called:
            self._due[owner] = now_ms  # may be forgotten by one that is called before it
        for owner in called:
            if self._due.get(owner) == now_ms:
                del self._due[owner]
                owner.on_timer(now_ms)

    def __len__(self) -> int:
        return len(self._due)
