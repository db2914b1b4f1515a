"""`$queue/<stream>/$stream-status`: which offsets there are, and where a group is.

Headers `x-group-id`, a group to be told about, and with it `x-stream-offset`, where to make the group if it
is not there; `x-stream-offset` alone asks which offset that place is.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.amqp.connection import header_names as names
from broker.engine.answers import Answer
from broker.engine.client.streams import StreamClient
from queue_manager import address
from queue_manager.api import StreamStatus
from queue_manager.log.stream_start import NAME as START_HEADER
from queue_manager.log.stream_start import parse_start


def status(
    streams: StreamClient, queue: str, caller: str, headers: dict[str, Any], now_ms: int
) -> Answer[dict[str, object] | None]:
    """Return the oldest offset and the one to come; the committed one of a group, or that of a place."""
    start = parse_start(headers[START_HEADER], now_ms) if START_HEADER in headers else None
    group = headers.get(names.GROUP)
    name = None if group is None else address.validate_group_name(str(group))
    found = streams.status(queue, caller, group=name, start=start)
    return found.map(partial(_told, name))


def _told(group: str | None, found: StreamStatus) -> dict[str, object] | None:
    answer: dict[str, object] = {"status": "ok", "first": found.first_offset, "next": found.next_offset}
    if group is not None:
        answer["committed"] = found.committed
    elif found.place is not None:
        answer["offset"] = found.place
    return answer
