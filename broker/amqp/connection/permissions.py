"""The permissions that a client needs, method by method; checked before anything is looked up.

As RabbitMQ has it, but that publishing through the default exchange is writing to the queue that is named,
and that looking for a queue or an exchange (`passive`) needs some permission on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pamqp import commands

from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.amqp.connection import header_names as names
from protocols.amqp091.names import REPLY_TO, is_reply_key
from queue_manager.address import BROWSE, STREAM_STATUS, Address, address_of, is_queue_topic

CONFIGURE, WRITE, READ = Action.CONFIGURE, Action.WRITE, Action.READ
ANY_KEY: Final = "#"
DEAD_LETTER_EXCHANGE: Final = "x-dead-letter-exchange"
DEAD_LETTER_KEY: Final = "x-dead-letter-routing-key"
ALTERNATE_EXCHANGE: Final = "alternate-exchange"

Rule = Callable[[Identity, Any, str], None]
_READING_VERBS: Final = frozenset((BROWSE, STREAM_STATUS, "$nack", "$extend", "$commit"))


def check(identity: Identity, method: Any, last_queue: str) -> None:
    """Raise NotPermitted unless the client may ask that; `last_queue` is what an empty name stands for.

    Who makes a queue asks `check_queue`, since the broker may name it.
    """
    rule = RULES.get(type(method))
    if rule is not None:
        rule(identity, method, last_queue)


def check_queue(identity: Identity, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise NotPermitted unless a queue with these arguments may be declared: its dead letters are written
    wherever they go.
    """
    identity.check(CONFIGURE, Kind.QUEUE, name)
    exchange = arguments.get(DEAD_LETTER_EXCHANGE)
    if not isinstance(exchange, str):
        return
    identity.check(READ, Kind.QUEUE, name)
    key = arguments.get(DEAD_LETTER_KEY)
    if not exchange and isinstance(key, str):
        identity.check(WRITE, Kind.QUEUE, key)
    else:
        identity.check(WRITE, Kind.EXCHANGE, exchange)
        identity.check_keys(WRITE, exchange, key if isinstance(key, str) else ANY_KEY)


def check_exchange(identity: Identity, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise NotPermitted unless an exchange with these arguments may be declared: what it cannot route is
    written to its alternate exchange.
    """
    identity.check(CONFIGURE, Kind.EXCHANGE, name)
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if isinstance(alternate, str):
        identity.check(READ, Kind.EXCHANGE, name)
        identity.check(WRITE, Kind.EXCHANGE, alternate)
        identity.check_keys(WRITE, alternate, ANY_KEY)


def check_source(identity: Identity, name: str) -> None:
    """Raise NotPermitted unless there may be consumed from a queue, or from a `$queue/...` address."""
    identity.check(READ, Kind.ADDRESS if is_queue_topic(name) else Kind.QUEUE, name)


def check_group(identity: Identity, group: object) -> None:
    """Raise NotPermitted unless a consumer group may be used; None and "" are the default one."""
    name = "" if group is None else str(group).partition("@")[0]  # behind it stands the group's pattern
    identity.check(READ, Kind.GROUP, name)


def check_call(identity: Identity, called: Address, headers: Mapping[str, Any], reply_to: str) -> None:
    """Raise NotPermitted unless a control topic may be called, and answered where it says."""
    reads = called.verb in _READING_VERBS
    identity.check(READ if reads else WRITE, Kind.ADDRESS, f"{address_of(called.name)}/{called.verb}")
    if called.verb == BROWSE or names.GROUP in headers:
        check_group(identity, headers.get(names.GROUP))
    if reply_to and not is_reply_key(reply_to):
        identity.check(WRITE, Kind.QUEUE, reply_to)


def _check_any(identity: Identity, kind: Kind, name: str) -> None:
    """Raise NotPermitted unless something may be done with what is looked for."""
    if not (identity.may(READ, kind, name) or identity.may(WRITE, kind, name)):
        identity.check(CONFIGURE, kind, name)


def _declare_queue(identity: Identity, method: commands.Queue.Declare, last_queue: str) -> None:
    if method.passive and not is_reply_key(method.queue):
        _check_any(identity, Kind.QUEUE, method.queue or last_queue)


def _of_queue(action: Action) -> Rule:
    return lambda identity, method, last_queue: identity.check(action, Kind.QUEUE, method.queue or last_queue)


def _bind_queue(
    identity: Identity, method: commands.Queue.Bind | commands.Queue.Unbind, last_queue: str
) -> None:
    identity.check(WRITE, Kind.QUEUE, method.queue or last_queue)
    identity.check(READ, Kind.EXCHANGE, method.exchange)
    identity.check_keys(READ, method.exchange, method.routing_key or ("" if method.queue else last_queue))


def _declare_exchange(identity: Identity, method: commands.Exchange.Declare, last_queue: str) -> None:
    if method.passive:
        _check_any(identity, Kind.EXCHANGE, method.exchange)
        return
    check_exchange(identity, method.exchange, method.arguments or {})


def _delete_exchange(identity: Identity, method: commands.Exchange.Delete, last_queue: str) -> None:
    identity.check(CONFIGURE, Kind.EXCHANGE, method.exchange)


def _bind_exchange(
    identity: Identity, method: commands.Exchange.Bind | commands.Exchange.Unbind, last_queue: str
) -> None:
    identity.check(WRITE, Kind.EXCHANGE, method.destination)
    identity.check_keys(WRITE, method.destination, method.routing_key)
    identity.check(READ, Kind.EXCHANGE, method.source)
    identity.check_keys(READ, method.source, method.routing_key)


def _consume(
    identity: Identity, method: commands.Basic.Consume | commands.Basic.Get, last_queue: str
) -> None:
    if method.queue == REPLY_TO and isinstance(method, commands.Basic.Consume):
        return  # replies to what was permitted to be asked
    check_source(identity, method.queue or last_queue)
    arguments = (method.arguments or {}) if isinstance(method, commands.Basic.Consume) else {}
    check_group(identity, arguments.get("x-consumer-group"))


RULES: Final[dict[type, Rule]] = {
    commands.Queue.Declare: _declare_queue,
    commands.Queue.Delete: _of_queue(CONFIGURE),
    commands.Queue.Purge: _of_queue(READ),
    commands.Queue.Bind: _bind_queue,
    commands.Queue.Unbind: _bind_queue,
    commands.Exchange.Declare: _declare_exchange,
    commands.Exchange.Delete: _delete_exchange,
    commands.Exchange.Bind: _bind_exchange,
    commands.Exchange.Unbind: _bind_exchange,
    commands.Basic.Consume: _consume,
    commands.Basic.Get: _consume,
}
