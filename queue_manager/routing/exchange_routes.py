"""Where exchanges lead to, each through the others it is bound to, and which routes a change ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from config import limits
from queue_manager.address import local_name
from queue_manager.errors import LimitReached
from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange import Exchange
from queue_manager.routing.exchange_types.base import NO_HEADERS, Headers
from queue_manager.routing.route import ForeignQueue, Route, by_shard


class ExchangeRoutes:
    """Works out routes, which exchanges keep, and expires them where an exchange on their way changes.

    `_for_unrouted`: by the name of an alternate exchange, who has it. `_keeping` are the exchanges that keep
    routes: without any a change costs nothing, as at a start, however long the ways are.
    """

    __slots__ = ("_exchanges", "_for_unrouted", "_keeping")

    def __init__(self, exchanges: Mapping[str, Exchange]) -> None:
        """`exchanges` are all that are there, by name."""
        self._exchanges = exchanges
        self._for_unrouted: dict[str, dict[Exchange, None]] = {}
        self._keeping: set[Exchange] = set()

    def enter(self, exchange: Exchange) -> None:
        """Add an exchange."""
        alternate = exchange.alternate
        if alternate is not None:
            self._for_unrouted.setdefault(alternate, {})[exchange] = None
        self.expire(exchange)

    def leave(self, exchange: Exchange) -> None:
        """Remove an exchange."""
        self.expire(exchange)
        alternate = exchange.alternate
        if alternate is not None:
            users = self._for_unrouted[alternate]
            del users[exchange]
            if not users:
                del self._for_unrouted[alternate]

    def through(self, exchange: Exchange, keys: Sequence[str], headers: Callable[[], Headers]) -> Route:
        """Return the queues that take a message published to an exchange; see `Exchanges.route`. Raises
        LimitReached where the message would pass through too many exchanges.
        """
        is_single = len(keys) == 1
        route = exchange.route_of(keys[0]) if is_single else None
        if route is not None:
            return route
        walk = _Walk(keys, headers)
        walk.go(exchange, self._exchanges)
        if walk.varies:
            queues, foreign = by_shard(walk.queues)
            route = Route(queues, walk.topics_of, foreign)
            route.expire()
            return route
        self._keeping.add(exchange)
        route = exchange.route_to(tuple(walk.queues), walk.topics_of)
        if is_single and not walk.read_headers:
            exchange.keep(keys[0], route)
        return route

    def expire(self, exchange: Exchange) -> None:
        """Expire the routes through an exchange: what it leads to changed."""
        seen = {exchange}
        pending = [exchange]
        while pending and self._keeping:
            current = pending.pop()
            if current in self._keeping:
                self._keeping.discard(current)
                current.expire_routes()
            before = [*current.incoming.values(), *self._for_unrouted.get(current.name, ())]
            for source in before:
                if source not in seen:
                    seen.add(source)
                    pending.append(source)


class _Walk:
    """From an exchange to the queues, through other exchanges, each once."""

    __slots__ = ("_headers", "_keys", "_read", "queues", "read_headers", "topics_of", "varies")

    def __init__(self, keys: Sequence[str], headers: Callable[[], Headers]) -> None:
        self._keys = keys
        self._headers = headers
        self._read: Headers = NO_HEADERS
        self.queues: dict[Queue | ForeignQueue, None] = {}
        self.topics_of: str | None = None
        self.read_headers = False
        self.varies = False

    def go(self, start: Exchange, exchanges: Mapping[str, Exchange]) -> None:
        seen = {start}
        pending = [start]
        while pending:
            exchange = pending.pop()
            self.topics_of = self.topics_of or exchange.topics_of
            is_taken = False
            onward: list[Exchange] = []
            for binding in self._match(exchange):
                is_taken = True
                if isinstance(binding.destination, Exchange):
                    onward.append(binding.destination)
                else:
                    assert isinstance(binding.destination, Queue | ForeignQueue)
                    self.queues[binding.destination] = None
            if not is_taken and exchange.alternate is not None:
                alternate = exchanges.get(exchange.alternate)
                onward = [] if alternate is None else [alternate]
            for following in onward:
                if following not in seen:
                    if len(seen) >= limits.EXCHANGES_PER_ROUTE_MAX:
                        raise LimitReached(
                            f"a message to exchange {local_name(start.name)!r} would pass through more than "
                            f"{limits.EXCHANGES_PER_ROUTE_MAX} exchanges"
                        )
                    seen.add(following)
                    pending.append(following)

    def _match(self, exchange: Exchange) -> Iterable[Binding]:
        matcher = exchange.matcher
        if matcher.reads_headers and not self.read_headers:
            self._read = self._headers()
            self.read_headers = True
        self.varies = self.varies or matcher.varies
        return matcher.match(self._keys, self._read)
