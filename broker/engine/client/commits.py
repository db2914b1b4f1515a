"""Commits of a shard in this process, for who waits for them."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.commit_stats import CommitStats
from broker.engine.shard import Shard
from queue_manager.shard.commit import Waiter
from storage.errors import StorageError


class CommitClient:
    """When what was done is durable."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    def stats(self) -> CommitStats:
        """Return what was seen of commits since the start."""
        return self._shard.commits.stats

    def trouble(self) -> StorageError | None:
        """Return what keeps commits from being durable at the moment, if that is known."""
        return self._shard.store.trouble

    def wait(self, waiter: Waiter, token: int) -> None:
        """Have `waiter` told `token` when everything done so far is durable."""
        self._manager.context.commit.wait(waiter, token)

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """Wait as `wait`, for many tokens."""
        self._manager.context.commit.wait_for(waiter, tokens)

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """Wait as `wait`, but of the tokens of one commit only the last is told; returns whether it is the
        first of its commit.
        """
        return self._manager.context.commit.wait_up_to(waiter, token)

    async def durable(self) -> None:
        """Have delivered what can be delivered, and wait until everything done so far is durable."""
        self._manager.dispatch(self._shard.clock.now_ms())
        await self._shard.barrier()

    def on_committed(self, call: Callable[[], None]) -> None:
        """Have `call` called after each commit."""
        self._shard.commits.on_committed(call)
