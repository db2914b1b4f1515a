"""Events, published once a turn to `amq.rabbitmq.event` under RabbitMQ's routing keys and headers."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

from broker.clock import Clock
from broker.engine.client import ShardClient
from broker.process.counters import Counters
from broker.properties import amqp
from queue_manager.api import EVENT_EXCHANGE, Event
from queue_manager.errors import InvalidArgument
from queue_manager.outcomes import ACCEPTED, UNROUTED
from storage.envelope import PROPERTIES_AMQP


class EventExchange:
    """Publishes what was noted at the engine, from its construction on."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, client: ShardClient, counters: Counters
    ) -> None:
        """`client` is that of the virtual host `/`, where the exchange is."""
        self._loop = loop
        self._clock = clock
        self._client = client
        self._counters = counters
        self._noted = client.events
        client.events.on_noted(self._schedule)

    def _schedule(self) -> None:
        self._loop.call_soon(self._publish)

    def _publish(self) -> None:
        """Publish what was noted."""
        now_ms = self._clock.now_ms()
        events, dropped_count = self._noted.take()
        outcomes = [self._publish_one(event, now_ms) for event in events]
        refused_count = sum(outcome not in (ACCEPTED, UNROUTED) for outcome in outcomes)
        self._counters.publish_events(outcomes.count(ACCEPTED), dropped_count + refused_count)
        self._client.turns.settle()

    def _publish_one(self, event: Event, now_ms: int) -> int:
        """Publish an event; the outcome, as `PublishingClient.publish` gives it."""
        targets = self._noted.route(event)
        if not targets:
            return UNROUTED
        publishing = self._client.publishing
        raw = _properties(event, now_ms)
        plan = publishing.plan(event.key, PROPERTIES_AMQP, raw, True, exchange=EVENT_EXCHANGE)
        publishing.aim(plan, targets)
        return publishing.publish(plan, [b""], now_ms)


def _properties(event: Event, now_ms: int) -> bytes:
    """Return the properties of an event; headers that no field table takes are told as JSON."""
    fields = {"timestamp": datetime.fromtimestamp(now_ms // 1000, UTC)}
    headers = {**event.headers, "timestamp_in_ms": now_ms}
    try:
        return amqp.write_fields(True, fields, headers)
    except InvalidArgument:
        plain = {
            name: value if isinstance(value, bool | int | str) else json.dumps(value, default=str)
            for name, value in headers.items()
        }
        return amqp.write_fields(True, fields, plain)
