"""An exchange: its bindings, and the routes that begin at it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from config import limits
from queue_manager.address import local_name, sibling, vhost_of
from queue_manager.errors import InvalidArgument, NotText
from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange_types.types_by_name import make_matcher
from queue_manager.routing.route import ForeignQueue, Route, by_shard
from storage.records import TO_EXCHANGE, TO_QUEUE, BindingKey

TOPICS: Final = "amq.topic"
ALTERNATE: Final = "alternate-exchange"


class ExchangeDefinition:
    """The definition of an exchange; raises NotText where another exchange is to be named. `user` made it,
    None: no user did.
    """

    __slots__ = ("alternate", "arguments", "auto_delete", "durable", "internal", "name", "type", "user")

    def __init__(
        self,
        name: str,
        type: str,
        *,
        durable: bool,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object] | None = None,
        user: str | None = None,
    ) -> None:
        self.name = name
        self.user = user
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = {} if arguments is None else arguments
        alternate = self.arguments.get(ALTERNATE)
        if alternate is not None and not isinstance(alternate, str):
            raise NotText(ALTERNATE, name, alternate)
        self.alternate: str | None = alternate


class Exchange:
    """An exchange, which routes publishes by its bindings.

    `incoming` are the bindings that lead to it from other exchanges, `alternate` is the exchange that takes
    what it passes on to nobody; `topics_of` the virtual host whose topics of MQTT are there. A route is kept
    by its key, if it does not depend on the headers, and by its queues, so that messages with different
    headers share it.
    """

    def __init__(self, definition: ExchangeDefinition, *, is_predeclared: bool = False) -> None:
        self.definition = definition
        self.name = definition.name
        self.durable = definition.durable
        self.alternate: str | None = None
        self.follow(None)
        self.topics_of = vhost_of(definition.name) if local_name(definition.name) == TOPICS else None
        self.is_predeclared = is_predeclared
        self.matcher = make_matcher(definition.type, definition.arguments)
        self.bindings: dict[BindingKey, Binding] = {}
        self.incoming: dict[Binding, Exchange] = {}
        self._routes: dict[str, Route] = {}
        self._by_queues: dict[tuple[str | None, tuple[Queue | ForeignQueue, ...]], Route] = {}

    def follow(self, alternate: str | None) -> None:
        """Have the alternate exchange that a policy asks for, unless it was declared with one."""
        wanted = alternate if self.definition.alternate is None else self.definition.alternate
        self.alternate = None if wanted is None else sibling(self.name, wanted)

    def binding_to(self, destination: Destined, key: str, arguments: Mapping[str, object]) -> Binding:
        """Return a binding to be added; raises InvalidArgument for arguments that cannot be kept. One to a
        queue of another shard is kept there.
        """
        kind = TO_EXCHANGE if isinstance(destination, Exchange) else TO_QUEUE
        is_durable = self.durable and destination.durable and not isinstance(destination, ForeignQueue)
        try:
            return Binding(self.name, destination, kind, key, arguments, is_durable=is_durable)
        except ValueError as error:
            raise InvalidArgument(f"arguments of the binding: {error}") from None

    def find(self, destination: Destined, key: str, arguments: Mapping[str, object]) -> Binding | None:
        """Return the binding to this destination with this key and these arguments; raises
        InvalidArgument.
        """
        return self.bindings.get(self.binding_to(destination, key, arguments).identity)

    def add(self, binding: Binding) -> None:
        """Pass on what the binding takes."""
        self.bindings[binding.identity] = binding
        self.matcher.add(binding)

    def remove(self, binding: Binding) -> None:
        """Pass on by it no longer."""
        del self.bindings[binding.identity]
        self.matcher.remove(binding)

    # routes

    def route_of(self, key: str) -> Route | None:
        """Return the route of a key, if it is known."""
        return self._routes.get(key)

    def route_to(self, found: tuple[Queue | ForeignQueue, ...], topics_of: str | None) -> Route:
        """Return the route to these queues; see `Route.topics_of`."""
        route = self._by_queues.get((topics_of, found))
        if route is None:
            if len(self._by_queues) >= limits.ROUTE_CACHE_ENTRIES_MAX:
                self.expire_routes()
            queues, foreign = by_shard(found)
            route = self._by_queues[topics_of, found] = Route(queues, topics_of, foreign)
        return route

    def keep(self, key: str, route: Route) -> None:
        """Remember the route of a key."""
        if len(self._routes) >= limits.ROUTE_CACHE_ENTRIES_MAX:
            self._routes.clear()
        self._routes[key] = route

    def expire_routes(self) -> None:
        """Expire routes: bindings have changed."""
        for route in self._by_queues.values():
            route.expire()
        self._by_queues.clear()
        self._routes.clear()


Destined = Queue | ForeignQueue | Exchange
"""Where a binding of an exchange leads."""
