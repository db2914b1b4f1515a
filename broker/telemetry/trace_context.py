"""The trace of a message, as its publisher says in the header `traceparent`, and the spans of traced ones."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from broker.properties.templates import read
from config import limits
from storage.envelope import EnvelopeTemplate

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_MARK: Final = TRACEPARENT.encode()
_FORM: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED: Final = 0x01
_ID_BITS: Final = 64  # of a trace ID, that decide by chance


class TraceContext(NamedTuple):
    """A span that another one may be a child of."""

    trace_id: int
    span_id: int
    flags: int
    state: str


class Sampling:
    """Which messages are traced: a share of those whose publisher says so, whole traces at a time."""

    __slots__ = ("_bound",)

    def __init__(self, share: float) -> None:
        """`share`: 0 to 1."""
        self._bound = round(share * (1 << _ID_BITS))

    def context_of(self, template: EnvelopeTemplate) -> TraceContext | None:
        """Return the trace of messages of this template, if they are to be traced."""
        if _MARK not in template.properties:
            return None
        headers = read(template).header_values()
        context = parse(headers.get(TRACEPARENT), headers.get(TRACESTATE))
        if context is None or not context.flags & _SAMPLED:
            return None
        return context if context.trace_id % (1 << _ID_BITS) < self._bound else None


def parse(traceparent: object, tracestate: object = "") -> TraceContext | None:
    """Parse a `traceparent`; None for what is none, which is to be passed over (W3C, 4.3)."""
    found = _FORM.fullmatch(_text(traceparent))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(int(trace_id, 16), int(span_id, 16), int(flags, 16), _text(tracestate))


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("ascii", "replace")
    return value if isinstance(value, str) else ""


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
