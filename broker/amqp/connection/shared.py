"""What the AMQP clients of a broker share."""

from __future__ import annotations

from typing import Protocol

from config import limits
from queue_manager.errors import LimitReached


class ReplyTaker(Protocol):
    """A requester that takes replies directly."""

    def take_replies(self, properties: list[bytes], bodies: list[bytes]) -> None:
        """Replies to this requester, in order; it may have no room for them."""


class ReplyAddresses:
    """The requesters that wait for direct replies, by the routing key replies to them have."""

    __slots__ = ("_takers",)

    def __init__(self) -> None:
        self._takers: dict[str, ReplyTaker] = {}

    def add(self, key: str, taker: ReplyTaker) -> None:
        """A requester begins to wait."""
        self._takers[key] = taker

    def remove(self, key: str) -> None:
        """A requester waits no longer."""
        self._takers.pop(key, None)

    def find(self, key: str) -> ReplyTaker | None:
        """The requester behind a routing key, if it still waits."""
        return self._takers.get(key)


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
        """A transaction ended."""
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
        """A page is begun."""
        self._taken_count += 1

    def give_back(self) -> None:
        """A page has ended."""
        self._taken_count -= 1


class Shared:
    """One per broker."""

    __slots__ = ("browse_slots", "reply_addresses", "transaction_room")

    def __init__(self) -> None:
        self.browse_slots = BrowseSlots()
        self.reply_addresses = ReplyAddresses()
        self.transaction_room = TransactionRoom()
