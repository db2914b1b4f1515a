"""The cursor of a group in a stream: a position, and what of it is written down.

Nothing is kept in buckets and nothing is kept done: what is stored of a group is one offset, below which it
is done with everything.
"""

from __future__ import annotations

from queue_manager.claims.buckets import Buckets
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.backlog import Wanted
from queue_manager.cursor.cursor import Cursor, Dispatcher, Owner, Rules
from queue_manager.cursor.failures import DeadLetters
from queue_manager.cursor.stream_backlog import StreamBacklog
from queue_manager.log.stream_log import StreamLog
from queue_manager.log.stream_retention import StreamRetention
from queue_manager.log.stream_start import StreamStart
from queue_manager.model import Message
from queue_manager.shard.commit import Commit


class StreamBuckets(Buckets):
    """None at all: claims of a stream are in memory only, numbered by the offsets of their messages."""

    __slots__ = ()

    @property
    def keeps_done(self) -> bool:
        """See `Buckets`."""
        return False

    def make(
        self, messages: list[Message], attempts: int, state: int, consumer: Consumer | None, now_ms: int
    ) -> list[Claim]:
        """See `Buckets`."""
        return [
            Claim(message, message.offset, None, attempts, state, consumer, now_ms) for message in messages
        ]


class StreamCursor(Cursor):
    """The place of one reader, or of several that share the messages between them.

    `committed` is where the group goes on after a restart, as far as it was told (`auto_commit` False) or was
    written down. `is_anonymous`: it goes with its consumer and is not stored.
    """

    __slots__ = (
        "_now_ms",
        "_stream_backlog",
        "_stream_log",
        "_stream_retention",
        "auto_commit",
        "committed",
        "is_anonymous",
    )

    def __init__(
        self,
        retention: StreamRetention[Cursor],
        owner: Owner,
        consumers: Consumers,
        group_id: str,
        *,
        position: int,
        sequence: int,
        wants: Wanted | None,
        rules: Rules,
        dead_letters: DeadLetters,
        dispatcher: Dispatcher,
        is_anonymous: bool,
    ) -> None:
        self._stream_retention = retention
        super().__init__(
            retention,
            owner,
            consumers,
            group_id,
            position=position,
            sequence=sequence,
            wants=wants,
            rules=rules,
            dead_letters=dead_letters,
            dispatcher=dispatcher,
            is_kept=not is_anonymous,
        )
        self._stream_log: StreamLog = retention.stream_log
        self.is_anonymous = is_anonymous
        self.auto_commit = True
        self.committed = position
        self._now_ms = 0

    def _make_buckets(self) -> Buckets:
        return StreamBuckets(self.log, self.storage_id, self.stored)

    def _make_backlog(self, wants: Wanted | None) -> StreamBacklog[Cursor]:
        self._stream_backlog: StreamBacklog[Cursor] = StreamBacklog(
            self, self._stream_retention, self.progress, self.reader, self.stored, self.skipped, wants
        )
        return self._stream_backlog

    @property
    def stream_backlog(self) -> StreamBacklog[Cursor]:
        """As `backlog`."""
        return self._stream_backlog

    def begin_dispatch(self, now_ms: int) -> None:
        """It is now `now_ms`."""
        self._now_ms = now_ms

    # place

    def seek(self, start: StreamStart) -> None:
        """Go on at `start`; what was handed out before does not come back."""
        self._end_claims()
        self._stream_backlog.seek(start, self._stream_log.place(start))
        self.committed = self.position
        self.stored.mark_dirty()
        self.stored.write_soon()
        self.want_dispatch()

    def commit(self, offset: int) -> None:
        """Everything up to and with `offset` is done with. Without consumers the group goes on behind it."""
        self.committed = offset + 1
        if not self.has_consumers():
            self.rewind(self.committed)
        self.stored.mark_dirty()
        self.stored.write_soon()

    def commit_by(self, *, itself: bool) -> None:
        """Say whether the offset is committed by what is settled, or when the group is told."""
        self.auto_commit = itself

    def floor(self) -> int:
        """The lowest offset handed out and not settled, or the position."""
        floor = self.position
        if self.claims.returned.heap:
            floor = min(floor, self.claims.returned.heap[0][0])
        if self.returning.count:
            floor = min(floor, self.returning.floor())
        for consumer in self.consumers:
            if consumer.in_flight:
                floor = min(floor, min(consumer.in_flight))
        return floor

    def committed_offset(self) -> int:
        """Where the group would go on if the broker ended now and everything was written."""
        return self.floor() if self.auto_commit else self.committed

    def rewind(self, offset: int) -> None:
        """Go on at `offset`; claims from before mean nothing any more: consumers that went may have some."""
        self._end_claims()
        self._stream_backlog.rewind(offset)

    def _end_claims(self) -> None:
        for consumer in self.consumers:
            self.claims.end_in_flight(consumer, stale=True)
        self.returning.drop()
        self.claims.returned.take_all()

    def drop_unwanted(self) -> None:
        """What came back from who read before, and is not wanted now, is passed like the rest."""
        wants = self.backlog.wants
        if wants is not None and self.claims.drop_unwanted(wants):
            self.stored.mark_dirty()

    # writing

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        """Put the committed offset into `commit`; once more later while somebody has something in flight."""
        floor = self.floor()
        if self.auto_commit:
            self.committed = floor
        sequence = self._stream_log.sequence_for(self.committed)
        self.reader.set_sequence(sequence)
        self.stored.write_place(sequence, self.committed, commit)
        self.stored.written(now_ms)
        if floor < self.position and any(self.consumers):
            self._commit_later(now_ms)

    def _commit_later(self, now_ms: int) -> None:
        if not self.stored.is_dirty and self.auto_commit:
            self.stored.write_at(now_ms + self.log.context.auto_commit_interval_ms)
            self.stored.mark_dirty()

    # handing out

    def hand_out_fresh(self, consumer: Consumer, messages: list[Message], now_ms: int) -> None:
        """See `Cursor`."""
        self._commit_later(now_ms)
        super().hand_out_fresh(consumer, messages, now_ms)

    def hand_out(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `Cursor`."""
        self._commit_later(self._now_ms)
        super().hand_out(consumer, claims)

    def passed_unread(self) -> None:
        """See `StreamBacklogOwner`."""
        self._commit_later(self._now_ms)

    def purge_ready(self) -> None:
        """Nothing: the stream itself is cut."""
