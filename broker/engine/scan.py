"""Reading rows of the store in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from config import limits
from storage.encoding import prefix_end
from storage.store import Store


async def scan_prefix(
    store: Store, prefix: bytes, rows: int | None = None
) -> AsyncIterator[tuple[bytes, bytes]]:
    """Every row whose key begins with `prefix`, in key order; `rows` are read at a time."""
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


class LogSteps:
    """How many entries of a log to read at a time: no more than can be gone through in one turn.

    An entry may have one message or thousands; those that were read last tell what the next are like.
    """

    def __init__(self) -> None:
        self.entry_count = 1
        """To be read next."""

    def read(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """These were read."""
        if rows:
            entry_bytes = sum([len(value) for _, value in rows]) // len(rows) + 1
            fitting = max(1, limits.REMOVAL_STEP_BYTES // entry_bytes)
            self.entry_count = min(limits.REMOVAL_ENTRIES_PER_STEP, fitting)


async def last_rows(store: Store, prefixes: Sequence[bytes]) -> list[tuple[bytes, bytes] | None]:
    """The last row of each prefix, or None; read together where an event loop runs, as each takes long to
    come.
    """

    async def last(prefix: bytes) -> tuple[bytes, bytes] | None:
        rows = await store.scan(prefix, prefix_end(prefix), limit=1, reverse=True)
        return rows[0] if rows else None

    try:
        asyncio.get_running_loop()
    except RuntimeError:  # a store in memory, driven step by step
        return [await last(prefix) for prefix in prefixes]
    return list(await asyncio.gather(*map(last, prefixes)))
