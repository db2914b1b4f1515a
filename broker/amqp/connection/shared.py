"""The state that the AMQP clients of a broker share."""

from __future__ import annotations

from collections.abc import Callable

from config import limits
from queue_manager.errors import LimitReached

ReplyTaker = Callable[[list[bytes], list[bytes]], None]
"""Takes properties and bodies of replies to one requester, in order; there may be no room for them."""


class TransactionRoom:
    """Room in memory for transactions that are under way: `limits.TRANSACTION_BYTES_MAX` for all clients."""

    __slots__ = ("_taken_bytes",)

    def __init__(self) -> None:
        self._taken_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Take room; raises LimitReached if there is none."""
        if self._taken_bytes + size_bytes > limits.TRANSACTION_BYTES_MAX:
            raise LimitReached(
                f"transactions under way hold more than {limits.TRANSACTION_BYTES_MAX} bytes: commit sooner"
            )
        self._taken_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give back the room of a transaction that ended."""
        self._taken_bytes -= size_bytes


class BrowseSlots:
    """How many pages are being read for all clients: `limits.BROWSES_AT_ONCE_MAX` at most."""

    __slots__ = ("_taken_count",)

    def __init__(self) -> None:
        self._taken_count = 0

    def check(self) -> None:
        """Raise LimitReached if there is none left."""
        if self._taken_count >= limits.BROWSES_AT_ONCE_MAX:
            raise LimitReached(f"{limits.BROWSES_AT_ONCE_MAX} pages are being read already: ask again later")

    def take(self) -> None:
        """Count a page that is begun."""
        self._taken_count += 1

    def give_back(self) -> None:
        """Count a page that has ended."""
        self._taken_count -= 1


class Shared:
    """One per broker. `reply_takers`: those who wait for direct replies, by the routing key these have."""

    __slots__ = ("browse_slots", "reply_takers", "transaction_room")

    def __init__(self) -> None:
        self.browse_slots = BrowseSlots()
        self.reply_takers: dict[str, ReplyTaker] = {}
        self.transaction_room = TransactionRoom()
