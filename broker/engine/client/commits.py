"""Commits of a shard in this process, for who waits for them, and cuts of its storage."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.commit_stats import CommitStats
from broker.engine.shard import Shard
from queue_manager.errors import LimitReached, PreconditionFailed
from queue_manager.shard.commit import Waiter
from storage.cuts import Cut, Cuts, TooManyCuts
from storage.errors import StorageError


class CommitClient:
    """When what was done is durable."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        self._context = shard.manager.context

    def stats(self) -> CommitStats:
        """Return what was seen of commits since the start."""
        return self._shard.commits.stats

    def trouble(self) -> StorageError | None:
        """Return what keeps commits from being durable at the moment, if that is known."""
        return self._shard.store.trouble

    @property
    def beside(self) -> CommitClient:
        """The same for who only watches what others wait for, and takes nothing of that away."""
        return self

    def wait(self, waiter: Waiter, token: int) -> None:
        """Have `waiter` told `token` when everything done so far is durable."""
        self._context.commit.wait(waiter, token)

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """Wait as `wait`, for many tokens."""
        self._context.commit.wait_for(waiter, tokens)

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """Wait as `wait`, but of the tokens of one commit only the last is told; returns whether it is the
        first of its commit.
        """
        return self._context.commit.wait_up_to(waiter, token)

    def owes(self, waiter: Waiter) -> bool:
        """Return whether something that `waiter` waits for is not durable yet."""
        return any(waiter in commit.waiters for commit in self._shard.commits.unwritten())

    async def durable(self) -> None:
        """Have delivered what can be delivered, and wait until everything done so far is durable."""
        self._manager.dispatch(self._shard.clock.now_ms())
        await self._shard.barrier()

    def on_committed(self, call: Callable[[], None]) -> None:
        """Have `call` called after each commit."""
        self._shard.commits.on_committed(call)


class BackupClient:
    """Cuts of the storage, which other processes copy. Of all virtual hosts."""

    def __init__(self, shard: Shard, commits: CommitClient) -> None:
        self._shard = shard
        self._commits = commits
        self._state_writes = shard.manager.context.state_writes

    async def cut(self) -> Cut:
        """Return a cut with everything done so far, kept for `limits.CUT_LIFETIME_S`.

        Raises PreconditionFailed where the storage is in memory, LimitReached where too many are kept.
        """
        cuts = self._cuts()
        self._state_writes.make_due()  # settlements wait for nobody else
        await self._commits.durable()
        try:
            return await cuts.make()
        except TooManyCuts as error:
            raise LimitReached(error.reason) from None

    async def cut_all(self) -> list[Cut]:
        """Return a cut of each shard of the broker, as `cut` makes it."""
        return [await self.cut()]

    async def keep(self, cut_id: str) -> bool:
        """Keep a cut for as long again; False if it is not there."""
        return await self._cuts().keep(cut_id)

    async def drop(self, cut_id: str) -> bool:
        """Let go of a cut; False if it is not there."""
        return await self._cuts().drop(cut_id)

    def _cuts(self) -> Cuts:
        cuts = self._shard.store.cuts
        if cuts is None:
            raise PreconditionFailed(
                "the storage is in memory: there is nothing that another process can copy"
            )
        return cuts
