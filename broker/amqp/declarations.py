"""What queue.declare asks for, as the core takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.amqp import arguments, stream_arguments
from queue_manager.api import QueueDeclaration
from queue_manager.policy import QueuePolicy


def queue_declaration(
    name: str,
    table: Mapping[str, Any],
    default: QueuePolicy,
    *,
    durable: bool,
    auto_delete: bool,
    exclusive: bool = False,
) -> QueueDeclaration:
    """The queue that such arguments declare; raises InvalidArgument.

    What goes with its owner or its last consumer is not kept on the store.
    """
    is_stored = durable and not exclusive and not auto_delete
    return QueueDeclaration(
        name=name,
        durable=is_stored,
        policy=_policy(table, default, durable=is_stored),
        arguments={
            **arguments.equivalence(table),
            **({"durable": durable} if durable != is_stored else {}),
        },
        auto_delete=auto_delete,
        exclusive=exclusive,
    )


def _policy(table: Mapping[str, Any], default: QueuePolicy, *, durable: bool) -> QueuePolicy:
    if stream_arguments.is_stream(table):
        return stream_arguments.stream_policy(table, default, plain=durable)
    return arguments.queue_policy(table, default, durable=durable)
