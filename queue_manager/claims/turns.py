"""The turns in which the consumers of one group are given messages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from queue_manager.claims.claim import Consumer


class Turns:
    """Consumers that take messages: those that may have credit, in turn, then those known to have none."""

    __slots__ = ("_ready", "_spent")

    def __init__(self) -> None:
        self._ready: OrderedDict[Consumer, None] = OrderedDict()
        self._spent: dict[Consumer, None] = {}

    def __iter__(self) -> Iterator[Consumer]:
        return iter((*self._ready, *self._spent))

    def join(self, consumer: Consumer) -> None:
        """Let a consumer have turns, after all others."""
        self._ready[consumer] = None

    def leave(self, consumer: Consumer) -> None:
        """Let it have none any more."""
        self._ready.pop(consumer, None)
        self._spent.pop(consumer, None)

    def credit_grew(self, consumer: Consumer) -> bool:
        """Note that a consumer may have credit again; give whether it was known to have none."""
        if consumer not in self._spent:
            return False
        del self._spent[consumer]
        self._ready[consumer] = None
        return True

    def is_spent(self, consumer: Consumer) -> bool:
        """Return whether it is known to have no credit."""
        return consumer in self._spent

    def ready_count(self) -> int:
        """Return how many may have credit."""
        return len(self._ready)

    def next(self) -> Consumer | None:
        """Return the one with credit whose turn it is; those before it are passed over until they have
        some.
        """
        while self._ready:
            consumer = next(iter(self._ready))
            if consumer.credit() > 0:
                return consumer
            del self._ready[consumer]
            self._spent[consumer] = None
        return None

    def had(self, consumer: Consumer) -> None:
        """Note that a consumer was given something: the next one comes first."""
        if len(self._ready) > 1 and consumer in self._ready:
            self._ready.move_to_end(consumer)


NO_TURNS: Final = Turns()
"""The turns of groups without consumers; no consumer joins it."""
