"""Offsets a group has claimed or passed out of order, as a bitmap in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from queue_manager.log.range_set import RangeSet
from queue_manager.shard.commit import Commit
from storage.records import claimed_bitmap
from storage.records.special_codecs import CHUNK_BITS, CHUNK_BYTES, CHUNK_OFFSETS, EVERYTHING

_LOW = CHUNK_OFFSETS - 1


class ClaimedBitmap:
    """The offsets claimed or passed at or beyond `position`, the lowest offset that was not.

    `count` is how many offsets that are. Full chunks share one object; a chunk is written when it changed,
    and its record deleted once the position is past it.
    """

    __slots__ = ("_chunks", "_unwritten", "_left", "_written", "count", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.count = 0
        self._chunks: dict[int, bytearray | bytes] = {}
        self._left: dict[int, int] = {}  # offsets not taken, by chunk
        self._unwritten: set[int] = set()
        self._written: set[int] = set()

    def contains(self, offset: int) -> bool:
        """Return whether `offset` was taken, or lies below the position."""
        if offset < self.position:
            return True
        chunk = self._chunks.get(offset >> CHUNK_BITS)
        return chunk is not None and chunk[(offset & _LOW) >> 3] >> (offset & 7) & 1 == 1

    def add(self, offsets: Iterable[int]) -> None:
        """Take offsets, each at or beyond the position; those taken already are passed over."""
        for offset in offsets:
            index = offset >> CHUNK_BITS
            chunk = self._chunk(index)
            byte = (offset & _LOW) >> 3
            bit = 1 << (offset & 7)
            if chunk[byte] & bit:
                continue
            chunk[byte] |= bit  # type: ignore[index]  # a full chunk has the bit
            self.count += 1
            self._left[index] -= 1
            self._unwritten.add(index)
            if not self._left[index]:
                self._chunks[index] = EVERYTHING
        self._advance()

    def add_range(self, start: int, end: int) -> None:
        """Take `[start, end)` as far as it is not below the position."""
        while (start := max(start, self.position)) < end:
            index = start >> CHUNK_BITS
            stop = min(end, (index + 1) << CHUNK_BITS)
            if stop - start == CHUNK_OFFSETS:
                self.count += self._left.get(index, CHUNK_OFFSETS)
                self._chunks[index] = EVERYTHING
                self._left[index] = 0
                self._unwritten.add(index)
            elif start == self.position and stop == end and not self.count:
                self.position = stop  # nothing was taken beyond it
            else:
                self.add(range(start, stop))
            start = stop
        self._advance()

    def next_free(self, offset: int) -> int:
        """Return the lowest offset at or beyond both `offset` and the position that was not taken."""
        offset = max(offset, self.position)
        while (chunk := self._chunks.get(offset >> CHUNK_BITS)) is not None:
            end = ((offset >> CHUNK_BITS) + 1) << CHUNK_BITS
            if chunk is EVERYTHING:
                offset = end
                continue
            while offset < end and chunk[(offset & _LOW) >> 3] >> (offset & 7) & 1:
                offset += 1
                if not offset & 7:
                    at = (offset - 1 & _LOW) // 8 + 1
                    offset += 8 * (CHUNK_BYTES - at - len(bytes(chunk[at:]).lstrip(b"\xff")))
            if offset < end:
                break
        return offset

    def ranges(self) -> RangeSet:
        """Return what was taken at or beyond the position."""
        found = RangeSet()
        for start, end in self._runs():
            found.add(max(start, self.position), end)
        return found

    def count_below(self, offset: int) -> int:
        """Return how many of those are below `offset`."""
        return sum(
            max(0, min(end, offset) - max(start, self.position))
            for start, end in self._runs()
            if start < offset
        )

    def move(self, position: int) -> None:
        """Note that everything below `position` is taken."""
        self.add_range(self.position, position)

    def _chunk(self, index: int) -> bytearray | bytes:
        chunk = self._chunks.get(index)
        if chunk is None:
            chunk = self._chunks[index] = bytearray(CHUNK_BYTES)
            self._left[index] = CHUNK_OFFSETS
        return chunk

    def _runs(self) -> Iterator[tuple[int, int]]:
        for index in sorted(self._chunks):
            chunk = self._chunks[index]
            first = index << CHUNK_BITS
            if chunk is EVERYTHING:
                yield first, first + CHUNK_OFFSETS
                continue
            bits = int.from_bytes(chunk, "little")
            low = 0
            while bits:
                skipped = (bits & -bits).bit_length() - 1
                bits >>= skipped
                low += skipped
                length = (~bits & (bits + 1)).bit_length() - 1
                yield first + low, first + low + length
                bits >>= length
                low += length

    def _advance(self) -> None:
        position = self.next_free(self.position)
        if position == self.position:
            return
        passed = range(self.position >> CHUNK_BITS, position >> CHUNK_BITS)
        self.count -= position - self.position
        self.position = position
        for index in passed:
            self._forget(index)
        if not self.count:
            self._forget(position >> CHUNK_BITS)

    def _forget(self, index: int) -> None:
        if self._chunks.pop(index, None) is not None:
            del self._left[index]
        if index in self._written:
            self._unwritten.add(index)
        else:
            self._unwritten.discard(index)

    # the store

    def flush(self, storage_id: str, commit: Commit) -> None:
        """Write the chunks that changed; the position has to go with them."""
        for index in self._unwritten:
            chunk = self._chunks.get(index)
            if chunk is None:
                commit.delete(claimed_bitmap.key(storage_id, index))
                self._written.discard(index)
            else:
                commit.put(claimed_bitmap.key(storage_id, index), claimed_bitmap.encode(chunk))
                self._written.add(index)
        self._unwritten.clear()

    def erase(self, storage_id: str, commit: Commit) -> None:
        """Delete every record of it."""
        for index in self._written:
            commit.delete(claimed_bitmap.key(storage_id, index))
        self._written.clear()
        self._unwritten.clear()

    def restore(self, index: int, bitmap: bytes) -> None:
        """Take over a chunk that was written, after a start."""
        self._written.add(index)
        self._unwritten.add(index)
        self._chunks[index] = EVERYTHING if bitmap == EVERYTHING else bytearray(bitmap)
        self._left[index] = CHUNK_OFFSETS - int.from_bytes(bitmap, "little").bit_count()
        below = max(0, min(CHUNK_OFFSETS, self.position - (index << CHUNK_BITS)))
        self.count += (int.from_bytes(bitmap, "little") >> below).bit_count()
        self._advance()
