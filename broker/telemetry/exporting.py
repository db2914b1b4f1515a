"""Spans as OpenTelemetry has them, and their way to a collector. Needs the extra `sluicemq[otel]`."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from broker.telemetry.trace_context import Span
from broker.version import VERSION
from config import limits

SYSTEM: Final = "sluicemq"
TRACES_PATH: Final = "/v1/traces"

_TYPES: Final = {
    "publish": "send",
    "deliver": "receive",
    "ack": "settle",
    "nack": "settle",
    "reject": "settle",
}


class Exporter:
    """Gives spans to one of OpenTelemetry's exporters. It blocks: call it in a thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._ids = RandomIdGenerator()
        self._resource = Resource.create(
            {"service.name": SYSTEM, "service.version": VERSION, "host.name": socket.gethostname()}
        )
        self._scope = InstrumentationScope("sluicemq", VERSION)

    @classmethod
    def to(cls, url: str) -> Exporter:
        """Make an exporter to the collector at an OTLP URL; without a path: where collectors take traces."""
        endpoint = url if urlsplit(url).path.strip("/") else url.rstrip("/") + TRACES_PATH
        return cls(OTLPSpanExporter(endpoint, timeout=limits.TELEMETRY_EXPORT_TIMEOUT_S))

    def export(self, spans: Sequence[Span]) -> bool:
        """Export spans; returns whether they were taken."""
        made = [self._made(span) for span in spans]
        return self._exporter.export(made) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Let go of the collector."""
        self._exporter.shutdown()

    def _made(self, span: Span) -> ReadableSpan:
        parent = span.parent
        state = TraceState.from_header([parent.state])
        flags = TraceFlags(parent.flags)
        own = SpanContext(parent.trace_id, self._ids.generate_span_id(), False, flags, state)
        failed = Status(StatusCode.ERROR, span.problem) if span.problem else Status()
        return ReadableSpan(
            f"{span.operation} {span.queue}",
            own,
            SpanContext(parent.trace_id, parent.span_id, True, flags, state),
            self._resource,
            _attributes(span),
            kind=SpanKind.PRODUCER if span.operation == "publish" else SpanKind.CONSUMER,
            status=failed,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _attributes(span: Span) -> dict[str, str | int]:
    """Return attributes by the semantic conventions for messaging."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": span.operation,
        "messaging.operation.type": _TYPES[span.operation],
        "messaging.destination.name": span.queue,
        **span.attributes,
    }
    if span.message_id:
        attributes["messaging.message.id"] = span.message_id
    if span.count > 1:
        attributes["messaging.batch.message_count"] = span.count
    if span.problem:
        attributes["error.type"] = "refused"
    return attributes
