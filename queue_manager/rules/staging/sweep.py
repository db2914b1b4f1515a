"""One walk over staged rows in the order of their keys: into the queue's log, or away."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from queue_manager.stage_tags import StageTag
from storage.encoding import prefix_end
from storage.records import staged_rows

NOT_COMMITTED: Final = -1


@dataclass(eq=False, slots=True)
class Sweep:
    """Rows below a prefix: those of `attempts` (part, attempt) go into the log, others are deleted.

    `number` is that of the epoch's record, NOT_COMMITTED if there is none to delete at the end. `left`: how
    many rows of `producer` are still to go into the log, `left_bytes` their payload. `tags`
    are the attempts that are gone in the end. `has_begun`: it is known to find all there is of it.
    """

    position: bytes  # the prefix at first
    tags: list[StageTag]
    producer: str = ""
    attempts: frozenset[tuple[int, str]] = frozenset()
    number: int = NOT_COMMITTED
    left: int = 0
    left_bytes: int = 0
    end: bytes | None = field(init=False)
    has_begun: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.end = prefix_end(self.position)

    @classmethod
    def of_attempt(cls, queue_id: str, tag: StageTag) -> Sweep:
        """Delete the rows of one attempt."""
        return cls(staged_rows.prefix(queue_id, *tag), [tag])

    def begin(self) -> None:
        """Begin, now that all rows that are to be found are durable."""
        self.has_begun = True

    def passed(self, raw: bytes) -> None:
        """Note that a row was worked off."""
        self.position = raw + b"\x00"

    def moved(self, count: int, body_bytes: int) -> None:
        """Count rows that went into the log."""
        self.left -= count
        self.left_bytes -= body_bytes

    def only_delete(self) -> None:
        """Delete what is left: nothing more goes into the log."""
        self.number = NOT_COMMITTED
        self.attempts = frozenset()
        self.left = self.left_bytes = 0
