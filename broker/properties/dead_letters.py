"""What a dead-lettered message carries: `x-death` and its relatives as RabbitMQ writes them, `_dlq_*` beside.

A history is a table, which MQTT's user properties cannot hold: so the copy has AMQP properties, whatever
protocol the message came by, and MQTT clients see them as user properties.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from broker.properties import amqp, templates
from broker.properties.model import Header, HeaderMap, HeaderValue
from queue_manager.cursor.reasons import REJECTED
from queue_manager.rules.dead_letters import Death, Origin
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate

_log: Final = structlog.get_logger("sluicemq.dead_letters")

DEATHS: Final = "x-death"
FIRST: Final = "x-first-death-"
LAST: Final = "x-last-death-"
ORIGINAL_QUEUE: Final = "_dlq_original_queue"
ORIGINAL_TOPIC: Final = "_dlq_original_topic"
ORIGINAL_ID: Final = "_dlq_original_id"
GROUP: Final = "_dlq_group"
DELIVERY_COUNT: Final = "_dlq_delivery_count"
MOVED_AT: Final = "_dlq_moved_at"
OWN_HEADERS: Final = (ORIGINAL_QUEUE, ORIGINAL_TOPIC, ORIGINAL_ID, GROUP, DELIVERY_COUNT, MOVED_AT)


def note_refused(queue: str, reason: str) -> None:
    """Log that a dead letter of this queue was not taken."""
    _log.warning("queue.dead_letter_refused", queue=queue, reason=reason, kept="failed, in its own queue")


def stamp(death: Death) -> tuple[int, bytes] | None:
    """The properties of the copy; None if it would go round without anybody ever rejecting it."""
    template = death.message.template
    raw = templates.as_amqp(template)
    headers = amqp.read(raw).header_values()
    history = _history(headers.get(DEATHS))
    at = datetime.fromtimestamp(death.at_ms / 1000, UTC)
    deaths = _with_death(history, death, at, amqp.expiration_of(raw))
    if death.reason != REJECTED and _goes_round(death.target, deaths):
        return None
    added: list[Header] = [(DEATHS, deaths)]
    what = (("reason", death.reason), ("queue", death.queue), ("exchange", template.exchange))
    if not history:
        added += [(FIRST + name, value) for name, value in what]
    if not history or ORIGINAL_QUEUE not in headers:  # without these it was redriven: another life
        added += [
            (ORIGINAL_QUEUE, death.queue),
            (ORIGINAL_TOPIC, template.topic),
            (ORIGINAL_ID, f"{death.queue}:{death.message.offset}"),
        ]
    added += [(LAST + name, value) for name, value in what]
    added += [
        (GROUP, death.group_id),
        (DELIVERY_COUNT, death.attempts),
        (MOVED_AT, at.isoformat(timespec="milliseconds").replace("+00:00", "Z")),
    ]
    if death.is_readdressed and amqp.may_copy(raw):
        raw = amqp.without_headers(raw, (amqp.COPIES,))
    return PROPERTIES_AMQP, amqp.stamp(raw, added)


def _history(value: HeaderValue) -> list[HeaderMap]:
    return [death for death in value if isinstance(death, Mapping)] if isinstance(value, list) else []


def _with_death(history: list[HeaderMap], death: Death, at: datetime, expiration: bytes) -> list[HeaderMap]:
    """The history with this death in front; another of the same queue and reason only counts up."""
    for known in history:
        if known.get("queue") == death.queue and known.get("reason") == death.reason:
            count = known.get("count")
            again = {**known, "count": count + 1 if isinstance(count, int) else 1}
            return [again, *[other for other in history if other is not known]]
    template = death.message.template
    new: dict[str, HeaderValue] = {
        "count": 1,
        "reason": death.reason,
        "queue": death.queue,
        "time": at,
        "exchange": template.exchange,
        "routing-keys": [amqp.routing_key(template.topic), *templates.copies_of(template)],
    }
    if expiration:
        new["original-expiration"] = expiration
    return [new, *history]


def _goes_round(target: str, deaths: list[HeaderMap]) -> bool:
    """Whether the message died in `target` before, and nowhere since by being rejected."""
    for death in deaths:
        if death.get("reason") == REJECTED:
            return False
        if death.get("queue") == target:
            return True
    return False


def origin_of(template: EnvelopeTemplate) -> Origin | None:
    """Where a dead letter came from and what it was like there; None if it is no dead letter."""
    if template.properties_kind != PROPERTIES_AMQP:
        return None
    raw = template.properties
    headers = amqp.read(raw).header_values()
    queue = headers.get(ORIGINAL_QUEUE) or headers.get(FIRST + "queue")
    topic = headers.get(ORIGINAL_TOPIC)
    exchange = headers.get(FIRST + "exchange", "")
    if not isinstance(queue, str) or not queue or not isinstance(exchange, str):
        return None
    if not isinstance(topic, str):
        topic = queue
    return Origin(queue, topic, exchange, PROPERTIES_AMQP, amqp.without_headers(raw, OWN_HEADERS))
