"""What was appended to a queue's log since the last commit, as it will be written."""

from __future__ import annotations

from config import limits
from storage.envelope import EnvelopeTemplate, encode_metadata_block, encode_varied_elements
from storage.records import metadata


class OpenEntries:
    """Log entries of one queue: `rows` (first offset and record), and one that is still open.

    An entry holds at most `limits.LOG_ENTRY_MESSAGES_MAX` messages and ends once it has
    `limits.LOG_ENTRY_BYTES_MAX`.
    """

    __slots__ = ("_blocks", "_bytes", "_count", "rows")

    def __init__(self) -> None:
        self.rows: list[tuple[int, bytes]] = []
        self._blocks: list[bytes] = []
        self._count = 0
        self._bytes = 0

    def add(self, template: EnvelopeTemplate, first_id: int, offset: int, now_ms: int, count: int) -> None:
        """Add messages alike, the first of them at `offset`."""
        entry_count_max = max(
            1, min(limits.LOG_ENTRY_MESSAGES_MAX, limits.LOG_ENTRY_BYTES_MAX // template.envelope_bytes)
        )
        while count:
            part = min(count, entry_count_max - self._count) if self._count < entry_count_max else 0
            if part == 0:
                self.close(offset)
                continue
            block = encode_metadata_block(template, first_id, offset, now_ms, part)
            self._blocks.append(block)
            self._count += part
            self._bytes += len(block)
            first_id += part
            offset += part
            count -= part
            if self._count >= limits.LOG_ENTRY_MESSAGES_MAX or self._bytes >= limits.LOG_ENTRY_BYTES_MAX:
                self.close(offset)

    def add_varied(self, templates: list[EnvelopeTemplate], first_id: int, offset: int, now_ms: int) -> None:
        """Add messages with templates of their own, the first of them at `offset`."""
        elements = encode_varied_elements(templates, first_id, offset, now_ms)
        start = 0
        size = self._bytes
        room = limits.LOG_ENTRY_MESSAGES_MAX - self._count
        for index, element in enumerate(elements):
            size += len(element)
            if index - start + 1 >= room or size >= limits.LOG_ENTRY_BYTES_MAX:
                self._blocks += elements[start : index + 1]
                self._count += index + 1 - start
                self.close(offset + index + 1)
                start = index + 1
                size = 0
                room = limits.LOG_ENTRY_MESSAGES_MAX
        self._blocks += elements[start:]
        self._count += len(elements) - start
        self._bytes = size

    def close(self, end_offset: int) -> None:
        """End the open entry; the messages in it end before `end_offset`."""
        if self._count:
            value = metadata.join_metadata(self._count, self._blocks)
            self.rows.append((end_offset - self._count, value))
            self._blocks = []
            self._count = 0
            self._bytes = 0

    def take(self, end_offset: int) -> list[tuple[int, bytes]]:
        """Everything, to be written; the log ends at `end_offset`."""
        self.close(end_offset)
        rows = self.rows
        if rows:
            self.rows = []
        return rows
