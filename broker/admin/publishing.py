"""Publishing without a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.access.login import Identity
from broker.admin.views import Published, PublishedThrough
from broker.engine.client import PublishingClient
from broker.properties import amqp
from broker.publication import with_properties as publication
from queue_manager import address as addresses
from queue_manager import outcomes
from queue_manager.errors import InvalidAddress, LimitReached, PreconditionFailed, QueueNotFound
from queue_manager.outcomes import ACCEPTED, UNROUTED


def publish(
    publishing: PublishingClient,
    now_ms: int,
    publisher: Identity,
    exchange: str,
    key: str,
    body: bytes,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> PublishedThrough:
    """Publish one message to an exchange ("": the default one); see `Admin.publish_to_exchange`. It is
    durable when the open commit is.
    """
    raw = amqp.write_fields(persistent, fields, headers)
    if not fields and not headers:
        raw = amqp.PERSISTENT if persistent else amqp.NONE
    plan = publication.plan_publication(
        publishing, publisher, exchange, key, raw, now_ms, persistent=persistent, mandatory=True
    )
    outcome = publishing.publish(plan, [body], now_ms)
    if outcome not in (ACCEPTED, UNROUTED):
        raise LimitReached(outcomes.REASONS[outcome])
    queues = tuple([addresses.local_name(queue.name) for queue in plan.queues])
    return PublishedThrough(queues=queues, is_routed=outcome != UNROUTED)


def publish_to_queue(
    publishing: PublishingClient,
    now_ms: int,
    publisher: Identity,
    address: str,
    body: bytes,
    headers: Mapping[str, Any] | None,
    persistent: bool,
    fields: Mapping[str, Any],
) -> Published:
    """As `publish`, to a queue by name or `$queue/...` address; see `Admin.publish`."""
    if addresses.is_queue_topic(address) and addresses.parse(address).verb:
        raise InvalidAddress(f"{address!r} is a control topic")
    published = publish(publishing, now_ms, publisher, "", address, body, headers, persistent, fields)
    if not published.is_routed:
        if published.queues:
            raise PreconditionFailed(f"no consumer group of {address!r} wants it: such messages are dropped")
        raise QueueNotFound(f"no queue {address!r}")
    return Published(queues=published.queues)
