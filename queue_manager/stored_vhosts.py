"""Virtual hosts that were made by administration: what is kept of them."""

from __future__ import annotations

from queue_manager.shard.context import Context
from storage.records import StoredVhost
from storage.records import vhost as record

__all__ = ["StoredVhost", "StoredVhosts"]


class StoredVhosts:
    """The records of virtual hosts. Their queues and exchanges know by their names where they belong."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.by_name: dict[str, StoredVhost] = {}

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """Have a virtual host kept so, with the open commit."""
        self.by_name[name] = vhost
        self._context.commit.put(record.key(name), record.encode(*vhost))

    def forget(self, name: str) -> None:
        """Keep a virtual host no more; nothing of it may be left."""
        if self.by_name.pop(name, None) is not None:
            self._context.commit.delete(record.key(name))

    def restore(self, name: str, vhost: StoredVhost) -> None:
        """Take in what was kept before the start."""
        self.by_name[name] = vhost
