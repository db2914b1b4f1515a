"""Topics, as JMS has them: which names are topics, and the queues that subscriptions to them are.

A subscription is a queue bound to the exchange of the topic. It goes with its link; one that is shared goes
with its last link; a durable one stays until a link to it is closed, not only detached. What does not match
the selector of the subscription is not kept.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from broker.access.rights import Action, Kind
from broker.amqp.connection import permissions
from broker.amqp.topology.declarations import queue_declaration
from broker.amqp10.connection.addresses import (
    EXCHANGES,
    Node,
    SourceNode,
    is_plain,
    jms_node,
    source_node,
    target_node,
)
from broker.amqp10.connection.amqp10_session import Session
from broker.engine.answers import Answer
from broker.topics import EXCHANGE as TOPICS
from protocols.amqp10 import performatives as p
from protocols.amqp10.link import Link
from protocols.amqp10.types import Symbol
from queue_manager.api import BindingDefinition
from queue_manager.errors import PreconditionFailed, ResourceLocked
from queue_manager.policy import DROP_UNMATCHED

_SHARED: Final = "shared"
_GLOBAL: Final = "global"
_NEVER: Final = "never"
GROUP: Final = "subscription"
"""The consumer group of a subscription's queue, which has its selector."""

_SELECTOR: Final = "x-selector"
"""The argument of its binding that tells the selector of a subscription."""

_END_OF_NAME: Final = "|"  # of a subscription, in the names of links that share it
_DURABLE_PREFIX: Final = "amq.sub"
_VOLATILE_PREFIX: Final = "amq.shared"


class Subscription(NamedTuple):
    """The queue `name` for the messages of a topic; one that is neither shared nor durable is its link's."""

    name: str
    node: Node
    is_durable: bool
    is_shared: bool

    @property
    def is_own(self) -> bool:
        """Whether it goes with its link."""
        return not self.is_durable and not self.is_shared


def subscription_of(session: Session, link: Link, source: p.Source) -> Subscription | None:
    """Return the subscription that a link asks for; None: its source is no topic, nor an exchange."""
    address = source.address
    node = jms_node(address, source.capabilities)
    if node is None and address.startswith(EXCHANGES):
        node = target_node(address)
    if node is None or not node.exchange:
        return None
    kinds = {str(name) for name in source.capabilities}
    is_durable = bool(source.durable) and source.expiry_policy == _NEVER
    is_shared = _SHARED in kinds
    if not is_durable and not is_shared:
        return Subscription(f"amq.dyn-sub-{secrets.token_urlsafe(16)}", node, False, False)
    container = "" if _GLOBAL in kinds else session.client.container_id
    return Subscription(_queue_of(container, link.name, is_durable=is_durable), node, is_durable, is_shared)


def with_temporary_address(terminus: Any) -> Any:
    """Return a dynamic source or target of a temporary topic with an address of its own: topics need not be
    made.
    """
    address = _address_of(TOPICS, f"amq.dyn-{secrets.token_urlsafe(16)}", is_short=False)
    return terminus._replace(address=address, durable=0, expiry_policy=Symbol("link-detach"), timeout=0)


def queue_node(source: p.Source) -> SourceNode:
    """Return the queue that a source is, if it is no subscription; raises InvalidAddress."""
    node = jms_node(source.address, source.capabilities)
    if node is None:
        return SourceNode("") if source.address.startswith(EXCHANGES) else source_node(source.address)
    return SourceNode(node.key)


def durable_of(session: Session, link: Link) -> tuple[str, p.Source] | None:
    """Return the queue and the source of the durable subscription that a link without a source looks up by
    its name; None if there is none.

    Raises NotPermitted, ResourceLocked while somebody receives from it.
    """
    is_global = link.name.partition(_END_OF_NAME)[2].startswith(_GLOBAL)
    container = "" if is_global else session.client.container_id
    name = _queue_of(container, link.name, is_durable=True)
    queues = session.core.queues
    if not queues.exists(name).result():
        return None
    client = session.client
    client.identity.check(Action.CONFIGURE, Kind.QUEUE, name)
    if queues.look(name, client.caller).result().consumers:
        raise ResourceLocked("the subscription has a consumer")
    bindings = session.core.exchanges.bindings(queue=name).result()
    address = _address_of(bindings[0].source, bindings[0].routing_key) if bindings else ""
    kinds = (Symbol("topic"), *((Symbol(_SHARED), Symbol(_GLOBAL)) if is_global else ()))
    return name, p.Source(address, 2, Symbol(_NEVER), distribution_mode=Symbol("copy"), capabilities=kinds)


def make(session: Session, subscription: Subscription, selector: str, *, is_not_local: bool) -> Answer[None]:
    """Make the queue of a subscription and bind it, unless that was done before.

    One that is there and was to another topic, or has other filters, ends with all it holds, as JMS says: it
    is another subscription. Raises QueueManagerError, PreconditionFailed while such a one has a consumer.
    """
    name, node = subscription.name, subscription.node
    client = session.client
    identity = client.identity
    permissions.check_queue(identity, name, {})
    identity.check(Action.WRITE, Kind.QUEUE, name)
    identity.check(Action.READ, Kind.EXCHANGE, node.exchange)
    identity.check_keys(Action.READ, node.exchange, node.key)
    exchanges, queues = session.core.exchanges, session.core.queues
    exchanges.look(node.exchange).result()
    not_from = client.container_id if is_not_local else ""
    arguments = {_SELECTOR: selector}
    wanted = BindingDefinition(
        source=node.exchange, destination=name, routing_key=node.key, arguments=arguments
    )
    ended: Answer[Any] = Answer.given(None)
    if queues.exists(name).result():
        there = queues.look(name, client.caller).result()
        if exchanges.bindings(queue=name).result() == [wanted] and there.policy.not_from == not_from:
            return ended
        if there.consumers:
            raise PreconditionFailed("the subscription has a consumer, and another topic or other filters")
        ended = queues.delete(name, client.caller)
    declaration = queue_declaration(
        name,
        {},
        session.hub.default_policy,
        durable=subscription.is_durable,
        auto_delete=subscription.is_shared and not subscription.is_durable,
        exclusive=subscription.is_own,
        is_server_named=True,
        vhost=client.vhost,
    )
    policy = replace(declaration.policy, unmatched=DROP_UNMATCHED, not_from=not_from)
    declared = ended.chain(lambda _: queues.declare(replace(declaration, policy=policy), client.caller))
    return declared.chain(lambda _: exchanges.bind(wanted, client.caller)).map(lambda _: None)


def delete(session: Session, name: str) -> None:
    """Delete a durable subscription, unless somebody else receives from it."""
    session.core.queues.delete(name, session.client.caller, if_unused=True)


def _queue_of(container: str, link_name: str, *, is_durable: bool) -> str:
    name = link_name.partition(_END_OF_NAME)[0]
    prefix = _DURABLE_PREFIX if is_durable else _VOLATILE_PREFIX
    return f"{prefix}:{quote(container, safe='')}:{quote(name, safe='')}"


def _address_of(exchange: str, key: str, *, is_short: bool = True) -> str:
    if is_short and exchange == TOPICS and is_plain(key):
        return key
    return f"{EXCHANGES}{quote(exchange, safe='')}/{quote(key, safe='')}"
