"""Streams of a shard in this process."""

from __future__ import annotations

from broker.engine.answers import Answer
from broker.engine.local.queues import find
from broker.engine.shard import Shard
from queue_manager.api import StreamStart, StreamStatus
from queue_manager.errors import InvalidArgument
from queue_manager.queue.stream import Stream


class LocalStreams:
    """As `StreamClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def status(
        self, queue: str, caller: str, *, group: str | None, start: StreamStart | None
    ) -> Answer[StreamStatus]:
        """See `StreamClient.status`."""
        return Answer.of(lambda: self._status(queue, caller, group, start))

    def _status(self, queue: str, caller: str, group: str | None, start: StreamStart | None) -> StreamStatus:
        stream = find(self._shard, queue, caller)
        if not isinstance(stream, Stream):
            raise InvalidArgument(f"queue {queue!r} is no stream")
        committed = None if group is None else self._shard.manager.anchor_group(stream, group, start)
        place = None if start is None or group is not None else stream.stream_log.place(start)
        end = stream.log.durable_offset  # a crash may give those beyond it anew
        if place is not None:
            place = min(place, end)
        return StreamStatus(min(stream.log.head_offset, end), end, committed, place)

    def commit_offset(self, queue: str, caller: str, group_id: str, offset: int) -> Answer[None]:
        """See `StreamClient.commit_offset`."""
        return Answer.of(
            lambda: self._shard.manager.commit_offset(find(self._shard, queue, caller), group_id, offset)
        )
