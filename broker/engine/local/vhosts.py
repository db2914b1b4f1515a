"""What is kept of virtual hosts in a shard of this process."""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.shard import Shard
from queue_manager.api import StoredVhost


class LocalVhosts:
    """As `VhostRecords`."""

    def __init__(self, shard: Shard) -> None:
        self._vhosts = shard.manager.vhosts
        self._shard = shard

    def kept(self) -> Mapping[str, StoredVhost]:
        """See `VhostRecords.kept`."""
        return dict(self._vhosts.by_name)

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """See `VhostRecords.keep`."""
        self._vhosts.keep(name, vhost)
        self._shard.wake()

    def forget(self, name: str) -> None:
        """See `VhostRecords.forget`."""
        self._vhosts.forget(name)
        self._shard.manager.sessions.drop(name)
        self._shard.wake()
