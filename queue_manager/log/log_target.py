"""The base of every target of a load that reads a log back."""

from __future__ import annotations

from queue_manager.log.queue_log import QueueLog


class LogTarget:
    """Takes what is read of one log. The base of every `queue_manager.shard.loads.LoadTarget`."""

    __slots__ = ("log",)

    def __init__(self, log: QueueLog) -> None:
        self.log = log

    @property
    def log_id(self) -> str:
        return self.log.log_id

    def log_end(self) -> int:
        return self.log.tail.first_offset

    def is_over(self) -> bool:
        """Return whether nothing is wanted any more."""
        return self.log.deleted

    def abandon(self, now_ms: int) -> None:
        """Give up: nothing will be read, as nobody waits for it."""
