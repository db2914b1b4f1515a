"""The headers of a dead-lettered message: `x-death` and its relatives as RabbitMQ writes them.

The tables of `x-death` have more here: `group` and `attempts` of the death; `topic` and `offset`, in the one
where the message died first since it was published or redriven; `copies`, see `_copies`, in the newest one.

A history is a table, which MQTT's user properties cannot hold: so the copy of what came by MQTT has
properties of AMQP 0.9.1, and MQTT clients see them as user properties. What came by AMQP 1.0 stays as it is,
with the annotation `x-opt-deaths`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import structlog

from broker.properties import amqp, amqp10, templates
from broker.properties.neutral_model import Header, HeaderMap, HeaderValue
from config import limits
from queue_manager.address import local_name
from queue_manager.cursor.failures import REJECTED
from queue_manager.rules.dead_letters import Death, Origin, Stamped
from storage.envelope import PROPERTIES_AMQP, PROPERTIES_AMQP10, EnvelopeTemplate

_log: Final = structlog.get_logger("sluicemq.dead_letters")

DEATHS: Final = amqp.DEATHS_HEADER
FIRST: Final = "x-first-death-"
LAST: Final = "x-last-death-"
TOPIC: Final = "topic"
COPIES: Final = "copies"
OWN_FIELDS: Final = frozenset((TOPIC, COPIES, "offset", "group", "attempts"))


def note_refused(queue: str, reason: str, is_kept: bool) -> None:
    """Log that a dead letter of this queue was not taken, and what became of it."""
    queue = local_name(queue)
    if is_kept:
        _log.warning("queue.dead_letter_refused", queue=queue, reason=reason, kept="failed, in its own queue")
    else:
        _log.warning("queue.dead_letter_dropped", queue=queue, reason=reason)


def stamp(death: Death) -> Stamped:
    """Return the properties of the copies, and the queues that get none: where the message died before,
    without a reject since, and all, where so too many copies of it were made.
    """
    template = death.message.template
    is_amqp10 = template.properties_kind == PROPERTIES_AMQP10
    raw = template.properties if is_amqp10 else templates.as_amqp(template)
    if is_amqp10:
        properties = templates.read(template)
        history = list(properties.deaths)
        expiration = b"" if properties.ttl_ms is None else b"%d" % properties.ttl_ms
    else:
        history = _history(amqp.read(raw).header_values().get(DEATHS))
        expiration = amqp.expiration_of(raw)
    at = datetime.fromtimestamp(death.at_ms / 1000, UTC)
    deaths = _with_death(history, death, at, expiration)
    avoided = {each for each in _died_in(deaths) if each in death.targets}
    target_count = len(death.targets) - len(avoided)
    copies = _copies(history, death, target_count)
    if copies > limits.DEAD_LETTER_COPIES_MAX and copies > target_count > 1:
        avoided.update(death.targets)
    if copies > 1:
        deaths[0] = {**deaths[0], COPIES: copies}
    added: list[Header] = []
    what = (("reason", death.reason), ("queue", death.queue), ("exchange", template.exchange))
    if not history:
        added += [(FIRST + name, value) for name, value in what]
    added += [(LAST + name, value) for name, value in what]
    if is_amqp10:
        if death.is_readdressed:
            raw = amqp10.without_copies(raw)
        return Stamped(PROPERTIES_AMQP10, amqp10.stamp(raw, added, deaths, death.at_ms), avoided)
    if death.is_readdressed and amqp.may_copy(raw):
        raw = amqp.without_headers(raw, (amqp.COPIES,))
    return Stamped(PROPERTIES_AMQP, amqp.stamp(raw, [(DEATHS, deaths), *added]), avoided)


def _history(value: HeaderValue) -> list[HeaderMap]:
    return [death for death in value if isinstance(death, Mapping)] if isinstance(value, list) else []


def _with_death(history: list[HeaderMap], death: Death, at: datetime, expiration: bytes) -> list[HeaderMap]:
    """Return the history with this death in front; another of the same queue and reason only counts up."""
    template = death.message.template
    own: dict[str, HeaderValue] = {"group": death.group_id, "attempts": death.attempts}
    if not any(TOPIC in known for known in history):
        own |= {TOPIC: template.topic, "offset": death.message.offset}
    for known in history:
        if known.get("queue") == death.queue and known.get("reason") == death.reason:
            count = known.get("count")
            again = {**known, **own, "count": count + 1 if isinstance(count, int) else 1}
            again.pop(COPIES, None)
            return [again, *[other for other in history if other is not known]]
    new: dict[str, HeaderValue] = {
        "count": 1,
        "reason": death.reason,
        "queue": death.queue,
        "time": at,
        "exchange": template.exchange,
        "routing-keys": [amqp.routing_key(template.topic), *templates.copies_of(template)],
        **own,
    }
    if expiration:
        new["original-expiration"] = expiration
    return [new, *history]


def _died_in(deaths: list[HeaderMap]) -> Iterator[str]:
    """Return the queues that the message died in since it was last rejected."""
    for death in deaths:
        queue = death.get("queue")
        if death.get("reason") == REJECTED:
            return
        if isinstance(queue, str):
            yield queue


def _copies(history: list[HeaderMap], death: Death, target_count: int) -> int:
    """Return how many copies like these there may be now: what was made of one message since it was last
    rejected, if all of them go as far.
    """
    before = history[0].get(COPIES) if history else None
    if death.reason == REJECTED or not isinstance(before, int):
        before = 1
    return min(max(before, 1), limits.DEAD_LETTER_COPIES_MAX) * max(target_count, 1)


def origin_of(template: EnvelopeTemplate) -> Origin | None:
    """Return where a dead letter came from and what it was like there; None if it is no dead letter."""
    kind, raw = template.properties_kind, template.properties
    if kind == PROPERTIES_AMQP:
        history = _history(amqp.read(raw).header_values().get(DEATHS))
    elif kind == PROPERTIES_AMQP10:
        history = list(templates.read(template).deaths)
    else:
        return None
    if not history:  # whatever else its publisher said
        return None
    first = next((known for known in history if TOPIC in known), history[-1])
    queue, exchange = first.get("queue"), first.get("exchange", "")
    topic = first.get(TOPIC)
    if not isinstance(queue, str) or not queue or not isinstance(exchange, str):
        return None
    if not isinstance(topic, str):
        topic = queue
    left = [{key: known[key] for key in known if key not in OWN_FIELDS} for known in history]
    restored = amqp.stamp(raw, [(DEATHS, left)]) if kind == PROPERTIES_AMQP else amqp10.stamp(raw, (), left)
    return Origin(queue, topic, exchange, kind, restored)
