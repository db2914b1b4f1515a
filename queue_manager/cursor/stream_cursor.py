"""The cursor of a group in a stream: a position, and what of it is written down.

Nothing is kept in buckets and nothing is kept done: what is stored of a group is one offset, below which it
is done with everything.
"""

from __future__ import annotations

from config import limits
from queue_manager.claims.claim import IN_FLIGHT, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.claims.ledger import Claims
from queue_manager.cursor.cursor import Cursor, DeadLetters, Dispatcher, Owner, Rules, Wanted
from queue_manager.log.stream_blocks import Block
from queue_manager.log.stream_log import StreamLog
from queue_manager.log.stream_retention import StreamRetention
from queue_manager.log.stream_start import TIMESTAMP, StreamStart
from queue_manager.model import Message
from queue_manager.shard.commit import Commit


class StreamClaims(Claims):
    """Claims of a stream's group: in memory only, numbered by the offsets of their messages."""

    __slots__ = ()

    def _make(
        self, messages: list[Message], attempts: int, state: int, consumer: Consumer | None, now_ms: int
    ) -> list[Claim]:
        return [
            Claim(message, message.offset, None, attempts, state, consumer, now_ms) for message in messages
        ]

    def claim(self, messages: list[Message], consumer: Consumer, state: int, now_ms: int) -> list[Claim]:
        """See `Claims.claim`; what is done leaves no trace."""
        return super().claim(messages, consumer, state, now_ms) if state == IN_FLIGHT else []


class StreamCursor(Cursor):
    """The place of one reader, or of several that share the messages between them.

    `committed` is where the group goes on after a restart, as far as it was told (`auto_commit` False) or was
    written down. `gap` counts messages retention took before the group read them, until its consumer has been
    told; `lost_count` all of them. `is_anonymous`: it goes with its consumer and is not stored.
    """

    __slots__ = (
        "_block",
        "_blocks",
        "_now_ms",
        "_since_ms",
        "_stream_log",
        "auto_commit",
        "committed",
        "gap",
        "is_anonymous",
        "lost_count",
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
        )
        self._stream_log: StreamLog = retention.stream_log
        self._blocks = retention.blocks
        self.is_anonymous = is_anonymous
        self.auto_commit = True
        self.committed = position
        self.gap = 0
        self.lost_count = 0
        self._now_ms = 0
        self._since_ms = 0  # messages published before it are passed
        self._block: Block | None = None

    def _make_claims(self) -> Claims:
        return StreamClaims(self.log, self.storage_id, self.mark_dirty, self.want_dispatch)

    def begin_dispatch(self, now_ms: int) -> None:
        """It is now `now_ms`."""
        self._now_ms = now_ms

    # place

    def seek(self, start: StreamStart) -> None:
        """Go on at `start`; what was handed out before does not come back."""
        self.rewind(self._stream_log.place(start))
        self.gap = 0
        self._since_ms = start.value if start.kind == TIMESTAMP else 0
        self.committed = self.position
        self.mark_dirty()
        self.write_soon()
        self.want_dispatch()

    def commit(self, offset: int) -> None:
        """Everything up to and with `offset` is done with. Without consumers the group goes on behind it."""
        self.committed = offset + 1
        if not self.has_consumers():
            self.rewind(self.committed)
        self.mark_dirty()
        self.write_soon()

    def commit_by(self, *, itself: bool) -> None:
        """Say whether the offset is committed by what is settled, or when the group is told."""
        self.auto_commit = itself

    def floor(self) -> int:
        """The lowest offset handed out and not settled, or the position."""
        floor = self.position
        if self.claims.returned:
            floor = min(floor, self.claims.returned[0][0])
        if self.returning:
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
        for consumer in self.consumers:
            self.claims.end_in_flight(consumer, stale=True)
        self.returning.drop()
        self.claims.take_returned()
        self.progress.move(offset)
        self._block = None

    def drop_unwanted(self) -> None:
        """What came back from who read before, and is not wanted now, is passed like the rest."""
        if self.wants is not None and self.claims.drop_returned(self.wants):
            self.mark_dirty()

    # writing

    def mark_dirty(self) -> None:
        """Have the committed offset written with one of the next commits, if it is kept."""
        if not self.is_anonymous:
            super().mark_dirty()

    def write(self, commit: Commit, now_ms: int) -> None:
        """Put the committed offset into `commit`; once more later while somebody has something in flight."""
        floor = self.floor()
        if self.auto_commit:
            self.committed = floor
        sequence = self._stream_log.sequence_for(self.committed)
        self.reader.set_sequence(sequence)
        self.stored_place.write(sequence, self.committed, commit)
        self.written(now_ms)
        if floor < self.position and any(self.consumers):
            self._commit_later(now_ms)

    def _commit_later(self, now_ms: int) -> None:
        if not self.is_dirty and self.auto_commit:
            self.write_at(now_ms + self.log.context.auto_commit_interval_ms)
            self.mark_dirty()

    # handing out

    def hand_out_fresh(self, consumer: Consumer, messages: list[Message], now_ms: int) -> None:
        """See `Cursor`."""
        self._commit_later(now_ms)
        super().hand_out_fresh(consumer, messages, now_ms)

    def hand_out(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `Cursor`."""
        self._commit_later(self._now_ms)
        super().hand_out(consumer, claims)

    # reading

    def at_hand(self) -> int:
        """See `Cursor`. What is not durable is not there yet."""
        if self.position < self.log.head_offset:
            self._pass_gap()
        tail = self.log.tail
        while self.position < tail.first_offset:
            block = self._find_block()
            if block is None:
                return 0
            left = len(block.messages) - block.index_of(self.position)
            if left:
                return left
            self.progress.move(block.end)  # nothing of that stretch is kept any more
        if self._block is not None:
            self.forget_read()
        return max(0, self.log.durable_offset - self.position)

    def _pass_gap(self) -> None:
        """Retention was faster than this group."""
        head = self.log.head_offset
        skipped = head - self.position
        self.gap += skipped
        self.lost_count += skipped
        self.progress.move(head)
        self._block = None
        self.mark_dirty()

    def _find_block(self) -> Block | None:
        """The block the position is in, and the one behind it asked for; None: it must be read first."""
        position = self.position
        block = self._block
        if block is None or not block.holds(position):
            before = block
            block = self._block = self._blocks.find(position)
            if block is None:
                self._blocks.ask(self, position, before)
                return None
        if block.end < self.log.tail.first_offset and self._blocks.find(block.end) is None:
            self._blocks.ask(self, block.end, block)
        return block

    def take(self, count: int) -> list[Message]:
        """See `Cursor`."""
        wants = self.wants
        if wants is None and not self._since_ms:
            return self._take_next(count)
        taken: list[Message] = []
        scanned = 0
        while len(taken) < count:
            part = self._take_next(count - len(taken))
            if not part:
                break
            scanned += len(part)
            if self._since_ms:
                since_ms = self._since_ms
                part = [message for message in part if message.received_at_ms >= since_ms]
                if part:
                    self._since_ms = 0
            taken += part if wants is None else filter(wants, part)
            if scanned >= limits.PATTERN_SCAN_MESSAGES_MAX:
                self.want_dispatch()
                break
        if scanned > len(taken):
            self._commit_later(self._now_ms)  # that it passed messages nobody was given
        return taken

    def _take_next(self, count: int) -> list[Message]:
        if not self.at_hand():
            return []
        block = self._block
        if block is None:
            messages = self.log.tail.slice(self.position, min(count, self.log.durable_offset - self.position))
            self.progress.move(self.position + len(messages))
            return messages
        index = block.index_of(self.position)
        messages = block.messages[index : index + count]
        end = index + len(messages)
        self.progress.move(block.messages[end].offset if end < len(block.messages) else block.end)
        return messages

    def forget_read(self) -> None:
        """Let go of the block being read."""
        self._block = None
        self._blocks.left()

    def take_gap(self) -> int:
        """Messages lost to retention that no consumer was told of yet; they are told now."""
        gap = self.gap
        self.gap = 0
        return gap

    def purge_ready(self) -> None:
        """Nothing: the stream itself is cut."""
