"""A SlateDB database whose values are sealed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Final

from slatedb.uniffi import Db, KeyRange, ScanOptions, WriteBatch

from config import limits
from storage.batch import WriteOps
from storage.errors import CorruptRecord, NotOpened
from storage.fast_batch import fill_batch
from storage.fast_rows import pages_of, value_of
from storage.metadata_log import PREFIX as LOG_PREFIX
from storage.records import RECORDS, encryption, format_marker, holder, journal_state, log_place
from storage.records.special_codecs import SEALED_VERSION
from storage.sealing.sealed_blocks import Ring
from storage.slate_errors import SLATE_ERRORS, translate
from storage.slate_store import SlateStore

PLAIN_KEYS: Final = frozenset(
    {format_marker.key(), holder.key(), journal_state.key(), log_place.key(), encryption.key()}
)
"""What the database is, and what has to be read before there is a key."""
_EVERYTHING: Final = KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)


@dataclass(eq=False, repr=False)
class SealedStore(SlateStore):
    """A `SlateStore` whose values a ring seals and opens.

    `record`: that of the ring's keys, if it is to be written before anything is sealed.
    """

    format_version: ClassVar[int] = SEALED_VERSION
    _: KW_ONLY
    ring: Ring
    record: bytes | None = None

    @property
    def seal(self) -> Ring:
        """See `SlateStore`."""
        return self.ring

    def describe(self) -> str:
        """Describe where the data lies, how durable a write is, and by which key it is encrypted."""
        return f"{super().describe()}, encrypted with key {self.ring.newest.id}"

    def fill(self, batch: WriteBatch, ops: WriteOps) -> None:
        """See `SlateStore.fill`."""
        fill_batch(batch, WriteOps(sealed_rows(self.ring, ops.puts), ops.deletes))

    def introduce(self, ops: WriteOps) -> None:
        """See `SlateStore.introduce`."""
        if self.record is not None:
            ops.put(encryption.key(), self.record)

    async def pages_as_they_lie(self) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield all rows as of now, their values not opened. Raises StorageError."""
        try:
            async for page in pages_of(await self._database.scan(_EVERYTHING), limits.SEALING_FIRST_ROWS):
                yield page
        except SLATE_ERRORS as error:
            raise translate(error, "scanning") from error

    async def _value_of(self, database: Db, key: bytes) -> bytes | None:
        value = await value_of(database, key)
        return None if value is None else opened_value(self.ring, key, value)

    async def _rows(self, key_range: KeyRange, options: ScanOptions, limit: int) -> list[tuple[bytes, bytes]]:
        rows = await super()._rows(key_range, options, limit)
        opened: list[tuple[bytes, bytes]] = []
        for start in range(0, len(rows), limits.SEALING_STEP_ROWS):
            if start:
                await asyncio.sleep(0)
            step = rows[start : start + limits.SEALING_STEP_ROWS]
            opened += [(key, opened_value(self.ring, key, value)) for key, value in step]
        return opened


def sealed_rows(ring: Ring, puts: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the rows as they are written."""
    if PLAIN_KEYS.isdisjoint([key for key, _ in puts]):
        return ring.seal_puts(puts)
    plain = [row for row in puts if row[0] in PLAIN_KEYS]
    return plain + ring.seal_puts([row for row in puts if row[0] not in PLAIN_KEYS])


def opened_value(ring: Ring, key: bytes, value: bytes) -> bytes:
    """Return the value of a row as it was put. Raises CorruptRecord."""
    if key in PLAIN_KEYS:
        return value
    try:
        return ring.open(value, key)
    except NotOpened as error:
        raise CorruptRecord(_kind_of(key), "value", error.reason) from None


def _kind_of(key: bytes) -> str:
    if key.startswith(LOG_PREFIX):
        return "metadata log"
    kind = RECORDS.get(key[1]) if len(key) > 1 else None
    return "unknown" if kind is None else kind.name
