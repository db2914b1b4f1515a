"""A consumer group of a stream: a position, and what its consumers have not settled yet.

Nothing is claimed in buckets and nothing is kept done: what is stored of a group is one offset, below which
it is done with everything. A group without a name belongs to one consumer, goes with it, and is not stored.
"""

from __future__ import annotations

from config import limits
from queue_manager.consumer import Consumer
from queue_manager.groups.settling import release_claim
from queue_manager.model import DONE, IN_FLIGHT, STALE, Entry, Message
from queue_manager.streams.cursor import StreamCursor


class StreamGroup(StreamCursor):
    """One reader, or several that share the messages between them."""

    __slots__ = ()

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit, in even shares, in turn."""
        self._now_ms = now_ms
        super().dispatch(now_ms)

    def _claim_fresh(
        self, messages: list[Message], consumer: Consumer, state: int, now_ms: int
    ) -> list[Entry]:
        self._commit_later(now_ms)
        if state == DONE:
            return []
        entries = [
            Entry(message, self, message.offset, None, 1, IN_FLIGHT, consumer, now_ms) for message in messages
        ]
        consumer.in_flight.update([(entry.claim_number, entry) for entry in entries])
        consumer.bytes_in_flight += sum([len(message.body or b"") for message in messages])
        if consumer.pool is not None:
            consumer.pool.in_flight += len(messages)
        return entries

    def _claim_returned(self, consumer: Consumer, count: int, now_ms: int) -> list[Entry]:
        entries = super()._claim_returned(consumer, count, now_ms)
        self._commit_later(now_ms)
        return entries

    def give_back(
        self, entries: list[Entry], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """What is nacked waits for the group again. Reject settles, and so does a reader by itself.

        With `delay_ms` (the client did not mean it as a verdict) messages return to that reader, too.
        """
        if failed or (self.is_anonymous and delay_ms is None):
            for entry in entries:
                if entry.state == IN_FLIGHT:
                    release_claim(entry)
                    entry.state = DONE
            self.mark_dispatch()
            return
        self.requeue(entries, now_ms)

    def requeue(
        self, entries: list[Entry], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        """Have other consumers of the group given these messages, before anything newer."""
        if self.is_anonymous and not self.consumers:
            for entry in entries:
                if entry.state == IN_FLIGHT:
                    release_claim(entry)
                    entry.state = STALE
            return
        wants = self.wants if self.filter_key else None
        super().requeue(
            [
                entry
                for entry in entries
                if entry.message.offset < self.position and (wants is None or wants(entry.message))
            ],
            now_ms,
            delay_ms=0,
        )
        for entry in entries:
            if entry.state == IN_FLIGHT:  # behind the position: read again anyway; or not wanted any more
                release_claim(entry)
                entry.state = STALE
        if not self.consumers:
            self._limit_returned()

    def expire(self, now_ms: int) -> int:
        """Return claims whose lease has ended to the others; a reader by itself may take its time."""
        if not self.is_anonymous:
            return super().expire(now_ms)
        self.draining = [consumer for consumer in self.draining if consumer.in_flight]
        return 0

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it has not settled goes to the others."""
        super().remove(consumer, now_ms)
        self._left()

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; it may still settle what it holds."""
        super().cancel(consumer)
        self._left()

    def _left(self) -> None:
        """A consumer went: the last one takes a nameless group with it."""
        if self.consumers:
            return
        if self.is_anonymous:
            self.stream.forget_group(self)
        elif not self.auto_commit:
            self._rewind(self.committed)
        else:
            self.mark_dirty()
            self.flushed_at_ms = 0

    def _limit_returned(self) -> None:
        """Nobody is there: of very many messages that came back none are kept, they are read again."""
        if len(self.returned) > limits.STREAM_RETURNED_MESSAGES_MAX:
            self._rewind(self.floor())

    def purge_ready(self) -> None:
        """Nothing: the stream itself is cut."""
