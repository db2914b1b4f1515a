"""Which class a queue is of, by its policy."""

from __future__ import annotations

from queue_manager.lanes.queue import LanedQueue
from queue_manager.policy import QueuePolicy
from queue_manager.queue import Queue
from queue_manager.streams.stream import Stream


def queue_class(policy: QueuePolicy) -> type[Queue]:
    """What a queue with this policy is an instance of."""
    if policy.stream:
        return Stream
    return LanedQueue if policy.priority_max else Queue
