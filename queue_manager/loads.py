"""What the queue manager wants read from the store; the driver reads it and brings it back.

The manager never waits: it puts requests on `QueueManager.loads`, whoever drives it performs them and
calls `QueueManager.log_loaded`, `payloads_loaded`, `rows_loaded` or `bodies_loaded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from queue_manager.model import Message

if TYPE_CHECKING:
    from queue_manager.group import Group


class LogLoad:
    """Read the queue's metadata log from `sequence` on: messages from `offset`, with their payloads."""

    __slots__ = ("group", "offset", "sequence")

    def __init__(self, group: Group, sequence: int, offset: int) -> None:
        self.group = group
        self.sequence = sequence
        self.offset = offset


class StreamLoad(LogLoad):
    """Read a stretch of a stream that is known to be small, up to offset `end` or a little more."""

    __slots__ = ("end",)

    def __init__(self, group: Group, sequence: int, offset: int, end: int) -> None:
        super().__init__(group, sequence, offset)
        self.end = end


class PayloadLoad:
    """Read the payloads of `messages`, whose envelopes are in memory."""

    __slots__ = ("group", "messages")

    def __init__(self, group: Group, messages: list[Message]) -> None:
        self.group = group
        self.messages = messages


class ScanLoad:
    """Read up to `limit` rows with `start <= key < end`, and call `then(rows, now_ms)`.

    Sees what was committed; what the open commits hold of the range the caller has to know itself.
    """

    __slots__ = ("end", "limit", "start", "then")

    def __init__(
        self,
        start: bytes,
        end: bytes | None,
        limit: int,
        then: Callable[[list[tuple[bytes, bytes]], int], None],
    ) -> None:
        self.start = start
        self.end = end
        self.limit = limit
        self.then = then


class BodiesLoad:
    """Read payloads of no particular group and call `then(bodies by message ID, read_count, now_ms)`.

    Those of the first `read_count` (at least one) of `message_ids` that are not in the answer do not exist.
    """

    __slots__ = ("message_ids", "then")

    def __init__(self, message_ids: list[int], then: Callable[[dict[int, bytes], int, int], None]) -> None:
        self.message_ids = message_ids
        self.then = then


Load = LogLoad | PayloadLoad | ScanLoad | BodiesLoad
