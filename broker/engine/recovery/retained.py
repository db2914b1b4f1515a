"""Retained messages as they were left."""

from __future__ import annotations

from broker.engine.log_steps import scan_records
from queue_manager.manager import QueueManager
from storage.records import retained
from storage.store import Store


async def restore_retained(store: Store, manager: QueueManager) -> None:
    """Restore every retained message; those that have expired go with the first commit."""
    async for _, message in scan_records(store, retained):
        manager.retained.restore(message)
