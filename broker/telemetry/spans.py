"""The spans of traced messages, in memory until it is exported."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from broker.telemetry.trace_context import TraceContext
from config import limits

Operation = Literal["publish", "deliver", "ack", "nack", "reject"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One thing that was done with messages. `problem` "": it came to what it should. `end_ns` 0: not yet.

    `message_id`: as deliveries name it, "" where it is not known or there are several.
    """

    operation: Operation
    parent: TraceContext
    queue: str
    start_ns: int
    end_ns: int = 0
    message_id: str = ""
    count: int = 1
    problem: str = ""
    attributes: dict[str, str | int] = field(default_factory=dict)


class Spans:
    """At most `limits.TELEMETRY_SPANS_MAX` of them; `dropped_count` came when there was no room."""

    def __init__(self) -> None:
        self._waiting: deque[Span] = deque()
        self.dropped_count = 0

    def add(self, span: Span) -> None:
        """Keep a span until it is taken."""
        if len(self._waiting) >= limits.TELEMETRY_SPANS_MAX:
            self.dropped_count += 1
        else:
            self._waiting.append(span)

    def take(self) -> list[Span]:
        """Take what waits, at most as many as are exported at a time."""
        count = min(len(self._waiting), limits.TELEMETRY_EXPORT_SPANS)
        return [self._waiting.popleft() for _ in range(count)]
