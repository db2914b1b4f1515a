"""One database with its queues: the queue manager, and the loops that write, read and clean up for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from broker.clock import Clock
from broker.engine.commit_loop import CommitLoop
from broker.engine.commit_stats import CommitStats
from broker.engine.group_expiry import GroupExpiry
from broker.engine.lease_loop import LeaseLoop, StepLoop
from broker.engine.loading import DoneRecords, Loader
from broker.engine.log_reader import LogReader
from broker.engine.payload_references import PayloadReferences
from broker.engine.recovery import start
from broker.engine.removing import Removals
from broker.engine.shard_ending import Ending
from broker.engine.store_retry import StoreRetry
from broker.engine.sweeper import Sweeper
from broker.engine.wakeups import Wakeups
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.range_set import RangeSet
from queue_manager.manager import QueueManager
from queue_manager.policy import QueuePolicy
from queue_manager.shard.context import AUTO_COMMIT_INTERVAL_MS
from storage.errors import StorageError
from storage.metadata_log import INSTANCE_ID_DEFAULT
from storage.store import Store

_log: Final = structlog.get_logger("sluicemq.shard")


class Shard:
    """A store, the manager of the queues in it, and the loops that drive them.

    The manager is synchronous; the loops are what waits. Each step of theirs can also be taken by itself:
    tests drive it so.
    """

    def __init__(
        self, store: Store, manager: QueueManager, clock: Clock, taken: dict[Cursor, RangeSet]
    ) -> None:
        self.store = store
        self.manager = manager
        self.clock = clock
        self.failure: StorageError | None = None
        self.ending = Ending()
        self._failed: Callable[[StorageError], None] = lambda error: None
        self.wakeups = Wakeups(manager)
        stats = CommitStats()
        retry = StoreRetry(clock, stats.tried_again)
        self.commits = CommitLoop(store, manager, clock, self.wakeups, self.ending, retry, stats)
        self.references = PayloadReferences(store, self.commits)
        self.metadata_log = manager.context.metadata_log
        self.reader = LogReader(store, self.metadata_log)
        self.done_records = DoneRecords(store, manager, clock, self.ending, taken)
        self.loader = Loader(store, manager, clock, self.wakeups, retry, self.reader, self.done_records)
        self.leases = LeaseLoop(store, manager, clock, self.wakeups)
        self.steps = StepLoop(manager, clock, self.wakeups)
        self.removals = Removals(store, manager, self.commits, self.references)
        self.sweeper = Sweeper(
            manager,
            clock,
            self.wakeups,
            self.ending,
            retry,
            self.commits,
            self.references,
            self.leases,
            self.done_records,
            self.removals,
        )
        self.wake = self.wakeups.wake
        self.barrier = self.commits.barrier
        self.commit_once = self.commits.commit_once
        self.load_once = self.loader.load_once
        self.sweep_once = self.sweeper.sweep_once
        self.expire_once = self.leases.expire_once
        self.redriving = asyncio.Lock()  # one redrive of failed messages at a time
        self.group_expiry = GroupExpiry(manager, clock, self.sweeper, self.redriving)
        self._tasks: list[asyncio.Task[None]] = []
        self.is_closed = False
        if store.lease is not None:
            manager.consumption.deliver_while(store.lease.is_valid)

    @classmethod
    async def open(
        cls,
        store: Store,
        clock: Clock,
        *,
        default_policy: QueuePolicy,
        auto_create: bool,
        cache_bytes_max: int,
        instance_id: str = INSTANCE_ID_DEFAULT,
        auto_commit_interval_ms: int = AUTO_COMMIT_INTERVAL_MS,
        readers: Callable[[QueueManager], None] | None = None,
    ) -> Shard:
        """Recover the queues in `store`; nothing runs before `start`. `instance_id` names the broker in the
        keys of a store without logs. `readers` None: properties mean nothing to the core.

        Raises StorageError, also for a store of which a merge has not come to its end.
        """
        await start.refuse_merging(store)
        manager = QueueManager(
            default_policy=default_policy,
            auto_create=auto_create,
            cache_bytes_max=cache_bytes_max,
            log=await start.open_log(store, instance_id),
            message_ids=await start.open_message_ids(store),
            auto_commit_interval_ms=auto_commit_interval_ms,
        )
        if readers is not None:
            readers(manager)
        shard = cls(store, manager, clock, await start.recover(store, manager, clock.now_ms()))
        manager.queues.resume_removals()
        return shard

    def follow_up(self) -> None:
        """Have delivered what can be delivered, and written what was done."""
        self.manager.dispatch(self.clock.now_ms())
        self.wake()

    def on_failure(self, call: Callable[[StorageError], None]) -> None:
        """Have `call` called once, with the reason, when the store fails for good: nothing may be confirmed
        any more.
        """
        self._failed = call

    def start(self) -> None:
        """Begin committing, loading and cleaning in the background."""
        self.wakeups.started()
        if self.store.lease is not None:
            self.store.lease.keep_by_commits()
        for loop in (
            self.commits.run(),
            self.loader.run(),
            self.sweeper.run(),
            self.leases.run(),
            self.leases.run_timers(),
            self.steps.run(),
            self.commits.watch_lease(),
            self.group_expiry.run(),
        ):
            self._tasks.append(asyncio.create_task(self._run(loop)))

    # the end

    async def close(self) -> None:
        """Write what is open, stop the tasks, close the store; who still waits then gets BrokerStopped."""
        self.commits.stop()
        for task in self._tasks[1:]:  # the commit loop ends by itself, with what it is writing
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.failure is None:
                self.steps.finish()
                try:
                    await self.commits.commit_once(everything=True)
                except StorageError as error:
                    _log.error("storage.close_failed", reason=error.reason)
                    self.ending.end(error)
            self.ending.end(self.failure)
            await self.store.close()
            self.is_closed = True
        finally:
            self.ending.end(self.failure)

    async def _run(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run a loop of this shard; without any one of them nothing may be confirmed any more."""
        try:
            await loop
        except StorageError as error:
            self._fail(error)
        except Exception as error:
            _log.exception("shard.internal_error")
            self._fail(StorageError(f"internal error: {type(error).__name__}: {error}"))

    def _fail(self, error: StorageError) -> None:
        if self.failure is None:
            self.failure = error
            self.ending.end(error)
            self._failed(error)
