"""Queues that links make for themselves: dynamic sources and targets."""

from __future__ import annotations

import secrets
from typing import Any, Final

from broker.amqp.connection import permissions
from broker.amqp.topology.declarations import queue_declaration
from broker.amqp10.connection.addresses import queue_address
from broker.amqp10.connection.amqp10_session import Session
from broker.engine.answers import Answer
from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.types import Symbol
from queue_manager.api import QueueStatus

_CAPABILITIES: Final = frozenset(("temporary-queue", "rabbitmq:volatile-queue", "queue"))
_LIFETIME: Final = Symbol("lifetime-policy")
_PROPERTIES: Final[dict[Any, Any]] = {
    _LIFETIME: p.DeleteOnClose(),
    Symbol("supported-dist-modes"): Symbol("move"),
}


def make_node(session: Session, link_name: str, terminus: Any) -> Answer[QueueStatus]:
    """Make a queue in memory that is the client's alone to receive from.

    Raises AmqpError for a node that is to be no queue, or to outlive its link; QueueManagerError.
    """
    unknown = [name for name in terminus.capabilities if str(name) not in _CAPABILITIES]
    if unknown:
        raise AmqpError(c.NOT_IMPLEMENTED, f"a dynamic node is a temporary-queue, not {unknown[0]}")
    lifetime = (terminus.dynamic_node_properties or {}).get(_LIFETIME)
    if lifetime is not None and type(lifetime) is not p.DeleteOnClose:
        composed = p.compose(lifetime) if hasattr(lifetime, "descriptor") else lifetime
        if type(composed) is not p.DeleteOnClose:
            raise AmqpError(c.NOT_IMPLEMENTED, "a dynamic node lives as long as its link (delete-on-close)")
    client = session.client
    name = f"amq.dyn-{link_name[:64]}-{secrets.token_urlsafe(16)}"
    permissions.check_queue(client.identity, name, {})
    declaration = queue_declaration(
        name,
        {},
        session.hub.default_policy,
        durable=False,
        auto_delete=False,
        exclusive=True,
        is_server_named=True,
        vhost=client.vhost,
    )
    return session.core.queues.declare(declaration, client.caller)


def told(terminus: Any, name: str) -> Any:
    """Return a source or target as it is now: with the address of its queue."""
    return terminus._replace(
        address=queue_address(name),
        durable=0,
        expiry_policy=Symbol("link-detach"),
        timeout=0,
        dynamic_node_properties=_PROPERTIES,
    )


def delete_node(session: Session, name: str) -> None:
    """Delete the queue with its link."""
    session.core.queues.delete(name, session.client.caller)
