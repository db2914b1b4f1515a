"""Commits that are in the journal and not handed to the database yet, and what is left of them.

Most large values are messages that are settled soon: a later commit deletes them. What a later commit writes
or deletes needs not be handed over, for that commit is in the journal, too: a replay comes to it. So commits
with large values wait in *portions*, and the oldest is handed over first, without the large values that have
been replaced. Where some are replaced soon after they were handed over, portions wait longer for a while.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from config import limits
from storage.journal.frames import EndRecord

Rows = dict[bytes, bytes | None]
"""Operations by key; None deletes."""

ABSENT: Final = object()


@dataclass(eq=False, repr=False, slots=True)
class Portion:
    """Consecutive commits that are handed over together: their rows, and the last of them."""

    begun_s: float
    rows: Rows = field(default_factory=dict, init=False)
    last: EndRecord = field(default=EndRecord(0, 0), init=False)
    journal_bytes: int = field(default=0, init=False)
    """The bytes that the commits take up in the journal."""
    small_bytes: int = field(default=0, init=False)
    """The same but for large values."""
    held: dict[bytes, int] = field(default_factory=dict, init=False)
    """The large values that are left, with their sizes."""

    @property
    def is_full(self) -> bool:
        """Whether the next commit begins another: one with large values is left to wait for a while."""
        return bool(self.held) and self.journal_bytes >= limits.JOURNAL_PORTION_BYTES

    @property
    def size_bytes(self) -> int:
        """The bytes to be handed over."""
        return self.small_bytes + sum(self.held.values())

    def add(self, commit: EndRecord, rows: Rows, journal_bytes: int, held: dict[bytes, int]) -> None:
        """Take a commit; `held` has the sizes of its large values."""
        self.rows.update(rows)
        self.last = commit
        self.journal_bytes += journal_bytes
        self.small_bytes += journal_bytes
        if held:
            self.held |= held
            self.small_bytes -= sum(held.values())

    def leave_out(self, key: bytes) -> None:
        """Hand over nothing of a large value."""
        del self.held[key]
        del self.rows[key]

    def count_as_small(self, key: bytes) -> int:
        """Count a large value as one that is handed over in any case; returns its size."""
        size = self.held.pop(key)
        self.small_bytes += size
        return size


class Waiting:
    """All portions, oldest first."""

    def __init__(self) -> None:
        self._portions: deque[Portion] = deque()
        self._portion_of: dict[bytes, Portion] = {}  # of large values
        self._handed_over: deque[Iterable[bytes]] = deque(maxlen=limits.JOURNAL_PORTIONS_REMEMBERED)
        self._patient_until_s = 0.0  # large values are replaced soon, by what was seen
        self._held_bytes = 0  # of these
        self._small_bytes = 0
        self._viewer_count = 0
        self.journal_bytes = 0
        """The bytes that all of them take up in the journal."""

    def __bool__(self) -> bool:
        return bool(self._portions)

    @property
    def last(self) -> EndRecord | None:
        """The newest commit, if there is one."""
        return self._portions[-1].last if self._portions else None

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits that writers have to."""
        return (
            self._small_bytes >= limits.JOURNAL_PENDING_BYTES_MAX
            or self._held_bytes >= limits.JOURNAL_PENDING_LARGE_BYTES_MAX
        )

    @property
    def due_s(self) -> float:
        """When the oldest portion is to be handed over: 0 if at once. There must be one."""
        oldest = self._portions[0]
        if (
            oldest.small_bytes >= limits.JOURNAL_APPLY_BYTES
            or self.journal_bytes >= limits.JOURNAL_WAITING_BYTES
            or self.is_crowded
        ):
            return 0.0
        is_patient = oldest.held and oldest.begun_s < self._patient_until_s
        interval_ms = limits.JOURNAL_APPLY_PATIENCE_MS if is_patient else limits.JOURNAL_APPLY_INTERVAL_MS
        return oldest.begun_s + interval_ms / 1000

    def add(self, commit: EndRecord, rows: Rows, size_bytes: int, now_s: float) -> None:
        """Take a commit that takes up `size_bytes` in the journal."""
        if not self._portions or self._portions[-1].is_full:
            self._portions.append(Portion(now_s))
        portion = self._portions[-1]
        if self._forget_replaced(rows, portion) or self._were_handed_over(rows):
            self._patient_until_s = now_s + limits.JOURNAL_PATIENT_MS / 1000
        held: dict[bytes, int] = {}
        if size_bytes > limits.JOURNAL_LARGE_ROW_BYTES * len(rows):
            held = self._hold(rows, portion)
        portion.add(commit, rows, size_bytes, held)
        self.journal_bytes += size_bytes
        self._small_bytes += size_bytes - sum(held.values())

    def find(self, key: bytes) -> object:
        """Return the value of a key as of the newest commit, None if it is deleted; ABSENT if no commit has
        it.
        """
        for portion in reversed(self._portions):
            found = portion.rows.get(key, ABSENT)
            if found is not ABSENT:
                return found
        return ABSENT

    def take(self) -> Portion | None:
        """Take the oldest portion, which waits no more; None if there is none."""
        if not self._portions:
            return None
        portion = self._portions.popleft()
        self.journal_bytes -= portion.journal_bytes
        self._small_bytes -= portion.small_bytes
        for key, size in portion.held.items():
            del self._portion_of[key]
            self._held_bytes -= size
        if portion.held:
            self._handed_over.append(portion.held.keys())
        return portion

    @contextmanager
    def viewed(self) -> Iterator[None]:
        """Leave nothing out: somebody looks at the database, who is to see whole commits.

        What was left out before is nothing they see once all commits until now are handed over.
        """
        self._viewer_count += 1
        try:
            yield
        finally:
            self._viewer_count -= 1

    def _hold(self, rows: Rows, portion: Portion) -> dict[bytes, int]:
        """Account for the large values of a commit; gives their sizes."""
        held = {
            key: len(value)
            for key, value in rows.items()
            if value is not None and len(value) > limits.JOURNAL_LARGE_ROW_BYTES
        }
        self._portion_of |= dict.fromkeys(held, portion)
        self._held_bytes += sum(held.values())
        return held

    def _were_handed_over(self, rows: Rows) -> bool:
        """Return whether a commit replaces large values that were handed over just before; only the first
        such is told.
        """
        keys = rows.keys()
        if all(keys.isdisjoint(handed_over) for handed_over in self._handed_over):
            return False
        self._handed_over.clear()
        return True

    def _forget_replaced(self, rows: Rows, newest: Portion) -> bool:
        """Forget large values that a commit for the newest portion replaces; whether there are any."""
        if not self._portion_of:
            return False
        replaced = self._portion_of.keys() & rows.keys()
        for key in replaced:
            portion = self._portion_of.pop(key)
            self._held_bytes -= portion.held[key]
            if portion is newest or not self._viewer_count:
                portion.leave_out(key)
            else:
                self._small_bytes += portion.count_as_small(key)
        return bool(replaced)
