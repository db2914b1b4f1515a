"""Cuts of the storage of a shard in this process."""

from __future__ import annotations

from broker.engine.client.commits import CommitClient
from broker.engine.shard import Shard
from queue_manager.errors import LimitReached, PreconditionFailed
from storage.cuts import Cut, Cuts, TooManyCuts


class BackupClient:
    """Cuts of the storage, which other processes copy. Of all virtual hosts."""

    def __init__(self, shard: Shard, commits: CommitClient) -> None:
        self._shard = shard
        self._commits = commits

    async def cut(self) -> Cut:
        """Return a cut with everything done so far, kept for `limits.CUT_LIFETIME_S`.

        Raises PreconditionFailed where the storage is in memory, LimitReached where too many are kept.
        """
        cuts = self._cuts()
        self._shard.manager.context.state_writes.make_due()  # settlements wait for nobody else
        await self._commits.durable()
        try:
            return await cuts.make()
        except TooManyCuts as error:
            raise LimitReached(error.reason) from None

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
