"""What the parts of a log's rules ask of them."""

from __future__ import annotations

from typing import Protocol

from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.rules.expiry.byte_count import ByteCount, Holder
from queue_manager.rules.expiry.front import FutureGroups
from queue_manager.rules.expiry.fronts import Fronts, Source
from queue_manager.rules.expiry.oldest import Oldest
from queue_manager.shard.discards import Discards


class Level(Protocol):
    """The rules of one log: of a queue, or of one priority of it."""

    log: QueueLog
    bytes: ByteCount | None
    fronts: Fronts
    oldest: Oldest

    @property
    def budget(self) -> Discards:
        """What may be given up in this turn; where it is spent everything is looked at again in another."""

    def call_at(self, due_ms: int) -> None:
        """Have everything looked at again then."""

    def on_timer(self, now_ms: int) -> None:
        """Look at everything again."""

    def read(self, now_ms: int) -> bool:
        """Look at everything again: something was read."""

    def has_due(self, now_ms: int) -> bool:
        """Return whether something may have expired that could not be given up yet."""

    def is_over_for(self, holder: Holder, message: Message) -> bool:
        """Return whether the group has taken the message, or let go of it."""

    def pass_over(self, holder: Holder, source: Source, count: int) -> None:
        """Move past so many messages, which are over for the group."""

    def discard_waiting(self, cursor: Cursor, claims: list[Claim], reason: str, now_ms: int) -> bool:
        """Give up claims that came back; False: some once their payloads have been read."""

    def note_passed(self, holder: Holder, messages: list[Message]) -> None:
        """Note that the group is done with messages that counted."""

    def note_expired(self, holder: Holder, offset: int, body_bytes: int) -> None:
        """Note that the group let go of a message ahead of where it is."""

    def write_future(self, future: FutureGroups) -> None:
        """Write what groups to come have waiting."""
