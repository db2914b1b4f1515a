"""Where a publisher may publish, and the queues of `$queue/...` addresses."""

from __future__ import annotations

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.engine.client.message_flow import PublishingClient
from broker.engine.traffic import Targets
from queue_manager.address import is_queue_topic, parse


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
    return publishing.route(topic, now_ms)
