"""The memory that all ephemeral queues take together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from config import limits
from queue_manager.tail import MESSAGE_OVERHEAD_BYTES

if TYPE_CHECKING:
    from queue_manager.queue import Queue


class EphemeralMemory:
    """Counts up what is published, and sums up what is there only when that may be too much."""

    __slots__ = ("_bound", "_counted_at_ms")

    def __init__(self) -> None:
        self._bound = 0  # at most so many bytes are held
        self._counted_at_ms = 0

    def refuses(self, queue: Queue, count: int, body_bytes: int, now_ms: int) -> bool:
        """Whether there is no room for so many messages in `queue`, by itself or with the others."""
        if (
            queue.tail.memory_bytes + queue.scheduled_bytes() + body_bytes
            > limits.EPHEMERAL_BYTES_PER_QUEUE_MAX
        ):
            return True
        body_bytes += count * MESSAGE_OVERHEAD_BYTES
        self._bound += body_bytes
        if self._bound <= limits.EPHEMERAL_BYTES_MAX:
            return False
        self._bound -= body_bytes
        if 0 <= now_ms - self._counted_at_ms < limits.EPHEMERAL_COUNT_INTERVAL_MS:
            return True
        self._counted_at_ms = now_ms
        self._bound = _sum_up(queue.manager.queues.values())
        if self._bound + body_bytes > limits.EPHEMERAL_BYTES_MAX:
            return True
        self._bound += body_bytes
        return False


def _sum_up(queues: Iterable[Queue]) -> int:
    return sum(queue.tail.memory_bytes + queue.scheduled_bytes() for queue in queues if not queue.durable)
