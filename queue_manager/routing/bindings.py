"""Which queues a topic belongs to."""

from __future__ import annotations

from collections.abc import Callable

from config import limits
from queue_manager.address import PREFIX, address_of, canonical, queue_of
from queue_manager.patterns import compile_pattern
from queue_manager.queue.queue import Queue
from queue_manager.routing.route import ForeignQueue, Route, by_shard

_Predicate = Callable[[str], bool]


class Bindings:
    """The topic bindings of all queues, with a cache of routes.

    Bindings below a literal `$queue/<name>` are found by that name, so that the cost of a new topic does not
    grow with the number of queues; the others are tried one by one. A change of the first kind touches only
    the routes of its name.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, list[tuple[_Predicate, Queue | ForeignQueue]]] = {}
        self._others: list[tuple[_Predicate, Queue | ForeignQueue]] = []
        self._routes: dict[str | None, dict[str, Route]] = {}  # by literal name, then by topic
        self._route_count = 0
        self._to_queue: dict[Queue, Route] = {}

    def add(self, queue: Queue | ForeignQueue) -> None:
        """Bind a queue's topics."""
        for topic in queue.topics:
            self._list_of(topic).append((_topic_predicate(topic), queue))
            self._changed(topic)

    def remove(self, queue: Queue | ForeignQueue) -> None:
        """Unbind a queue."""
        for topic in queue.topics:
            bindings = self._list_of(topic)
            bindings[:] = [binding for binding in bindings if binding[1] is not queue]
            name = _literal_name(topic)
            if not bindings and name is not None:
                self._by_name.pop(name, None)
            self._changed(topic)
        if isinstance(queue, ForeignQueue):
            queue.route.expire()
            return
        route = self._to_queue.pop(queue, None)
        if route is not None:
            route.expire()

    def to_queue(self, queue: Queue) -> Route:
        """Return the route to one queue, whatever is bound to it."""
        route = self._to_queue.get(queue)
        if route is None:
            route = self._to_queue[queue] = Route((queue,))
        return route

    def route(self, topic: str) -> Route:
        """Return the route of a topic: every queue bound to it, each once."""
        name = _literal_name(topic)
        routes = self._routes.get(name)
        route = None if routes is None else routes.get(topic)
        if route is None:
            found: dict[Queue | ForeignQueue, None] = {}
            asked = canonical(topic)
            if name is not None:
                found.update(
                    (queue, None) for matches, queue in self._by_name.get(name, ()) if matches(asked)
                )
            found.update((queue, None) for matches, queue in self._others if matches(asked))
            queues, foreign = by_shard(found)
            route = Route(queues, None, foreign)
            self._keep(name, topic, route)
        return route

    def _keep(self, name: str | None, topic: str, route: Route) -> None:
        if self._route_count >= limits.ROUTE_CACHE_ENTRIES_MAX:
            self._expire_all()
        self._routes.setdefault(name, {})[topic] = route
        self._route_count += 1

    def _list_of(self, topic: str) -> list[tuple[_Predicate, Queue | ForeignQueue]]:
        name = _literal_name(topic)
        return self._others if name is None else self._by_name.setdefault(name, [])

    def _changed(self, topic: str) -> None:
        name = _literal_name(topic)
        if name is None:
            self._expire_all()
        else:
            self._expire(self._routes.pop(name, {}))

    def _expire_all(self) -> None:
        for routes in self._routes.values():
            self._expire(routes)
        self._routes.clear()

    def _expire(self, routes: dict[str, Route]) -> None:
        for route in routes.values():
            route.expire()
        self._route_count -= len(routes)


def _always(topic: str) -> bool:
    return True


def _literal_name(topic: str) -> str | None:
    if not topic.startswith(PREFIX):
        return None
    level = topic[len(PREFIX) :].partition("/")[0]
    if level in ("+", "#", ""):
        return None
    return queue_of(topic) if "%" in level else level


def _topic_predicate(pattern: str) -> _Predicate:
    """Make a pattern's predicate, but a leading wildcard does not match topics that begin with `$`.

    What is below a literal name is only asked of topics with that name, so its own `/#` matches all of them.
    """
    pattern = canonical(pattern)
    name = _literal_name(pattern)
    if name is not None and pattern == f"{address_of(name)}/#":
        return _always
    matches = compile_pattern(pattern)
    if pattern[0] not in "+#":
        return matches
    return lambda topic: not topic.startswith("$") and matches(topic)
