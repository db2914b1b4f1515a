"""Batches for SlateDB, filled in steps that hold nobody up."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice

from slatedb.uniffi import WriteBatch

from config import limits
from storage.batch import WriteOps
from storage.journal.waiting_commits import Portion, Rows
from storage.records import journal_state

Fill = Callable[[WriteBatch, WriteOps], None]


async def filled_batch(portion: Portion, database_id: int, fill_batch: Fill) -> WriteBatch:
    """Make a batch of a portion by `fill_batch`, with the record of the portion's last commit."""
    batch = WriteBatch()
    for step in _steps(portion.rows, portion.size_bytes):
        if portion.size_bytes > limits.COMMIT_INLINE_BYTES_MAX and _has_large(step):
            await asyncio.get_running_loop().run_in_executor(None, fill_batch, batch, step)
        else:
            fill_batch(batch, step)
            await asyncio.sleep(0)
    last = portion.last
    state = WriteOps()
    value = journal_state.encode(database_id, last.sequence, last.checksum)
    state.put(journal_state.key(), value)
    fill_batch(batch, state)
    return batch


def _has_large(ops: WriteOps) -> bool:
    return any(len(value) > limits.VALUE_PART_BYTES for _, value in ops.puts)


def _steps(rows: Rows, size_bytes: int) -> Iterator[WriteOps]:
    """Yield the rows in parts so small that filling one holds nobody up."""
    row_bytes = size_bytes // max(1, len(rows)) + 1
    count = max(1, min(limits.JOURNAL_APPLY_STEP_ROWS, limits.JOURNAL_APPLY_STEP_BYTES // row_bytes))
    items = iter(rows.items())
    while part := list(islice(items, count)):
        puts = [(key, value) for key, value in part if value is not None]
        yield WriteOps(puts, [key for key, value in part if value is None] if len(puts) < len(part) else ())
