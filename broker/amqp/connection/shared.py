"""The state that the AMQP clients of a broker share."""

from __future__ import annotations

from dataclasses import dataclass

from config import limits
from protocols.amqp091.names import is_reply_key as is_reply_key
from queue_manager.errors import LimitReached


@dataclass(slots=True, eq=False)
class Room:
    """A bound on what all clients have at a time of something; `_reason` is told where there is no room."""

    _most: int
    _reason: str
    _taken: int = 0

    def check(self, count: int = 1) -> None:
        """Raise LimitReached if there is no room for so much more."""
        if self._taken + count > self._most:
            raise LimitReached(self._reason)

    def take(self, count: int = 1) -> None:
        """Take room; raises LimitReached as `check`."""
        self.check(count)
        self._taken += count

    def give_back(self, count: int = 1) -> None:
        """Give back what was taken."""
        self._taken -= count


class Shared:
    """One per broker."""

    __slots__ = ("browse_slots", "transaction_room")

    def __init__(self) -> None:
        most = limits.BROWSES_AT_ONCE_MAX
        self.browse_slots = Room(most, f"{most} pages are being read already: ask again later")
        most = limits.TRANSACTION_BYTES_MAX
        reason = f"transactions under way hold more than {most} bytes: commit sooner"
        self.transaction_room = Room(most, reason)
