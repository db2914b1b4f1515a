"""Loads: the queue manager asks for records of the store; the driver reads them and brings them back.

The manager never waits: it puts requests on `Context.loads`, whoever drives it performs them and calls what
they name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Protocol

from queue_manager.model import Message


class LoadTarget(Protocol):
    """The object that asked for a part of a log."""

    @property
    def log_id(self) -> str:
        """The metadata log to read."""

    def log_end(self) -> int:
        """Return the offset below which everything has been durable: what the log does not have of it is
        gone.
        """

    def is_over(self) -> bool:
        """Return whether nothing is wanted any more."""

    def log_loaded(self, found: LogRows, now_ms: int) -> None:
        """Take what a `LogLoad` read."""

    def abandon(self, now_ms: int) -> None:
        """Tell who waits that nothing will be read."""


@dataclass(eq=False, slots=True)
class LogLoad:
    """Read a metadata log from `sequence` on: messages from `offset`, with their payloads."""

    target: LoadTarget
    sequence: int
    offset: int


class LogRows(NamedTuple):
    """The messages that a load found below `next_offset`; the rest of the log continues at `sequence`."""

    load: LogLoad
    messages: list[Message]
    next_offset: int
    sequence: int


@dataclass(eq=False, slots=True)
class StreamLoad(LogLoad):
    """Read a stretch of a stream that is known to be small, up to offset `end` or a little more."""

    end: int


@dataclass(eq=False, slots=True)
class ScanLoad:
    """Read up to `limit` rows with `start <= key < end`, and call `then(rows, now_ms)`.

    `reverse`: the last rows of the range, in falling order. Sees what was committed; what the open commits
    hold of the range the caller has to know itself.
    """

    start: bytes
    end: bytes | None
    limit: int
    then: Callable[[list[tuple[bytes, bytes]], int], None]
    _: KW_ONLY
    reverse: bool = False


@dataclass(eq=False, slots=True)
class BodiesLoad:
    """Read payloads and call `then(bodies by message ID, read_count, now_ms)`.

    Those of the first `read_count` (at least one) of `message_ids` that are not in the answer do not exist.
    """

    message_ids: list[int]
    then: Callable[[dict[int, bytes], int, int], None]


Load = LogLoad | ScanLoad | BodiesLoad
