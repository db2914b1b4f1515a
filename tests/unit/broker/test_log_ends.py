"""The newest entry of every filter log, found in one pass over short logs and by look-ups of long ones."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.engine.recovery.log_ends import read_log_ends
from config import limits
from storage.envelope import EnvelopeTemplate
from storage.records import filter_log, filter_log_entry, retained
from storage.records.filter_log_entries import NO_PUBLISHER, EntryHead, Kept
from tests.memory_store import MemoryStore

TEMPLATE = EnvelopeTemplate("t")
PART_ROWS = limits.RECOVERY_ENDS_ROWS_MIN


class CountingStore(MemoryStore):
    """Notes the rows that were read, and the look-ups of a last row."""

    def __init__(self, rows: Mapping[bytes, bytes]) -> None:
        super().__init__(rows=rows)
        self.row_count = self.look_up_count = 0

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        rows = await super().scan(start, end, limit=limit, reverse=reverse)
        self.row_count += len(rows)
        self.look_up_count += reverse
        return rows


def store_of(lengths: list[int], body_bytes: int) -> CountingStore:
    """Logs 1, 3, 5 ... of so many entries, between rows of other types."""
    rows = {filter_log.key(9): b"", retained.prefix() + b"t": b""}
    for index, length in enumerate(lengths):
        for entry in range(length):
            message = Kept(1_000 * entry + index, 1, NO_PUBLISHER, TEMPLATE, 0, bytes(body_bytes))
            value = filter_log_entry.encode(entry, entry * body_bytes, [message])
            rows[filter_log_entry.key(2 * index + 1, message.message_id)] = value
    return CountingStore(rows)


@pytest.mark.parametrize("body_bytes", [1, limits.RECOVERY_ENDS_BYTES_MAX // 20])
@pytest.mark.parametrize(
    "lengths",
    [
        [],
        [1],
        [0, 1, 0, 2],
        [PART_ROWS - 1, 1, PART_ROWS],
        [PART_ROWS],
        [PART_ROWS, PART_ROWS + 1, 1],
        [PART_ROWS + 1, 3, 5 * PART_ROWS, 4, 4],
        [1, 5 * PART_ROWS, 5 * PART_ROWS],
        [2] * 3 * PART_ROWS,
    ],
)
async def test_each_log_with_entries_has_its_newest(lengths: list[int], body_bytes: int) -> None:
    ends = await read_log_ends(store_of(lengths, body_bytes))
    assert ends == {
        2 * index + 1: EntryHead(1, body_bytes, 0, length - 1, (length - 1) * body_bytes)
        for index, length in enumerate(lengths)
        if length
    }


async def test_short_logs_are_read_in_one_pass_without_look_ups() -> None:
    store = store_of([PART_ROWS // 2] * 200, 100)
    await read_log_ends(store)
    assert (store.row_count, store.look_up_count) == (PART_ROWS // 2 * 200, 0)


async def test_most_of_long_logs_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    length = 2_000
    monkeypatch.setattr(limits, "RECOVERY_ENDS_ROWS_MAX", length)
    monkeypatch.setattr(limits, "RECOVERY_ENDS_BYTES_MAX", limits.MIB)
    store = store_of([length] * 10, limits.RECOVERY_ENDS_BYTES_MIN // 100)
    await read_log_ends(store)
    assert store.row_count < 10 * length / 4
    assert store.look_up_count == 10
