"""Closing the open commit, and what follows when it is durable."""

from __future__ import annotations

from config import limits
from queue_manager.bucket import Run
from queue_manager.door.state import ManagerState
from queue_manager.group import Group
from queue_manager.journal import Journal
from queue_manager.queue import Queue
from queue_manager.removal import HeadRemoval
from queue_manager.retention import NO_BUCKET, Purge, add_to_runs, advance_head, release_unshared


class Committing(ManagerState):
    """The commits of one shard."""

    def needs_commit(self, now_ms: int) -> int | None:
        """In how many ms a commit is due: 0 for at once, None for not at all."""
        if self.journal or self.appended:
            return 0
        if not self.dirty_groups:
            return None
        oldest = min(group.flushed_at_ms for group in self.dirty_groups)
        return max(0, oldest + limits.STATE_FLUSH_INTERVAL_MS - now_ms)

    def seal(self, now_ms: int) -> Journal | None:
        """Close the open commit and give it for writing; None if it is empty. A new one is open then."""
        for queue in self.appended:
            self._write_log(queue, now_ms)
        self.appended.clear()
        if self.staged_open:
            for attempt in self.staged_open:
                attempt.close(self.journal)
            self.staged_open.clear()
        for group, skipped in self.skipped.items():
            self._release_skipped(group, skipped)
            # the position goes with it, or a restart would skip and release the same messages again
            group.flushed_at_ms = 0
        self.skipped.clear()
        due = now_ms - limits.STATE_FLUSH_INTERVAL_MS
        for group in list(self.dirty_groups):
            if group.flushed_at_ms <= due:
                del self.dirty_groups[group]
                group.write(self.journal, now_ms)
        for queue in self.trimmable:
            if not queue.deleted and advance_head(queue) and queue.durable:
                self.removals.append(HeadRemoval(queue))
        self.trimmable.clear()
        journal = self.journal
        if not journal:
            return None
        self.journal = Journal()
        self.sealed_bytes += journal.held_bytes
        return journal

    def committed(self, journal: Journal, now_ms: int) -> None:
        """`journal` is durable: its waiters may be told, memory may be let go of."""
        self.sealed_bytes -= journal.held_bytes
        share = max(limits.TAIL_BYTES_PER_QUEUE_MIN, self.cache_bytes_max // max(1, len(journal.log_ends)))
        for queue, end in journal.log_ends.items():
            assert isinstance(queue, Queue)
            queue.durable_offset = end
            queue.trim_tail(share)

    def _write_log(self, queue: Queue, now_ms: int) -> None:
        entries = queue.open_entries.take(queue.tail.next_offset)
        if not entries:
            return
        journal = self.journal
        first, puts = self.log.allocate(len(entries), now_ms)
        journal.puts.update(puts)
        listing = self.log.listing(queue.log_id)
        if listing is not None:
            journal.put(*listing)
        for sequence, (offset, value) in enumerate(entries, first):
            journal.puts[self.log.entry_key(queue.log_id, sequence)] = value
            queue.log_index.append((offset, sequence))
        if len(queue.log_index) > limits.LOG_INDEX_ENTRIES_MAX:
            del queue.log_index[: -limits.LOG_INDEX_ENTRIES_MAX // 2]
        journal.log_ends[queue] = queue.tail.next_offset
        queue.log_written(journal)

    def _release_skipped(self, group: Group, skipped: list[tuple[int, int, bool]]) -> None:
        runs: list[Run] = []
        shared_runs: list[Run] = []
        for offset, message_id, shared in skipped:
            add_to_runs(shared_runs if shared else runs, offset, message_id)
        release_unshared(group, runs, self.journal)
        if shared_runs:
            purge = Purge(group, NO_BUCKET, 0)
            purge.shared_items = shared_runs
            if group.queue.groups.get(group.group_id) is group:
                group.purges.appendleft(purge)
                group.mark_purgeable()
            else:
                self.unread_purges.append(purge)
