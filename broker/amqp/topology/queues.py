"""queue.declare, purge and delete."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pamqp import commands

from broker.amqp.connection import permissions
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.held_events import HeldEvents
from broker.amqp.topology.declarations import queue_declaration
from broker.engine.answers import Answer
from protocols.amqp091.methods import QueueDeclareOk
from protocols.amqp091.names import REPLY_TO, is_reply_key
from queue_manager.api import Dropped, QueueDeclaration, QueueStatus
from queue_manager.errors import QueueNotFound

_COUNT_MAX: Final = 0xFFFFFFFF


class Queues:
    """The methods of class queue on a channel; they raise QueueManagerError for what is refused."""

    __slots__ = ("_channel", "_client", "_held", "_reply_takers")

    def __init__(self, channel: AmqpChannel, held: HeldEvents) -> None:
        self._channel = channel
        self._client = channel.core.queues
        self._held = held
        self._reply_takers = channel.core.replies.takers

    def declare(self, method: commands.Queue.Declare) -> None:
        """Make a queue, or check that it is there (`passive`)."""
        channel = self._channel
        queues = self._client
        caller = channel.client.caller
        if is_reply_key(method.queue):
            self._declare_requester(method)
            return
        if method.passive:
            answer = queues.look(method.queue or channel.last_queue, caller, is_use=True)  # as with RabbitMQ
        else:
            name = method.queue or f"amq.gen-{secrets.token_urlsafe(16)}"
            permissions.check_queue(channel.client.identity, name, method.arguments or {})
            answer = queues.declare(self._declaration(method, name), caller)
        self._held.expect(answer, partial(self._declared, method), method.index)

    def _declare_requester(self, method: commands.Queue.Declare) -> None:
        """Say whether a requester takes direct replies under that name, as RabbitMQ does."""
        if method.queue != REPLY_TO and method.queue not in self._reply_takers:
            raise QueueNotFound.named(method.queue)
        if not method.nowait:
            self._held.reply(QueueDeclareOk(method.queue, 0, 1), durable=False)

    def purge(self, method: commands.Queue.Purge) -> None:
        """Drop what waits in a queue."""
        channel = self._channel
        answer = self._client.purge(channel.queue_meant(method.queue), channel.client.caller)
        self._held.expect(answer, partial(self._purged, method), method.index)

    def delete(self, method: commands.Queue.Delete) -> None:
        """Delete a queue; that it is not there is no error, as everywhere since RabbitMQ 3.2."""
        channel = self._channel
        answer = self._client.delete(
            channel.queue_meant(method.queue),
            channel.client.caller,
            if_unused=method.if_unused,
            if_empty=method.if_empty,
        )
        self._held.expect(answer, partial(self._deleted, method), method.index)

    def _declaration(self, method: commands.Queue.Declare, name: str) -> QueueDeclaration:
        channel = self._channel
        hub = channel.hub
        return queue_declaration(
            name,
            method.arguments or {},
            hub.default_policy,
            vhost=channel.client.vhost,
            is_server_named=not method.queue,
            durable=method.durable,
            auto_delete=method.auto_delete,
            exclusive=method.exclusive,
            default_type=hub.vhost.settings.default_queue_type,
        )

    def _declared(self, method: commands.Queue.Declare, answer: Answer[QueueStatus]) -> None:
        queue = answer.result()
        self._channel.name_queue(queue.name)
        if not method.nowait:
            told = QueueDeclareOk(queue.name, min(queue.ready, _COUNT_MAX), queue.consumers)
            self._held.reply(told, durable=queue.durable and queue.is_new)

    def _purged(self, method: commands.Queue.Purge, answer: Answer[Dropped]) -> None:
        dropped = answer.result()
        if not method.nowait:
            self._held.reply(commands.Queue.PurgeOk(min(dropped.count, _COUNT_MAX)), durable=dropped.durable)

    def _deleted(self, method: commands.Queue.Delete, answer: Answer[Dropped]) -> None:
        try:
            dropped = answer.result()
        except QueueNotFound:
            dropped = Dropped(0, durable=False)
        if not method.nowait:
            self._held.reply(commands.Queue.DeleteOk(min(dropped.count, _COUNT_MAX)), durable=dropped.durable)


METHODS: Final[dict[type, Callable[[Queues, Any], None]]] = {
    commands.Queue.Declare: Queues.declare,
    commands.Queue.Purge: Queues.purge,
    commands.Queue.Delete: Queues.delete,
}
