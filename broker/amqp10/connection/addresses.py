"""Addresses of sources and targets: `/queues/:queue`, `/exchanges/:exchange/:key`, `$queue/NAME/key`, and the
plain names of JMS.

Names in those of RabbitMQ 4 are percent-encoded UTF-8; those with `$queue` are as in the other protocols.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from broker.topics import EXCHANGE as TOPICS
from queue_manager.address import is_queue_topic, parse
from queue_manager.errors import InvalidAddress

QUEUES: Final = "/queues/"
EXCHANGES: Final = "/exchanges/"
MANAGEMENT: Final = "/management"
_DEFAULT_EXCHANGE: Final = "amq.default"  # the name that HTTP has for it; it is addressed by its queues

_TOPICS: Final = frozenset(("topic", "temporary-topic"))
_QUEUES: Final = frozenset(("queue", "temporary-queue"))

_PART: Final = re.compile(r"(?:[^%/\x00-\x20\x7f]|%[0-9A-Fa-f]{2})*")


class Node(NamedTuple):
    """Where messages of a target go: an exchange ("": the default one) and a routing key."""

    exchange: str
    key: str


class SourceNode(NamedTuple):
    """Where messages of a source come from: a queue, and the pattern of those that are wanted ("": all).

    `address`: the `$queue/...` one that it is, if it is one; then the queue is made if there is none and that
    is allowed.
    """

    queue: str
    pattern: str = ""
    address: str = ""


def target_node(address: str) -> Node:
    """Return where messages to this address go; raises InvalidAddress."""
    if address.startswith(QUEUES):
        return Node("", _only_name(address, QUEUES))
    if address.startswith(EXCHANGES):
        exchange, _, key = address[len(EXCHANGES) :].partition("/")
        name = _decoded(address, exchange)
        if not name or name == _DEFAULT_EXCHANGE:
            raise _no_address(address)
        return Node(name, _decoded(address, key))
    if is_queue_topic(address):
        parsed = parse(address)
        if parsed.verb:
            raise InvalidAddress(f"{parsed.verb} is for MQTT clients; links have outcomes")
        return Node("", address)
    raise _no_address(address)


def source_node(address: str) -> SourceNode:
    """Return what a source with this address gives; raises InvalidAddress."""
    if address.startswith(QUEUES):
        return SourceNode(_only_name(address, QUEUES))
    if is_queue_topic(address):
        parsed = parse(address)
        if parsed.verb:
            raise InvalidAddress(f"{address!r} is a control topic: there is nothing to receive")
        return SourceNode(parsed.name, parsed.rest, address)
    raise _no_address(address)


def is_topic(capabilities: tuple[Any, ...]) -> bool:
    """Return whether a source or target says that it is a topic."""
    return not _TOPICS.isdisjoint(map(str, capabilities))


def plain_node(address: str, *, is_topic: bool) -> Node:
    """Return the node that a client of JMS means by a name of its own: a topic, or a queue."""
    return Node(TOPICS, address) if is_topic else Node("", address)


def is_plain(address: str) -> bool:
    """Return whether an address is a name without a form that says what it is the name of."""
    return address != "" and address[0] not in "/$"


def jms_node(address: str, capabilities: tuple[Any, ...]) -> Node | None:
    """Return the node of a plain name whose kind is told by capabilities; None: it is no such name."""
    if not is_plain(address):
        return None
    if is_topic(capabilities):
        return plain_node(address, is_topic=True)
    return None if _QUEUES.isdisjoint(map(str, capabilities)) else plain_node(address, is_topic=False)


def queue_address(name: str) -> str:
    """Return the address of a queue."""
    return QUEUES + encoded(name)


def encoded(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")


def decoded(part: str) -> str:
    """Return the name in a part of an address; raises InvalidAddress."""
    return _decoded(part, part)


def _only_name(address: str, prefix: str) -> str:
    name = _decoded(address, address[len(prefix) :])
    if not name:
        raise _no_address(address)
    return name


def _decoded(address: str, part: str) -> str:
    if not _PART.fullmatch(part):
        raise _no_address(address)
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        raise _no_address(address) from None


def _no_address(address: str) -> InvalidAddress:
    return InvalidAddress(
        f"{address[:256]!r} is no address: there are /queues/QUEUE, /exchanges/EXCHANGE/KEY, "
        "/exchanges/EXCHANGE (names percent-encoded) and $queue/NAME"
    )
