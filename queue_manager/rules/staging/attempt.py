"""The rows one attempt has staged: what of them the open commit holds, and how many there are."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

from config import limits
from queue_manager.shard.commit import Commit
from queue_manager.stage_tags import StageTag
from storage.envelope import EnvelopeTemplate
from storage.records import staged_rows
from storage.records.staged_values import StagedRun


@dataclass(eq=False, slots=True)
class Attempt:
    """`is_ending`: its rows are being deleted, nothing may be added.

    `_runs` are the rows of its last record, which is written when the commit is closed or the record full.
    """

    queue_id: str
    tag: StageTag
    staged_at_ms: int
    row_count: int = 0
    byte_count: int = 0
    is_ending: bool = field(default=False, init=False)
    _runs: list[StagedRun] = field(default_factory=list, init=False)
    _first_row: int = field(init=False)
    _bytes_before: int = field(init=False)
    _open_rows: int = field(default=0, init=False)
    _open_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._first_row = self.row_count
        self._bytes_before = self.byte_count

    def add(
        self,
        template: EnvelopeTemplate,
        due_ms: int,
        first_id: int,
        bodies: list[bytes],
        body_bytes: int,
        commit: Commit,
        now_ms: int,
    ) -> bool:
        """Stage rows in the open commit; True if the attempt must be closed with it (`close`)."""
        envelope = template.head + bytes(16) + template.suffix
        self.staged_at_ms = now_ms
        was_open = bool(self._runs)
        while bodies:
            part, part_bytes = bodies, body_bytes
            if (
                len(part) > limits.STAGED_RECORD_ROWS_MAX - self._open_rows
                or part_bytes > limits.STAGED_RECORD_BYTES_MAX - self._open_bytes
            ):
                part, part_bytes = self._fitting(bodies)
            if part:
                if not self._runs:  # the place is held, so that the commit knows it has something to write
                    commit.puts[self._key()] = b""
                self._extend(envelope, due_ms, first_id, part, part_bytes)
                bodies, body_bytes = bodies[len(part) :], body_bytes - part_bytes
                first_id += len(part)
            if bodies:
                self.close(commit)
        return not was_open

    def add_varied(
        self,
        templates: list[EnvelopeTemplate],
        due_ms: int,
        first_id: int,
        bodies: list[bytes],
        commit: Commit,
        now_ms: int,
    ) -> bool:
        """Do as `add`, each row with a template of its own."""
        self.staged_at_ms = now_ms
        was_open = bool(self._runs)
        nothing = bytes(16)
        for message_id, template, body in zip(
            range(first_id, first_id + len(bodies)), templates, bodies, strict=True
        ):
            size = len(body)
            if self._open_rows >= limits.STAGED_RECORD_ROWS_MAX or (
                self._open_rows and self._open_bytes + size > limits.STAGED_RECORD_BYTES_MAX
            ):
                self.close(commit)
            if not self._runs:
                commit.puts[self._key()] = b""
            self._extend(template.head + nothing + template.suffix, due_ms, message_id, [body], size)
        return not was_open

    def _fitting(self, bodies: list[bytes]) -> tuple[list[bytes], int]:
        """As many of the first bodies as the open record has room for; one at least if it is empty."""
        sizes = list(accumulate(map(len, bodies[: limits.STAGED_RECORD_ROWS_MAX - self._open_rows])))
        count = bisect_right(sizes, limits.STAGED_RECORD_BYTES_MAX - self._open_bytes)
        if not count and not self._open_rows:
            count = 1
        return bodies[:count], sizes[count - 1] if count else 0

    def _extend(
        self, envelope: bytes, due_ms: int, first_id: int, bodies: list[bytes], body_bytes: int
    ) -> None:
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and last.first_id + len(last.bodies) == first_id
            and last.due_ms == due_ms
            and last.envelope == envelope
        ):
            last.bodies.extend(bodies)
        else:
            self._runs.append(StagedRun(envelope, due_ms, first_id, bodies[:]))
        self._open_rows += len(bodies)
        self._open_bytes += body_bytes
        self.row_count += len(bodies)
        self.byte_count += body_bytes

    def _key(self) -> bytes:
        return staged_rows.key(self.queue_id, *self.tag, self._first_row)

    def end(self) -> None:
        """Its rows go: into the log, or away."""
        self.is_ending = True

    def close(self, commit: Commit) -> None:
        """Write what was staged since the last time into the open commit."""
        if not self._runs:
            return
        commit.put(self._key(), staged_rows.encode(self._bytes_before, self.staged_at_ms, self._runs))
        self._runs = []
        self._first_row = self.row_count
        self._bytes_before = self.byte_count
        self._open_rows = self._open_bytes = 0
