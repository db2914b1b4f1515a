"""The records of buckets, and the payloads they stand for.

Failed messages, also those redriven since, outlive their log entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from config import limits
from queue_manager.shard.record_types import HeldPayloads, RecordType, Row
from storage.envelope import SHARED, read_head
from storage.records import active, done, failed, settlements


def _held(message_id: int, metadata: bytes) -> HeldPayloads:
    flags, offset, _ = read_head(metadata)
    return HeldPayloads(message_id, 1, bool(flags & SHARED), offset)


def held_by_active(row: Row) -> Iterable[HeldPayloads]:
    """Return what an active record holds."""
    available, in_flight = active.decode(row[1])
    return [
        *(_held(message.message_id, message.metadata) for message in available),
        *(_held(message.message_id, message.metadata) for message in in_flight),
    ]


def held_by_settled(row: Row) -> Iterable[HeldPayloads]:
    """Return what a done or failed record holds."""
    return [_held(message.message_id, message.metadata) for message in done.decode(row[1])]


def held_by_settlements(row: Row) -> Iterable[HeldPayloads]:
    """Return what a record of what was settled since holds."""
    return [_held(message.message_id, message.metadata) for message in settlements.decode(row[1]).done]


ACTIVE_TYPE: Final = RecordType(
    record=active, held=held_by_active, rows_per_step=limits.REMOVAL_ENTRIES_PER_STEP
)
DONE_TYPE: Final = RecordType(
    record=done, held=held_by_settled, rows_per_step=limits.REMOVAL_ENTRIES_PER_STEP
)
SETTLEMENTS_TYPE: Final = RecordType(
    record=settlements, held=held_by_settlements, rows_per_step=limits.REMOVAL_ENTRIES_PER_STEP
)
FAILED_TYPE: Final = RecordType(
    record=failed, held=held_by_settled, rows_per_step=limits.REMOVAL_ENTRIES_PER_STEP
)
BUCKET_TYPES: Final = (ACTIVE_TYPE, DONE_TYPE, SETTLEMENTS_TYPE, FAILED_TYPE)
