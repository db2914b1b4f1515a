"""The work done from time to time beside everything else: purging, trimming, removing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.clock import Clock, until_beat_s
from broker.engine.commit_loop import CommitLoop
from broker.engine.lease_loop import LeaseLoop
from broker.engine.loading import DoneRecords
from broker.engine.payload_references import PayloadReferences
from broker.engine.removing import Removals
from broker.engine.shard_ending import Ending, resolve
from broker.engine.store_retry import StoreRetry
from broker.engine.wakeups import Wakeups
from config import limits
from queue_manager.manager import QueueManager
from queue_manager.queue.queue import Queue
from queue_manager.shard.context import DuePurge
from storage.errors import StorageError

POLL_INTERVAL_S: Final = 0.01


@dataclass(eq=False)
class Sweeper:
    """Purges what retention ends for, and performs removals."""

    _manager: QueueManager
    _clock: Clock
    _wakeups: Wakeups
    _ending: Ending
    _retry: StoreRetry
    _commits: CommitLoop
    _references: PayloadReferences
    _leases: LeaseLoop
    _done_records: DoneRecords
    _removals: Removals
    _trimmed_at_ms: int = field(default=0, init=False)

    async def run(self) -> None:
        """Sweep twice a second, and when somebody waits for it."""
        wake = self._wakeups.sweep
        while True:
            try:
                async with asyncio.timeout(until_beat_s(limits.SWEEP_INTERVAL_MS)):
                    await wake.wait()
            except TimeoutError:
                pass
            wake.clear()
            await self._retry.take(self._clean)

    async def sweep_once(self) -> None:
        """Expire leases, purge done records, trim logs, remove what deleted queues left."""
        self._leases.expire_once()
        self._trimmed_at_ms = 0
        await self._clean()

    async def _clean(self) -> None:
        await self._done_records.learn()
        while purges := self._manager.take_purges(self._clock.now_ms()):
            await self._purge(purges)
            if sum(purge.message_count() for purge in purges) < limits.PURGED_MESSAGES_PER_SWEEP_MAX:
                break
            await self._commits.room_for_deletes()
        now_ms = self._clock.now_ms()
        with_trims = abs(now_ms - self._trimmed_at_ms) >= limits.LOG_TRIM_INTERVAL_MS
        if with_trims:
            self._trimmed_at_ms = now_ms
        for _ in range(limits.REMOVAL_ROUNDS_PER_SWEEP_MAX):
            # under load each commit leaves more to remove: for the next sweep, or purges never had a turn
            if not await self._removals.perform_due(with_trims=with_trims):
                break
            with_trims = False
        self._wakeups.wake()

    async def _purge(self, purges: list[DuePurge]) -> None:
        shared = [
            message_id
            for purge in purges
            for _, first_id, count in purge.shared_items
            for message_id in range(first_id, first_id + count)
        ]
        try:
            async with self._references.counted(shared) as counts:
                self._manager.apply_purges(purges, counts)
        except StorageError:
            self._manager.give_back_purges(purges)
            raise

    # waiting for what a sweep brings about

    async def retention_known(self) -> None:
        """Wait until the done and failed records have been read, which happens soon after the start."""
        if not self._wakeups.is_running:
            await self.sweep_once()
        elif not self._done_records.are_known:
            known = self._done_records.known()
            self._wakeups.sweep.set()
            await known

    async def groups_removed(self, queue: Queue) -> None:
        """Wait until nothing is left of what the queue's deleted and reset groups kept."""
        while any(part.retention.removals for part in queue.parts) and not queue.deleted:
            self._ending.check()
            if self._wakeups.is_running:
                self._wakeups.sweep.set()
                await asyncio.sleep(POLL_INTERVAL_S)
            else:
                await self.sweep_once()

    async def removal_done(self, name: str) -> None:
        """Wait until nothing is left of a deleted queue of that name."""
        gone = self._ending.future()
        if not self._manager.queues.removing.when_removed(name, partial(resolve, gone)):
            resolve(gone)
            return
        self._wakeups.wake()
        if not self._wakeups.is_running:
            await self.sweep_once()
        await gone
