"""Which stretches a stream consists of: how much is in each, how old it is, where its log entries begin.

Retention lets go of whole chunks, readers find their place by them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from config import limits
from storage.records import ChunkValue


class Chunk:
    """Messages from `first_offset` on. `sequence` is -1 until its first log entry was written."""

    __slots__ = ("count", "first_ms", "first_offset", "last_ms", "payload_bytes", "sequence")

    def __init__(self, first_offset: int, value: ChunkValue) -> None:
        self.first_offset = first_offset
        self.sequence = value.first_sequence
        self.count = value.message_count
        self.payload_bytes = value.payload_bytes
        self.first_ms = value.first_ms
        self.last_ms = value.last_ms

    @classmethod
    def empty(cls, first_offset: int, now_ms: int) -> Chunk:
        """Make one that begins now."""
        return cls(first_offset, ChunkValue(-1, 0, 0, now_ms, now_ms))

    def add(self, count: int, payload_bytes: int, now_ms: int) -> None:
        """Add messages appended from `offset` on; gives the chunk that they are in."""
        self.count += count
        self.payload_bytes += payload_bytes
        self.last_ms = max(self.last_ms, now_ms)

    def value(self) -> ChunkValue:
        """Return what its record holds."""
        return ChunkValue(self.sequence, self.count, self.payload_bytes, self.first_ms, self.last_ms)


def _first_offset(chunk: Chunk) -> int:
    return chunk.first_offset


def _last_ms(chunk: Chunk) -> int:
    return chunk.last_ms


class Chunks:
    """The chunks of one stream, oldest first; the newest one may be open.

    `count` and `payload_bytes` are those of all together.
    """

    __slots__ = ("_rows", "count", "is_open", "payload_bytes", "unwritten")

    def __init__(self) -> None:
        self._rows: list[Chunk] = []
        self.is_open = False
        self.count = 0
        self.payload_bytes = 0
        self.unwritten: dict[Chunk, None] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def restore(self, rows: Iterable[tuple[int, ChunkValue]], head_offset: int) -> None:
        """Take over what the records say, (first offset, value) oldest first."""
        for first_offset, value in rows:
            if first_offset + value.message_count <= head_offset:
                continue  # its last log entry went without it
            self._rows.append(Chunk(first_offset, value))
            self.count += value.message_count
            self.payload_bytes += value.payload_bytes
        self.is_open = False

    def add(self, offset: int, count: int, payload_bytes: int, now_ms: int) -> Chunk:
        """Add messages appended to it."""
        if not self.is_open:
            now_ms = max(now_ms, self._rows[-1].last_ms) if self._rows else now_ms
            self._rows.append(Chunk.empty(offset, now_ms))
            self.is_open = True
        chunk = self._rows[-1]
        chunk.add(count, payload_bytes, now_ms)
        self.count += count
        self.payload_bytes += payload_bytes
        self.unwritten[chunk] = None
        return chunk

    def close(self) -> None:
        """Begin another with the next message."""
        self.is_open = False

    def take_unwritten(self) -> list[Chunk]:
        """Take the chunks that grew since the last call."""
        unwritten = list(self.unwritten)
        self.unwritten.clear()
        return unwritten

    def oldest_first(self) -> Iterator[Chunk]:
        """Yield all chunks in order."""
        return iter(self._rows)

    def oldest(self) -> Chunk | None:
        """Return the chunk retention would let go of next."""
        return self._rows[0] if self._rows else None

    def newest(self) -> Chunk | None:
        """Return the chunk that was added to last."""
        return self._rows[-1] if self._rows else None

    def find(self, offset: int) -> Chunk | None:
        """Return the chunk that holds `offset`, or the last one before it."""
        index = bisect_right(self._rows, offset, key=_first_offset)
        return self._rows[index - 1] if index else None

    def stretch(self, offset: int) -> tuple[Chunk, int] | None:
        """Return the chunk that holds `offset`, and the end of all that may be read together with it.

        None: there is none, or it is too large to be read at a time.
        """
        rows = self._rows
        index = bisect_right(rows, offset, key=_first_offset) - 1
        if index < 0 or rows[index].sequence < 0:
            return None
        first = rows[index]
        count, payload_bytes = first.count, first.payload_bytes
        if count > limits.STREAM_CHUNK_MESSAGES * 2 or payload_bytes > limits.STREAM_BLOCK_BYTES:
            return None
        for chunk in rows[index + 1 : index + 1 + limits.STREAM_CHUNK_MESSAGES]:
            count += chunk.count
            payload_bytes += chunk.payload_bytes
            if count > limits.STREAM_CHUNK_MESSAGES or payload_bytes > limits.STREAM_BLOCK_BYTES:
                return first, chunk.first_offset
        return first, first.first_offset + count

    def published_since(self, at_ms: int) -> Chunk | None:
        """Return the first chunk with messages of `at_ms` or later."""
        index = bisect_left(self._rows, at_ms, key=_last_ms)
        return self._rows[index] if index < len(self._rows) else None

    def drop_before(self, offset: int) -> list[Chunk]:
        """Forget the chunks that lie wholly below `offset`; gives them."""
        rows = self._rows
        gone = 0
        while gone < len(rows) and rows[gone].first_offset + rows[gone].count <= offset:
            chunk = rows[gone]
            self.count -= chunk.count
            self.payload_bytes -= chunk.payload_bytes
            self.unwritten.pop(chunk, None)
            gone += 1
        dropped = rows[:gone]
        del rows[:gone]
        if not rows:
            self.is_open = False
        return dropped

    def sizes(self, bytes_max: int, count_max: int) -> tuple[int, int]:
        """Return (payload bytes, messages) at which a chunk is full, for a stream of these limits (0:
        none).
        """
        chunk_bytes = max(limits.STREAM_CHUNK_BYTES, self.payload_bytes // limits.STREAM_CHUNKS_KEPT)
        chunk_count = max(limits.STREAM_CHUNK_MESSAGES, self.count // limits.STREAM_CHUNKS_KEPT)
        if bytes_max:
            chunk_bytes = max(1, min(chunk_bytes, bytes_max // limits.STREAM_CHUNKS_PER_LIMIT))
        if count_max:
            chunk_count = max(1, min(chunk_count, count_max // limits.STREAM_CHUNKS_PER_LIMIT))
        return chunk_bytes, chunk_count
