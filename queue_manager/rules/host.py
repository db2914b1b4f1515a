"""The queue as its rules see it."""

from __future__ import annotations

from typing import Protocol

from queue_manager.model import MessageBatch
from queue_manager.policy import QueuePolicy
from queue_manager.shard.context import Context


class Host(Protocol):
    """A queue."""

    name: str
    durable: bool
    deleted: bool
    policy: QueuePolicy
    context: Context

    def has_room(self, count: int, body_bytes: int) -> bool:
        """Return whether it takes so many messages of so many bytes in all."""

    def store(self, bodies: list[bytes], body_bytes: int) -> int:
        """Store payloads of messages to come; give the first of their IDs."""

    def append_stored(self, batch: MessageBatch) -> None:
        """Append messages whose payloads were stored before."""
