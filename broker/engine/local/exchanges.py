"""Exchanges and bindings of a shard in this process."""

from __future__ import annotations

from broker.engine.answers import Answer
from broker.engine.local.queues import find
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import OPERATOR, BindingDefinition, Changed, ExchangeDeclaration, ExchangeView
from queue_manager.errors import AccessRefused
from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange import Exchange, ExchangeDefinition


class LocalExchanges:
    """As `ExchangeClient`."""

    def __init__(self, shard: Shard) -> None:
        self._queues = shard.manager.queues
        self._exchanges = shard.manager.queues.exchanges
        self._shard = shard

    def declare(self, declaration: ExchangeDeclaration) -> Answer[Changed]:
        """See `ExchangeClient.declare`."""
        return Answer.of(lambda: self._declare(declaration))

    def _declare(self, declaration: ExchangeDeclaration) -> Changed:
        is_new = self._exchanges.get(declaration.name) is None
        exchange = self._exchanges.declare(
            ExchangeDefinition(
                declaration.name,
                declaration.type,
                durable=declaration.durable,
                auto_delete=declaration.auto_delete,
                internal=declaration.internal,
                arguments=declaration.arguments,
            )
        )
        return Changed(is_new, exchange.durable)

    def look(self, name: str) -> Answer[ExchangeView]:
        """See `ExchangeClient.look`."""
        return Answer.of(lambda: _view(self._exchanges.find(name)))

    def delete(self, name: str, *, if_unused: bool = False) -> Answer[Changed]:
        """See `ExchangeClient.delete`."""
        return Answer.of(lambda: self._delete(self._exchanges.find(name), if_unused))

    def _delete(self, exchange: Exchange, if_unused: bool) -> Changed:
        if exchange.is_predeclared:
            raise AccessRefused(f"deletion of system exchange {exchange.name!r} not allowed")
        self._exchanges.delete(exchange, if_unused=if_unused)
        return Changed(True, exchange.durable)

    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient.bind`."""
        return Answer.of(lambda: self._bind(binding, caller))

    def _bind(self, wanted: BindingDefinition, caller: str) -> Changed:
        source = self._exchanges.find(wanted.source)
        destination: Queue | Exchange
        if wanted.destination_type == "exchange":
            destination = self._exchanges.find(wanted.destination)
        else:
            destination = find(self._shard, wanted.destination, caller)
        made = self._exchanges.bind(source, destination, wanted.routing_key, wanted.arguments)
        return Changed(made is not None, made is not None and made.is_durable)

    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Answer[Changed]:
        """See `ExchangeClient.unbind`."""
        return Answer.of(lambda: self._unbind(binding, caller))

    def _unbind(self, wanted: BindingDefinition, caller: str) -> Changed:
        source = self._exchanges.get(wanted.source)
        by_name = self._exchanges if wanted.destination_type == "exchange" else self._queues
        destination = by_name.get(wanted.destination)
        if source is None or destination is None:
            return Changed(False, False)
        binding = source.find(destination, wanted.routing_key, wanted.arguments)
        if binding is None:
            return Changed(False, False)
        if isinstance(destination, Queue):
            find(self._shard, wanted.destination, caller)  # it may be another connection's
        self._exchanges.unbind(source, binding)
        return Changed(True, binding.is_durable)

    def views(self, *, vhost: str = DEFAULT_VHOST) -> Answer[list[ExchangeView]]:
        """See `ExchangeClient.views`."""
        views = [_view(exchange) for exchange in self._exchanges.of_vhost(vhost)]
        return Answer.given(sorted(views, key=lambda exchange: exchange.name))

    def bindings(
        self,
        *,
        source: str | None = None,
        queue: str | None = None,
        exchange: str | None = None,
        vhost: str = DEFAULT_VHOST,
    ) -> Answer[list[BindingDefinition]]:
        """See `ExchangeClient.bindings`."""
        return Answer.of(
            lambda: [_definition(found) for found in self._bindings(source, queue, exchange, vhost)]
        )

    def _bindings(
        self, source: str | None, queue: str | None, exchange: str | None, vhost: str
    ) -> list[Binding]:
        if source is not None:
            return list(self._exchanges.find(source).bindings.values())
        if queue is not None:
            return self._exchanges.bindings_to(find(self._shard, queue))
        if exchange is not None:
            return list(self._exchanges.find(exchange).incoming)
        return [binding for each in self._exchanges.of_vhost(vhost) for binding in each.bindings.values()]


def _view(exchange: Exchange) -> ExchangeView:
    definition = exchange.definition
    return ExchangeView(
        name=exchange.name,
        type=definition.type,
        durable=definition.durable,
        auto_delete=definition.auto_delete,
        internal=definition.internal,
        arguments=definition.arguments,
        binding_count=len(exchange.bindings),
    )


def _definition(binding: Binding) -> BindingDefinition:
    return BindingDefinition(
        source=binding.source,
        destination=binding.destination.name,
        destination_type="exchange" if binding.is_to_exchange else "queue",
        routing_key=binding.key,
        arguments=binding.arguments,
    )
