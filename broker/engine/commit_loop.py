"""Commits: sealed by the manager, written to the store, told to who waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from broker.clock import Clock
from broker.engine.commit_stats import CommitStats
from broker.engine.gathering import Gathering
from broker.engine.shard_ending import Ending, resolve
from broker.engine.store_retry import StoreRetry
from broker.engine.wakeups import Wakeups
from config import limits
from queue_manager.manager import QueueManager
from queue_manager.shard.commit import Commit
from storage.batch import WriteOps
from storage.errors import StoreFull, StoreUnavailable
from storage.store import Store


class CommitLoop:
    """While one commit is being made durable the next is sealed and prepared, and one more collects."""

    def __init__(
        self,
        store: Store,
        manager: QueueManager,
        clock: Clock,
        wakeups: Wakeups,
        ending: Ending,
        retry: StoreRetry,
        stats: CommitStats,
    ) -> None:
        self._store = store
        self._manager = manager
        self._context = manager.context
        self._clock = clock
        self._wakeups = wakeups
        self._ending = ending
        self._retry = retry
        self._sealed: list[Commit] = []  # sealed and not yet in the store, oldest first
        self._sealed_at: dict[Commit, float] = {}
        self.stats = stats
        self._closing = False
        self._lease = store.lease
        self._renewal: Commit | None = None  # has the record that renews the lease, and is not in the store
        self._untold: list[Commit] = []  # durable, but the lease had ended when that was known
        self._gathering = Gathering(clock.monotonic) if store.is_remote else None
        self._committed: Callable[[], None] = lambda: None

    def on_committed(self, call: Callable[[], None]) -> None:
        """Have `call` called whenever a commit is durable and its waiters have been told."""
        self._committed = call

    async def run(self) -> None:
        """Commit whenever something is due, until `stop`."""
        writing: asyncio.Task[None] | None = None
        wake = self._wakeups.commit
        while not self._closing:
            if writing is not None and writing.done():
                await writing
                writing = None
            due_ms = self._due_ms()
            if due_ms == 0 and writing is not None and not self._is_worth_preparing():
                # a small commit loses nothing by collecting until the one before it is durable
                wake.clear()
                await wake.wait()
                continue
            rest_s = 0.0
            if due_ms == 0 and writing is None and self._gathering is not None:
                rest_s = self._gathering.rest_s(len(self._context.commit.waiters))
            if due_ms == 0 and not rest_s:
                sealed = self._seal()
                if sealed is not None:
                    if writing is not None:
                        await writing
                        writing = None
                    if self._is_written_now(*sealed):
                        await asyncio.sleep(0)
                        continue
                    writing = asyncio.create_task(self._finish(*sealed))
                    writing.add_done_callback(lambda task: wake.set())
                # let the loop read what arrived meanwhile, so that the next commit is a large one
                await asyncio.sleep(0)
                continue
            wake.clear()
            if due_ms is None:
                await wake.wait()
            else:
                try:
                    async with asyncio.timeout(rest_s or due_ms / 1000):
                        await wake.wait()
                except TimeoutError:
                    pass
        if writing is not None:
            await writing

    def stop(self) -> None:
        """Have `run` end with the commit that is being written; trouble is not waited out any more."""
        self._closing = True
        self._retry.stop()
        self._wakeups.commit.set()

    async def commit_once(self, *, everything: bool = False) -> bool:
        """Write the open commit, if it is due, and tell who waits for it; whether there was one."""
        if everything:
            self._context.state_writes.make_due()
        sealed = self._seal()
        if sealed is None:
            return False
        await self._finish(*sealed)
        return True

    async def watch_lease(self) -> None:
        """Raise StorageError when the lease is lost for good."""
        lease = self._lease
        while lease is not None:
            lease.check_renewable()
            await asyncio.sleep(lease.interval_s)

    def _due_ms(self) -> float | None:
        """Return in how many ms a commit is due: 0 for at once, None for not at all."""
        due_ms = self._manager.commit_due_ms(self._clock.now_ms())
        if self._lease is None or self._renewal is not None:
            return due_ms
        renewal_ms = 1000 * self._lease.due_s()
        return renewal_ms if due_ms is None else min(due_ms, renewal_ms)

    def _is_worth_preparing(self) -> bool:
        return len(self._context.commit.puts) >= limits.PREPARED_PUTS_MIN

    def _seal(self) -> tuple[Commit, WriteOps] | None:
        """Close the open commit and make it ready to be written."""
        lease = self._lease
        is_renewal = lease is not None and self._renewal is None and not lease.due_s()
        if lease is not None and is_renewal:
            self._context.commit.put(*lease.next_row())
        commit = self._manager.seal(self._clock.now_ms())
        if is_renewal:
            self._renewal = commit
        if self._context.steps:  # some wait for their state to be in a commit
            self._wakeups.step.set()
        if commit is None:
            return None
        ops = commit.write_ops()
        self._store.prepare(ops)
        self._sealed.append(commit)
        self._sealed_at[commit] = self._clock.monotonic()
        return commit, ops

    async def _finish(self, commit: Commit, ops: WriteOps) -> None:
        """Write a sealed commit, then tell who waits for it."""
        began = self._clock.monotonic()
        if ops:
            await self._retry.take(partial(self._store.write, ops))
        self._finished(commit)
        if self._gathering is not None:
            self._gathering.told(len(commit.waiters), self._clock.monotonic() - began)

    def _is_written_now(self, commit: Commit, ops: WriteOps) -> bool:
        """Write a sealed commit within this loop turn, if the store does that; whether it has."""
        try:
            if ops and not self._store.write_now(ops):
                return False
        except (StoreUnavailable, StoreFull):
            return False  # it may pass: the write that follows waits for that
        self._finished(commit)
        return True

    def _finished(self, commit: Commit) -> None:
        """Note that a sealed commit is durable, and tell those that wait, unless the lease has ended by now:
        then they are told once it was renewed.
        """
        lease = self._lease
        if lease is None:
            self._tell(commit)
            return
        if commit is self._renewal:
            self._renewal = None
            lease.renewed()
        self._untold.append(commit)
        while self._untold and lease.is_valid():
            self._tell(self._untold.pop(0))

    def _tell(self, commit: Commit) -> None:
        """Tell those that wait that a sealed commit is durable."""
        self._sealed.remove(commit)
        seconds = self._clock.monotonic() - self._sealed_at.pop(commit)
        self.stats.committed(seconds, len(commit.puts) + len(commit.deletes))
        self._manager.committed(commit)
        for waiter, tokens in commit.waiters.items():
            waiter.committed(tokens)
        if self._context.loads:
            self._wakeups.load.set()
        self._committed()
        if self._context.dispatchable:  # readers of streams are given what is durable
            self._manager.dispatch(self._clock.now_ms())
            self._wakeups.wake()

    # waiting for commits

    async def barrier(self) -> None:
        """Wait until everything done so far is durable; raises BrokerStopped if it will not be."""
        if not self._wakeups.is_running:
            await self.commit_once()
            return
        durable = self._ending.future()
        self._context.commit.wait(_Barrier(durable), 0)
        self._wakeups.wake()
        await durable

    async def room_to_write(self) -> None:
        """Wait while more payload waits for the store than publishers may leave there."""
        if self._context.uncommitted_bytes() > limits.UNCOMMITTED_BYTES_MAX:
            await self.barrier()

    async def room_for_deletes(self) -> None:
        """Wait until the open commit is small enough to add more background deletes to it."""
        if self._context.pending_delete_count() > limits.BACKGROUND_DELETES_PER_COMMIT_MAX:
            await self.barrier()

    def unwritten(self) -> Iterator[Commit]:
        """Return what is not in the store yet: the open commit, then the sealed ones, newest first."""
        yield self._context.commit
        yield from reversed(self._sealed)


class _Barrier:
    """A waiter that only notes that its commit is durable."""

    __slots__ = ("_durable",)

    def __init__(self, durable: asyncio.Future[None]) -> None:
        self._durable = durable

    def committed(self, tokens: list[int]) -> None:
        resolve(self._durable)
