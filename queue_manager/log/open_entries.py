"""The messages appended to a queue's log since the last commit, as they will be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from config import limits
from storage.envelope import EnvelopeTemplate, encode_metadata_block, encode_varied_elements
from storage.records import metadata

_NO_RUN: Final = -1
_NO_TEMPLATE: Final = EnvelopeTemplate("")


@dataclass(eq=False, repr=False, slots=True)
class OpenEntries:
    """Log entries of one queue: `rows` (first offset and record), and one that is still open.

    An entry holds at most `limits.LOG_ENTRY_MESSAGES_MAX` messages and ends once it has
    `limits.LOG_ENTRY_BYTES_MAX`. Its last run, of messages alike, is encoded when it ends: publishes of one
    loop turn make one run, whichever connections they came from.
    """

    rows: tuple[tuple[int, bytes], ...] = field(default=(), init=False)
    _blocks: list[bytes] = field(default_factory=list, init=False)
    _count: int = field(default=0, init=False)  # messages of the open entry, with those of the run
    _bytes: int = field(default=0, init=False)  # without those of the run
    _run_begin: int = field(default=0, init=False)  # `_count` when the run began ...
    _run_end_max: int = field(default=0, init=False)  # ... and what it may become by the run
    _run_template: EnvelopeTemplate = field(default=_NO_TEMPLATE, init=False)
    _run_offset: int = field(default=0, init=False)
    _run_ms: int = field(default=0, init=False)
    _next_id: int = field(default=_NO_RUN, init=False)  # what the next message of the run would have

    def add(self, template: EnvelopeTemplate, first_id: int, offset: int, now_ms: int, count: int) -> None:
        """Add messages alike, the first of them at `offset`."""
        if (
            first_id != self._next_id
            or now_ms != self._run_ms
            or (template is not self._run_template and not template.is_like(self._run_template))
        ):
            self._begin_run(template, first_id, offset, now_ms)
        while self._count + count > self._run_end_max:
            part = self._run_end_max - self._count
            self._count += part
            first_id += part
            offset += part
            count -= part
            self._next_id = first_id
            self._begin_run(template, first_id, offset, now_ms)
        self._count += count
        self._next_id = first_id + count

    def _begin_run(self, template: EnvelopeTemplate, first_id: int, offset: int, now_ms: int) -> None:
        self._end_run(offset)
        fitting = max(1, (limits.LOG_ENTRY_BYTES_MAX - self._bytes) // template.envelope_bytes)
        self._run_begin = self._count
        self._run_end_max = min(limits.LOG_ENTRY_MESSAGES_MAX, self._count + fitting)
        self._run_template = template
        self._run_offset = offset
        self._run_ms = now_ms
        self._next_id = first_id

    def _end_run(self, end_offset: int) -> None:
        """Encode the run, and end the entry if it is full."""
        count = self._count - self._run_begin
        if count and self._next_id != _NO_RUN:
            block = encode_metadata_block(
                self._run_template, self._next_id - count, self._run_offset, self._run_ms, count
            )
            self._blocks.append(block)
            self._bytes += len(block)
        self._next_id = _NO_RUN
        if self._count >= limits.LOG_ENTRY_MESSAGES_MAX or self._bytes >= limits.LOG_ENTRY_BYTES_MAX:
            self._end_entry(end_offset)

    def add_varied(self, templates: list[EnvelopeTemplate], first_id: int, offset: int, now_ms: int) -> None:
        """Add messages with templates of their own, the first of them at `offset`."""
        self._end_run(offset)
        elements = encode_varied_elements(templates, first_id, offset, now_ms)
        start = 0
        size = self._bytes
        room = limits.LOG_ENTRY_MESSAGES_MAX - self._count
        for index, element in enumerate(elements):
            size += len(element)
            if index - start + 1 >= room or size >= limits.LOG_ENTRY_BYTES_MAX:
                self._blocks += elements[start : index + 1]
                self._count += index + 1 - start
                self._end_entry(offset + index + 1)
                start = index + 1
                size = 0
                room = limits.LOG_ENTRY_MESSAGES_MAX
        self._blocks += elements[start:]
        self._count += len(elements) - start
        self._bytes = size

    def close(self, end_offset: int) -> None:
        """End the open entry; the messages in it end before `end_offset`."""
        self._end_run(end_offset)
        if self._count:
            self._end_entry(end_offset)

    def _end_entry(self, end_offset: int) -> None:
        entry = (end_offset - self._count, metadata.join_metadata(self._count, self._blocks))
        self.rows += (entry,)
        self._blocks = []
        self._count = 0
        self._bytes = 0

    def take(self, end_offset: int) -> tuple[tuple[int, bytes], ...]:
        """Take everything, to be written; the log ends at `end_offset`."""
        self.close(end_offset)
        rows = self.rows
        self.rows = ()
        return rows
