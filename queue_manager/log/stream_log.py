"""The log of a stream: chunks say what it consists of, and readers find their place by them."""

from __future__ import annotations

from collections.abc import Iterator

from config import limits
from queue_manager.log.chunks import Chunks
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.stream_start import FIRST, LAST, NEXT, OFFSET, TIMESTAMP, StreamStart
from queue_manager.model import MessageBatch
from storage.records import ChunkValue, stream_chunk


class StreamLog(QueueLog):
    """A log whose messages stay, however often they were read.

    What lies below `head_offset` may not be read any more; a `StreamTrim` deletes it, log entries together
    with their payloads.
    """

    __slots__ = ("chunks",)

    def _prepare(self) -> None:
        self.chunks = Chunks()

    def restore(self, rows: list[tuple[int, ChunkValue]]) -> None:
        """Take over the chunks that were written."""
        self.chunks.restore(rows, self.head_offset)

    # appending

    def append(self, batch: MessageBatch) -> int:
        """Append as `QueueLog.append`; chunks end where they are full."""
        offset = self.tail.next_offset
        for part in self._parts(batch):
            super().append(part)
        return offset

    def _parts(self, batch: MessageBatch) -> Iterator[MessageBatch]:
        """Yield what goes into one chunk each; appended before the next is asked for."""
        chunks = self.chunks
        policy = self.policy
        count, body_bytes, now_ms = len(batch.bodies), batch.body_bytes, batch.now_ms
        newest = chunks.newest()
        if (
            policy.retention_age_ms
            and newest is not None
            and chunks.is_open
            and newest.first_ms + policy.retention_age_ms // limits.STREAM_CHUNKS_PER_LIMIT <= now_ms
        ):
            self.close_chunk()
        chunk_bytes, chunk_count = chunks.sizes(policy.retention_bytes, policy.retention_count)
        step = count
        if count > chunk_count or (count > 1 and body_bytes > chunk_bytes):
            step = max(1, min(chunk_count, count * chunk_bytes // max(1, body_bytes)))
        for first in range(0, count, step):
            part = batch if step == count else batch.part(first, first + step)
            chunk = chunks.add(self.tail.next_offset, len(part.bodies), part.body_bytes, now_ms)
            yield part
            if chunk.count >= chunk_count or chunk.payload_bytes >= chunk_bytes:
                self.close_chunk()

    def close_chunk(self) -> None:
        """Begin a new chunk with the next message."""
        self.end_entry()
        self.chunks.close()

    def write(self, now_ms: int) -> bool:
        """See `QueueLog.write`; the chunks that grew go with it."""
        if not super().write(now_ms):
            return False
        commit = self.context.commit
        for chunk in self.chunks.take_unwritten():
            if chunk.sequence < 0:
                sequence = self.sequence_at(chunk.first_offset)
                assert sequence is not None
                chunk.sequence = sequence
            commit.put(stream_chunk.key(self.name, chunk.first_offset), stream_chunk.encode(*chunk.value()))
        return True

    # places

    def sequence_for(self, offset: int) -> int:
        """Return a log sequence at or before the entry that holds `offset`."""
        chunk = self.chunks.find(offset)
        known = self.sequence_at(offset) or 0
        return max(self.head_sequence, known, 0 if chunk is None else chunk.sequence)

    def place(self, start: StreamStart) -> int:
        """Return the offset where `start` is; for a time that of the chunk it is in: nothing earlier is so
        late.
        """
        head, end = self.head_offset, self.tail.next_offset
        if start.kind == FIRST:
            return head
        if start.kind == LAST:
            return max(head, end - 1)
        if start.kind == NEXT:
            return end
        if start.kind == OFFSET:
            return min(start.value, end)
        assert start.kind == TIMESTAMP
        chunk = self.chunks.published_since(start.value)
        return end if chunk is None else max(head, chunk.first_offset)
