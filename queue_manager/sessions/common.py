"""The objects that the sessions of all virtual hosts share."""

from __future__ import annotations

from config import limits
from queue_manager.errors import LimitReached
from queue_manager.sessions.blocks import Blocks
from queue_manager.sessions.bounds import Bounds
from queue_manager.shard.context import Context


class Losses:
    """Counts of messages that sessions which outlive their connection never got, all of them together.

    Messages since the start: `dropped` had no room, `expired` waited for too long.
    """

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


class Common:
    """Where they are written, what was read back for them, what may wait for each, and how many there are."""

    __slots__ = ("_count", "blocks", "bounds", "context", "losses")

    def __init__(self, context: Context) -> None:
        self.context = context
        self.blocks = Blocks()
        self.bounds = Bounds()
        self.losses = Losses()
        self._count = 0

    def limit(self, bounds: Bounds) -> None:
        """Let so much wait for each session."""
        self.bounds = bounds

    def check_room(self) -> None:
        """Raise LimitReached if there may be no session more."""
        if self._count >= limits.MQTT_SESSIONS_MAX:
            raise LimitReached(f"there are {limits.MQTT_SESSIONS_MAX} sessions already")

    def begun(self) -> None:
        """Count one session more."""
        self._count += 1

    def ended(self) -> None:
        """Count one session less."""
        self._count -= 1
