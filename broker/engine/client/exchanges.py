"""Exchanges and bindings of a shard in this process."""

from __future__ import annotations

from collections.abc import Callable

from broker.engine.answers import answered
from broker.engine.call_names import Name, VhostName
from broker.engine.client.counting import policy_names
from broker.engine.client.queues import find
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import OPERATOR, BindingDefinition, Changed, ExchangeDeclaration, ExchangeView
from queue_manager.errors import AccessRefused
from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange import Exchange, ExchangeDefinition


class ExchangeClient:
    """Exchanges and bindings come and go. The default exchange, "", is not among them."""

    def __init__(self, shard: Shard) -> None:
        self._queues = shard.manager.queues
        self._exchanges = shard.manager.queues.exchanges
        self._shard = shard
        context = shard.manager.context
        self._user_of = context.quotas.user_of

    @answered
    def declare(self, declaration: ExchangeDeclaration, caller: str = OPERATOR) -> Changed:
        """Make an exchange for a caller if it is not there.

        Comes to Inequivalent when it exists as another, ReservedName, InvalidArgument, LimitReached.
        """
        is_new = self._exchanges.get(declaration.name) is None
        exchange = self._exchanges.declare(
            ExchangeDefinition(
                declaration.name,
                declaration.type,
                durable=declaration.durable,
                auto_delete=declaration.auto_delete,
                internal=declaration.internal,
                arguments=declaration.arguments,
                user=self._user_of(caller),
            )
        )
        return Changed(is_new, exchange.durable)

    def type_of(self, name: Name) -> str | None:
        """Return the type of an exchange; None: there is none of that name."""
        exchange = self._exchanges.get(name)
        return None if exchange is None else exchange.definition.type

    def watch(self, name: Name, call: Callable[[], None]) -> None:
        """Have `call` called when the exchange is deleted, unless `unwatch` comes before."""
        self._exchanges.watched.watch(name, call)

    def unwatch(self, name: Name, call: Callable[[], None]) -> None:
        """Undo a `watch`."""
        self._exchanges.watched.unwatch(name, call)

    @answered
    def look(self, name: Name) -> ExchangeView:
        """Return an exchange that exists. Comes to ExchangeNotFound."""
        return self._view(self._exchanges.find(name))

    @answered
    def delete(self, name: Name, *, if_unused: bool = False, caller: str = OPERATOR) -> Changed:
        """Delete an exchange with its bindings for a caller. Comes to ExchangeNotFound, AccessRefused for
        those that are always there, PreconditionFailed when it has bindings and may have none.
        """
        exchange = self._exchanges.find(name)
        if exchange.is_predeclared:
            raise AccessRefused(f"deletion of system exchange {exchange.name!r} not allowed")
        self._exchanges.delete(exchange, if_unused=if_unused, user=self._user_of(caller))
        return Changed(True, exchange.durable)

    @answered
    def bind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Changed:
        """Have an exchange pass messages on; nothing changes if it does already. Comes to ExchangeNotFound,
        QueueNotFound, ResourceLocked, InvalidArgument, LimitReached.
        """
        source = self._exchanges.find(binding.source)
        destination: Queue | Exchange
        if binding.destination_type == "exchange":
            destination = self._exchanges.find(binding.destination)
        else:
            destination = find(self._shard, binding.destination, caller)
        user = self._user_of(caller)
        made = self._exchanges.bind(source, destination, binding.routing_key, binding.arguments, user)
        return Changed(made is not None, made is not None and made.is_durable)

    @answered
    def unbind(self, binding: BindingDefinition, caller: str = OPERATOR) -> Changed:
        """Undo a `bind`; that there was none is no error. Comes to ResourceLocked, InvalidArgument."""
        source = self._exchanges.get(binding.source)
        by_name = self._exchanges if binding.destination_type == "exchange" else self._queues
        destination = by_name.get(binding.destination)
        if source is None or destination is None:
            return Changed(False, False)
        found = source.find(destination, binding.routing_key, binding.arguments)
        if found is None:
            return Changed(False, False)
        if isinstance(destination, Queue):
            find(self._shard, binding.destination, caller)  # it may be another connection's
        self._exchanges.unbind(source, found, self._user_of(caller))
        return Changed(True, found.is_durable)

    @answered
    def views(self, *, vhost: VhostName = DEFAULT_VHOST) -> list[ExchangeView]:
        """Return all exchanges of a virtual host, by name."""
        views = [self._view(exchange) for exchange in self._exchanges.of_vhost(vhost)]
        return sorted(views, key=lambda exchange: exchange.name)

    def _view(self, exchange: Exchange) -> ExchangeView:
        definition = exchange.definition
        return ExchangeView(
            name=exchange.name,
            type=definition.type,
            durable=definition.durable,
            auto_delete=definition.auto_delete,
            internal=definition.internal,
            arguments=definition.arguments,
            binding_count=len(exchange.bindings),
            policies=policy_names(self._exchanges.policies_of(exchange)),
        )

    @answered
    def bindings(
        self,
        *,
        source: Name | None = None,
        queue: Name | None = None,
        exchange: Name | None = None,
        vhost: VhostName = DEFAULT_VHOST,
    ) -> list[BindingDefinition]:
        """Return the bindings of one exchange as their source, those to a queue, those to an exchange, or all
        of a virtual host. Comes to ExchangeNotFound, QueueNotFound.
        """
        return [_definition(found) for found in self._bindings(source, queue, exchange, vhost)]

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


def _definition(binding: Binding) -> BindingDefinition:
    return BindingDefinition(
        source=binding.source,
        destination=binding.destination.name,
        destination_type="exchange" if binding.is_to_exchange else "queue",
        routing_key=binding.key,
        arguments=binding.arguments,
    )
