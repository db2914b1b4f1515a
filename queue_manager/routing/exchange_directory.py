"""The exchanges of one shard and their bindings: declared, bound, deleted, and asked for routes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from config import limits
from queue_manager.address import DEFAULT_VHOST, is_reserved, local_name, qualified_name, vhost_of
from queue_manager.effective_policy import ALTERNATE as ALTERNATE_SETTING
from queue_manager.effective_policy import EXCHANGE, Effective, Policies
from queue_manager.errors import (
    ExchangeNotFound,
    Inequivalent,
    InternalExchange,
    InUse,
    InvalidArgument,
    LimitReached,
    ReservedName,
)
from queue_manager.queue.queue import Queue
from queue_manager.quota_accounts import BINDINGS, EXCHANGES
from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange import ALTERNATE, TOPICS, Destined, Exchange, ExchangeDefinition
from queue_manager.routing.exchange_routes import ExchangeRoutes
from queue_manager.routing.exchange_types.base import NO_HEADERS, Headers
from queue_manager.routing.exchange_types.types_by_name import DIRECT, FANOUT, HEADERS, TOPIC
from queue_manager.routing.follower import Follower, NoFollower
from queue_manager.routing.route import NOWHERE, ForeignQueue, Route
from queue_manager.routing.watched_names import WatchedNames
from queue_manager.shard.context import Context
from queue_manager.shard.event_notes import EVENT_EXCHANGE
from storage.records import StoredBinding, StoredExchange
from storage.records import binding as binding_record
from storage.records import exchange as exchange_record

PREDECLARED: Final = {
    "amq.direct": DIRECT,
    "amq.fanout": FANOUT,
    TOPICS: TOPIC,
    "amq.headers": HEADERS,
    "amq.match": HEADERS,
}


class Exchanges:
    """All exchanges by name, but for the default one, which has no bindings: its keys are queues' names.

    `routes` are what they lead to.
    """

    def __init__(self, context: Context, policies: Policies) -> None:
        self._context = context
        self._policies = policies
        self._exchanges: dict[str, Exchange] = {}
        self._to_queue: dict[Queue | ForeignQueue, dict[Binding, Exchange]] = {}
        self.routes = ExchangeRoutes(self._exchanges)
        self._binding_count = 0
        self.watched = WatchedNames()
        self.follower: Follower = NoFollower()
        self.is_told_elsewhere = False  # of exchanges, by another shard that has the same
        self._predeclare(DEFAULT_VHOST)
        events = ExchangeDefinition(EVENT_EXCHANGE, TOPIC, durable=True, internal=True)
        self._events = Exchange(events, is_predeclared=True)
        self._adopt(self._events)

    def _predeclare(self, vhost: str) -> None:
        for name, kind in PREDECLARED.items():
            definition = ExchangeDefinition(qualified_name(vhost, name), kind, durable=True)
            self._adopt(Exchange(definition, is_predeclared=True))

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._exchanges.values())

    def get(self, name: str) -> Exchange | None:
        """Return the exchange of that name. A virtual host gets what is always there when it is first asked
        for.
        """
        exchange = self._exchanges.get(name)
        if exchange is None and local_name(name) in PREDECLARED:
            self._predeclare(vhost_of(name))
            exchange = self._exchanges[name]
        return exchange

    def find(self, name: str) -> Exchange:
        """Return the exchange of that name; raises ExchangeNotFound."""
        exchange = self.get(name)
        if exchange is None:
            raise ExchangeNotFound(name)
        return exchange

    def of_vhost(self, vhost: str) -> list[Exchange]:
        """Return the exchanges of a virtual host."""
        self.get(qualified_name(vhost, TOPICS))  # those that are always there
        return [exchange for exchange in self if vhost_of(exchange.name) == vhost]

    # declaring

    def declare(self, definition: ExchangeDefinition) -> Exchange:
        """Return the exchange of that name, made if it is not there.

        Raises Inequivalent when it exists as another, InvalidArgument, ReservedName, LimitReached.
        """
        exchange = self.get(definition.name)
        if exchange is not None:
            _check_equivalent(definition, exchange.definition)
            return exchange
        if is_reserved(definition.name):
            raise ReservedName("exchange", local_name(definition.name))
        if len(self._exchanges) >= limits.EXCHANGES_MAX:
            raise LimitReached(f"{limits.EXCHANGES_MAX} exchanges exist already")
        self._context.quotas.check(EXCHANGES, vhost_of(definition.name), definition.user)
        exchange = Exchange(definition)
        if definition.durable:
            self._context.commit.put(exchange_record.key(definition.name), _record_of(definition))
        self._adopt(exchange)
        if self._context.events.is_wanted and not self.is_told_elsewhere:
            self._context.events.note("exchange.created", _told(definition), definition.user)
        return exchange

    def _adopt(self, exchange: Exchange) -> None:
        exchange.follow(self._alternate_of(exchange))
        self._exchanges[exchange.name] = exchange
        self.routes.enter(exchange)
        if not exchange.is_predeclared:
            self._context.quotas.add(EXCHANGES, vhost_of(exchange.name), exchange.definition.user)

    def policies_of(self, exchange: Exchange) -> Effective:
        """Return the policies that hold for an exchange."""
        return self._policies.of(exchange.name, EXCHANGE)

    def _alternate_of(self, exchange: Exchange) -> str | None:
        alternate: str | None = self.policies_of(exchange).value(ALTERNATE_SETTING)
        return alternate

    def follow_policies(self, vhost: str) -> None:
        """Have the exchanges of a virtual host follow its policies, which are others now."""
        for exchange in self.of_vhost(vhost):
            self.routes.leave(exchange)
            exchange.follow(self._alternate_of(exchange))
            self.routes.enter(exchange)

    def delete(self, exchange: Exchange, *, if_unused: bool = False, user: str | None = None) -> None:
        """Delete an exchange with its bindings; raises InUse when it has some and may not. `user` wants it;
        None: the broker.
        """
        if if_unused and exchange.bindings:
            raise InUse("exchange", exchange.name)
        self.routes.leave(exchange)
        del self._exchanges[exchange.name]
        self._context.quotas.remove(EXCHANGES, vhost_of(exchange.name), exchange.definition.user)
        if exchange.durable:
            self._context.commit.delete(exchange_record.key(exchange.name))
        for binding in list(exchange.bindings.values()):
            self._drop(exchange, binding)
        self._drop_all(exchange.incoming)
        self.watched.deleted(exchange.name)
        if self._context.events.is_wanted and not self.is_told_elsewhere:
            headers = {"name": local_name(exchange.name), "vhost": vhost_of(exchange.name)}
            self._context.events.note("exchange.deleted", headers, user)

    # binding

    def bind(
        self,
        source: Exchange,
        destination: Destined,
        key: str,
        arguments: Mapping[str, object],
        user: str | None = None,
    ) -> Binding | None:
        """Have `source` pass on to `destination`, as the user wants; None if it does so already.

        Raises InvalidArgument, LimitReached.
        """
        source.matcher.check(key, arguments)
        binding = source.binding_to(destination, key, arguments)
        if binding.identity in source.bindings:
            return None
        if self._binding_count >= limits.BINDINGS_MAX:
            raise LimitReached(f"{limits.BINDINGS_MAX} bindings exist already")
        self._context.quotas.check(BINDINGS, vhost_of(source.name), user)
        binding.user = user
        if binding.is_durable:
            value = binding_record.encode(arguments, user)
            if len(value) > limits.BINDING_ARGUMENTS_BYTES_MAX:
                raise LimitReached(
                    f"the arguments of a binding have at most {limits.BINDING_ARGUMENTS_BYTES_MAX} bytes"
                )
            self._context.commit.put(binding_record.key(*binding.identity), value)
        if source.durable and source.definition.auto_delete and not source.bindings:
            stored = _record_of(source.definition, was_bound=True)
            self._context.commit.put(exchange_record.key(source.name), stored)
        self._attach(source, binding)
        if self._context.events.is_wanted:
            self._note("binding.created", binding, user)
        return binding

    def unbind(self, source: Exchange, binding: Binding, user: str | None = None) -> None:
        """Undo a `bind`, as the user wants; None: as the broker does."""
        self._drop(source, binding, user)
        self._end_if_unused(source)

    def _attach(self, source: Exchange, binding: Binding) -> None:
        source.add(binding)
        self._incoming(binding)[binding] = source
        self._binding_count += 1
        self._context.quotas.add(BINDINGS, vhost_of(source.name), binding.user)
        self.routes.expire(source)
        if source is self._events:
            self._context.events.is_wanted = True
        if isinstance(binding.destination, Queue):
            self.follower.bound(binding)

    def _note(self, key: str, binding: Binding, user: str | None) -> None:
        """Note an event about a binding, unless another shard does: that of its queue."""
        is_foreign = isinstance(binding.destination, ForeignQueue)
        if not is_foreign and not (binding.is_to_exchange and self.is_told_elsewhere):
            self._context.events.note(key, _told_binding(binding), user)

    def _drop(self, source: Exchange, binding: Binding, user: str | None = None) -> None:
        source.remove(binding)
        if self._context.events.is_wanted:
            self._note("binding.deleted", binding, user)
            self._context.events.is_wanted = bool(self._events.bindings)
        incoming = self._incoming(binding)
        del incoming[binding]
        if not incoming and isinstance(binding.destination, Queue | ForeignQueue):
            del self._to_queue[binding.destination]
        self._binding_count -= 1
        self._context.quotas.remove(BINDINGS, vhost_of(source.name), binding.user)
        if binding.is_durable:
            self._context.commit.delete(binding_record.key(*binding.identity))
        self.routes.expire(source)
        if isinstance(binding.destination, Queue):
            self.follower.unbound(binding)

    def _drop_all(self, incoming: dict[Binding, Exchange]) -> None:
        """Drop bindings to what is gone, and the exchanges that were there only for them."""
        sources = dict.fromkeys(incoming.values())
        for binding, source in list(incoming.items()):
            self._drop(source, binding)
        for source in sources:
            self._end_if_unused(source)

    def _incoming(self, binding: Binding) -> dict[Binding, Exchange]:
        destination = binding.destination
        if isinstance(destination, Exchange):
            return destination.incoming
        assert isinstance(destination, Queue | ForeignQueue)
        return self._to_queue.setdefault(destination, {})

    def _end_if_unused(self, exchange: Exchange) -> None:
        is_there = self._exchanges.get(exchange.name) is exchange
        if is_there and exchange.definition.auto_delete and not exchange.bindings:
            self.delete(exchange)

    # queues

    def bindings_to(self, queue: Queue | ForeignQueue) -> list[Binding]:
        """Return the bindings that lead to a queue."""
        return list(self._to_queue.get(queue, ()))

    def forget(self, queue: Queue | ForeignQueue) -> None:
        """Forget a queue that is gone, and what was bound to it."""
        self._drop_all(self._to_queue.get(queue, {}))

    def take_bindings(self, queue: Queue | ForeignQueue) -> list[tuple[Exchange, Binding]]:
        """Take away what leads to a queue in whose place another comes; see `give_bindings`."""
        taken = [(source, binding) for binding, source in self._to_queue.get(queue, {}).items()]
        for source, binding in taken:
            self._drop(source, binding)
        return taken

    def give_bindings(self, taken: list[tuple[Exchange, Binding]], queue: Queue | ForeignQueue) -> None:
        """Have lead to `queue` what led to another."""
        for source, binding in taken:
            self.bind(source, queue, binding.key, binding.arguments, binding.user)

    # routing

    def route(self, name: str, keys: Sequence[str], headers: Callable[[], Headers]) -> Route:
        """Return the queues that take a message published to an exchange, each once; see `Matcher.match`.

        The route stays current until bindings change; not at all if the next message may take another.
        Raises ExchangeNotFound, LimitReached, InternalExchange when clients may not publish there.
        """
        exchange = self.find(name)
        if exchange.definition.internal:
            raise InternalExchange(name)
        return self.routes.through(exchange, keys, headers)

    def event_route(self, key: str, headers: Headers) -> Route:
        """Return the queues that take an event of the broker's."""
        return self.routes.through(self._events, (key,), lambda: headers)

    def unconditional_route(self, name: str, key: str) -> Route:
        """Return the route as `route`, if headers do not matter and it stays current; otherwise one without
        queues.
        """
        exchange = self.get(name)
        if exchange is None or exchange.definition.internal:
            return NOWHERE
        try:
            self.routes.through(exchange, (key,), lambda: NO_HEADERS)
        except LimitReached:
            return NOWHERE
        return exchange.route_of(key) or NOWHERE

    # after a start

    def restore(self, name: str, stored: StoredExchange) -> None:
        """Restore an exchange that was declared."""
        definition = ExchangeDefinition(
            name,
            stored.type,
            durable=True,
            auto_delete=stored.auto_delete,
            internal=stored.internal,
            arguments=stored.arguments,
            user=stored.user,
        )
        self._adopt(Exchange(definition))

    def restore_binding(
        self, source: Exchange, destination: Queue | Exchange, key: str, stored: StoredBinding
    ) -> None:
        """Restore a binding that was made; all exchanges and queues are there."""
        binding = source.binding_to(destination, key, stored.arguments)
        binding.user = stored.user
        self._attach(source, binding)

    def end_unused(self, names: Iterable[str]) -> None:
        """Delete those of these exchanges that go with their last binding and have none left: what they were
        bound to was in memory.
        """
        for name in names:
            exchange = self._exchanges.get(name)
            if exchange is not None:
                self._end_if_unused(exchange)


def _record_of(definition: ExchangeDefinition, *, was_bound: bool = False) -> bytes:
    stored = StoredExchange(
        definition.type,
        definition.auto_delete,
        definition.internal,
        was_bound,
        definition.arguments,
        definition.user,
    )
    try:
        return exchange_record.encode(*stored)
    except ValueError as error:
        raise InvalidArgument(f"arguments of exchange {definition.name!r}: {error}") from None


def _check_equivalent(wanted: ExchangeDefinition, existing: ExchangeDefinition) -> None:
    """Raise Inequivalent; arguments the broker does not act on are not compared."""
    for what in ("type", "durable", "auto_delete", "internal"):
        received, current = getattr(wanted, what), getattr(existing, what)
        if received != current:
            raise Inequivalent("exchange", wanted.name, what, received, current, is_argument=False)
    if wanted.alternate != existing.alternate:
        raise Inequivalent(
            "exchange", wanted.name, ALTERNATE, wanted.alternate, existing.alternate, is_argument=True
        )


def _told(definition: ExchangeDefinition) -> dict[str, object]:
    """Return the headers of the event that tells of a new exchange."""
    return {
        "name": local_name(definition.name),
        "vhost": vhost_of(definition.name),
        "type": definition.type,
        "durable": definition.durable,
        "auto_delete": definition.auto_delete,
        "internal": definition.internal,
        "arguments": dict(definition.arguments),
    }


def _told_binding(binding: Binding) -> dict[str, object]:
    """Return the headers of an event that tells of a binding."""
    return {
        "source_kind": "exchange",
        "source_name": local_name(binding.source),
        "destination_kind": "exchange" if binding.is_to_exchange else "queue",
        "destination_name": local_name(binding.destination.name),
        "routing_key": binding.key,
        "vhost": vhost_of(binding.source),
        "arguments": dict(binding.arguments),
    }
