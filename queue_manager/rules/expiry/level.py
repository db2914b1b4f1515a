"""The level of a log's rules: the state that their parts share."""

from __future__ import annotations

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim
from queue_manager.cursor.cursor import Cursor, Rules
from queue_manager.cursor.failures import EXPIRED, DeadLetters
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.rules.expiry.byte_count import ByteCount
from queue_manager.rules.expiry.front import FutureGroups, Holder
from queue_manager.rules.expiry.fronts import Fronts, Source
from queue_manager.rules.expiry.waiting_claims import Oldest, WaitingClaims


class Level(Rules):
    """The state of one log, of a queue or of one priority of it, for all rules that give up messages of it.

    `bytes` counts what waits, where that is bounded. `budget` bounds what is given up in this turn; once it
    is spent, all is looked at again in another. Kinds of it say what is looked at when time passes or
    something was read.
    """

    __slots__ = (
        "_context",
        "budget",
        "bytes",
        "dead_letters",
        "fronts",
        "log",
        "oldest",
        "retention",
        "waiting",
    )

    def __init__(self, retention: Retention[Cursor], dead_letters: DeadLetters) -> None:
        self.retention = retention
        self.log = retention.log
        self._context = self.log.context
        self.budget = self._context.discards
        self.dead_letters = dead_letters
        self.fronts = Fronts(retention, self.read, dead_letters)
        self.bytes: ByteCount | None = None
        self.oldest = Oldest()
        self.waiting = WaitingClaims()

    def call_at(self, due_ms: int) -> None:
        """Have everything looked at again then; 0: as soon as may be."""
        self._context.timers.set(self, due_ms)

    def on_timer(self, now_ms: int) -> None:
        """Look at everything, as far as there is a budget for this turn."""
        raise NotImplementedError

    def reason_of(self, message: Message) -> str:
        """Return why a message whose time is over goes."""
        return EXPIRED

    def read(self, now_ms: int) -> bool:
        """Look at everything, as something was read; returns whether that is not all over."""
        raise NotImplementedError

    def has_due(self, now_ms: int) -> bool:
        """Return whether something may have expired that could not be given up yet."""
        raise NotImplementedError

    def pass_over(self, holder: Holder, source: Source, count: int) -> None:
        """Move past so many messages, which are over for the group."""
        self.fronts.pass_over(holder, source, count)
        if isinstance(holder, FutureGroups):
            self.write_future(holder)

    def write_future(self, future: FutureGroups) -> None:
        """Write what groups to come have waiting."""
        if self.bytes is not None and self.log.durable:
            self.bytes.write_taken(future, self._context.commit)

    def note_passed(self, holder: Holder, messages: list[Message]) -> None:
        """Note that the group is done with messages that counted."""
        if self.bytes is not None:
            self.bytes.of(holder).passed(messages)

    def note_expired(self, holder: Holder, offset: int, body_bytes: int) -> None:
        """Note that the group let go of a message ahead of where it is."""
        if self.bytes is not None:
            self.bytes.of(holder).gave_up(offset, body_bytes)

    def discard_waiting(self, cursor: Cursor, claims: list[Claim], reason: str, now_ms: int) -> bool:
        """Give up claims that came back; False: some once their payloads have been read."""
        missing: list[Claim] = []
        left: list[Claim] = []
        needs_body = bool(reason) and self.dead_letters.is_wanted()
        for claim in claims:
            if self.budget.is_spent:
                left.append(claim)
                continue
            if needs_body and claim.message.body is None:
                missing.append(claim)
                continue
            self.budget.spend(1)
            if self.bytes is not None:
                self.bytes.of(cursor).remove(claim)
            cursor.failures.discard(claim, reason, now_ms)
        cursor.take_out([claim for claim in claims if claim.state != AVAILABLE])
        if not missing and not left:
            return True
        self.oldest.forget(cursor)
        if reason == EXPIRED:
            for claim in (*left, *missing):  # these are due again when their payloads have been read
                self.waiting.add(cursor, claim, now_ms)
        if missing:
            cursor.read_back.request([claim.message for claim in missing[: limits.LOAD_MESSAGES_MAX]])
        return False
