"""Building a stage from its records after a start. Pure: the driver scans, this makes sense of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from queue_manager.queue import Queue
from queue_manager.staging.attempt import Attempt
from queue_manager.staging.stage import Stage
from queue_manager.staging.sweep import Sweep
from queue_manager.staging.tags import StageTag
from storage.records import staged_rows
from storage.records.committed_epoch import CommittedEpoch
from storage.records.epoch import DecidedEpoch


class FoundAttempt(NamedTuple):
    """An attempt as its first and its last record tell it; what was before the first is in the log."""

    tag: StageTag
    first_row: int
    bytes_before: int
    row_count: int
    byte_count: int
    staged_at_ms: int


def found_attempt(first_key: bytes, first_value: bytes, last_key: bytes, last_value: bytes) -> FoundAttempt:
    """What the records of one attempt tell of it."""
    key = staged_rows.parse_key(first_key)
    head = staged_rows.decode_head(last_value)
    return FoundAttempt(
        StageTag(key.producer, key.epoch, key.part, key.attempt),
        key.first_row,
        staged_rows.decode_head(first_value).bytes_before,
        staged_rows.parse_key(last_key).first_row + head.row_count,
        head.bytes_before + head.body_bytes,
        head.staged_at_ms,
    )


def restore_stage(
    queue: Queue,
    producers: dict[str, CommittedEpoch],
    decided: list[tuple[int, DecidedEpoch]],
    found: Iterable[FoundAttempt],
    now_ms: int,
) -> None:
    """Give the queue its stage back: epochs on their way go on, what no commit can name any more goes."""
    stage = queue.stage = Stage(queue)
    stage.producers = producers
    epochs = {(epoch.producer, epoch.epoch): number for number, epoch in decided}
    tags: dict[int, list[StageTag]] = {number: [] for number, _ in decided}
    left = dict.fromkeys(tags, 0)
    left_bytes = dict.fromkeys(tags, 0)
    named = {number: frozenset(epoch.attempts) for number, epoch in decided}
    for attempt in found:
        tag = attempt.tag
        restored = Attempt(queue.name, tag, attempt.staged_at_ms, attempt.row_count, attempt.byte_count)
        stage.attempts[tag] = restored
        stage.byte_count += attempt.byte_count
        number = epochs.get((tag.producer, tag.epoch))
        last = producers.get(tag.producer)
        if number is not None:
            restored.is_ending = True
            tags[number].append(tag)
            if (tag.part, tag.attempt) in named[number]:
                left[number] += attempt.row_count - attempt.first_row
                left_bytes[number] += attempt.byte_count - attempt.bytes_before
        elif attempt.first_row or (last is not None and tag.epoch <= last.epoch):
            restored.is_ending = True
            stage.sweeps.append(Sweep.of_attempt(queue.name, tag))
    for number, epoch in decided:
        prefix = staged_rows.epoch_prefix(queue.name, epoch.producer, epoch.epoch)
        stage.sweeps.append(
            Sweep(
                prefix,
                tags[number],
                epoch.producer,
                named[number],
                number,
                left[number],
                left_bytes[number],
            )
        )
        stage.next_number = number + 1
    stage.unmoved_count = sum(left.values())
    stage.unmoved_bytes = sum(left_bytes.values())
    stage.arm(now_ms)
