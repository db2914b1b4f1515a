"""From a cut to the files of a backup."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from config import limits
from storage.backup.archive import (
    FORMAT,
    Index,
    PartFile,
    Row,
    encode_index,
    encode_row,
    part_name,
    part_of,
)
from storage.backup.backup_places import FileSink
from storage.layout import INDEX_NAME
from storage.records import format_marker, holder, journal_state, log_place

Tell = Callable[[int], None]
"""Is given how many bytes are done."""

_OF_THE_STORAGE: Final = frozenset({format_marker.key(), holder.key(), journal_state.key(), log_place.key()})
"""Records that say what the storage is, not what is in it: a restored one gets its own."""


_JOURNAL: Final = journal_state.key()


class Source(Protocol):
    """The source of a copy."""

    def pages(self) -> AsyncIterator[list[Row]]:
        """Yield all rows in key order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The fields of the index that are known before copying."""

    made_by: str
    made_at: str
    sequence: int
    shards: int = 1


async def copy_cut(source: Source, sink: FileSink, about: About, tell: Tell = lambda done: None) -> Index:
    """Write all rows of `source` into files, the index last; gives that. Raises StorageError."""
    parts = _Parts(sink, tell)
    journal = None
    async for page in source.pages():
        journal = next((journal_state.decode(value) for key, value in page if key == _JOURNAL), journal)
        await parts.add([encode_row(row) for row in page if row[0] not in _OF_THE_STORAGE])
    await parts.finish()
    index = Index(
        format=1 if about.shards == 1 else FORMAT,
        shards=about.shards,
        made_by=about.made_by,
        made_at=about.made_at,
        sequence=about.sequence,
        journal_sequence=None if journal is None else journal.sequence,
        database_id=None if journal is None else f"{journal.database_id:016x}",
        rows=sum(file.rows for file in parts.files),
        files=tuple(parts.files),
    )
    await sink.put(INDEX_NAME, encode_index(index))
    return index


class _Parts:
    """Collects rows, and writes a file whenever there are enough."""

    def __init__(self, sink: FileSink, tell: Tell) -> None:
        self._sink = sink
        self._tell = tell
        self._rows: list[bytes] = []
        self._bytes = 0
        self._done_bytes = 0
        self.files: list[PartFile] = []

    async def add(self, rows: list[bytes]) -> None:
        self._rows += rows
        self._bytes += sum(map(len, rows))
        if self._bytes >= limits.BACKUP_PART_BYTES:
            await self._write()

    async def finish(self) -> None:
        if self._rows:
            await self._write()

    async def _write(self) -> None:
        name, data = part_name(len(self.files) + 1), b"".join(self._rows)
        loop = asyncio.get_running_loop()
        part = await loop.run_in_executor(None, part_of, name, data, len(self._rows))
        await self._sink.put(name, data)
        self.files.append(part)
        self._rows, self._bytes = [], 0
        self._done_bytes += len(data)
        self._tell(self._done_bytes)
