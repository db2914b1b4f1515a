"""Virtual hosts that were made by administration."""

from __future__ import annotations

from broker.engine.log_steps import scan_records
from queue_manager.manager import QueueManager
from storage.records import vhost
from storage.store import Store


async def restore_vhosts(store: Store, manager: QueueManager) -> None:
    """Restore every one that is kept."""
    async for name, stored in scan_records(store, vhost):
        manager.vhosts.restore(name, stored)
