"""A consumer group of a stream: one cursor, and readers that share the messages between them.

A group without a name belongs to one consumer, goes with it, and is not stored.
"""

from __future__ import annotations

from collections.abc import Callable

from config import limits
from queue_manager.claims.claim import IN_FLIGHT, Claim, Consumer, Verdict
from queue_manager.cursor.stream_cursor import StreamCursor
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.condition import both, condition_of_filter
from queue_manager.group.group import Group
from queue_manager.log.queue_log import QueueLog


class StreamGroup(Group):
    """One reader, or several.

    `filter_key` tells the filter of who reads ("": none); it holds for the group while it has consumers.
    `on_left` is called when the last consumer of a nameless group is gone.
    """

    __slots__ = ("_on_left", "cursor", "filter_key", "key")

    def __init__(
        self,
        log: QueueLog,
        name: str,
        pattern: str,
        selector: str,
        key_of: GroupKeyOf,
        key: str,
        on_left: Callable[[StreamGroup], None],
    ) -> None:
        super().__init__(log, name, pattern, selector, key_of)
        self.key = key or self.group_id  # among the groups of its queue
        self.filter_key = ""
        self._on_left = on_left
        self.cursor: StreamCursor

    def follow(self, cursor: StreamCursor) -> None:
        """Take in its cursor."""
        self.cursor = cursor
        self.join([cursor])

    @property
    def is_anonymous(self) -> bool:
        """Whether it belongs to one consumer."""
        return not self.name

    @property
    def position(self) -> int:
        """The first offset not handed out yet."""
        return self.cursor.position

    def narrow(self, wanted: ConsumerFilter | None) -> None:
        """Take only what `wanted` says yes to (None: everything the group is for) from now on."""
        key = "" if wanted is None else wanted.key
        if key == self.filter_key:
            return
        self.filter_key = key
        if wanted is None:
            self.cursor.backlog.narrow(self.wants)
        else:
            asked = condition_of_filter(self.log, wanted.condition, key)
            self.cursor.narrow(both(self.wants, asked))

    # as a group

    def dispatch(self, now_ms: int) -> None:
        self.cursor.now_ms = now_ms
        super().dispatch(now_ms)

    def take(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        claimed = super().take(consumer, count, now_ms)
        if claimed == 0 and self.cursor.position < self.log.durable_offset:
            return None  # it is being read back, or has yet to be looked at
        return claimed

    def awaits_consumers(self) -> bool:
        """See `Group`: what a stream keeps does not go by what waits for its groups."""
        return False

    def give_back(self, claims: list[Claim], verdict: Verdict) -> None:
        """Have what is nacked wait for the group again. Reject settles, and so does a reader by itself.

        With a delay (the client did not mean it as a verdict) messages return to that reader, too.
        """
        if verdict.failed or (self.is_anonymous and verdict.delay_ms is None):
            self._finish(claims)
            self.want_dispatch()
            return
        self.requeue(claims, verdict)

    def requeue(self, claims: list[Claim], verdict: Verdict) -> None:
        """Have other consumers of the group given these messages, before anything newer."""
        if self.is_anonymous and not self.consumers.members:
            self._finish(claims)
            return
        cursor = self.cursor
        wants = cursor.backlog.wants if self.filter_key else None
        again = [
            claim
            for claim in claims
            if claim.message.offset < cursor.position and (wants is None or wants(claim.message))
        ]
        cursor.returning.requeue(again, Verdict(verdict.now_ms, delay_ms=0))
        self._finish(claims)  # behind the position: read again anyway; or not wanted any more
        if not self.consumers.members:
            self._limit_returned()

    def _finish(self, claims: list[Claim]) -> None:
        for claim in claims:
            if claim.state == IN_FLIGHT:
                claim.finish()

    def _limit_returned(self) -> None:
        """Keep none of very many messages that came back where no consumer is there: they are read again."""
        count = len(self.cursor.claims.returned.heap) + self.cursor.returning.count
        if count > limits.STREAM_RETURNED_MESSAGES_MAX:
            self.cursor.rewind(self.cursor.floor())

    def end_leases(self, now_ms: int) -> bool:
        """Return claims whose lease has ended to the others; a reader by itself may take its time."""
        if not self.is_anonymous:
            return super().end_leases(now_ms)
        self.consumers.forget_drained()
        return any(self.consumers)

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        super().remove(consumer, now_ms)
        self._left()

    def cancel(self, consumer: Consumer) -> None:
        super().cancel(consumer)
        self._left()

    def _left(self) -> None:
        """Forget a consumer that went: the last one takes a nameless group with it."""
        if self.consumers.members:
            return
        if self.is_anonymous:
            self._on_left(self)
        elif not self.cursor.auto_commit:
            self.cursor.rewind(self.cursor.committed)
        else:
            self.cursor.stored.mark_dirty()
            self.cursor.stored.write_soon()
