"""Records of virtual hosts in a shard of this process."""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.shard import Shard
from queue_manager.api import StoredVhost


class VhostRecords:
    """The records of the virtual hosts that administration made; durable with the open commit."""

    def __init__(self, shard: Shard) -> None:
        self._vhosts = shard.manager.vhosts
        self._shard = shard

    def kept(self) -> Mapping[str, StoredVhost]:
        """Return all of them, by name."""
        return dict(self._vhosts.by_name)

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """Have one kept so."""
        self._vhosts.keep(name, vhost)
        self._shard.wake()

    def forget(self, name: str) -> None:
        """Keep one no more; nothing of it may be left."""
        self._vhosts.forget(name)
        self._shard.manager.sessions.drop(name)
        self._shard.wake()
