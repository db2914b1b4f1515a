"""The memory that all ephemeral queues take together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from config import limits
from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES


class InMemory(Protocol):
    """A queue that may be kept in memory."""

    durable: bool

    def memory_bytes(self) -> int:
        """Return what its messages take."""


class EphemeralMemory:
    """Counts up what is published, and sums up what is there only when that may be too much."""

    __slots__ = ("_bound", "_counted_at_ms", "_queues")

    def __init__(self, queues: Callable[[], Iterable[InMemory]]) -> None:
        self._queues = queues
        self._bound = 0  # at most so many bytes are held
        self._counted_at_ms = 0

    def takes(self, queue: InMemory, count: int, body_bytes: int, now_ms: int, ahead_bytes: int = 0) -> bool:
        """Return whether there is room for so many messages in `queue`, by itself and with the others. It
        counts what it has said so of: `ahead_bytes` of it are not in the queue yet.
        """
        if queue.memory_bytes() + ahead_bytes + body_bytes > limits.EPHEMERAL_BYTES_PER_QUEUE_MAX:
            return False
        body_bytes += count * MESSAGE_OVERHEAD_BYTES
        self._bound += body_bytes
        if self._bound <= limits.EPHEMERAL_BYTES_MAX:
            return True
        self._bound -= body_bytes
        if 0 <= now_ms - self._counted_at_ms < limits.EPHEMERAL_COUNT_INTERVAL_MS:
            return False
        self._counted_at_ms = now_ms
        self._bound = sum(other.memory_bytes() for other in self._queues() if not other.durable)
        if self._bound + body_bytes > limits.EPHEMERAL_BYTES_MAX:
            return False
        self._bound += body_bytes
        return True
