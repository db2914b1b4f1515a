"""How the records that belong to a log, or to a group's place in one, are found and taken away.

A rule states the types of its records and how a start restores it from them (`RuleRecords`). What reads the
store at a start, and what deletes the records of a queue that is gone, walks these statements
(`queue_manager.queue.records`) and names no record itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from config import limits

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
    """The row stands for no payload."""
    return ()


class Prefix(Protocol):
    """What the keys of one owner's records begin with; without an owner, those of all."""

    def __call__(self, owner: str, /) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordType:
    """One type of record. `prefix(owner)`: what its keys begin with that belong to a log, named by its
    queue, or to a group's place in one, named by its queue ID.

    `held`: the payloads that are let go of with a row, `rows_per_step` as many rows as are deleted before
    others have their turn.
    """

    prefix: Prefix
    held: Callable[[Row], Iterable[HeldPayloads]] = holds_none
    rows_per_step: int = limits.REMOVAL_ROWS_PER_STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredType(RecordType):
    """A type that a rule is restored from: all its keys begin with `everything`, `owner_of` gives the owner
    in one.

    `run_of`: of the rows whose keys begin alike up to there a start reads only the first, and the last if it
    `reads_last`; None: every row.
    """

    everything: bytes
    owner_of: Callable[[bytes], str]
    run_of: Callable[[bytes], bytes] | None = None
    reads_last: bool = False


Q = TypeVar("Q", contravariant=True)


class Restore(Protocol[Q]):
    """Builds a rule of a queue from its records."""

    def __call__(self, queue: Q, rows: Sequence[Sequence[Row]], now_ms: int, /) -> None:
        """`rows` are those found of each type, in order of their keys; called for every queue."""


@dataclass(frozen=True, slots=True)
class RuleRecords(Generic[Q]):
    """The records of one rule: those of logs, those of groups' places in them, and what a start does."""

    of_logs: tuple[RestoredType, ...]
    of_places: tuple[RestoredType, ...]
    restore: Restore[Q]

    @property
    def types(self) -> tuple[RestoredType, ...]:
        """All of them, as `restore` gets their rows."""
        return (*self.of_logs, *self.of_places)
