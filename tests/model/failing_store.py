"""A store that ends in the middle of things."""

from __future__ import annotations

from storage.batch import WriteOps
from storage.errors import StorageError
from tests.memory_store import MemoryStore


class FailingStore(MemoryStore):
    """The power leaves it after so many writes; None: never."""

    writes_left: int | None = None

    async def write(self, ops: WriteOps) -> None:
        if self.writes_left is not None:
            if not self.writes_left:
                raise StorageError("the power is gone")
            self.writes_left -= 1
        await super().write(ops)

    def crash(self) -> FailingStore:
        return FailingStore(rows=super().crash()._rows)
