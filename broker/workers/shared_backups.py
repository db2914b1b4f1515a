"""Cuts of the storages of all workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from broker.engine.client.commits import BackupClient
from storage.cuts import Cut

Ask: TypeAlias = Callable[..., Awaitable[Any]]
"""Calls a part of one other worker: by its number, the part, the method, and arguments."""

AskOthers: TypeAlias = Callable[..., Awaitable[Mapping[int, Any]]]


class SharedBackups(BackupClient):
    """As `BackupClient`, of all workers. A cut of another worker is found by its ID, which no other has."""

    def __init__(self, local: BackupClient, count: int, ask: Ask, ask_others: AskOthers) -> None:
        vars(self).update(vars(local))
        self._count = count
        self._ask = ask
        self._ask_others = ask_others

    async def cut_all(self) -> list[Cut]:
        """See `BackupClient`; raises StorageError if a worker is missing."""
        others = [self._ask(number, "backups", "cut") for number in range(1, self._count)]
        return await asyncio.gather(self.cut(), *others)

    async def keep(self, cut_id: str) -> bool:
        """See `BackupClient`."""
        return await super().keep(cut_id) or any((await self._ask_others("backups", "keep", cut_id)).values())

    async def drop(self, cut_id: str) -> bool:
        """See `BackupClient`."""
        return await super().drop(cut_id) or any((await self._ask_others("backups", "drop", cut_id)).values())
