"""Every type of record that a queue has beside its specs and its log; a new one is entered here.

Walked by what restores queues at a start and by what takes away the records of deleted ones.
"""

from __future__ import annotations

from typing import Final

from queue_manager.claims.record_types import BUCKET_TYPES
from queue_manager.queue.queue import Queue
from queue_manager.rules.deduplication import IDENTITY_RECORDS
from queue_manager.rules.expiry.records import EXPIRY_RECORDS
from queue_manager.rules.schedule import SCHEDULE_RECORDS
from queue_manager.rules.staging.restoring import STAGE_RECORDS
from queue_manager.shard.record_types import RecordType, RuleRecords
from storage.records import attempts, claimed_bitmap, group_removal, skipped_offsets, stream_chunk

RULES: Final[tuple[RuleRecords[Queue], ...]] = (
    SCHEDULE_RECORDS,
    IDENTITY_RECORDS,
    STAGE_RECORDS,
    EXPIRY_RECORDS,
)
"""In the order in which a start restores them."""

LOG_TYPES: Final[tuple[RecordType, ...]] = (
    *(kind for rule in RULES for kind in rule.of_logs),
    RecordType(prefix=stream_chunk.prefix),
)
"""Deleted with a log."""

PLACE_TYPES: Final[tuple[RecordType, ...]] = (
    RecordType(prefix=attempts.prefix),
    RecordType(prefix=claimed_bitmap.prefix),
    RecordType(prefix=group_removal.prefix),
    RecordType(prefix=skipped_offsets.prefix),
    *(kind for rule in RULES for kind in rule.of_places),
    *BUCKET_TYPES,
)
"""Deleted with a group's place in a log."""
