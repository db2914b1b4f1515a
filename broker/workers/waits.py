"""Who waits for what several shards make durable: told in the order of waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from queue_manager.outcomes import REFUSED_LOST
from queue_manager.shard.commit import Waiter


class RefusalWaiter(Waiter, Protocol):
    """A publisher's waiter, which learns of refusals that came late."""

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """Note that these publishes are not taken, by one of `queue_manager.outcomes`; `committed` of these
        or later tokens follows.
        """


class Gate:
    """What one waiter waits for, oldest first. As long as there is any, all it waits for comes here."""

    __slots__ = ("_gates", "entries", "waiter")

    def __init__(self, waiter: Waiter, gates: dict[Waiter, Gate]) -> None:
        self.waiter = waiter
        self.entries: deque[Entry] = deque()
        self._gates = gates

    def release(self) -> None:
        """Tell the waiter of all that is durable and has nothing open before it."""
        entries = self.entries
        while entries and not entries[0].open_count:
            self.waiter.committed(entries.popleft().tokens)
        if not entries:
            self._gates.pop(self.waiter, None)


class Entry:
    """Tokens that become durable together, once `open_count` shards said so; made in one `turn`."""

    __slots__ = ("gate", "open_count", "tokens", "turn")

    def __init__(self, gate: Gate, tokens: list[int], turn: int) -> None:
        self.gate = gate
        self.tokens = tokens
        self.turn = turn
        self.open_count = 0

    def part_done(self) -> None:
        """Note that one shard more made it durable."""
        self.open_count -= 1
        if not self.open_count and self.gate.entries[0] is self:
            self.gate.release()

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`: the own shard made it durable, which is waited for once for each publish."""
        for _ in tokens:
            self.part_done()


class Part:
    """The numbers, on one link, of publishes that an entry waits for, with the token of each."""

    __slots__ = ("entry", "first", "last", "tokens")

    def __init__(self, entry: Entry, first: int, last: int, tokens: Sequence[int]) -> None:
        self.entry = entry
        self.first = first
        self.last = last
        self.tokens = tokens
        entry.open_count += 1


class Parts:
    """What is waited for of one link, by rising numbers."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()

    def add(self, part: Part) -> None:
        """Wait for one more."""
        self._parts.append(part)

    def done(self, last: int) -> None:
        """Note that everything up to this number is durable."""
        parts = self._parts
        while parts and parts[0].last <= last:
            parts.popleft().entry.part_done()

    def refused(self, number: int, outcome: int) -> None:
        """Note that the publish of this number is not taken."""
        for part in self._parts:
            if part.first <= number <= part.last:
                _refuse(part, part.tokens[number - part.first : number - part.first + 1], outcome)
                return

    def lost(self) -> None:
        """Note that nothing more is told: what was not durable is refused."""
        parts, self._parts = self._parts, deque()
        for part in parts:
            _refuse(part, part.tokens, REFUSED_LOST)
        for part in parts:
            part.entry.part_done()


def _refuse(part: Part, tokens: Sequence[int], outcome: int) -> None:
    refused = getattr(part.entry.gate.waiter, "refused", None)  # most waiters are no publishers'
    if refused is not None and tokens:
        refused(tokens, outcome)
