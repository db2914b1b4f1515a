"""Going through a log for a cursor that does not claim in order, or for groups to come."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.claims.unowned import Unowned
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import DeadLetters
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import LogTarget
from queue_manager.log.reader import Reader
from queue_manager.log.retention import Retention
from queue_manager.model import Message
from queue_manager.shard.discards import Discards
from queue_manager.shard.loads import LogRows

Walk = Callable[[int], bool]
"""Called, with the time, when something was read; whether there was more than this turn allows."""


class Front(LogTarget):
    """A place in a log, and reading on from there. Implements `LoadTarget`."""

    __slots__ = ("_on_loaded", "progress", "reader", "retention")

    def __init__(self, retention: Retention[Cursor], on_loaded: Walk, position: int, sequence: int) -> None:
        super().__init__(retention.log)
        self.retention = retention
        self._on_loaded = on_loaded
        self.progress = Progress(position)
        self.reader = Reader(self.log, self.progress, self, sequence)

    @property
    def position(self) -> int:
        """The first offset not looked at yet."""
        return self.progress.position

    def pass_by(self, count: int) -> None:
        """Move past the next `count` messages in memory."""
        self.reader.take(count)

    def pass_to(self, offset: int) -> None:
        """Go on at `offset`, if that is not behind."""
        self.reader.pass_to(offset)

    # see `LoadTarget`

    def log_loaded(self, found: LogRows, now_ms: int) -> None:
        self.reader.load_ended()
        self.reader.loaded(found, self._release_gone)
        if self.log.deleted or not self._on_loaded(now_ms):
            self.reader.forget()

    def _release_gone(self, start: int, end: int) -> None:
        """Note that the offsets have no payload any more: cursors find that out by themselves."""


class FutureGroups(Front):
    """Stands for the groups to come of a queue that has none: what it passes is let go of for all of them."""

    __slots__ = ("_dead_letters", "_unowned")

    def __init__(self, retention: Retention[Cursor], on_loaded: Walk, dead_letters: DeadLetters) -> None:
        log = retention.log
        super().__init__(retention, on_loaded, log.head_offset, log.head_sequence)
        self._dead_letters = dead_letters
        self._unowned = Unowned(retention)
        if log.durable:
            retention.payloads.released.add_all(retention.expired.ranges_from(log.head_offset))

    @property
    def storage_id(self) -> str:
        """The name that records about it are stored under: the queue's."""
        return self.log.name

    def _release_gone(self, start: int, end: int) -> None:
        if not self.retention.members:
            self.retention.payloads.released.add(max(start, self.log.head_offset), end)
            self.retention.want_trim()

    def ready_count(self) -> int:
        """Count messages for groups to come."""
        return self.retention.kept_count()

    def discard_fresh(
        self, messages: list[Message], reason: str, now_ms: int, budget: Discards | None = None
    ) -> int:
        """Let go of messages; give how many of them, from the first on, it were.

        Fewer than all where the dead-letter queue does not take one, since no group keeps it failed, or where
        the budget is spent.
        """
        count = len(messages)
        if budget is not None:
            budget.spend(count)
        if reason and self._dead_letters.is_wanted():
            count = 0
            for message in messages:
                if count and budget is not None and budget.is_spent:
                    break
                if not self._dead_letters.send("", message, 0, reason, now_ms):
                    break
                count += 1
        if self.log.durable and count:
            self._unowned.release([(m.offset, m.message_id, m.template.shared) for m in messages[:count]])
        return count

    def pass_over(self, count: int) -> None:
        """Pass so many messages, which are over for groups to come."""
        log = self.log
        start = self.position
        self.pass_by(count)
        if not log.durable:
            log.drop_before(self.position)
            return
        self.retention.payloads.released.add(start, self.position)
        self.retention.move_head()
        self.pass_to(log.head_offset)  # what follows may have been let go of before
        log.write_head()  # with the commit that holds the dead letters
        self.retention.want_removal_below_head()


Holder = Cursor | FutureGroups
