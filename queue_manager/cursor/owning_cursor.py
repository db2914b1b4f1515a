"""What the parts of a cursor ask of it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from queue_manager.claims.claim import Claim
from queue_manager.log.members import Member
from queue_manager.model import Message
from queue_manager.shard.loads import LogRows


class OwningCursor(Member, Protocol):
    """The cursor that they are parts of."""

    is_removed: bool
    """Whether the group was deleted, or a reset replaced the cursor."""

    def is_over(self) -> bool:
        """Return whether the queue or the group is gone."""

    def want_dispatch(self) -> None:
        """Have the group hand out messages: there may be more that it wants."""

    def passed_unwanted(self, messages: list[Message]) -> None:
        """Note, where account is kept of what waits, that these are nothing for the group."""

    def passed_unread(self) -> None:
        """Note that the position moved past messages of a stream that were given to no consumer."""

    def came_back(self, claim: Claim, body: bytes | None) -> None:
        """Note that a claim waits at its place, or for its time."""

    def all_back(self, now_ms: int) -> None:
        """Note that the last one of very many is in its place."""

    def rows_loaded(self, found: LogRows) -> bool:
        """Give these to the dispatch, if it asked for them; False: they are the reader's."""

    def drop_held(self, message_ids: set[int]) -> list[Claim]:
        """Have the dispatch forget what it holds of these, and give it."""

    def loaded(self, now_ms: int) -> None:
        """Tell those that wait for it that something came, or will not come."""


H = TypeVar("H", bound=OwningCursor)
