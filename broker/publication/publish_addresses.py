"""Where a publisher may publish, and the queues of `$queue/...` addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker import topics
from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.engine.client.message_flow import PublishingClient
from broker.engine.traffic import Targets
from config.name_rules import why_reserved
from queue_manager.address import is_queue_topic, parse
from queue_manager.errors import InvalidAddress


class Destination(NamedTuple):
    """Where a publication goes: queues, found by an exchange and routing keys; consumers are told the first
    of these. It may be another exchange than was named: answers to response topics go through that of topics.
    """

    targets: Targets
    keys: tuple[str, ...]
    exchange: str


def check_publish(identity: Identity, exchange: str, key: str) -> None:
    """Raise NotPermitted unless messages may be published there, InvalidAddress if no client may."""
    if exchange:
        identity.check(Action.WRITE, Kind.EXCHANGE, exchange)
        if exchange == topics.EXCHANGE and (reserved := why_reserved(topics.topic_of(key))):
            raise InvalidAddress(f"topic {reserved}")
        identity.check_keys(Action.WRITE, exchange, key)
    elif is_queue_topic(key):
        identity.check(Action.WRITE, Kind.ADDRESS, key)
    else:
        identity.check(Action.WRITE, Kind.QUEUE, key)


def addressed(
    publishing: PublishingClient, identity: Identity, topic: str, now_ms: int, *, mandatory: bool = False
) -> Targets:
    """Find the queues of a `$queue/...` topic; one is made where that is allowed, also to the publisher.

    Raises InvalidAddress, NotPermitted, and QueueNotFound where there is none, unless `mandatory`.
    """
    targets = publishing.match(topic)
    if targets or (mandatory and not publishing.creates_queues):
        return targets
    if publishing.creates_queues:
        identity.check(Action.CONFIGURE, Kind.QUEUE, parse(topic).name)
    return publishing.route(topic, now_ms, identity.user)


def find_queues(
    publishing: PublishingClient,
    identity: Identity,
    exchange: str,
    keys: tuple[str, ...],
    headers: Callable[[], Mapping[str, Any]],
    now_ms: int,
    *,
    mandatory: bool = False,
) -> Destination:
    """Find the queues of a publication to an exchange, or to the default one, with its routing key and those
    of its copies; `headers` are asked for where they matter.

    `mandatory`: that there is no queue is an answer, and no error. Raises NotPermitted, ExchangeNotFound,
    QueueNotFound, InvalidAddress, InvalidArgument.
    """
    topic = None if exchange or len(keys) > 1 else _answered_topic(keys[0])
    if topic is not None and not publishing.named(keys[0]):
        return _to_topic(publishing, identity, topic, headers)
    for key in keys:
        check_publish(identity, exchange, key)
    if exchange:
        return Destination(publishing.through(exchange, keys, headers), keys, exchange)
    key, *copies = keys
    targets = _by_key(publishing, identity, key, now_ms, mandatory=mandatory)
    if copies:
        others = [_by_key(publishing, identity, copy, now_ms, mandatory=True) for copy in copies]
        targets = publishing.joined([targets, *others])
    return Destination(targets, keys, exchange)


def _answered_topic(key: str) -> str | None:
    """Return the topic that a routing key on the default exchange stands for where no queue has that name: as
    MQTT's response topics come to consumers, in `reply-to`.
    """
    if "/" not in key or key.startswith("$"):
        return None
    topic = topics.addressed_topic(key)
    if topic is not None:
        return topic
    return key if "+" not in key and "#" not in key else None


def _to_topic(
    publishing: PublishingClient, identity: Identity, topic: str, headers: Callable[[], Mapping[str, Any]]
) -> Destination:
    """Find the queues bound to a topic, whose subscribers hear it, too. They are looked for at each publish,
    since a queue of that name may be made.
    """
    if reserved := why_reserved(topic):
        raise InvalidAddress(f"topic {reserved}")
    identity.check(Action.WRITE, Kind.TOPIC, topic)
    keys = (topics.routing_key_of(topic),)
    targets = publishing.through(topics.EXCHANGE, keys, headers)
    return Destination(publishing.joined((targets,)), keys, topics.EXCHANGE)


def _by_key(
    publishing: PublishingClient, identity: Identity, key: str, now_ms: int, *, mandatory: bool
) -> Targets:
    """Return the queues that a routing key on the default exchange stands for."""
    if not is_queue_topic(key):
        targets = publishing.named(key)
        if not targets and (reserved := why_reserved(key)):
            raise InvalidAddress(reserved)
        return targets
    verb = parse(key).verb
    if verb:
        raise InvalidAddress(f"{verb} is for MQTT clients; AMQP has basic.ack and basic.reject")
    return addressed(publishing, identity, key, now_ms, mandatory=mandatory)
