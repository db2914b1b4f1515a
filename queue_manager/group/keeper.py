"""The keeper: messages that no consumer group of a queue wants wait for groups to come, or are dead-lettered.

While groups are there and none of them takes everything, a group that has no consumers, the keeper, reads the
queue beside them: it passes what another group wants, and what is left waits in it. So that is counted,
expires, is purged, limited and found after a restart like what waits in any group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from config import limits
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import UNMATCHED, DeadLetters
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.dispatch.filter_views import EVERYTHING, View, Views
from queue_manager.dispatch.view_scan import OFFSET_END, Scan, Scanning
from queue_manager.group.group import Group
from queue_manager.group.group_audience import Audience
from queue_manager.group.serving import Serving
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import DEAD_LETTER_UNMATCHED
from queue_manager.shard.message_fields import MessageFields

KEPT: Final = "@#kept"
"""The name and ID of the keeper: no other group can have it, for `#kept` is no pattern."""


class _Unmatched(View):
    """The view of messages that no group wants: they are found only where they are not to stay."""

    __slots__ = ("_log",)

    def __init__(self, log: QueueLog, cursor: int) -> None:
        super().__init__(EVERYTHING, None, cursor)
        self._log = log

    def wants(self, queue_title: str, message: Message, delivery_count: int, fields: MessageFields) -> bool:
        return self._log.policy.unmatched == DEAD_LETTER_UNMATCHED


class Keeping(Scanning):
    """Goes through one log, has its cursor pass what other groups want, and leaves the rest where it is.

    What it leaves costs a bit for each offset in the claimed bitmap of its cursor. `_seen_end`: everything
    below was looked at once, or was there before.
    """

    __slots__ = ("_claimed", "_cursor", "_on_given_up", "_seen_end", "_view")

    def __init__(self, cursor: Cursor, on_given_up: Callable[[int], None]) -> None:
        self._cursor = cursor
        self._on_given_up = on_given_up
        log = cursor.log
        cursor.reader.forget()
        if cursor.progress.gaps is not None:
            cursor.stored.mark_dirty()
        self._claimed = cursor.progress.begin_bitmap()
        views = Views(log.context.fields)
        self._view = _Unmatched(log, cursor.position)
        views.add(self._view)
        self._scan = Scan(cursor, self._claimed, views)
        cursor.backlog.pass_expired()
        self._seen_end = log.tail.next_offset

    def begin_again(self) -> None:
        """Pass what a new group wants."""
        self._scan.forget_block()
        self._view.move_to(self._claimed.position)
        self._cursor.want_dispatch()

    def appended(self, offset: int) -> None:
        """Judge appended messages from `offset` on at once, so that what others want never counts as kept;
        while what lies before has yet to be looked at, they have their turn after that.
        """
        cursor = self._cursor
        is_late = self._view.cursor < offset or not cursor.retention.is_known
        if is_late or cursor.log.policy.unmatched == DEAD_LETTER_UNMATCHED or self._look():
            cursor.want_dispatch()

    def go_on(self, now_ms: int) -> bool:
        """Go through the log, as far as one turn allows; give whether there is more to look at."""
        if not self._cursor.retention.is_known:
            return False  # a group that was made meanwhile has yet to be told what there is for it
        more = self._look()
        return self._give_up(now_ms) or more if self._view.found else more

    def _look(self) -> bool:
        scan = self._scan
        scan.begin()
        scan.look_for(self._view)
        more = scan.finish()
        self._seen_end = max(self._seen_end, self._view.cursor)
        return more

    def _give_up(self, now_ms: int) -> bool:
        """Have what was found dead-lettered; whether there may be more."""
        cursor = self._cursor
        found = self._scan.pop_found(self._view, OFFSET_END, limits.EXPIRY_STEP_MESSAGES)
        messages = cursor.rules.choose_found(cursor, found, now_ms)
        cursor.discard_fresh(messages, UNMATCHED, now_ms)
        self._on_given_up(len(messages))
        return bool(found)

    def kept_count(self) -> int:
        """Count the messages that no group wanted."""
        claimed = self._claimed
        return max(0, self._seen_end - claimed.position - claimed.count)


class _OfNoGroup:
    """Dead letters that do not tell which group gave them up. Implements `DeadLetters`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: DeadLetters) -> None:
        self._queue = queue

    def is_wanted(self) -> bool:
        return self._queue.is_wanted()

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        return self._queue.send("", message, attempts, reason, now_ms)


class _KeeperServing(Serving):
    """Serves each cursor of the keeper by a `Keeping`."""

    __slots__ = ("_on_given_up", "keepings")

    def __init__(
        self,
        group: Keeper,
        log: QueueLog,
        consumers: Consumers,
        key_of: GroupKeyOf,
        on_given_up: Callable[[int], None],
    ) -> None:
        super().__init__(group, log, consumers, key_of)
        self._on_given_up = on_given_up
        self.keepings: list[Keeping] = []

    def serve(self, cursors: list[Cursor]) -> None:
        self.keepings = [Keeping(cursor, self._on_given_up) for cursor in cursors]
        for cursor, keeping in zip(cursors, self.keepings, strict=True):
            cursor.serve_by(keeping)

    def follow_policy(self) -> None:
        """See `Serving`: nothing is handed out."""

    def go_out_of_order(self, cursor: Cursor) -> None:
        """See `Serving`: it always is."""


class Keeper(Group):
    """The group that holds what no other group of its queue wants; nobody can consume in it.

    `on_given_up` is told how many were dead-lettered instead.
    """

    __slots__ = ("_keepings",)

    def __init__(
        self, log: QueueLog, audience: Audience, key_of: GroupKeyOf, on_given_up: Callable[[int], None]
    ) -> None:
        super().__init__(log, KEPT, MATCH_ALL, "", key_of)
        self.wants = lambda message: not audience.wants(message)
        serving = _KeeperServing(self, log, self.consumers, key_of, on_given_up)
        self._keepings = serving
        self.serving = serving

    @property
    def keepings(self) -> list[Keeping]:
        """The servers of its cursors, in their order: the highest priority first."""
        return self._keepings.keepings

    def dead_letters_of(self, queue: DeadLetters) -> DeadLetters:
        """See `Group`: they tell of no group."""
        return _OfNoGroup(queue)

    def begin_again(self) -> None:
        """Look at all that was left once more: another group wants some of it, or that is not to stay."""
        for keeping in self.keepings:
            keeping.begin_again()

    def dispatch(self, now_ms: int) -> None:
        """See `Group`: judge what has come."""
        more = False
        for cursor, keeping in zip(self.cursors, self.keepings, strict=True):
            more |= keeping.go_on(now_ms)
            if not self.log.durable:
                cursor.retention.trim_tail(0)
        if more:
            self.log.context.put_off(self)

    def awaits_consumers(self) -> bool:
        """See `Group`: it goes through its logs by itself."""
        return False

    def ready_count(self) -> int:
        """Count the messages that no group wanted."""
        return sum(keeping.kept_count() for keeping in self.keepings)
