"""Building a stage from its records after a start. Pure: the driver scans, this makes sense of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from config import limits
from queue_manager.rules.staging.attempt import Attempt
from queue_manager.rules.staging.stage import Stage
from queue_manager.rules.staging.sweeps import Sweep
from queue_manager.shard.record_types import HeldPayloads, RecordType, Row
from queue_manager.stage_tags import StageTag
from storage.records import committed_epoch, staged_rows
from storage.records import epoch as epoch_record
from storage.records.staged_values import decode_staged_head


class FoundAttempt(NamedTuple):
    """An attempt as its first and its last record tell it; what was before the first is in the log."""

    tag: StageTag
    first_row: int
    bytes_before: int
    row_count: int
    byte_count: int
    staged_at_ms: int


def _found_attempt(first_key: bytes, first_value: bytes, last_key: bytes, last_value: bytes) -> FoundAttempt:
    """Return what the records of one attempt tell of it."""
    key = staged_rows.parse_key(first_key)
    head = decode_staged_head(last_value)
    return FoundAttempt(
        StageTag(key.producer, key.epoch, key.part, key.attempt),
        key.first_row,
        decode_staged_head(first_value).bytes_before,
        staged_rows.parse_key(last_key).first_row + head.row_count,
        head.bytes_before + head.body_bytes,
        head.staged_at_ms,
    )


def restore_stage(stage: Stage, queue_id: str, rows: Sequence[Sequence[Row]], now_ms: int) -> None:
    """Give a queue its stage back: epochs on their way go on, what no commit can name any more goes.

    Of each attempt `rows` have the first and the last record.
    """
    committed, epochs, ends = rows
    producers = {committed_epoch.parse_key(key)[1]: committed_epoch.decode(value) for key, value in committed}
    decided = [(epoch_record.parse_key(key)[1], epoch_record.decode(value)) for key, value in epochs]
    numbers = {(epoch.producer, epoch.epoch): number for number, epoch in decided}
    named = {number: frozenset(epoch.attempts) for number, epoch in decided}
    tags: dict[int, list[StageTag]] = {number: [] for number, _ in decided}
    left = dict.fromkeys(tags, 0)
    left_bytes = dict.fromkeys(tags, 0)
    attempts: list[tuple[StageTag, Attempt]] = []
    sweeps: list[Sweep] = []
    for first_record, last_record in zip(ends[::2], ends[1::2], strict=True):
        known = _found_attempt(*first_record, *last_record)
        tag = known.tag
        attempt = Attempt(queue_id, tag, known.staged_at_ms, known.row_count, known.byte_count)
        attempts.append((tag, attempt))
        number = numbers.get((tag.producer, tag.epoch))
        last = producers.get(tag.producer)
        if number is not None:
            attempt.end()
            tags[number].append(tag)
            if (tag.part, tag.attempt) in named[number]:
                left[number] += known.row_count - known.first_row
                left_bytes[number] += known.byte_count - known.bytes_before
        elif known.first_row or (last is not None and tag.epoch <= last.epoch):
            attempt.end()
            sweeps.append(Sweep.of_attempt(queue_id, tag))
    for number, epoch in decided:
        prefix = staged_rows.prefix(queue_id, epoch.producer, epoch.epoch)
        sweeps.append(
            Sweep(
                prefix, tags[number], epoch.producer, named[number], number, left[number], left_bytes[number]
            )
        )
    next_number = decided[-1][0] + 1 if decided else 0
    stage.restore(producers, attempts, sweeps, next_number, now_ms)


def _held(row: Row) -> list[HeldPayloads]:
    return [HeldPayloads(run.first_id, len(run.bodies), False, None) for run in staged_rows.decode(row[1])]


STAGE_TYPES: Final = (
    RecordType(record=committed_epoch),
    RecordType(record=epoch_record),
    RecordType(
        record=staged_rows,
        held=_held,
        rows_per_step=limits.REMOVAL_STAGED_ROWS_PER_STEP,
        run_fields=5,
        reads_last=True,
    ),
)
