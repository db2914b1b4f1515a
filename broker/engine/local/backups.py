"""Cuts of the storage of a shard in this process."""

from __future__ import annotations

from broker.engine.local.commits import LocalCommits
from broker.engine.shard import Shard
from queue_manager.errors import LimitReached, PreconditionFailed
from storage.cuts import Cut, Cuts, TooManyCuts


class LocalBackups:
    """As `BackupClient`."""

    def __init__(self, shard: Shard, commits: LocalCommits) -> None:
        self._shard = shard
        self._commits = commits

    async def cut(self) -> Cut:
        """See `BackupClient.cut`."""
        cuts = self._cuts()
        self._shard.manager.context.state_writes.make_due()  # settlements wait for nobody else
        await self._commits.durable()
        try:
            return await cuts.make()
        except TooManyCuts as error:
            raise LimitReached(error.reason) from None

    async def keep(self, cut_id: str) -> bool:
        """See `BackupClient.keep`."""
        return await self._cuts().keep(cut_id)

    async def drop(self, cut_id: str) -> bool:
        """See `BackupClient.drop`."""
        return await self._cuts().drop(cut_id)

    def _cuts(self) -> Cuts:
        cuts = self._shard.store.cuts
        if cuts is None:
            raise PreconditionFailed(
                "the storage is in memory: there is nothing that another process can copy"
            )
        return cuts
