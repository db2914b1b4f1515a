"""The state that the AMQP clients of a broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from config import limits
from protocols.amqp091.names import is_reply_key as is_reply_key
from queue_manager.errors import LimitReached

ReplyTaker = Callable[[list[bytes], list[bytes]], None]
"""Takes properties and bodies of replies to one requester, in order; there may be no room for them."""


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
    """One per broker. `reply_takers`: those who wait for direct replies, by the routing key these have."""

    __slots__ = ("browse_slots", "reply_takers", "transaction_room")

    def __init__(self) -> None:
        most = limits.BROWSES_AT_ONCE_MAX
        self.browse_slots = Room(most, f"{most} pages are being read already: ask again later")
        self.reply_takers: dict[str, ReplyTaker] = {}
        most = limits.TRANSACTION_BYTES_MAX
        reason = f"transactions under way hold more than {most} bytes: commit sooner"
        self.transaction_room = Room(most, reason)
