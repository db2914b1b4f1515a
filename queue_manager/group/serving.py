"""How the messages of a group's cursors are handed out: in order, by filters, or by message groups."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from queue_manager.claims.claim import Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf, KeyedGroup
from queue_manager.dispatch.by_key.by_key import ByKey
from queue_manager.dispatch.by_selector import BySelector
from queue_manager.dispatch.in_order import InOrder
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.log.queue_log import QueueLog

_NOTHING_SELECTED: Final[Mapping[Cursor, BySelector]] = MappingProxyType({})


class Serving:
    """Which strategy serves which cursor of a group.

    `by_key` serves all of them, while keys are bound to consumers; `by_selector` those of which messages are
    claimed out of order; `in_order` the others.
    """

    __slots__ = ("_consumers", "_cursors", "_group", "_key_of", "_log", "by_key", "by_selector", "in_order")

    def __init__(self, group: KeyedGroup, log: QueueLog, consumers: Consumers, key_of: GroupKeyOf) -> None:
        self._group = group
        self._log = log
        self._consumers = consumers
        self._key_of = key_of
        self._cursors: list[Cursor] = []
        self.in_order = InOrder(consumers)
        self.by_selector = _NOTHING_SELECTED
        self.by_key: ByKey | None = None

    def serve(self, cursors: list[Cursor]) -> None:
        """Serve these, the highest priority first."""
        self._cursors = cursors
        self.follow_policy()

    def server(self, cursor: Cursor) -> InOrder | BySelector:
        """Return the server of a cursor while no keys are bound."""
        return self.by_selector.get(cursor) or self.in_order

    # which

    def follow_policy(self) -> None:
        """Bind keys to consumers if the queue's policy says so and nothing is claimed out of order."""
        wanted = self._log.policy.binds_keys() and not self.by_selector
        if wanted and self.by_key is None:
            self.by_key = ByKey(self._group, self._cursors, self._consumers, self._key_of)
            for cursor in self._cursors:
                cursor.serve_by(self.by_key)
        elif not wanted and self.by_key is not None:
            self.end_message_groups()
            for cursor in self._cursors:
                cursor.serve_by(self.server(cursor))
            self._group.want_dispatch()

    def end_message_groups(self) -> None:
        """Bind no keys any more: the group ends, or messages are claimed out of order."""
        if self.by_key is not None:
            self.by_key.dissolve()
            self.by_key = None

    def select(self, cursor: Cursor) -> BySelector:
        """Have messages of a cursor handed out by filters, if they are not already."""
        by_selector = self.by_selector.get(cursor)
        if by_selector is None:
            by_selector = BySelector(cursor, self._consumers, self._selection_ended)
            self.by_selector = {**self.by_selector, cursor: by_selector}
            self.follow_policy()
            cursor.serve_by(by_selector)
        return by_selector

    def go_out_of_order(self, cursor: Cursor) -> None:
        """Messages beyond the position of a cursor were claimed, or are gone."""
        self.select(cursor)

    def _selection_ended(self, cursor: Cursor) -> None:
        rest = {other: by for other, by in self.by_selector.items() if other is not cursor}
        self.by_selector = rest or _NOTHING_SELECTED
        cursor.serve_by(self.in_order)
        self.follow_policy()
        self._group.want_dispatch()

    def end(self) -> None:
        """Forget what is timed: the group ends, and hands out nothing any more."""
        for by_selector in self.by_selector.values():
            by_selector.forget_timer()

    # consumers

    def check_room(self, wanted: ConsumerFilter) -> None:
        """Raise LimitReached if one more consumer with this filter cannot be served."""
        for by_selector in self.by_selector.values():
            by_selector.check_room(wanted)

    def join(self, consumer: Consumer) -> None:
        """Serve a consumer, which is one of the group's after this."""
        for cursor in self._cursors:
            if consumer.wanted is not None or cursor in self.by_selector:
                self.select(cursor).join(consumer)

    def joined(self, consumer: Consumer) -> None:
        """Take in a consumer that joined the group."""
        if self.by_key is not None:
            self.by_key.join(consumer)

    def stop(self, consumer: Consumer) -> None:
        """Leave a consumer out, which takes no more messages."""
        for by_selector in list(self.by_selector.values()):
            by_selector.leave(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Give up the keys of a consumer that leaves: its claims have been returned, or stay with it."""
        if self.by_key is not None:
            self.by_key.leave(consumer)

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Claim and deliver up to `count` messages; give how many. None: they have to be read back first."""
        if self.by_key is not None:
            return self.by_key.pull(consumer, count, now_ms)
        for cursor in self._cursors:
            if claimed := self.server(cursor).claim(cursor, consumer, count, now_ms):
                return claimed
            if cursor.is_waited_for():
                return None
        return 0

    # counting

    def unmatched_count(self) -> int:
        """Of the messages that wait, those no consumer's filter wants, as far as all were asked."""
        return sum(by_selector.unmatched_count() for by_selector in self.by_selector.values())
