"""What sessions that outlive their connection never got, all of them together."""

from __future__ import annotations


class Losses:
    """Messages since the start: `dropped` had no room, `expired` waited for too long."""

    __slots__ = ("dropped", "expired")

    def __init__(self) -> None:
        self.dropped = 0
        self.expired = 0

    def drop(self, count: int) -> None:
        """Count so many that had no room."""
        self.dropped += count

    def expire(self, count: int) -> None:
        """Count so many that had expired."""
        self.expired += count
