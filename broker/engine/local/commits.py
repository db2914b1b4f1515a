"""Commits of a shard in this process, for who waits for them."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.client import Waiter
from broker.engine.commit_stats import CommitView
from broker.engine.shard import Shard


class LocalCommits:
    """As `CommitClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    def stats(self) -> CommitView:
        """See `CommitClient.stats`."""
        return self._shard.commits.stats.view()

    def wait(self, waiter: Waiter, token: int) -> None:
        """See `CommitClient.wait`."""
        self._manager.context.commit.wait(waiter, token)

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """See `CommitClient.wait_for`."""
        self._manager.context.commit.wait_for(waiter, tokens)

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """See `CommitClient.wait_up_to`."""
        return self._manager.context.commit.wait_up_to(waiter, token)

    async def durable(self) -> None:
        """See `CommitClient.durable`."""
        shard = self._shard
        self._manager.dispatch(shard.clock.now_ms())
        shard.wake()
        await shard.barrier()

    def on_committed(self, call: Callable[[], None]) -> None:
        """See `CommitClient.on_committed`."""
        self._shard.commits.on_committed(call)
