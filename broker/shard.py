"""One database with its queues: the queue manager, and the tasks that write, read and clean up for it.

The manager is synchronous; here is what waits. Each step can also be called by itself: tests drive it so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

import structlog

from broker import recovery, removals
from broker.clock import Clock
from broker.ending import Ending, resolve
from broker.log_reader import LogReader
from broker.stream_reader import StreamBlockReader
from config import limits
from queue_manager.group import Group
from queue_manager.journal import Journal
from queue_manager.loads import BodiesLoad, LogLoad, ScanLoad, StreamLoad
from queue_manager.manager import QueueManager
from queue_manager.policy import QueuePolicy
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.removal import HeadRemoval, QueueRemoval, Removal
from queue_manager.retention import Purge
from storage.batch import WriteOps
from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.records import payload_refs
from storage.store import Store

_log: Final = structlog.get_logger("broker.shard")

POLL_INTERVAL_S: Final = 0.01


class Shard:
    """A store and the manager of the queues in it.

    `on_failure` is called once, with the reason, when the store fails for good: nothing may be confirmed
    any more.
    """

    def __init__(self, store: Store, manager: QueueManager, clock: Clock) -> None:
        self.store = store
        self.manager = manager
        self.clock = clock
        self.reader = LogReader(store, manager.log)
        self.stream_reader = StreamBlockReader(store, manager.log, self.reader)
        self.failure: StorageError | None = None
        self.ending = Ending()
        self.on_failure: Callable[[StorageError], None] = lambda error: None
        self.on_committed: Callable[[], None] = lambda: None
        self._recovered: dict[Group, RangeSet] = {}
        self._retention_ready = False
        self._sealed: list[Journal] = []  # sealed and not yet in the store, oldest first
        self._wake_commit = asyncio.Event()
        self._wake_load = asyncio.Event()
        self._wake_sweep = asyncio.Event()
        self._wake_timers = asyncio.Event()
        self._retention_awaited: list[asyncio.Future[None]] = []
        self.redriving = asyncio.Lock()  # one redrive of failed messages at a time
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.is_closed = False

    @classmethod
    async def open(
        cls,
        store: Store,
        clock: Clock,
        *,
        default_policy: QueuePolicy,
        auto_create: bool,
        cache_bytes_max: int,
    ) -> Shard:
        """Recover the queues in `store`; nothing runs before `start`."""
        manager = QueueManager(
            default_policy=default_policy,
            auto_create=auto_create,
            cache_bytes_max=cache_bytes_max,
            log=await recovery.open_log(store),
            message_ids=await recovery.open_message_ids(store),
        )
        shard = cls(store, manager, clock)
        shard._recovered = await recovery.recover(store, manager, clock.now_ms())
        while manager.removals and isinstance(manager.removals[0], QueueRemoval):
            # a name must be wholly free before records are written under it again
            await removals.perform(shard, manager.removals.pop(0))
        manager.removals += [r for queue in manager.queues.values() for r in queue.group_removals]
        return shard

    def start(self) -> None:
        """Begin committing, loading and cleaning in the background."""
        for loop in (
            self._commit_loop(),
            self._load_loop(),
            self._sweep_loop(),
            self._expire_loop(),
            self._timer_loop(),
        ):
            self._tasks.append(asyncio.create_task(self._run(loop)))

    def wake(self) -> None:
        """Something was done to the manager: see to commits and loads in this loop turn."""
        self._wake_commit.set()
        if self.manager.loads:
            self._wake_load.set()
        if self.manager.removing or self.manager.unborn:
            self._wake_sweep.set()
        if self.manager.timers.is_earlier:
            self._wake_timers.set()

    async def close(self) -> None:
        """Write what is open, stop the tasks, close the store; who still waits then gets BrokerStopped."""
        self._closing = True
        self._wake_commit.set()
        for task in self._tasks[1:]:
            task.cancel()
        try:
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.failure is None:
                try:
                    await self.commit_once(everything=True)
                except StorageError as error:
                    _log.error("storage.close_failed", reason=error.reason)
                    self.ending.end(error)
            self.ending.end(self.failure)
            await self.store.close()
            self.is_closed = True
        finally:
            self.ending.end(self.failure)

    # steps

    async def commit_once(self, *, everything: bool = False) -> bool:
        """Write the open commit, if it is due, and tell who waits for it; whether there was one."""
        if everything:
            for group in self.manager.dirty_groups:
                group.flushed_at_ms = 0
        sealed = self._seal()
        if sealed is None:
            return False
        await self._finish(*sealed)
        return True

    def _seal(self) -> tuple[Journal, WriteOps] | None:
        """Close the open commit and make it ready to be written."""
        journal = self.manager.seal(self.clock.now_ms())
        if journal is None:
            return None
        ops = journal.write_ops()
        self.store.prepare(ops)
        self._sealed.append(journal)
        return journal, ops

    async def _finish(self, journal: Journal, ops: WriteOps) -> None:
        """Write a sealed commit, then tell who waits for it."""
        if ops:
            await self._patiently(partial(self.store.write, ops))
        self._sealed.remove(journal)
        self.manager.committed(journal, self.clock.now_ms())
        for waiter, tokens in journal.waiters.items():
            waiter.committed(tokens)
        if self.manager.loads:
            self._wake_load.set()
        self.on_committed()

    async def _patiently(self, step: Callable[[], Awaitable[object]]) -> None:
        """Take a step; trouble that may pass is waited out, while publishers are held back.

        Raises StorageError once it has lasted `limits.STORE_RETRY_MS_MAX`.
        """
        delay_ms = limits.STORE_RETRY_DELAY_MS_MIN
        give_up = self.clock.monotonic() + limits.STORE_RETRY_MS_MAX / 1000
        while True:
            try:
                await step()
                return
            except (StoreUnavailable, StoreFull) as error:
                if self._closing or self.clock.monotonic() >= give_up:
                    raise
                _log.error("storage.retry", reason=error.reason, delay_ms=delay_ms)
                await asyncio.sleep(delay_ms / 1000)
                delay_ms = min(2 * delay_ms, limits.STORE_RETRY_DELAY_MS_MAX)

    async def load_once(self) -> bool:
        """Perform the loads that are asked for, until there are none; whether there were any."""
        manager = self.manager
        performed = False
        if manager.unborn and not self._tasks:  # otherwise the sweep does it
            await self.learn_past()
            performed = True
        while manager.loads:
            load = manager.loads[0]
            if isinstance(load, ScanLoad):
                found = await self.store.scan(load.start, load.end, limit=load.limit)
                manager.loads.pop(0)
                manager.rows_loaded(load, found, self.clock.now_ms())
            elif isinstance(load, BodiesLoad):
                bodies, read_count = await self.reader.read_payloads(load.message_ids)
                manager.loads.pop(0)
                manager.bodies_loaded(load, bodies, read_count, self.clock.now_ms())
            elif load.group.queue.deleted or load.group.removed:
                manager.loads.pop(0)
                self._abandon(load.group)
            elif isinstance(load, StreamLoad):
                rows, next_offset, sequence = await self.stream_reader.read(load)
                manager.loads.pop(0)
                manager.log_loaded(load, rows, next_offset, sequence, self.clock.now_ms())
            elif isinstance(load, LogLoad):
                rows, next_offset, sequence = await self.reader.read_log(load)
                manager.loads.pop(0)
                manager.log_loaded(load, rows, next_offset, sequence, self.clock.now_ms())
            else:
                bodies, read_count = await self.reader.read_for(load)
                manager.loads.pop(0)
                manager.payloads_loaded(load, bodies, read_count, self.clock.now_ms())
            performed = True
            self.wake()
        return performed

    def _abandon(self, group: Group) -> None:
        """Tell who waits for a load of a deleted queue; he sees that it is deleted."""
        waiting = group.on_loaded
        group.on_loaded = []
        for call in waiting:
            call(self.clock.now_ms())

    def expire_once(self) -> None:
        """Return claims whose lease has ended."""
        self.store.check()
        self.manager.expire(self.clock.now_ms())
        self.wake()

    async def sweep_once(self) -> None:
        """Expire leases, purge done records, trim logs, remove what deleted queues left."""
        manager = self.manager
        self.expire_once()
        await self.learn_past()
        while purges := manager.take_purges(self.clock.now_ms()):
            await self._purge(purges)
            if sum(map(Purge.message_count, purges)) < limits.PURGED_MESSAGES_PER_SWEEP_MAX:
                break
            await self.commit_room()
        for _ in range(limits.REMOVAL_ROUNDS_PER_SWEEP_MAX):
            # under load each commit leaves more to remove: for the next sweep, or purges never had a turn
            if not manager.removals:
                break
            await self._remove()
        self.wake()

    async def learn_past(self) -> None:
        """After a start: read the done and failed records, if that has not been done."""
        if self._retention_ready:
            return
        manager = self.manager
        await recovery.recover_done(self.store, self._recovered)
        self._recovered = {}
        self._retention_ready = True
        for future in self._retention_awaited:
            resolve(future)
        for queue in manager.queues.values():
            if not queue.released_known:
                manager.past_known(queue, self.clock.now_ms())
        manager.dispatch(self.clock.now_ms())

    async def _purge(self, purges: list[Purge]) -> None:
        references: dict[int, int] = {}
        try:
            for purge in purges:
                for _, first_id, count in purge.shared_items:
                    for message_id in range(first_id, first_id + count):
                        references[message_id] = await self.references(message_id)
        except StorageError:
            self.manager.unread_purges += purges
            raise
        self.manager.apply_purges(purges, references)

    async def _remove(self) -> None:
        due = _distinct(self.manager.removals)
        self.manager.removals = []
        try:
            # what is to be found by scanning must be in the store
            await self.barrier()
            while due:
                await removals.perform(self, due[0])
                due.pop(0)
        except StorageError:
            if due and isinstance(due[0], QueueRemoval):
                due[0].released = None  # a second run must not take back references twice
            self.manager.removals = due + self.manager.removals
            raise

    async def references(self, message_id: int) -> int:
        """How many queues need the payload, unwritten commits included; 0: none counted."""
        key = payload_refs.key(message_id)
        for journal in (self.manager.journal, *reversed(self._sealed)):
            if key in journal.deletes:
                return 0
            if key in journal.puts:
                return payload_refs.decode(journal.puts[key])
        value = await self.store.get(key)
        return 0 if value is None else payload_refs.decode(value)

    def is_being_deleted(self, key: bytes) -> bool:
        """Whether a commit that is not written yet deletes this record."""
        return any(key in journal.deletes for journal in (self.manager.journal, *self._sealed))

    async def barrier(self) -> None:
        """Wait until everything done so far is durable; raises BrokerStopped if it will not be."""
        if not self._tasks:
            await self.commit_once()
            return
        durable = self.ending.future()
        self.manager.journal.wait(_Barrier(durable), 0)
        self.wake()
        await durable

    @property
    def is_running(self) -> bool:
        """Whether the background tasks were started; otherwise the caller takes the steps."""
        return bool(self._tasks)

    async def retention_known(self) -> None:
        """Wait until the done and failed records have been read, which happens soon after the start."""
        if not self._tasks:
            await self.sweep_once()
        elif not self._retention_ready:
            known = self.ending.future()
            self._retention_awaited.append(known)
            self._wake_sweep.set()
            await known

    async def groups_removed(self, queue: Queue) -> None:
        """Wait until nothing is left of what the queue's deleted and reset groups kept."""
        while queue.group_removals and not queue.deleted:
            self.ending.check()
            if self._tasks:
                self._wake_sweep.set()
                await asyncio.sleep(POLL_INTERVAL_S)
            else:
                await self.sweep_once()

    async def removal_done(self, name: str) -> None:
        """Wait until nothing is left of a deleted queue of that name."""
        waiting = self.manager.removing.get(name)
        if waiting is None:
            return
        gone = self.ending.future()
        waiting.append(partial(resolve, gone))
        self.wake()
        if not self._tasks:
            await self.sweep_once()
        await gone

    async def room_to_write(self) -> None:
        """Wait while more payload waits for the store than publishers may leave there."""
        if self.manager.uncommitted_bytes() > limits.UNCOMMITTED_BYTES_MAX:
            await self.barrier()

    async def commit_room(self) -> None:
        """Wait until the open commit is small enough to add more background deletes to it."""
        manager = self.manager
        due_count = len(manager.journal.deletes) + sum(map(len, manager.skipped.values()))
        if due_count > limits.BACKGROUND_DELETES_PER_COMMIT_MAX:
            await self.barrier()

    # tasks

    async def _run(self, loop: Coroutine[Any, Any, None]) -> None:
        """Run a loop of this shard; without any one of them nothing may be confirmed any more."""
        try:
            await loop
        except StorageError as error:
            self._fail(error)
        except Exception as error:
            _log.exception("shard.internal_error")
            self._fail(StorageError(f"internal error: {type(error).__name__}: {error}"))

    async def _commit_loop(self) -> None:
        """While one commit is being made durable the next is sealed and prepared, and one more collects."""
        writing: asyncio.Task[None] | None = None
        while not self._closing:
            if writing is not None and writing.done():
                await writing
                writing = None
            due_ms = self.manager.needs_commit(self.clock.now_ms())
            if due_ms == 0 and writing is not None and not self._is_worth_preparing():
                # a small commit loses nothing by collecting until the one before it is durable
                self._wake_commit.clear()
                await self._wake_commit.wait()
                continue
            if due_ms == 0:
                sealed = self._seal()
                if sealed is not None:
                    if writing is not None:
                        await writing
                    writing = asyncio.create_task(self._finish(*sealed))
                    writing.add_done_callback(lambda task: self._wake_commit.set())
                # let the loop read what arrived meanwhile, so that the next commit is a large one
                await asyncio.sleep(0)
                continue
            self._wake_commit.clear()
            if due_ms is None:
                await self._wake_commit.wait()
            else:
                try:
                    await asyncio.wait_for(self._wake_commit.wait(), due_ms / 1000)
                except TimeoutError:
                    pass
        if writing is not None:
            await writing

    def _is_worth_preparing(self) -> bool:
        return len(self.manager.journal.puts) >= limits.PREPARED_PUTS_MIN

    async def _load_loop(self) -> None:
        while True:
            await self._wake_load.wait()
            self._wake_load.clear()
            await self._patiently(self.load_once)

    async def _expire_loop(self) -> None:
        """Apart from the sweep, which may take long: leases end in time while a large queue is removed."""
        while True:
            await asyncio.sleep(limits.SWEEP_INTERVAL_MS / 1000)
            self.expire_once()

    async def _timer_loop(self) -> None:
        """Call the manager when something is due by its timers."""
        timers = self.manager.timers
        while True:
            due_ms = timers.next_ms()
            timers.is_earlier = False
            self._wake_timers.clear()
            try:
                wait_s = None if due_ms is None else max(0, due_ms - self.clock.now_ms()) / 1000
                await asyncio.wait_for(self._wake_timers.wait(), wait_s)
            except TimeoutError:
                self.manager.fire_timers(self.clock.now_ms())
                self.wake()

    async def _sweep_loop(self) -> None:
        while True:
            try:
                await asyncio.wait_for(self._wake_sweep.wait(), limits.SWEEP_INTERVAL_MS / 1000)
            except TimeoutError:
                pass
            self._wake_sweep.clear()
            await self._patiently(self.sweep_once)

    def _fail(self, error: StorageError) -> None:
        if self.failure is None:
            self.failure = error
            self.ending.end(error)
            self.on_failure(error)


def _distinct(removals: list[Removal]) -> list[Removal]:
    """Of several trims of one queue's log the last does the work of all."""
    last = {removal.queue: removal for removal in removals if isinstance(removal, HeadRemoval)}
    return [r for r in removals if not isinstance(r, HeadRemoval) or last[r.queue] is r]


class _Barrier:
    """A waiter that only notes that its commit is durable."""

    __slots__ = ("_durable",)

    def __init__(self, durable: asyncio.Future[None]) -> None:
        self._durable = durable

    def committed(self, tokens: list[int]) -> None:
        """As `queue_manager.journal.Waiter`."""
        resolve(self._durable)
