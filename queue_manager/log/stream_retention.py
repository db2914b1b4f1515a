"""The retention of a stream: chunks go as a whole when they are too old, or when there are too many."""

from __future__ import annotations

from config import limits
from queue_manager.log.members import M
from queue_manager.log.removals import StreamTrim
from queue_manager.log.retention import Retention
from queue_manager.log.stream_blocks import StreamBlocks
from queue_manager.log.stream_log import StreamLog


class StreamRetention(Retention[M]):
    """The ledger of a stream's log: nothing is released but by its limits."""

    __slots__ = ("blocks",)

    log: StreamLog

    def __init__(self, log: StreamLog) -> None:
        super().__init__(log)
        self.blocks = StreamBlocks(log, self._is_replayed)

    def _is_replayed(self) -> bool:
        first_offset = self.log.tail.first_offset
        return any(m.has_consumers() and m.progress.position < first_offset for m in self.members.values())

    def delete(self) -> None:
        super().delete()
        self._context.timers.forget(self)
        self.blocks.forget()

    def begin_unknown(self) -> None:
        """Do nothing: what a stream let go of lies below the head."""

    def retain(self, now_ms: int) -> None:
        """Let go of the oldest chunks as far as the policy's limits say."""
        log = self.log
        policy = log.policy
        chunks = log.chunks
        bytes_max, count_max, age_ms = (
            policy.retention_bytes,
            policy.retention_count,
            policy.retention_age_ms,
        )
        end = log.head_offset
        count, payload_bytes = chunks.count, chunks.payload_bytes
        for chunk in chunks.oldest_first():
            is_newest = chunk.first_offset + chunk.count == log.tail.next_offset
            too_many = (bytes_max and payload_bytes > bytes_max) or (count_max and count > count_max)
            too_old = age_ms and chunk.last_ms + age_ms <= now_ms
            if not too_old and (not too_many or is_newest):
                break
            count -= chunk.count
            payload_bytes -= chunk.payload_bytes
            end = chunk.first_offset + chunk.count
        if end > log.head_offset:
            self.cut(end)
        oldest = chunks.oldest()
        if age_ms and oldest is not None:
            self._context.timers.set(self, oldest.last_ms + age_ms)

    def watch_limits(self) -> None:
        """Have the limits looked at, which may have changed."""
        policy = self.log.policy
        if policy.retention_age_ms or policy.retention_bytes or policy.retention_count:
            self._context.timers.set(self, 0)

    def on_timer(self, now_ms: int) -> None:
        """Let go of what has become too old."""
        if not self.log.deleted:
            self.retain(now_ms)

    def cut(self, end: int) -> None:
        """Let go of everything below `end`, which is where a chunk ends."""
        log = self.log
        if end <= log.head_offset:
            return
        newest = log.chunks.newest()
        if newest is not None and newest.first_offset + newest.count == end and log.chunks.is_open:
            log.close_chunk()
        log.chunks.drop_before(end)
        log.drop_before(end)
        self.blocks.forget_before(end)
        self.log.write_head()
        self.want_removal_below_head()

    def want_removal_below_head(self) -> None:
        """Have what lies below the head deleted."""
        self._context.removals.append(StreamTrim(self.log))

    def trim_tail(self, tail_bytes_max: int) -> bool:
        """See `InMemory`: most goes when every reader is past it."""
        log = self.log
        tail = log.tail
        if not len(tail):
            return False
        readers = [m.progress.position for m in self.members.values() if m.has_consumers()]
        if not readers or min(readers) >= log.durable_offset:
            share = self._context.cache_bytes_max // max(1, len(self._context.tailed))
            tail_bytes_max = min(tail_bytes_max, limits.STREAM_IDLE_TAIL_BYTES, share)
        tail.drop_bytes(tail_bytes_max, log.durable_offset)
        return len(tail) > 0 and not log.deleted
