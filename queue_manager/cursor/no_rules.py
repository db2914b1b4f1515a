"""What a cursor is told in a queue without rules: everything may be handed out."""

from __future__ import annotations

from typing import Final

from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor, Rules
from queue_manager.model import Message
from queue_manager.shard.commit import Commit


class NoRules:
    """See `Rules`."""

    __slots__ = ()

    def choose(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """See `Rules`."""
        return messages

    def choose_found(self, cursor: Cursor, messages: list[Message], now_ms: int) -> list[Message]:
        """See `Rules`."""
        return messages

    def claims_again(self, cursor: Cursor, claim: Claim, now_ms: int) -> bool:
        """See `Rules`."""
        return True

    def returned(self, cursor: Cursor, claim: Claim, body: bytes | None) -> None:
        """See `Rules`."""

    def revived(self, cursor: Cursor, claims: list[Claim]) -> None:
        """See `Rules`."""

    def passed(self, cursor: Cursor, messages: list[Message]) -> None:
        """See `Rules`."""

    def skipped(self, cursor: Cursor, messages: list[Message]) -> None:
        """See `Rules`."""

    def purged(self, cursor: Cursor) -> None:
        """See `Rules`."""

    def written(self, cursor: Cursor, commit: Commit) -> None:
        """See `Rules`."""

    def loaded(self, cursor: Cursor, now_ms: int) -> None:
        """See `Rules`."""


NO_RULES: Final[Rules] = NoRules()
