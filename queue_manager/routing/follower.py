"""Who follows which queues there are, and what leads to them."""

from __future__ import annotations

from typing import Protocol

from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding


class Follower(Protocol):
    """Is told of each change, after it; of bindings those that lead to queues of this shard."""

    def queue_changed(self, queue: Queue) -> None:
        """Note that a queue came, or has another policy or other topics."""

    def queue_gone(self, queue: Queue) -> None:
        """Note that a queue is gone."""

    def bound(self, binding: Binding) -> None:
        """Note that something leads to a queue."""

    def unbound(self, binding: Binding) -> None:
        """Note that it does so no more."""


class NoFollower:
    """Follows nothing."""

    def queue_changed(self, queue: Queue) -> None:
        """See `Follower`."""

    def queue_gone(self, queue: Queue) -> None:
        """See `Follower`."""

    def bound(self, binding: Binding) -> None:
        """See `Follower`."""

    def unbound(self, binding: Binding) -> None:
        """See `Follower`."""
