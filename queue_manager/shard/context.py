"""The context that all queues of one shard share, with the lists of work to be done for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from config import limits
from queue_manager.quota_accounts import Quotas
from queue_manager.shard.commit import Commit, WrittenLog
from queue_manager.shard.discards import Discards
from queue_manager.shard.event_notes import Events
from queue_manager.shard.loads import Load
from queue_manager.shard.message_fields import MessageFields
from queue_manager.shard.steps import Budget, Steps
from queue_manager.shard.timers import Timers
from storage.metadata_log import MetadataLog
from storage.sequence import SequenceAllocator

WHOLE: Final = -1  # due before anything else, and whole


class Dispatched(Protocol):
    """A consumer group that something happened to."""

    def dispatch(self, now_ms: int) -> None:
        """Deliver what can be delivered."""


class Leased(Protocol):
    """A consumer group whose consumers may hold claims."""

    def end_leases(self, now_ms: int) -> bool:
        """Return claims whose lease has ended; give whether there may be more to come."""


class Stateful(Protocol):
    """A cursor whose state changed."""

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        """Put what changed into the commit; `is_part`: what may wait, and is too much for one turn, may be
        left to later commits.
        """


class Appended(WrittenLog, Protocol):
    """A log with messages that are not in a commit yet."""

    def write_log(self, now_ms: int) -> None:
        """Put them into the open commit."""


class InMemory(Protocol):
    """A log with messages in memory."""

    def trim_tail(self, tail_bytes_max: int) -> bool:
        """Forget what may be forgotten, down to so many bytes; give whether anything is left."""


class Trimmable(Protocol):
    """A log of which more may be let go of."""

    def advance_head(self) -> None:
        """Move the head past what every group has let go of."""


class Skipping(Protocol):
    """A cursor that passed messages it has not let go of in the open commit yet."""

    def release_skipped(self, commit: Commit) -> None:
        """Let go of them."""

    def skipped_count(self) -> int:
        """Return how many it are."""


class DuePurge(Protocol):
    """A done record whose retention has passed.

    `shared_items` are runs of payloads whose reference counts have to be read first.
    """

    shared_items: list[tuple[int, int, int]]

    def message_count(self) -> int:
        """Return how many messages it lets go of."""

    def apply(self, references: dict[int, int]) -> None:
        """Put it into the open commit; `references` are the stored reference counts."""


class Purged(Protocol):
    """An owner of done records, or of payloads to let go of."""

    def take_purges(self, now_ms: int, count_max: int) -> tuple[Sequence[DuePurge], bool]:
        """Take purges that are due, of some `count_max` messages at most; returns also whether more may
        become due.
        """


class Staging(Protocol):
    """Rows that were staged since the last commit."""

    def close(self, commit: Commit) -> None:
        """Put them into the commit."""


class Removal:
    """Records to find and delete by scanning; the driver does it, in steps, beside everything else."""

    __slots__ = ()


class StateWrites:
    """Which cursors have state to write, and from when on.

    `due_ms` is a time at or before the first of them: looking at it costs the same however many there are.
    """

    __slots__ = ("_due_ms", "_pending")

    def __init__(self) -> None:
        self._pending: dict[Stateful, int] = {}
        self._due_ms = 0

    def __bool__(self) -> bool:
        return bool(self._pending)

    @property
    def due_ms(self) -> int | None:
        """When to look for something to write; None: there is nothing."""
        return self._due_ms if self._pending else None

    def add(self, cursor: Stateful, due_ms: int) -> None:
        """Have `cursor` written at `due_ms`, in parts if it is much; WHOLE: whole, with the open commit."""
        if not self._pending or due_ms < self._due_ms:
            self._due_ms = due_ms
        self._pending[cursor] = due_ms

    def forget(self, cursor: Stateful) -> None:
        """Do not write `cursor` any more."""
        self._pending.pop(cursor, None)

    def make_due(self) -> None:
        """Have everything written with the next commit, however much it is."""
        self._pending = dict.fromkeys(self._pending, WHOLE)
        self._due_ms = WHOLE

    def write_due(self, commit: Commit, now_ms: int) -> None:
        """Have put into the commit what is due; not what just became due, if somebody waits for the commit:
        that goes with the next one, behind the answer.
        """
        latest_ms = max(WHOLE, now_ms - limits.STATE_GRACE_MS) if commit.waiters else now_ms
        if not self._pending or self._due_ms > latest_ms:
            return
        due = [(cursor, due_ms) for cursor, due_ms in self._pending.items() if due_ms <= latest_ms]
        for cursor, _ in due:
            del self._pending[cursor]
        self._due_ms = min(self._pending.values(), default=0)
        for cursor, due_ms in due:
            cursor.write(commit, now_ms, is_part=due_ms != WHOLE)

    def write_early(self, cursor: Stateful, commit: Commit, now_ms: int) -> None:
        """Write as `write_due`, for one cursor, though it may not be due."""
        cursor.write(commit, now_ms, is_part=self._pending.get(cursor) != WHOLE)


AUTO_COMMIT_INTERVAL_MS: Final = 5_000


class Context:
    """The open commit, times to come, quotas, events, reads asked for, and work lists of one shard.

    `dispatchable`, `leased`, `appended`, `tailed`, `trimmable`, `skipping`, `staging` hold those of their
    kind that have something to be done; dicts, for their order. `deferred` groups had more to hand out than
    is done in one turn; they go on with a step.
    """

    def __init__(
        self,
        *,
        cache_bytes_max: int,
        metadata_log: MetadataLog,
        message_ids: SequenceAllocator,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
    ) -> None:
        self.cache_bytes_max = cache_bytes_max
        self.metadata_log = metadata_log
        self.message_ids = message_ids
        self.commit = Commit()
        self.sealed_bytes = 0
        self.timers = Timers()
        self.quotas = Quotas()
        self.events = Events()
        self.fields = MessageFields()
        self.loads: list[Load] = []
        self.removals: list[Removal] = []
        self.state_writes = StateWrites()
        self.dispatchable: dict[Dispatched, None] = {}
        self.deferred: dict[Dispatched, None] = {}
        self.budget = Budget()
        self.steps = Steps()
        self.discards = Discards(self.steps)
        self.leased: dict[Leased, None] = {}
        self.appended: dict[Appended, None] = {}
        self.tailed: dict[InMemory, None] = {}
        self.replayed: dict[object, None] = {}  # streams of which something was read back
        self.trimmable: dict[Trimmable, None] = {}
        self.purgeable: dict[Purged, None] = {}
        self.skipping: dict[Skipping, None] = {}
        self.staging: dict[Staging, None] = {}
        self.awaiting_history: dict[object, None] = {}  # cursors made before it was known what is gone
        self.auto_commit_interval_ms = auto_commit_interval_ms

    def defer(self, groups: Iterable[Dispatched]) -> None:
        """Let others have their turn: these groups go on with a step."""
        self.deferred.update(dict.fromkeys(groups))
        self.deferred.update(self.dispatchable)
        self.dispatchable.clear()

    def put_off(self, group: Dispatched) -> None:
        """Let others have their turn now: the group goes on with a step."""
        self.deferred[group] = None

    def resume_one(self) -> None:
        """Have the group dispatched that was deferred first, if there is one."""
        for group in self.deferred:
            del self.deferred[group]
            self.dispatchable[group] = None
            break

    def forget_dispatch(self, group: Dispatched) -> None:
        """Forget a group that hands out nothing any more."""
        self.dispatchable.pop(group, None)
        self.deferred.pop(group, None)

    def take_removals(self) -> list[Removal]:
        """Take out what is to be removed, in order."""
        removals, self.removals = self.removals, []
        return removals

    def give_back_removals(self, removals: list[Removal]) -> None:
        """Put these, which were taken out and not done, first among the removals."""
        self.removals = removals + self.removals

    def tail_share(self, log_count: int) -> int:
        """Return how many bytes of messages each of so many logs may keep in memory."""
        return max(limits.TAIL_BYTES_PER_QUEUE_MIN, self.cache_bytes_max // max(1, log_count))

    def new_number(self) -> int:
        """Return a number that no message and no removal gets."""
        number, put = self.message_ids.allocate(1)
        if put is not None:
            self.commit.put(*put)
        return number

    def seal(self, now_ms: int) -> Commit | None:
        """Close the open commit and give it for writing; None if it is empty. A new one is open then."""
        for log in self.appended:
            log.write_log(now_ms)
        self.appended.clear()
        for rows in self.staging:
            rows.close(self.commit)
        self.staging.clear()
        for cursor in self.skipping:
            cursor.release_skipped(self.commit)
        self.skipping.clear()
        self.state_writes.write_due(self.commit, now_ms)
        for kept in self.trimmable:
            kept.advance_head()
        self.trimmable.clear()
        commit = self.commit
        if not commit:
            return None
        self.commit = Commit()
        self.sealed_bytes += commit.held_bytes
        return commit

    def committed(self, commit: Commit) -> None:
        """Let go of memory: `commit` is durable."""
        self.sealed_bytes -= commit.held_bytes
        share = self.tail_share(len(commit.log_ends))
        for log, end_offset in commit.log_ends.items():
            log.became_durable(end_offset, share)

    def pending_delete_count(self) -> int:
        """Return how many records the open commit is going to delete, at least."""
        return len(self.commit.deletes) + sum(cursor.skipped_count() for cursor in self.skipping)

    def uncommitted_bytes(self) -> int:
        """Return the memory of what waits for durability; publishers are held back when it grows too much."""
        return self.commit.held_bytes + self.sealed_bytes

    def has_steps(self) -> bool:
        """Return whether something goes on that is too large for one turn."""
        return bool(self.steps or self.deferred)

    def has_work(self) -> bool:
        """Return whether there is anything to dispatch, commit or read."""
        commit = self.commit
        return bool(
            self.dispatchable
            or self.appended
            or commit.waiters
            or commit.puts
            or commit.deletes
            or self.loads
            or self.timers.is_earlier
            or self.state_writes
        )
