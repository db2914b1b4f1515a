"""Spans of a broker in process, collected by OpenTelemetry's exporter in memory."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from broker.app import Broker
from broker.clock import Clock
from broker.telemetry.exporting import Exporter
from broker.telemetry.telemetry import Telemetry, telemetry_of
from broker.telemetry.trace_context import Sampling, Span, Spans
from config import limits
from config.settings import Settings, TelemetrySettings
from config.settings_loader import ConfigError
from queue_manager.errors import LimitReached
from tests.unit.broker.telemetry.test_context import PARENT, SPAN, TRACE
from tests.unit.queue_manager.managers import Sink
from tests.waiting import until_so

TRACED = {"traceparent": PARENT, "tracestate": "a=1"}


async def spans_of(monkeypatch: pytest.MonkeyPatch, what: Any) -> list[Any]:
    """What a broker tells that traces while `what(broker)` goes on."""
    memory = InMemorySpanExporter()

    def opened(settings: TelemetrySettings, clock: Clock) -> Telemetry:
        return Telemetry(Exporter(memory), Sampling(settings.sample), clock)

    monkeypatch.setattr("broker.app.telemetry_of", opened)
    async with Broker(storage="memory:") as broker:
        await broker.admin.declare("work")
        await what(broker)
    return list(memory.get_finished_spans())


async def test_publish_delivery_and_settlement_are_told_as_children_of_the_publisher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.publish("work", b"abc", headers=TRACED)
        await broker.admin.publish("work", b"not traced")
        client, now_ms = broker.hub.client, broker.clock.now_ms()
        consuming = client.consuming
        sink = Sink()
        consuming.subscribe(
            consuming.find("work"),
            "",
            "#",
            sink,
            consumer_id="c",
            credit_max=10,
            no_ack=False,
            exclusive=False,
            lease_ms=30_000,
        )
        broker.hub.settle_turn()
        client.settling.ack(sink.claims[:2], now_ms)
        client.settling.ack(sink.claims[:1], now_ms)  # late: nothing is settled
        await broker.admin.publish("work", b"again", headers=TRACED)
        client.settling.reject(sink.claims[2:], now_ms)

    spans = await spans_of(monkeypatch, work)
    told = sorted((span.attributes["messaging.message.id"], span.name) for span in spans)
    assert told == [
        ("work:0", "ack work"),
        ("work:0", "deliver work"),
        ("work:0", "publish work"),
        ("work:2", "deliver work"),
        ("work:2", "publish work"),
        ("work:2", "reject work"),
    ]
    for span in spans:
        assert (span.context.trace_id, span.parent.span_id) == (int(TRACE, 16), int(SPAN, 16))
        assert span.context.trace_state.to_header() == "a=1"
        assert span.attributes["messaging.system"] == "sluicemq"
        assert span.attributes["messaging.destination.name"] == "work"
        assert span.end_time >= span.start_time
        assert span.kind == (SpanKind.PRODUCER if span.name.startswith("publish") else SpanKind.CONSUMER)
    assert len({span.context.span_id for span in spans}) == len(spans)
    types = {span.name.partition(" ")[0]: span.attributes["messaging.operation.type"] for span in spans}
    assert types == {"publish": "send", "deliver": "receive", "ack": "settle", "reject": "settle"}


async def test_refused_publish_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.pause("work")
        with pytest.raises(LimitReached):
            await broker.admin.publish("work", b"abc", headers=TRACED)

    [span] = await spans_of(monkeypatch, work)
    assert (span.status.status_code, "paused" in span.status.description) == (StatusCode.ERROR, True)


async def test_front_ends_have_the_plain_client_where_nothing_is_configured() -> None:
    async with Broker(storage="memory:") as broker:
        assert type(broker.hub.client).__name__ == "ShardClient"


def test_missing_library_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def refuse(name: str, *more: Any) -> Any:
        if name == "broker.telemetry.exporting":
            raise ImportError("No module named 'opentelemetry'")
        return imported(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ConfigError, match=r"sluicemq\[otel\].*opentelemetry"):
        telemetry_of(TelemetrySettings(otlp="http://localhost:4318"), Clock())
    assert telemetry_of(TelemetrySettings(), Clock()) is None


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://a", "http://", "http://me:secret@host"])
def test_url_that_leads_to_no_collector_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must"):
        Settings.model_validate({"telemetry": {"otlp": url}})


class SlowCollector(Exporter):
    """Takes spans once it may answer."""

    def __init__(self) -> None:
        super().__init__(InMemorySpanExporter())
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def export(self, spans: Sequence[Span]) -> bool:
        self.is_asked.set()
        return self.may_answer.wait(20)


@pytest.mark.parametrize("answers", [True, False])
async def test_spans_that_are_being_sent_at_the_end_are_taken_or_told_as_lost(
    monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_EXPORT_INTERVAL_S", 0)
    monkeypatch.setattr(limits, "TELEMETRY_EXPORT_TIMEOUT_S", 20 if answers else 0.05)
    collector = SlowCollector()
    monkeypatch.setattr(
        "broker.app.telemetry_of",
        lambda settings, clock: Telemetry(collector, Sampling(settings.sample), clock),
    )
    with capture_logs() as logged:
        async with Broker(storage="memory:") as broker:
            await broker.admin.declare("work")
            await broker.admin.publish("work", b"abc", headers=TRACED)
            await until_so(collector.is_asked.is_set)
            stopping = asyncio.create_task(broker.stop())
            if answers:
                collector.may_answer.set()
            await stopping
    collector.may_answer.set()
    told = [(line["spans"], line["reason"]) for line in logged if line["event"] == "telemetry.not_exported"]
    assert told == ([] if answers else [(1, "the collector did not answer in time")])


def test_spans_beyond_the_bound_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TELEMETRY_SPANS_MAX", 3)
    monkeypatch.setattr(limits, "TELEMETRY_EXPORT_SPANS", 2)
    spans = Spans()
    for number in range(5):
        spans.add(Span(operation="ack", parent=None, queue=str(number), start_ns=0, end_ns=0))  # type: ignore[arg-type]
    assert spans.dropped_count == 2
    assert [[span.queue for span in spans.take()] for _ in range(3)] == [["0", "1"], ["2"], []]
