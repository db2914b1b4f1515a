"""Deliveries of a stream, taken many at a time: of most streams each is like the one before.

They differ in tag, offset, time, message ID and body alone, and are as long as each other.
Once one was read field by field the next ones are compared with it as bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from spark_bridge import wire
from spark_bridge.client import Connection, Message
from spark_bridge.link import Content
from spark_bridge.settings import ConnectionSettings

PATIENCE_MAX: Final = 64
OFFSET: Final = "x-stream-offset"
TIMESTAMP: Final = "x-stream-timestamp"


@dataclass(slots=True)
class Run:
    """Messages alike but for what is listed here. `times_ms` since 1970; `tag` is that of the last one."""

    exchange: str
    routing_key: str
    properties: dict[str, Any]
    offsets: list[int]
    times_ms: list[int]
    message_ids: list[str | None]
    bodies: list[bytes]
    tag: int


class RunReader(Connection):
    """A connection that puts what it is delivered into `runs`, in the order in which it comes."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.runs: deque[Run] = deque()
        self._pattern: _Pattern | None = None
        self._patience = 1  # every how many messages one is taken for a pattern
        self._ignored = 0
        super().__init__(settings)

    def delivered(self, content: Content) -> None:
        """Take one message, and learn from it what the next ones may look like."""
        super().delivered(content)
        headers = self.deliveries[-1].properties.get("headers", {})
        if OFFSET not in headers:
            return  # an answer
        message = self.deliveries.pop()
        self._learn(content, message)
        self.runs.append(
            Run(
                message.exchange,
                message.routing_key,
                message.properties,
                [headers[OFFSET]],
                [headers[TIMESTAMP]],
                [message.properties.get("message_id")],
                [message.body],
                message.delivery_tag,
            )
        )

    def _learn(self, content: Content, message: Message) -> None:
        """Take this message for a pattern, less often where patterns were of no use."""
        if self._pattern is not None:
            self._patience = 1 if self._pattern.is_used else min(2 * self._patience, PATIENCE_MAX)
            self._pattern = None
            self._ignored = 0
        self._ignored += 1
        if self._ignored >= self._patience:
            self._pattern = _pattern(content, message)

    def taken(self, data: bytes, position: int) -> int:
        pattern = self._pattern
        if pattern is None:
            return position
        run = pattern.read(data, position)
        if run is None:
            return position
        self.runs.append(run)
        return position + pattern.layout.size * len(run.bodies)


class _Pattern:
    """The parts of a delivery: `constants`, and between them tag, two numbers, message ID and body."""

    __slots__ = ("constants", "is_time_first", "is_used", "layout", "message")

    def __init__(self, constants: list[bytes], id_bytes: int, is_time_first: bool, message: Message) -> None:
        self.constants = constants
        self.is_used = False
        self.is_time_first = is_time_first
        self.message = message
        a, b, c, d, e = map(len, constants)
        self.layout = struct.Struct(f">{a}sQ{b}sq{c}sq{d}s{id_bytes}s{e}s{len(message.body)}ss")

    def read(self, data: bytes, position: int) -> Run | None:
        """Read all deliveries like this one that begin at `position`, None for none."""
        before_tag, before_first, before_second, before_id, before_body = self.constants
        layout, end = self.layout, wire.FRAME_END
        count = (len(data) - position) // layout.size
        if not count or not data.startswith(before_tag, position):
            return None
        first: list[int] = []
        second: list[int] = []
        ids: list[bytes] = []
        bodies: list[bytes] = []
        last_tag = 0
        part = memoryview(data)[position : position + count * layout.size]
        for a, tag, b, one, c, two, d, message_id, e, body, f in layout.iter_unpack(part):
            if b != before_first or d != before_id or c != before_second or a != before_tag:
                break
            if e != before_body or f != end:
                break
            first.append(one)
            second.append(two)
            ids.append(message_id)
            bodies.append(body)
            last_tag = tag
        if not bodies:
            return None
        times_ms, offsets = (first, second) if self.is_time_first else (second, first)
        message = self.message
        self.is_used = True
        message_ids: list[str | None] = [message.properties.get("message_id")] * len(bodies)
        if ids[0]:
            message_ids = [message_id.decode(errors="replace") for message_id in ids]
        return Run(
            message.exchange,
            message.routing_key,
            message.properties,
            offsets,
            times_ms,
            message_ids,
            bodies,
            last_tag,
        )


def _pattern(content: Content, message: Message) -> _Pattern | None:
    """Return how the next delivery looks if it is like this one; None where that cannot be said."""
    head, header = content.head, content.header
    if len(content.parts) != 1:
        return None
    places = []
    for name in (TIMESTAMP, OFFSET):
        mark = wire.short(name) + b"l"
        if header.count(mark) != 1:
            return None
        places.append(header.index(mark) + len(mark))
    low, high = sorted(places)
    tag = 5 + head[4]
    rest = wire.frame(wire.METHOD, 1, head)[7 + tag + 8 :]
    header_head = wire.frame(wire.HEADER, 1, header)
    body_head = wire.frame(wire.BODY, 1, message.body)[:7]
    tail = header[high + 8 :]
    id_start, id_bytes = len(tail), 0
    message_id = message.properties.get("message_id")
    if message_id:
        mark = wire.short(message_id)
        if tail.count(mark) != 1:
            return None
        id_start, id_bytes = tail.index(mark) + 1, len(mark) - 1
    constants = [
        wire.frame(wire.METHOD, 1, head)[: 7 + tag],
        rest + header_head[: 7 + low],
        header[low + 8 : high],
        tail[:id_start],
        tail[id_start + id_bytes :] + wire.FRAME_END + body_head,
    ]
    return _Pattern(constants, id_bytes, places[0] == low, message)
