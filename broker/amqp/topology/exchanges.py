"""exchange.declare, delete, bind and unbind; queue.bind and unbind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pamqp import commands

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.amqp.connection.held_events import HeldEvents
from broker.engine.answers import Answer
from protocols.amqp091 import constants as c
from protocols.amqp091.names import DEFAULT_EXCHANGE, is_reserved_name
from queue_manager.api import EXCHANGE_TYPES, BindingDefinition, Changed, ExchangeDeclaration, ExchangeView
from queue_manager.errors import ExchangeNotFound

_Declare = commands.Exchange.Declare
_Bind = commands.Exchange.Bind | commands.Exchange.Unbind | commands.Queue.Bind | commands.Queue.Unbind


class Exchanges:
    """The methods about exchanges and bindings on a channel; they raise what refuses them."""

    __slots__ = ("_channel", "_client", "_held")

    def __init__(self, channel: AmqpChannel, held: HeldEvents) -> None:
        self._channel = channel
        self._client = channel.core.exchanges
        self._held = held

    def declare(self, method: _Declare) -> None:
        """Make an exchange, or check that it is there (`passive`)."""
        name = method.exchange
        _refuse_default(name)
        if method.passive:
            found = self._client.look(name)
            self._held.expect(found, partial(self._looked, method), method.index)
            return
        if method.exchange_type not in EXCHANGE_TYPES:
            fault = "unknown" if method.exchange_type else "invalid"
            reason = f"{fault} exchange type '{method.exchange_type}'"
            raise channel_error(c.PRECONDITION_FAILED, reason)
        declaration = ExchangeDeclaration(
            name=name,
            type=method.exchange_type,
            durable=method.durable,
            auto_delete=method.auto_delete,
            internal=method.internal,
            arguments=method.arguments or {},
        )
        answer = self._client.declare(declaration, self._channel.client.caller)
        self._held.expect(answer, partial(self._declared, method), method.index)

    def _looked(self, method: _Declare, answer: Answer[ExchangeView]) -> None:
        answer.result()
        if not method.nowait:
            self._held.reply(commands.Exchange.DeclareOk(), durable=False)

    def _declared(self, method: _Declare, answer: Answer[Changed]) -> None:
        self._answer(method, commands.Exchange.DeclareOk(), answer.result())

    def delete(self, method: commands.Exchange.Delete) -> None:
        """Delete an exchange; that it is not there is no error, as everywhere since RabbitMQ 3.2."""
        name = method.exchange
        _refuse_default(name)
        if is_reserved_name(name):
            place = self._channel.client.vhost
            reason = f"deletion of system exchange '{name}' in vhost '{place}' not allowed"
            raise channel_error(c.ACCESS_REFUSED, reason)
        answer = self._client.delete(name, if_unused=method.if_unused, caller=self._channel.client.caller)
        self._held.expect(answer, partial(self._deleted, method), method.index)

    def _deleted(self, method: commands.Exchange.Delete, answer: Answer[Changed]) -> None:
        try:
            changed = answer.result()
        except ExchangeNotFound:
            changed = Changed(False, False)
        self._answer(method, commands.Exchange.DeleteOk(), changed)

    def bind(self, method: commands.Exchange.Bind) -> None:
        """Have an exchange pass on to another."""
        self._change(self._client.bind, method, self._between_exchanges(method), commands.Exchange.BindOk())

    def unbind(self, method: commands.Exchange.Unbind) -> None:
        """Undo a bind."""
        self._change(
            self._client.unbind, method, self._between_exchanges(method), commands.Exchange.UnbindOk()
        )

    def bind_queue(self, method: commands.Queue.Bind) -> None:
        """Have an exchange pass on to a queue."""
        self._change(self._client.bind, method, self._to_queue(method), commands.Queue.BindOk())

    def unbind_queue(self, method: commands.Queue.Unbind) -> None:
        """Undo a bind."""
        self._change(self._client.unbind, method, self._to_queue(method), commands.Queue.UnbindOk())

    def _change(
        self,
        change: Callable[[BindingDefinition, str], Answer[Changed]],
        method: _Bind,
        binding: BindingDefinition,
        ok: Any,
    ) -> None:
        answer = change(binding, self._channel.client.caller)
        self._held.expect(answer, lambda answer: self._answer(method, ok, answer.result()), method.index)

    def _between_exchanges(
        self, method: commands.Exchange.Bind | commands.Exchange.Unbind
    ) -> BindingDefinition:
        _refuse_default(method.source)
        _refuse_default(method.destination)
        return BindingDefinition(
            source=method.source,
            destination=method.destination,
            destination_type="exchange",
            routing_key=method.routing_key,
            arguments=method.arguments or {},
        )

    def _to_queue(self, method: commands.Queue.Bind | commands.Queue.Unbind) -> BindingDefinition:
        _refuse_default(method.exchange)
        queue = self._channel.queue_meant(method.queue)
        return BindingDefinition(
            source=method.exchange,
            destination=queue,
            routing_key=method.routing_key or ("" if method.queue else queue),
            arguments=method.arguments or {},
        )

    def _answer(self, method: Any, ok: Any, changed: Changed) -> None:
        """Answer now, or when what was done is durable: an answer is a promise."""
        if getattr(method, "nowait", False):
            return
        self._held.reply(ok, durable=changed.is_new and changed.durable)


def _refuse_default(name: str) -> None:
    """Refuse the default exchange: it has no bindings but those of queues to their names, and is always
    there.
    """
    if name == DEFAULT_EXCHANGE:
        raise channel_error(c.ACCESS_REFUSED, "operation not permitted on the default exchange")


METHODS: Final[dict[type, Callable[[Exchanges, Any], None]]] = {
    commands.Exchange.Declare: Exchanges.declare,
    commands.Exchange.Delete: Exchanges.delete,
    commands.Exchange.Bind: Exchanges.bind,
    commands.Exchange.Unbind: Exchanges.unbind,
    commands.Queue.Bind: Exchanges.bind_queue,
    commands.Queue.Unbind: Exchanges.unbind_queue,
}
