"""Messages that the broker itself publishes to the queue a client named in reply_to."""

from __future__ import annotations

import json

from broker.vhosts.hub import Hub
from protocols.amqp091 import content
from queue_manager.outcomes import ACCEPTED
from storage.envelope import PROPERTIES_AMQP, vary


def publish_reply(hub: Hub, reply_to: str, properties: bytes, body: bytes) -> bool:
    """Publish to that queue; False if it is not there any more, or does not take it."""
    publishing = hub.client.publishing
    targets = publishing.named(reply_to)
    if not targets:
        return False
    plan = publishing.plan(reply_to, PROPERTIES_AMQP, properties, False)
    publishing.aim(plan, targets)
    return publishing.publish(plan, [body], hub.clock.now_ms()) == ACCEPTED


def publish_replies(hub: Hub, reply_to: str, properties: list[bytes], bodies: list[bytes]) -> bool:
    """Publish as `publish_reply`, several messages; all of them or none are taken."""
    publishing = hub.client.publishing
    targets = publishing.named(reply_to)
    if not targets:
        return False
    plan = publishing.plan(reply_to, PROPERTIES_AMQP, b"", False)
    publishing.aim(plan, targets)
    templates = vary(plan.template, properties, [False] * len(properties))
    return publishing.publish(plan, bodies, hub.clock.now_ms(), templates) == ACCEPTED


def publish_json(hub: Hub, reply_to: str, correlation_id: str, answer: dict[str, object]) -> bool:
    """Publish as `publish_reply`, an answer with the correlation-id of what it answers."""
    properties = content.Properties(content_type="application/json", correlation_id=correlation_id)
    raw = content.encode_properties(properties)
    return publish_reply(hub, reply_to, raw, json.dumps(answer).encode())
