"""The exchange types by name."""

from __future__ import annotations

from typing import Final

from queue_manager.errors import InvalidArgument
from queue_manager.routing.exchange_types.base import Headers, Matcher
from queue_manager.routing.exchange_types.consistent_hash import ConsistentHashMatcher
from queue_manager.routing.exchange_types.federation_upstream import FederationUpstreamMatcher
from queue_manager.routing.exchange_types.headers import HeadersMatcher
from queue_manager.routing.exchange_types.simple import (
    DirectMatcher,
    FanoutMatcher,
    LocalRandomMatcher,
    ModulusHashMatcher,
    RandomMatcher,
)
from queue_manager.routing.exchange_types.topic import TopicMatcher

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
CONSISTENT_HASH: Final = "x-consistent-hash"
RANDOM: Final = "x-random"
LOCAL_RANDOM: Final = "x-local-random"
MODULUS_HASH: Final = "x-modulus-hash"
FEDERATION_UPSTREAM: Final = "x-federation-upstream"
DELAYED: Final = "x-delayed-message"
TYPES: Final = (
    DIRECT,
    FANOUT,
    TOPIC,
    HEADERS,
    CONSISTENT_HASH,
    RANDOM,
    LOCAL_RANDOM,
    MODULUS_HASH,
    FEDERATION_UPSTREAM,
    DELAYED,
)
DELAYED_TYPE: Final = "x-delayed-type"


def make_matcher(type: str, arguments: Headers) -> Matcher:
    """Return what an exchange of this type (of `TYPES`) does with its bindings; raises InvalidArgument.

    A delayed exchange routes as its `x-delayed-type` does: delays are the queues' part, whatever exchange a
    message was published to.
    """
    if type == DELAYED:
        type = _delayed_type(arguments)
    if type == DIRECT:
        return DirectMatcher()
    if type == FANOUT:
        return FanoutMatcher()
    if type == TOPIC:
        return TopicMatcher()
    if type == HEADERS:
        return HeadersMatcher()
    if type == CONSISTENT_HASH:
        return ConsistentHashMatcher(arguments)
    if type == RANDOM:
        return RandomMatcher()
    if type == LOCAL_RANDOM:
        return LocalRandomMatcher()
    if type == MODULUS_HASH:
        return ModulusHashMatcher()
    if type == FEDERATION_UPSTREAM:
        return FederationUpstreamMatcher(arguments)
    raise InvalidArgument(f"unknown exchange type {type!r}")


def _delayed_type(arguments: Headers) -> str:
    wanted = arguments.get(DELAYED_TYPE)
    if not isinstance(wanted, str) or wanted not in TYPES or wanted == DELAYED:
        raise InvalidArgument(f"Invalid argument, '{DELAYED_TYPE}' must be an existing exchange type")
    return wanted
