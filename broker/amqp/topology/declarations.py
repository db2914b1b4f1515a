"""The declaration in a queue.declare, as the core takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.amqp.topology import queue_arguments
from broker.amqp.topology.bad_arguments import BadArgument
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import QueueDeclaration
from queue_manager.errors import InvalidArgument
from queue_manager.policy import QueuePolicy

CLASSIC: Final = "classic"
QUEUE_TYPE: Final = "x-queue-type"
_UNDEFINED: Final = "undefined"  # said by definitions of RabbitMQ where no type was asked for


def queue_declaration(
    name: str,
    table: Mapping[str, Any],
    default: QueuePolicy,
    *,
    durable: bool,
    auto_delete: bool,
    exclusive: bool = False,
    is_server_named: bool = False,
    vhost: str = DEFAULT_VHOST,
    default_type: str = CLASSIC,
) -> QueueDeclaration:
    """Return the queue that such arguments declare, of the default type where they name none; raises
    InvalidArgument, in RabbitMQ's words.

    What goes with its owner or its last consumer is not kept on the store, and always classic by default.
    """
    if table.get(QUEUE_TYPE) == _UNDEFINED:
        table = {name: value for name, value in table.items() if name != QUEUE_TYPE}
    is_stored = durable and not exclusive and not auto_delete
    if is_stored and default_type != CLASSIC and QUEUE_TYPE not in table:
        table = {**table, QUEUE_TYPE: default_type}
    try:
        queue_arguments.check_kind(
            table,
            "" if is_server_named else name,
            vhost,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
        )
        policy = queue_arguments.queue_policy(table, default, durable=is_stored)
    except BadArgument as error:
        raise InvalidArgument(error.told(name, vhost)) from None
    return QueueDeclaration(
        name=name,
        durable=is_stored,
        policy=policy,
        arguments={
            **queue_arguments.equivalence(table),
            **({"durable": durable} if durable != is_stored else {}),
        },
        reported=queue_arguments.reported(table),
        description=table.get(queue_arguments.DESCRIPTION, ""),
        auto_delete=auto_delete,
        exclusive=exclusive,
        is_server_named=is_server_named,
    )
