"""Reading rows of the store in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence

from config import limits
from storage.encoding import prefix_end
from storage.metadata_log import ScanRange
from storage.records.fields import Key, Record, Value
from storage.store import Store


async def scan_prefix(
    store: Store, prefix: bytes, rows: int | None = None
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield every row whose key begins with `prefix`, in key order; `rows` are read at a time."""
    rows = limits.RECOVERY_ROWS_PER_SCAN if rows is None else rows
    start = prefix
    end = prefix_end(prefix)
    while True:
        part = await store.scan(start, end, limit=rows)
        for row in part:
            yield row
        if len(part) < rows:
            return
        start = part[-1][0] + b"\x00"


async def scan_records(
    store: Store, record: Record[..., Key, ..., Value], *leading: str | int
) -> AsyncIterator[tuple[Key, Value]]:
    """Yield what every record of a kind holds: the fields of its key, which begin with `leading`, and of its
    value.

    Raises CorruptRecord, or FormatTooNew for what this program does not know.
    """
    async for key, value in scan_prefix(store, record.prefix(*leading)):
        yield record.parse_key(key), record.decode(value)


class Steps:
    """How many entries of a log to read at a time: `entry_count`."""

    def __init__(self, entry_count: int) -> None:
        self.entry_count = entry_count

    def go_on_by(self, entry_count: int) -> None:
        """Read so many at a time from now on."""
        self.entry_count = entry_count

    def read(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Note that these, at least one, were read."""


class FittingSteps(Steps):
    """No more entries than can be gone through in one turn.

    An entry may have one message or thousands; those that were read last tell what the next are like.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def read(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        entry_bytes = sum([len(value) for _, value in rows]) // len(rows) + 1
        fitting = max(1, limits.REMOVAL_STEP_BYTES // entry_bytes)
        self.go_on_by(min(limits.REMOVAL_ENTRIES_PER_STEP, fitting))


async def walk_log(
    store: Store, ranges: Iterable[ScanRange], steps: Steps
) -> AsyncIterator[tuple[ScanRange, list[tuple[bytes, bytes]]]]:
    """Yield the entries of a log in order, some at a time, each time with the range that they lie in."""
    for scan in ranges:
        start = scan.start
        while True:
            asked = steps.entry_count
            rows = await store.scan(start, scan.end, limit=asked)
            if rows:
                steps.read(rows)
                yield scan, rows
            if len(rows) < asked:
                break
            start = rows[-1][0] + b"\x00"


async def last_rows(store: Store, prefixes: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
    """Return the last row of each prefix, or None; read together where an event loop runs, as each takes long
    to come.
    """

    async def last(prefix: bytes) -> tuple[bytes, bytes] | None:
        rows = await store.scan(prefix, prefix_end(prefix), limit=1, reverse=True)
        return rows[0] if rows else None

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # a store in memory, driven step by step
        return [await last(prefix) for prefix in prefixes]
    return list(await asyncio.gather(*map(last, prefixes)))
