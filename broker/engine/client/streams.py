"""Streams of a shard in this process."""

from __future__ import annotations

from broker.engine.answers import answered
from broker.engine.call_names import Name
from broker.engine.client.queues import find
from broker.engine.shard import Shard
from queue_manager.api import StreamStart, StreamStatus
from queue_manager.errors import InvalidArgument
from queue_manager.queue.stream import Stream


class StreamClient:
    """The calls that only streams have. All come to InvalidArgument of another queue, QueueNotFound,
    ResourceLocked.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @answered
    def status(
        self, queue: Name, caller: str, *, group: str | None, start: StreamStart | None
    ) -> StreamStatus:
        """Return which offsets there are, and the committed one of a group, which is made at `start` if it is
        not there; without a group the offset of `start`. Comes to InvalidAddress, LimitReached.
        """
        stream = find(self._shard, queue, caller)
        if not isinstance(stream, Stream):
            raise InvalidArgument(f"queue {queue!r} is no stream")
        committed = None if group is None else self._shard.manager.anchor_group(stream, group, start)
        place = None if start is None or group is not None else stream.log.place(start)
        end = stream.log.durable_offset  # a crash may give those beyond it anew
        if place is not None:
            place = min(place, end)
        return StreamStatus(min(stream.log.head_offset, end), end, committed, place)

    @answered
    def commit_offset(self, queue: Name, caller: str, group_id: str, offset: int) -> None:
        """Note that everything up to and with `offset` is done with in the group. Comes to GroupNotFound."""
        self._shard.manager.commit_offset(find(self._shard, queue, caller), group_id, offset)
