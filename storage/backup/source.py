"""The records of a database as of a cut, for whoever copies them."""

import asyncio
from collections.abc import AsyncIterator

from slatedb.uniffi import DbReader, KeyRange

from config import limits
from storage.backup.archive import Row
from storage.errors import StoreUnavailable
from storage.fast_rows import next_rows
from storage.open import open_cut
from storage.slate_errors import SLATE_ERRORS, translate

_EVERYTHING = KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
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

    async def pages(self) -> AsyncIterator[list[Row]]:
        """Yield all rows in key order, some hundred KiB at a time. Raises StorageError."""
        try:
            rows = await self._reader.scan(_EVERYTHING)
            asked = _FIRST_ROWS
            while page := await self._next(rows, asked):
                yield page
                row_bytes = sum([len(key) + len(value) for key, value in page]) // len(page) + 1
                asked = min(limits.STORE_SCAN_BYTES // row_bytes + 1, limits.STORE_SCAN_ROWS_MAX)
        except SLATE_ERRORS as error:
            raise translate(error, "reading the storage") from error

    async def close(self) -> None:
        """Let go of the cut."""
        try:
            await self._reader.shutdown()
        except SLATE_ERRORS:
            pass  # it has changed nothing

    async def _next(self, rows: object, count: int) -> list[Row]:
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S):
                return await next_rows(rows, count)
        except TimeoutError:
            raise StoreUnavailable(
                f"reading the storage: no answer in {limits.STORE_CALL_TIMEOUT_S} s"
            ) from None
