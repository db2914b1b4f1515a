"""Reading rows of the store in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
