"""`$queue/<stream>/$stream-status`: which offsets there are, and where a group is.

Headers `x-group-id`, a group to be told about, and with it `x-stream-offset`, where to make the group if it
is not there; `x-stream-offset` alone asks which offset that place is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.amqp.delivery import GROUP_HEADER
from queue_manager import address
from queue_manager.errors import InvalidArgument
from queue_manager.queue import Queue
from queue_manager.streams.start import NAME as START_HEADER
from queue_manager.streams.start import parse_start
from queue_manager.streams.stream import Stream

if TYPE_CHECKING:
    from broker.hub import Hub


def status(hub: Hub, queue: Queue, headers: dict[str, Any], now_ms: int) -> dict[str, object]:
    """The oldest offset and the one to come; the committed one of a group, or that of a place."""
    if not isinstance(queue, Stream):
        raise InvalidArgument(f"queue {queue.name!r} is no stream")
    answer: dict[str, object] = {
        "status": "ok",
        "first": queue.head_offset,
        "next": queue.tail.next_offset,
    }
    start = parse_start(headers[START_HEADER], now_ms) if START_HEADER in headers else None
    group = headers.get(GROUP_HEADER)
    if group is not None:
        name = address.validate_group_name(str(group))
        answer["committed"] = hub.shard.manager.anchor_group(queue, name, start)
    elif start is not None:
        answer["offset"] = queue.place(start)
    return answer
