"""Whether a queue is used: what nobody used for too long goes."""

from __future__ import annotations

from typing import Protocol

from queue_manager.policy import QueuePolicy
from queue_manager.shard.timers import Timers


class Used(Protocol):
    """A queue."""

    durable: bool
    deleted: bool

    @property
    def owner(self) -> object:
        """The connection it belongs to, and goes with."""

    policy: QueuePolicy

    def consumer_count(self) -> int:
        """Count the consumers of all groups."""

    def go_unused(self, now_ms: int) -> None:
        """Go: the queue was not used for as long as its policy says."""


class Use:
    """When a queue was used last, and whether it ever had a consumer."""

    __slots__ = ("_queue", "_timers", "had_consumer", "unused_since_ms")

    def __init__(self, queue: Used, timers: Timers, now_ms: int) -> None:
        self._queue = queue
        self._timers = timers
        self.had_consumer = False
        self.unused_since_ms = now_ms

    def joined(self) -> None:
        """Note that a consumer came."""
        self.had_consumer = True

    def note(self, now_ms: int) -> None:
        """Note that the queue was used now."""
        self.unused_since_ms = now_ms

    def watch(self) -> None:
        """Have it looked at when it will have been unused for too long."""
        expires_ms = self._expires_ms()
        if expires_ms and self._queue.owner is None:
            self._timers.set(self, self.unused_since_ms + expires_ms)

    def _expires_ms(self) -> int:
        policy = self._queue.policy
        return policy.unused_max_ms if self._queue.durable else policy.expires_ms

    def on_timer(self, now_ms: int) -> None:
        """Go, if it was not used for as long as its policy says."""
        if self._queue.deleted or self._queue.consumer_count():
            return
        expires_ms = self._expires_ms()
        if expires_ms and self.unused_since_ms + expires_ms <= now_ms:
            self._queue.go_unused(now_ms)
        else:
            self.watch()

    def end(self) -> None:
        """Forget the queue, which is gone."""
        self._timers.forget(self)
