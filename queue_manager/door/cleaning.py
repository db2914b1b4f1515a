"""What time brings: leases end, retention passes, what is gone is removed."""

from __future__ import annotations

from config import limits
from queue_manager.door.consuming import Consuming
from queue_manager.group_removal import GroupRemoval, first_claim
from queue_manager.policy import FOREVER
from queue_manager.queue import Queue
from queue_manager.removal import HeadRemoval, QueueRemoval, RangeRemoval
from queue_manager.retention import Purge
from storage.records import holes, queue_meta, removal


class Cleaning(Consuming):
    """Expiry and purging."""

    def expire(self, now_ms: int) -> None:
        """Return claims whose lease ended, and do what else is due."""
        for group in list(self.consuming):
            group.expire(now_ms)
            if not group.consumers and not group.draining:
                self.consuming.pop(group, None)
        self.fire_timers(now_ms)

    def fire_timers(self, now_ms: int) -> None:
        """Do what is due by `timers`, and deliver what that set free."""
        self.timers.fire(now_ms)
        self.dispatch(now_ms)

    def take_purges(self, now_ms: int) -> list[Purge]:
        """Done records whose retention has passed, some `limits.PURGED_MESSAGES_PER_SWEEP_MAX` at most.

        The driver reads the reference counts of their `shared_items` and calls `apply_purges`.
        """
        purges = self.unread_purges
        self.unread_purges = []
        message_count = 0
        self._trim_tails()
        for group in list(self.purgeable):
            if group.queue.deleted:
                del self.purgeable[group]
                continue
            due = group.purges
            while due and due[0].due_ms <= now_ms and message_count < limits.PURGED_MESSAGES_PER_SWEEP_MAX:
                purge = due.popleft()
                message_count += purge.message_count()
                purges.append(purge)
            retention_ms = group.queue.policy.done_retention_ms
            waits = bool(due)
            for bucket in group.buckets.values():
                waits |= bucket.done_written
                if retention_ms != FOREVER and bucket.done_written and not bucket.dirty:
                    part = Purge.of_open_bucket(group, bucket, retention_ms, now_ms)
                    if part is not None:
                        purges.append(part)
            if not waits:
                del self.purgeable[group]
        return purges

    def _trim_tails(self) -> None:
        share = max(limits.TAIL_BYTES_PER_QUEUE_MIN, self.cache_bytes_max // max(1, len(self.tailed)))
        for queue in list(self.tailed):
            queue.trim_tail(share)
            if not len(queue.tail) or queue.deleted:
                del self.tailed[queue]

    def apply_purges(self, purges: list[Purge], references: dict[int, int]) -> None:
        """Put purges into the open commit; `references` are the stored reference counts."""
        for purge in purges:
            group = purge.group
            if group.removed:
                continue  # its removal lets go of that
            # what a deleted queue holds is let go of by its removal, but for what was purged unread
            if not group.queue.deleted or group.queue.groups.get(group.group_id) is not group:
                purge.apply(self.journal, references)

    def release_range(self, done: RangeRemoval, rows: list[tuple[int, int, bool]]) -> None:
        """Purged messages, as (offset, message ID, shared): nobody in that group will ask for them."""
        group = done.group
        if group.queue.deleted or group.removed:
            return
        kept = done.kept
        if kept is not None:
            rows = [row for row in rows if not kept.contains(row[0])]
        self.skipped.setdefault(group, []).extend(rows)

    def head_trimmed(self, queue: Queue, head: int) -> None:
        """The log is trimmed up to `head`; that is written with the open commit."""
        self.journal.put(queue_meta.key(queue.name), queue_meta.encode(head, queue.head_sequence))
        if queue.holes is not None and queue.holes.ends[-1] <= head:
            queue.holes = None
            self.journal.delete(holes.key(queue.name))

    def group_removed(self, done: GroupRemoval) -> None:
        """Nothing of a deleted group, or of a group's time before its reset, is left."""
        self.journal.delete(done.key())
        queue = done.queue
        if done in queue.group_removals:
            queue.group_removals.remove(done)
            group = queue.groups.get(done.group_id)
            if group is not None and not first_claim(queue, done.group_id):
                group.first_claim = 0
        if not queue.deleted:
            self.removals.append(HeadRemoval(queue))  # waited for it

    def removed(self, done: QueueRemoval) -> None:
        """Nothing of a deleted queue is left: its name may be used again."""
        self.journal.delete(removal.key(done.log_id))
        for call in self.removing.pop(done.name, []):
            call()
