"""A stream: a queue whose messages stay until retention takes them, however often they were read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager.errors import LimitReached
from queue_manager.group import Group
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue
from queue_manager.removal import StreamTrim
from queue_manager.streams.chunks import Chunks
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.reading import StreamReader
from queue_manager.streams.start import FIRST, LAST, NEXT, OFFSET, TIMESTAMP, StreamStart
from storage.envelope import EnvelopeTemplate
from storage.records import queue_meta, stream_chunk
from storage.records.stream_chunk import ChunkValue

if TYPE_CHECKING:
    from queue_manager.journal import Journal


class Stream(Queue):
    """A durable queue that is read, not emptied.

    `chunks` say what it consists of. What lies below `head_offset` may not be read any more; a `StreamTrim`
    deletes it, log entries together with their payloads.
    """

    __slots__ = ("_group_number", "chunks", "reader")

    lets_expire = False

    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args, **fields)  # type: ignore[arg-type]
        self.chunks = Chunks()
        self.reader = StreamReader(self)
        self._group_number = 0

    def restore(self, rows: list[tuple[int, ChunkValue]], now_ms: int) -> None:
        """Take over the chunks that were written, and go on letting go of what is too much."""
        self.released_known = True
        self.chunks.restore(rows, self.head_offset)
        self.manager.removals.append(StreamTrim(self))  # what a crash kept from being deleted
        self.retain(now_ms)

    # groups

    def new_group(
        self, name: str, pattern: str, position: int, cursor_sequence: int, selector: str = ""
    ) -> Group:
        """See `Queue.new_group`; without a name it is one consumer's own."""
        return StreamGroup(self, name, pattern, position, cursor_sequence, selector, anonymous=not name)

    def group(self, name: str, pattern: str = MATCH_ALL, selector: str = "") -> Group:
        """The group, made (at the oldest message) if it is not there; without a name always a new one."""
        if name:
            return super().group(name, pattern, selector)
        if len(self.groups) >= limits.GROUPS_PER_QUEUE_MAX:
            raise LimitReached(f"stream {self.name!r} has {limits.GROUPS_PER_QUEUE_MAX} consumer groups")
        self._group_number += 1
        group = self.new_group("", pattern, self.head_offset, self.head_sequence, selector)
        self.groups[f"\x1f{self._group_number}"] = group
        return group

    def forget_group(self, group: StreamGroup) -> None:
        """A nameless group ended with its consumer."""
        for key, known in self.groups.items():
            if known is group:
                del self.groups[key]
                break
        self.manager.dispatchable.pop(group, None)

    def primary_committed(self) -> int:
        """The offset below which the primary group is done with everything; the head while there is none."""
        group = self.groups.get(self.policy.primary_group)
        return self.head_offset if group is None else cast(StreamGroup, group).committed_offset()

    def ready_count(self) -> int:
        """Messages in the stream."""
        return self.tail.next_offset - self.head_offset

    def depth(self) -> int:
        """Messages in the stream."""
        return self.tail.next_offset - self.head_offset

    def waiting_count(self) -> int:
        """Messages in the stream."""
        return self.tail.next_offset - self.head_offset

    # appending

    def append(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], body_bytes: int, now_ms: int
    ) -> None:
        """Append one message per body; chunks end where they are full."""
        for first, last, part_bytes in self._parts(bodies, body_bytes, now_ms):
            super().append(template, first_id + first, bodies[first:last], part_bytes, now_ms)
        self.retain(now_ms)

    def append_varied(
        self,
        templates: list[EnvelopeTemplate],
        first_id: int,
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
    ) -> None:
        """As `append`, each message with its own template."""
        for first, last, part_bytes in self._parts(bodies, body_bytes, now_ms):
            part = bodies[first:last]
            super().append_varied(templates[first:last], first_id + first, part, part_bytes, now_ms)
        self.retain(now_ms)

    def _parts(self, bodies: list[bytes], body_bytes: int, now_ms: int) -> Iterator[tuple[int, int, int]]:
        """What goes into one chunk each, as (first, end, bytes); appended before the next is asked for."""
        chunks = self.chunks
        policy = self.policy
        count = len(bodies)
        newest = chunks.newest()
        if (
            policy.retention_age_ms
            and newest is not None
            and chunks.is_open
            and newest.first_ms + policy.retention_age_ms // limits.STREAM_CHUNKS_PER_LIMIT <= now_ms
        ):
            self._close_chunk()
        chunk_bytes, chunk_count = chunks.sizes(policy.retention_bytes, policy.retention_count)
        step = count
        if count > chunk_count or (count > 1 and body_bytes > chunk_bytes):
            step = max(1, min(chunk_count, count * chunk_bytes // max(1, body_bytes)))
        for first in range(0, count, step):
            last = min(first + step, count)
            part_bytes = body_bytes if step == count else sum(map(len, bodies[first:last]))
            chunk = chunks.add(self.tail.next_offset, last - first, part_bytes, now_ms)
            yield first, last, part_bytes
            if chunk.count >= chunk_count or chunk.payload_bytes >= chunk_bytes:
                self._close_chunk()

    def _close_chunk(self) -> None:
        self.open_entries.close(self.tail.next_offset)
        self.chunks.close()

    def log_written(self, journal: Journal) -> None:
        """Write down the chunks that grew with this commit."""
        unwritten = self.chunks.unwritten
        for chunk in unwritten:
            if chunk.sequence < 0:
                sequence = self.sequence_at(chunk.first_offset)
                assert sequence is not None
                chunk.sequence = sequence
            journal.put(stream_chunk.key(self.name, chunk.first_offset), stream_chunk.encode(chunk.value()))
        unwritten.clear()

    def sequence_for(self, offset: int) -> int:
        """A log sequence at or before the entry that holds `offset`."""
        chunk = self.chunks.find(offset)
        known = self.sequence_at(offset) or 0
        return max(self.head_sequence, known, 0 if chunk is None else chunk.sequence)

    # retention

    def place(self, start: StreamStart) -> int:
        """The offset where `start` is; for a time that of the chunk it is in: nothing earlier is so late."""
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

    def retain(self, now_ms: int) -> None:
        """Let go of the oldest chunks as far as the policy's limits say."""
        policy = self.policy
        chunks = self.chunks
        bytes_max, count_max, age_ms = (
            policy.retention_bytes,
            policy.retention_count,
            policy.retention_age_ms,
        )
        end = self.head_offset
        count, payload_bytes = chunks.count, chunks.payload_bytes
        for chunk in chunks.oldest_first():
            is_newest = chunk.first_offset + chunk.count == self.tail.next_offset
            too_many = (bytes_max and payload_bytes > bytes_max) or (count_max and count > count_max)
            too_old = age_ms and chunk.last_ms + age_ms <= now_ms
            if not too_old and (not too_many or is_newest):
                break
            count -= chunk.count
            payload_bytes -= chunk.payload_bytes
            end = chunk.first_offset + chunk.count
        if end > self.head_offset:
            self.cut(end)
        oldest = chunks.oldest()
        if age_ms and oldest is not None:
            self.manager.timers.set(self, oldest.last_ms + age_ms)

    def on_timer(self, now_ms: int) -> None:
        """What has become too old goes."""
        if not self.deleted:
            self.retain(now_ms)

    def cut(self, end: int) -> None:
        """Let go of everything below `end`, which is where a chunk ends."""
        if end <= self.head_offset:
            return
        newest = self.chunks.newest()
        if newest is not None and newest.first_offset + newest.count == end and self.chunks.is_open:
            self._close_chunk()
        self.chunks.drop_before(end)
        self.head_offset = end
        self.tail.drop_before(end)
        self.reader.forget_before(end)
        self.manager.journal.put(queue_meta.key(self.name), queue_meta.encode(end, self.head_sequence))
        self.manager.removals.append(StreamTrim(self))

    def kept_from(self) -> int:
        """See `Queue.kept_from`."""
        return 0

    # memory

    def block_left(self) -> None:
        """A group let go of what it was reading: the last one has no use for what was read."""
        if not any(cast(StreamGroup, group).is_replaying for group in self.groups.values()):
            self.reader.forget()

    def watch_use(self) -> None:
        """Nobody needs to use a stream; but have its limits looked at, which may have changed."""
        if self.policy.retention_age_ms or self.policy.retention_bytes or self.policy.retention_count:
            self.manager.timers.set(self, 0)

    def trim_tail(self, bytes_max: int) -> None:
        """Forget durable messages beyond `bytes_max`, or most of them when every reader is past them."""
        tail = self.tail
        if not len(tail):
            return
        readers = [group.position for group in self.groups.values() if group.consumers]
        if not readers or min(readers) >= self.durable_offset:
            manager = self.manager
            share = manager.cache_bytes_max // max(1, len(manager.tailed))
            bytes_max = min(bytes_max, limits.STREAM_IDLE_TAIL_BYTES, share)
        tail.drop_bytes(bytes_max, self.durable_offset)
