"""The cursor of a group in a stream: a position, and what of it is written down.

Nothing is kept in buckets and nothing is kept done: what is stored of a group is one offset, below which it
is done with everything.
"""

from __future__ import annotations

from queue_manager.claims.claim import Claim, Consumer
from queue_manager.claims.cursor_buckets import Buckets
from queue_manager.cursor.backlog import Wanted
from queue_manager.cursor.cursor import Cursor
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
        return False

    def make(
        self, messages: list[Message], attempts: int, state: int, consumer: Consumer | None, now_ms: int
    ) -> list[Claim]:
        return [
            Claim(message, message.offset, None, attempts, state, consumer, now_ms) for message in messages
        ]


class StreamCursor(Cursor):
    """The place of one reader, or of several that share the messages between them.

    `committed` is where the group goes on after a restart, as far as it was told (`auto_commit` False) or was
    written down.
    """

    __slots__ = ("auto_commit", "committed", "now_ms")

    backlog: StreamBacklog[Cursor]
    log: StreamLog
    retention: StreamRetention[Cursor]

    def _prepare(self) -> None:
        self.auto_commit = True
        self.committed = self.position
        self.now_ms = 0

    def _make_buckets(self) -> Buckets:
        return StreamBuckets(self.log, self.storage_id, self.stored.mark_dirty)

    def _make_backlog(self, wants: Wanted | None) -> StreamBacklog[Cursor]:
        return StreamBacklog(
            self, self.retention, self.progress, self.reader, self.stored, self.skipped, wants
        )

    # place

    def seek(self, start: StreamStart) -> None:
        """Go on at `start`; what was handed out before does not come back."""
        self._end_claims()
        self.backlog.seek(start, self.log.place(start))
        self.committed = self.position
        self.stored.mark_dirty()
        self.stored.write_soon()
        self.want_dispatch()

    def commit(self, offset: int) -> None:
        """Note that everything up to and with `offset` is done with. Without consumers the group goes on
        behind it.
        """
        self.committed = offset + 1
        if not self.has_consumers():
            self.rewind(self.committed)
        self.stored.mark_dirty()
        self.stored.write_soon()

    def floor(self) -> int:
        """Return the lowest offset handed out and not settled, or the position."""
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
        """Return where the group would go on if the broker ended now and everything was written."""
        return self.floor() if self.auto_commit else self.committed

    def rewind(self, offset: int) -> None:
        """Go on at `offset`; claims from before mean nothing any more: consumers that went may have some."""
        self._end_claims()
        self.backlog.rewind(offset)

    def _end_claims(self) -> None:
        for consumer in self.consumers:
            self.claims.end_in_flight(consumer, stale=True)
        self.returning.drop()
        self.claims.returned.take_all()

    def narrow(self, wants: Wanted) -> None:
        """Take only what `wants` says yes to; what came back and is not wanted is passed like the rest."""
        self.backlog.narrow(wants)
        if self.claims.drop_unwanted(wants):
            self.stored.mark_dirty()

    # writing

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        """Put the committed offset into `commit`; once more later while somebody has something in flight."""
        floor = self.floor()
        if self.auto_commit:  # what was lost is told after a restart, too
            self.committed = min(floor, self.position - self.backlog.gap)
        sequence = self.log.sequence_for(self.committed)
        self.reader.sequence = sequence
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
        self._commit_later(now_ms)
        super().hand_out_fresh(consumer, messages, now_ms)

    def hand_out(self, consumer: Consumer, claims: list[Claim]) -> None:
        self._commit_later(self.now_ms)
        super().hand_out(consumer, claims)

    def passed_unread(self) -> None:
        self._commit_later(self.now_ms)

    def purge_ready(self) -> None:
        """Do nothing: the stream itself is cut."""
