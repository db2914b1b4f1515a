"""Who is kept out: the records of bans."""

from __future__ import annotations

from collections.abc import Iterator

from queue_manager.shard.context import Context
from storage.records import BanKey, StoredBan
from storage.records import ban as record

__all__ = ["BanKey", "StoredBan", "StoredBans"]


class StoredBans:
    """The bans that are kept, by what they are of."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._by_key: dict[BanKey, StoredBan] = {}

    def __iter__(self) -> Iterator[tuple[BanKey, StoredBan]]:
        return iter(list(self._by_key.items()))

    def keep(self, key: BanKey, ban: StoredBan) -> None:
        """Have a ban kept, with the open commit."""
        self._by_key[key] = ban
        self._context.commit.put(record.key(*key), record.encode(*ban))

    def forget(self, key: BanKey) -> None:
        """Keep a ban no more."""
        if self._by_key.pop(key, None) is not None:
            self._context.commit.delete(record.key(*key))

    def restore(self, key: BanKey, ban: StoredBan) -> None:
        """Take in what was kept before the start."""
        self._by_key[key] = ban
