"""Publishing without a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.admin.views import Published
from broker.engine.client import PublishingClient
from broker.engine.traffic import PublishPlan
from broker.properties import amqp
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidAddress, LimitReached, QueueNotFound
from queue_manager.outcomes import ACCEPTED
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_NONE


def publish(
    publishing: PublishingClient,
    now_ms: int,
    address: str,
    body: bytes,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> Published:
    """Publish one message; see `Admin.publish`. It is durable when the open commit is."""
    plan = _plan(publishing, address, headers, persistent, fields)
    if addresses.is_queue_topic(address):
        if addresses.parse(address).verb:
            raise InvalidAddress(f"{address!r} is a control topic")
        targets = publishing.route(address, now_ms)
    else:
        targets = publishing.named(address)
        if not targets:
            raise QueueNotFound(f"no queue {address!r}")
    publishing.aim(plan, targets)
    outcome = publishing.publish(plan, [body], now_ms)
    if outcome != ACCEPTED:
        raise LimitReached(outcomes.REASONS[outcome])
    return Published(queues=tuple([addresses.local_name(queue.name) for queue in plan.queues]))


def publish_through(
    publishing: PublishingClient,
    now_ms: int,
    exchange: str,
    key: str,
    body: bytes,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> Published:
    """Publish one message to an exchange; see `Admin.publish_to_exchange`."""
    raw = amqp.write_fields(persistent, fields, headers)
    plan = publishing.plan(key, PROPERTIES_AMQP, raw, persistent, amqp.options_of(raw), exchange)
    if exchange:
        publishing.aim(plan, publishing.through(exchange, [key], lambda: dict(headers or {})))
    else:
        publishing.aim(plan, publishing.named(key))
    outcome = publishing.publish(plan, [body], now_ms)
    if outcome not in (ACCEPTED, outcomes.UNROUTED):
        raise LimitReached(outcomes.REASONS[outcome])
    return Published(queues=tuple([addresses.local_name(queue.name) for queue in plan.queues]))


def _plan(
    publishing: PublishingClient,
    address: str,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> PublishPlan:
    if not headers and not fields:
        return publishing.plan(address, PROPERTIES_NONE, b"", persistent)
    raw = amqp.write_fields(persistent, fields, headers)
    return publishing.plan(address, PROPERTIES_AMQP, raw, persistent, amqp.options_of(raw))
