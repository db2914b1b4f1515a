"""Virtual hosts that were made by administration."""

from __future__ import annotations

from broker.engine.scan import scan_prefix
from queue_manager.manager import QueueManager
from storage.records import vhost
from storage.store import Store


async def restore_vhosts(store: Store, manager: QueueManager) -> None:
    """Restore every one that is kept."""
    async for key, value in scan_prefix(store, vhost.PREFIX):
        manager.vhosts.restore(vhost.parse_key(key), vhost.decode(value))
