"""Which payloads a log stands for, and letting go of them.

A payload is deleted once every group of its queue has released its offset; a payload that several queues
share has a reference count record, which the last of them deletes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic

from queue_manager.log.members import M, Members, others_than
from queue_manager.log.payloads import Run, add_to_runs, delete_payloads, take_references
from queue_manager.log.progress import Progress
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from storage.records import released_offsets


class PayloadLedger(Generic[M]):
    """The payloads of a log that are let go of. `released` are offsets at or above the head whose payloads
    are gone.

    `_gaps` are those of them that are written down, because no group could tell of them after a restart.
    `want_trim` has the head looked at before the next commit. `_unwritten` are shared payloads that were let
    go of by commits that are not durable yet, which it waits for.

    Implements `queue_manager.shard.commit.Waiter`.
    """

    __slots__ = ("_gaps", "_log", "_members", "_unwritten", "_want_trim", "released")

    def __init__(self, log: QueueLog, members: Members[M], want_trim: Callable[[], None]) -> None:
        self._log = log
        self._members = members
        self._want_trim = want_trim
        self._gaps = RangeSet()
        self._unwritten: list[list[Run]] = []
        self.released = RangeSet()

    # letting go

    def release_unshared(self, member: M, runs: list[Run]) -> None:
        """Delete payloads that only this queue holds, as far as no other group of it needs them."""
        delete_payloads(self._log.context.commit, self.release(member, runs))

    def release_shared(self, member: M, runs: list[Run], references: dict[int, int]) -> None:
        """Take back this queue's references to payloads; the last reference takes the payload with it."""
        gone, commit = self.release(member, runs), self._log.context.commit
        take_references(commit, gone, references)
        if gone:
            self._unwritten.append(gone)
            commit.wait(self, 0)

    def committed(self, tokens: list[int]) -> None:
        """See `Waiter`: one token for each time."""
        del self._unwritten[: len(tokens)]

    def let_go_lately(self) -> RangeSet:
        """Return the IDs of shared payloads that this queue let go of, but of which records in the store may
        tell still.
        """
        message_ids = RangeSet()
        for runs in self._unwritten:
            for _, first_id, count in runs:
                message_ids.add(first_id, first_id + count)
        return message_ids

    def release(self, member: M, runs: list[Run]) -> list[Run]:
        """Note that `member` needs these no more; give what the queue is to let go of now."""
        self._want_trim()
        return self._deletable(member, runs)

    def _deletable(self, member: M, runs: list[Run]) -> list[Run]:
        """Of what `member` releases, what no other group needs and was not let go of before.

        All of it is remembered as released.
        """
        if self._members.get(member.group_id) is not member:
            return runs  # purged when there was no group
        others = others_than(member, self._members)
        progress = member.progress
        head_offset = self._log.head_offset
        deletable: list[Run] = []
        for run in runs:
            first_offset, first_id, count = run
            end = first_offset + count
            known = first_offset < head_offset or self.released.overlaps(first_offset, end)
            if not others and not known:
                self.released.add(first_offset, end)
                deletable.append(run)
                continue
            if progress.failed.starts and first_offset < head_offset:
                self._release_redriven(progress, others, run, deletable)
            first_kept = max(first_offset, head_offset)
            if others:
                progress.released.add(first_kept, end)
            for offset in range(first_kept, end):
                if known and self.released.contains(offset):
                    continue
                if all(other.progress.released.contains(offset) for other in others):
                    self.released.add(offset, offset + 1)
                    if not any(other.progress.failed.contains(offset) for other in others):
                        add_to_runs(deletable, offset, first_id + offset - first_offset)
        return deletable

    def _release_redriven(self, progress: Progress, others: list[M], run: Run, deletable: list[Run]) -> None:
        """Release the part of `run` below the head: redriven messages, which only failed records or this
        group kept.
        """
        first_offset, first_id, count = run
        for offset in range(first_offset, min(first_offset + count, self._log.head_offset)):
            if progress.failed.contains(offset):
                progress.drop_failed(offset)
                if not any(other.progress.failed.contains(offset) for other in others):
                    add_to_runs(deletable, offset, first_id + offset - first_offset)

    def release_gone(self, member: M, start: int, end: int) -> None:
        """Note that `member` will never ask for the payloads of offsets `start` to `end`: they are gone."""
        start = max(start, self._log.head_offset)
        if start >= end or self._log.deleted:
            return
        others = others_than(member, self._members)
        if others:
            member.progress.released.add(start, end)
            gone = RangeSet()
            gone.add(start, end)
            for other in others:
                gone = gone.intersection(other.progress.released)
            self.released.add_all(gone)
        else:
            self.released.add(start, end)
        self._want_trim()

    # standing for them, or not

    def keep_failed(self, member: M, offset: int) -> None:
        """`member` keeps a message by itself, for it failed: the log need not stand for it on its account."""
        member.progress.keep_failed(offset)
        if offset < self._log.head_offset:
            return  # only this group had it
        others = others_than(member, self._members)
        if others:
            member.progress.released.add(offset, offset + 1)
        if all(other.progress.released.contains(offset) for other in others):
            self.released.add(offset, offset + 1)
            self._want_trim()

    def keep_redriven(self, member: M, offset: int) -> None:
        """Keep the payload of a failed message of `member` that waits again, but for those below the
        head, which the group goes on keeping by itself.
        """
        if offset >= self._log.head_offset:
            member.progress.drop_failed(offset)
            member.progress.released.discard(offset, offset + 1)
            self.keep_again(offset, offset + 1)

    def keep_again(self, start: int, end: int) -> None:
        """Offsets that were let go of stand in the log for their payloads again."""
        self.released.discard(start, end)
        if self._gaps.overlaps(start, end):
            self._gaps.discard(start, end)
            self._write_gaps()

    def head_moved(self) -> None:
        """Forget what was released below the head: it need not be told of any more."""
        self.released.drop_before(self._log.head_offset)

    # gaps that no group will be able to tell of after a restart

    def note_gaps(self) -> None:
        """Write down what was let go of beyond the head."""
        self._gaps = self.released.copy()
        self._write_gaps()
        for member in self._members.values():
            member.stored.write_soon()  # what failed is on the store by then

    def _write_gaps(self) -> None:
        commit = self._log.context.commit
        key = released_offsets.key(self._log.name)
        if self._gaps.starts:
            commit.put(key, released_offsets.encode(self._gaps.pairs()))
        else:
            commit.delete(key)

    def restore_gaps(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take in what was written down before the start."""
        self._gaps.add_pairs(ranges)
        self.released.add_all(self._gaps)
        self.head_moved()
        self._want_trim()

    def trimmed(self, head: int) -> None:
        """Forget the gaps that are stored once all are below `head`, up to which the log is trimmed."""
        if self._gaps.ends and self._gaps.ends[-1] <= head:
            self._gaps = RangeSet()
            self._write_gaps()
