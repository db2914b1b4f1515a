"""The records of bans in a shard of this process."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.shard import Shard
from queue_manager.api import BanKey, StoredBan


class BanRecords:
    """What is kept of bans; durable with the open commit."""

    def __init__(self, shard: Shard) -> None:
        self._bans = shard.manager.bans
        self._shard = shard

    def kept(self) -> Iterable[tuple[BanKey, StoredBan]]:
        """Return all of them."""
        return list(self._bans)

    def keep(self, key: BanKey, ban: StoredBan) -> None:
        """Have one kept so."""
        self._bans.keep(key, ban)
        self._shard.wake()

    def forget(self, key: BanKey) -> None:
        """Keep one no more."""
        self._bans.forget(key)
        self._shard.wake()
