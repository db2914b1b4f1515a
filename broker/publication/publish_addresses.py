"""Where a publisher may publish, and the queues of `$queue/...` addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.engine.client.message_flow import PublishingClient
from broker.engine.traffic import Targets
from queue_manager.address import is_queue_topic, parse
from queue_manager.errors import InvalidAddress


class Destination(NamedTuple):
    """Where a publication goes: queues, found by routing keys; consumers are told the first of these."""

    targets: Targets
    keys: tuple[str, ...]


def check_publish(identity: Identity, exchange: str, key: str) -> None:
    """Raise NotPermitted unless messages may be published there."""
    if exchange:
        identity.check(Action.WRITE, Kind.EXCHANGE, exchange)
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
    for key in keys:
        check_publish(identity, exchange, key)
    if exchange:
        return Destination(publishing.through(exchange, keys, headers), keys)
    key, *copies = keys
    targets = _by_key(publishing, identity, key, now_ms, mandatory=mandatory)
    if copies:
        others = [_by_key(publishing, identity, copy, now_ms, mandatory=True) for copy in copies]
        targets = publishing.joined([targets, *others])
    return Destination(targets, keys)


def _by_key(
    publishing: PublishingClient, identity: Identity, key: str, now_ms: int, *, mandatory: bool
) -> Targets:
    """Return the queues that a routing key on the default exchange stands for."""
    if not is_queue_topic(key):
        return publishing.named(key)
    verb = parse(key).verb
    if verb:
        raise InvalidAddress(f"{verb} is for MQTT clients; AMQP has basic.ack and basic.reject")
    return addressed(publishing, identity, key, now_ms, mandatory=mandatory)
