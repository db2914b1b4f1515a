"""The binding of the messages of one key to one consumer."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from queue_manager.claims.claim import Claim, Consumer

NEVER: Final = 1 << 63
AT_ONCE: Final = -1
_URGENCY: Final = 63 << 56

# rank, claim, bytes of its payload when it was placed; ranks are unique, so claims are never compared
Placed: TypeAlias = tuple[int, Claim, int]


def rank(offset: int) -> int:
    """Return a message's place among those of its queue: by offset; higher priorities (offset >> 56) come
    first.
    """
    return offset ^ _URGENCY


class Binding:
    """One key and the seat its messages go to.

    `placed` is a heap of what waits for that consumer's credit. What ranks beyond `ends_at` is not for it any
    more: it waits until nothing before is left unsettled, then the key is free. `in_flight` counts the key's
    unsettled claims. The binding of a puller is `passing`: it ends as soon as nothing is unsettled.
    """

    __slots__ = ("ends_at", "in_flight", "key", "passing", "placed", "seat")

    def __init__(self, key: str, seat: Seat, *, ends_at: int = NEVER, passing: bool = False) -> None:
        self.key = key
        self.seat: Seat | None = seat
        self.placed: list[Placed] = []
        self.in_flight = 0
        self.ends_at = ends_at
        self.passing = passing

    def begin(self, *, ends_at: int = NEVER, passing: bool = False) -> None:
        """Say when it ends."""
        self.ends_at = ends_at
        self.passing = passing

    def close_at(self, ends_at: int) -> None:
        """End behind that rank, if it does not end before."""
        if not self.passing and ends_at < self.ends_at:
            self.ends_at = ends_at

    def end_soon(self) -> None:
        """End as soon as nothing is unsettled."""
        self.ends_at = AT_ONCE

    def claimed(self) -> None:
        """Note that a message of the key was claimed."""
        self.in_flight += 1

    def settled(self) -> bool:
        """Note that a claim was settled; give whether the binding may have come to its end."""
        self.in_flight -= 1
        return not self.in_flight and self.is_ending()

    def unbind(self) -> list[Placed]:
        """End the binding; give what was placed."""
        placed, self.placed, self.seat = self.placed, [], None
        return placed

    def is_idle(self) -> bool:
        """Return whether nothing of the key is unsettled or waits."""
        return not self.in_flight and not self.placed

    def is_ending(self) -> bool:
        """Return whether it ends once its consumer has settled what it has, or is to get."""
        return self.passing or self.ends_at != NEVER

    def is_over(self) -> bool:
        """Return whether it is ending, and there is nothing left to be settled."""
        if self.in_flight or self.seat is None:
            return False
        return self.passing or not self.placed or self.placed[0][0] > self.ends_at


class Seat:
    """One consumer: its bindings, and what was placed for it.

    `heads` is a heap of (first rank, serial, binding) over the bindings that have something for it; those
    that are out of date are dropped when they come up. `loose` is a heap of messages without a key.
    `unproven` are bindings just made: its credit may be used up by what was placed before.
    """

    __slots__ = ("_serial", "bindings", "consumer", "heads", "loose", "unproven")

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.bindings: dict[Binding, None] = {}
        self.heads: list[tuple[int, int, Binding]] = []
        self.loose: list[Placed] = []
        self.unproven: list[Binding] = []
        self._serial = 0

    def place(self, binding: Binding | None, item: Placed) -> None:
        """Have `item` wait for the consumer, or for the end of the binding."""
        if binding is None:
            heappush(self.loose, item)
            return
        heappush(binding.placed, item)
        if binding.placed[0] is item:
            self.announce(binding)

    def announce(self, binding: Binding) -> None:
        """Note what the binding has for the consumer next."""
        if binding.placed and binding.placed[0][0] <= binding.ends_at:
            self._serial += 1
            heappush(self.heads, (binding.placed[0][0], self._serial, binding))

    def take_loose(self) -> list[Placed]:
        """Take away what was placed without a key."""
        loose, self.loose = self.loose, []
        return loose

    def take_unproven(self) -> list[Binding]:
        """Take the keys bound since the last call."""
        unproven, self.unproven = self.unproven, []
        return unproven

    def close(self) -> None:
        """Offer nothing more."""
        self.heads = []

    def first(self) -> Placed | None:
        """Return the oldest message that was placed for the consumer."""
        heads = self.heads
        while heads:
            first, _, binding = heads[0]
            placed = binding.placed
            if placed and placed[0][0] == first and binding.seat is self and first <= binding.ends_at:
                break
            heappop(heads)
        loose = self.loose
        if not heads:
            return loose[0] if loose else None
        if loose and loose[0][0] < heads[0][0]:
            return loose[0]
        return heads[0][2].placed[0]

    def take_first(self) -> tuple[Placed, Binding | None]:
        """Take away what `first` just gave; with its binding, None if it has no key."""
        heads = self.heads
        loose = self.loose
        if not heads or (loose and loose[0][0] < heads[0][0]):
            return heappop(loose), None
        _, _, binding = heappop(heads)
        item = heappop(binding.placed)
        self.announce(binding)
        return item, binding

    def without(self, goes: Callable[[Claim], bool]) -> list[Placed]:
        """Drop the messages for which `goes` is true; give what was dropped."""
        dropped: list[Placed] = []
        for pile in (self.loose, *[binding.placed for binding in self.bindings]):
            gone = [item for item in pile if goes(item[1])]
            if gone:
                dropped += gone
                pile[:] = [item for item in pile if not goes(item[1])]
                heapify(pile)
        if dropped:
            self.heads = []
            for binding in self.bindings:
                self.announce(binding)
        return dropped
