"""The records of a database as of a cut, for whoever copies them."""

from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from slatedb.uniffi import DbReader, KeyRange

from config import limits
from storage.backup.archive import Row
from storage.fast_rows import pages_of
from storage.open import open_cut
from storage.place import close_reader
from storage.slate_errors import answered

_EVERYTHING = KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
_Result = TypeVar("_Result")
_FIRST_ROWS = 64  # taken before the size of a row is known


class CutSource:
    """Reads one cut, from its first record to its last."""

    def __init__(self, reader: DbReader, estimated_bytes: int) -> None:
        """`estimated_bytes`: about how much there is to read."""
        self._reader = reader
        self.estimated_bytes = estimated_bytes

    @classmethod
    async def open(cls, url: str, cut_id: str) -> "CutSource":
        """Open the cut of the database at `url`, which a broker may go on writing. Raises StorageError."""
        return cls(*await open_cut(url, cut_id))

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key as it lies there, or None. Raises StorageError."""
        value: bytes | None = await _in_time(self._reader.get(key))
        return value

    async def pages(self) -> AsyncIterator[list[Row]]:
        """Yield all rows in key order, some hundred KiB at a time. Raises StorageError."""
        pages = pages_of(await _in_time(self._reader.scan(_EVERYTHING)), _FIRST_ROWS)
        while (page := await _in_time(anext(pages, None))) is not None:
            yield page

    async def close(self) -> None:
        """Let go of the cut."""
        await close_reader(self._reader)


async def _in_time(call: Awaitable[_Result]) -> _Result:
    async with answered("reading the storage", limits.STORE_CALL_TIMEOUT_S):
        return await call
