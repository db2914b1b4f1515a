"""Publishing without a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from broker.admin.views import Published
from broker.properties import amqp
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidAddress, LimitReached
from queue_manager.outcomes import ACCEPTED
from queue_manager.plan import PublishPlan
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_NONE

if TYPE_CHECKING:
    from broker.engine.shard import Shard


def publish(
    shard: Shard,
    address: str,
    body: bytes,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> Published:
    """Publish one message; see `Admin.publish`. It is durable when the open commit is."""
    manager = shard.manager
    now_ms = shard.clock.now_ms()
    plan = _plan(shard, address, headers, persistent, fields)
    if addresses.is_queue_topic(address):
        if addresses.parse(address).verb:
            raise InvalidAddress(f"{address!r} is a control topic")
        plan.aim(manager, manager.route(address, now_ms))
    else:
        plan.aim(manager, (manager.queues.get(address) or manager.find(address),))
    outcome = manager.publish(plan, [body], now_ms)
    if outcome != ACCEPTED:
        raise LimitReached(outcomes.REASONS[outcome])
    return Published(queues=tuple([queue.name for queue in plan.queues]))


def _plan(
    shard: Shard, address: str, headers: Mapping[str, Any] | None, persistent: bool, fields: Mapping[str, Any]
) -> PublishPlan:
    if not headers and not fields:
        return shard.manager.plan(address, PROPERTIES_NONE, b"", persistent)
    raw = amqp.write_fields(persistent, fields, headers)
    return shard.manager.plan(address, PROPERTIES_AMQP, raw, persistent, amqp.options_of(raw))
