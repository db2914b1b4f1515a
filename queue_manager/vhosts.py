"""Virtual hosts that were made by administration: what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping

from queue_manager.shard.context import Context
from storage.records import vhost as record
from storage.records.vhost import StoredVhost

__all__ = ["StoredVhost", "StoredVhosts"]


class StoredVhosts:
    """The records of virtual hosts. Their queues and exchanges know by their names where they belong."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stored: dict[str, StoredVhost] = {}

    @property
    def by_name(self) -> Mapping[str, StoredVhost]:
        """All of them."""
        return self._stored

    def keep(self, name: str, vhost: StoredVhost) -> None:
        """Have a virtual host kept so, with the open commit."""
        self._stored[name] = vhost
        self._context.commit.put(record.key(name), record.encode(vhost))

    def forget(self, name: str) -> None:
        """Keep a virtual host no more; nothing of it may be left."""
        if self._stored.pop(name, None) is not None:
            self._context.commit.delete(record.key(name))

    def restore(self, name: str, vhost: StoredVhost) -> None:
        """Take in what was kept before the start."""
        self._stored[name] = vhost
