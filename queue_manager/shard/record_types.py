"""How the records that belong to a log, or to a group's place in one, are found and taken away.

A rule states the types of its records. What reads the store at a start, and what deletes the records of a
queue that is gone, walks these statements (`queue_manager.queue.queue_record_types`) and names no record
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from config import limits
from storage.records.fields import Record

Row = tuple[bytes, bytes]  # key and value


class HeldPayloads(NamedTuple):
    """Payloads that a row stands for: `message_count` message IDs from `first_id` on.

    `offset` None: the row alone; otherwise the log stands for the payload, too, as long as it keeps that
    offset.
    """

    first_id: int
    message_count: int
    is_shared: bool
    offset: int | None


def holds_none(row: Row) -> Iterable[HeldPayloads]:
    """Return nothing: the row stands for no payload."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    """A kind of record whose keys begin with a queue ID: it belongs to a log, named by its queue, or to a
    group's place in one.

    `held`: the payloads that are let go of with a row, `rows_per_step` as many rows as are deleted before
    others have their turn.

    Of those that a rule is restored from a start reads every row, or, of the rows whose keys have the same
    first `run_fields` fields, only the first, and the last if it `reads_last`.
    """

    record: Record[..., Any, ..., Any]
    held: Callable[[Row], Iterable[HeldPayloads]] = holds_none
    rows_per_step: int = limits.REMOVAL_ROWS_PER_STEP
    run_fields: int | None = None
    reads_last: bool = False
