"""Traces of one broker: a client that notes them, and a task that sends them away."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog

from broker.clock import Clock
from broker.engine.client import ShardClient
from broker.telemetry.trace_context import Sampling, Spans
from broker.telemetry.traced import TracedClient
from config import limits
from config.settings import TelemetrySettings
from config.settings_loader import ConfigError

if TYPE_CHECKING:
    from broker.telemetry.exporting import Exporter

_log: Final = structlog.get_logger("sluicemq.telemetry")


class Telemetry:
    """Begin with `trace`, then `start`; `stop` sends what is left."""

    def __init__(self, exporter: Exporter, sampling: Sampling, clock: Clock) -> None:
        self._exporter = exporter
        self._sampling = sampling
        self._clock = clock
        self._spans = Spans()
        self._thread = ThreadPoolExecutor(1, "telemetry")
        self._task: asyncio.Task[None] | None = None
        self._is_ending = asyncio.Event()
        self._told_dropped = 0

    def trace(self, client: ShardClient) -> ShardClient:
        """Return a client that does the same and notes what becomes of traced messages."""
        return TracedClient(client, self._sampling, self._spans, self._clock)

    def start(self) -> None:
        """Send what is noted, every `limits.TELEMETRY_EXPORT_INTERVAL_S`."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Send what is left, if the collector answers in time, and end."""
        self._is_ending.set()
        try:
            async with asyncio.timeout(limits.TELEMETRY_EXPORT_TIMEOUT_S):
                if self._task is not None:
                    await self._task
                await self._export_all()
        except TimeoutError:
            pass
        self._thread.submit(self._exporter.close)
        self._thread.shutdown(wait=False)

    async def _run(self) -> None:
        while not self._is_ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(limits.TELEMETRY_EXPORT_INTERVAL_S):
                    await self._is_ending.wait()
            await self._export_all()

    async def _export_all(self) -> None:
        loop = asyncio.get_running_loop()
        while spans := self._spans.take():
            try:
                taken = await loop.run_in_executor(self._thread, self._exporter.export, spans)
            except asyncio.CancelledError:
                reason = "the collector did not answer in time"
                _log.warning("telemetry.not_exported", spans=len(spans), reason=reason)
                raise
            except Exception as error:
                _log.warning("telemetry.not_exported", spans=len(spans), reason=str(error))
                return
            if not taken:
                _log.warning(
                    "telemetry.not_exported", spans=len(spans), reason="the collector did not take them"
                )
                return
        if self._spans.dropped_count > self._told_dropped:
            _log.warning("telemetry.dropped", spans=self._spans.dropped_count - self._told_dropped)
            self._told_dropped = self._spans.dropped_count


def telemetry_of(settings: TelemetrySettings, clock: Clock) -> Telemetry | None:
    """Return what the settings ask for; None: nothing. Raises ConfigError where a library is missing."""
    if not settings.otlp:
        return None
    try:
        from broker.telemetry.exporting import Exporter
    except ImportError as error:
        raise ConfigError(
            [f"telemetry.otlp needs OpenTelemetry: pip install 'sluicemq[otel]' ({error})"]
        ) from None
    return Telemetry(Exporter.to(settings.otlp), Sampling(settings.sample), clock)
