"""Every type of record that a queue has beside its specs and its log; a new one is entered here.

Walked by what restores queues at a start and by what takes away the records of deleted ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from config import limits
from queue_manager.queue.queue import Queue
from queue_manager.rules.deduplication import IDENTITY_TYPES, restore_identities
from queue_manager.rules.schedule import SCHEDULE_TYPES
from queue_manager.rules.staging.stage_restoring import STAGE_TYPES, restore_stage
from queue_manager.shard.record_types import HeldPayloads, RecordType, Row
from storage import layout
from storage.envelope import SHARED, read_head
from storage.records import (
    ACCOUNT_BYTES,
    AccountBytes,
    LastValue,
    active,
    attempts,
    claimed_bitmap,
    done,
    expiry,
    failed,
    group_removal,
    last_value,
    queue_account,
    settlements,
    skipped_offsets,
    stream_chunk,
)
from storage.records.special_codecs import APPENDED, EXPIRED, EXPIRED_OFFSETS, TAKEN


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


class RuleRecords(NamedTuple):
    """The records of one rule: those of logs, those of groups' places in them, and what a start does.

    `restore` gets the rows found of each type, in order of their keys; it is called for every queue.
    """

    of_logs: tuple[RecordType, ...]
    of_places: tuple[RecordType, ...]
    restore: Callable[[Queue, Sequence[Sequence[Row]], int], None]

    @property
    def types(self) -> tuple[RecordType, ...]:
        """All of them, as `restore` gets their rows."""
        return (*self.of_logs, *self.of_places)


def _restore_schedule(queue: Queue, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    if rows[0]:
        queue.rules.restore_schedule()


def _restore_identities(queue: Queue, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    seen, producers = rows
    if seen or producers:
        restore_identities(queue.rules.identities, seen, producers, now_ms)


def _restore_stage(queue: Queue, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    if any(rows):
        restore_stage(queue.rules.stage, queue.name, rows, now_ms)


def _restore_last_values(queue: Queue, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    """Know the newest message of each value; what is of a header that is not asked for any more goes."""
    [found] = rows
    header = queue.parts[0].log.policy.last_value  # of a policy, too
    kept: list[tuple[str, LastValue]] = []
    for key, value in found:
        parsed = last_value.parse_key(key)
        if parsed.header == header:
            kept.append((parsed.value, last_value.decode(value)))
        else:
            queue.context.commit.delete(key)
    if kept:
        queue.parts[0].use_rules().restore_last_values(kept)


def _restore_expiry(queue: Queue, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    """Have watched what expires; know what was let go of out of order."""
    expiring, accounts = rows
    parts = {part.log.name: part for part in queue.parts}
    counts: dict[str, dict[tuple[str, int], AccountBytes]] = {name: {} for name in parts}
    for key, value in accounts:
        queue_id, kind, number = queue_account.parse_key(key)
        name, _ = layout.split_group_queue_id(queue_id)
        part = parts.get(name)
        if part is None:
            continue
        if kind == EXPIRED:
            part.restore_expired(number, EXPIRED_OFFSETS.decode(queue_account.name, value))
        elif part.log.policy.counts_bytes():
            counts[name][queue_id, kind] = ACCOUNT_BYTES.decode(queue_account.name, value)
        else:
            queue.context.commit.delete(key)  # the bound is gone; for a quota it is counted anew
    for key, _ in expiring:
        expires_in = parts.get(expiry.parse_key(key).queue_id)
        if expires_in is not None:
            expires_in.use_rules().own.begin()
    for name, part in parts.items():
        part.restore_future()
        part.watch_returned()
        if part.has_rules:
            taken = {queue_id: count for (queue_id, kind), count in counts[name].items() if kind == TAKEN}
            part.use_rules().restore_bytes(counts[name].get((name, APPENDED)), taken)


RULES: Final = (
    RuleRecords(SCHEDULE_TYPES, (), _restore_schedule),
    RuleRecords(IDENTITY_TYPES, (), _restore_identities),
    RuleRecords(STAGE_TYPES, (), _restore_stage),
    RuleRecords((RecordType(record=last_value),), (), _restore_last_values),
    RuleRecords(
        (RecordType(record=expiry, run_fields=1),), (RecordType(record=queue_account),), _restore_expiry
    ),
)
"""In the order in which a start restores them."""

LOG_TYPES: Final[tuple[RecordType, ...]] = (
    *(kind for rule in RULES for kind in rule.of_logs),
    RecordType(record=stream_chunk),
)
"""Deleted with a log."""

PLACE_TYPES: Final[tuple[RecordType, ...]] = (
    RecordType(record=attempts),
    RecordType(record=claimed_bitmap),
    RecordType(record=group_removal),
    RecordType(record=skipped_offsets),
    *(kind for rule in RULES for kind in rule.of_places),
    *BUCKET_TYPES,
)
"""Deleted with a group's place in a log."""
