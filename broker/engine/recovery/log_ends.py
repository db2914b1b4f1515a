"""The newest entry of every filter log.

Looking one up opens every table of the store, which takes a millisecond and more: far longer than reading
some hundred small entries in order. So the entries are read in order, and only a log that fills a whole
part is left at that point and looked up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator

from broker.engine.log_steps import last_rows
from config import limits
from storage.encoding import prefix_end
from storage.records import filter_log_entry
from storage.records.filter_log_entries import EntryHead, decode_entry_head
from storage.store import Store


async def read_log_ends(store: Store) -> dict[int, EntryHead]:
    """Read what stands before the messages of each log's newest entry; logs without entries are not there."""
    ends: dict[int, EntryHead] = {}
    long_logs: list[int] = []
    async for part in _parts(store, long_logs):
        position = 0
        while position < len(part):
            log = _log_of(part[position])
            position = bisect_left(part, (_end_of(log),), lo=position)
            ends[log] = decode_entry_head(part[position - 1][1])
    for start in range(0, len(long_logs), limits.RECOVERY_LOGS_AT_ONCE):
        logs = long_logs[start : start + limits.RECOVERY_LOGS_AT_ONCE]
        newest = await last_rows(store, [filter_log_entry.prefix(log) for log in logs])
        ends |= {
            log: decode_entry_head(row[1]) for log, row in zip(logs, newest, strict=True) if row is not None
        }
    return ends


async def _parts(store: Store, long_logs: list[int]) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Yield the entries in order but for the rest of logs that fill a part; those are added to `long_logs`.

    A part is about as long as a look-up takes where logs are long, and longer where they are short.
    """
    start, end = filter_log_entry.prefix(), prefix_end(filter_log_entry.prefix())
    wanted_bytes = limits.RECOVERY_ENDS_BYTES_MAX
    row_count = limits.RECOVERY_ENDS_ROWS_MIN
    while True:
        part = await store.scan(start, end, limit=row_count)
        yield part
        if len(part) < row_count:
            return
        log = _log_of(part[-1])
        if log == _log_of(part[0]):
            long_logs.append(log)
            start = _end_of(log)
            wanted_bytes = max(wanted_bytes // 2, limits.RECOVERY_ENDS_BYTES_MIN)
        else:
            start = part[-1][0] + b"\x00"
            wanted_bytes = min(wanted_bytes * 2, limits.RECOVERY_ENDS_BYTES_MAX)
        row_bytes = sum([len(key) + len(value) for key, value in part]) // len(part)
        row_count = max(
            limits.RECOVERY_ENDS_ROWS_MIN, min(wanted_bytes // row_bytes, limits.RECOVERY_ENDS_ROWS_MAX)
        )


def _log_of(row: tuple[bytes, bytes]) -> int:
    return filter_log_entry.parse_key(row[0])[0]


def _end_of(log: int) -> bytes:
    """Return a key behind all entries of a log and before those of others."""
    end = prefix_end(filter_log_entry.prefix(log))
    assert end is not None
    return end
