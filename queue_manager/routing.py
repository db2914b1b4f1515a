"""Which queues a topic belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from config import limits
from queue_manager.address import PREFIX
from queue_manager.patterns import compile_pattern

if TYPE_CHECKING:
    from queue_manager.queue import Queue

_Predicate = Callable[[str], bool]


class Bindings:
    """The topic bindings of all queues, with a cache of answers.

    Bindings below a literal `$queue/<name>` are found by that name, so that the cost of a new topic does
    not grow with the number of queues; the others are tried one by one.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, list[tuple[_Predicate, Queue]]] = {}
        self._others: list[tuple[_Predicate, Queue]] = []
        self._cache: dict[str, tuple[Queue, ...]] = {}
        self.generation = 0

    def add(self, queue: Queue) -> None:
        """Bind a queue's topics."""
        for topic in queue.topics:
            self._list_of(topic).append((_topic_predicate(topic), queue))
        self._changed()

    def remove(self, queue: Queue) -> None:
        """Unbind a queue."""
        for topic in queue.topics:
            bindings = self._list_of(topic)
            bindings[:] = [binding for binding in bindings if binding[1] is not queue]
            name = _literal_name(topic)
            if not bindings and name is not None:
                self._by_name.pop(name, None)
        self._changed()

    def match(self, topic: str) -> tuple[Queue, ...]:
        """Every queue bound to the topic, each once."""
        queues = self._cache.get(topic)
        if queues is None:
            found: dict[Queue, None] = {}
            name = _literal_name(topic)
            if name is not None:
                found.update(
                    (queue, None) for matches, queue in self._by_name.get(name, ()) if matches(topic)
                )
            found.update((queue, None) for matches, queue in self._others if matches(topic))
            queues = tuple(found)
            if len(self._cache) >= limits.ROUTE_CACHE_ENTRIES_MAX:
                self._cache.clear()
            self._cache[topic] = queues
        return queues

    def _list_of(self, topic: str) -> list[tuple[_Predicate, Queue]]:
        name = _literal_name(topic)
        return self._others if name is None else self._by_name.setdefault(name, [])

    def _changed(self) -> None:
        self._cache.clear()
        self.generation += 1


def _literal_name(topic: str) -> str | None:
    if not topic.startswith(PREFIX):
        return None
    name = topic[len(PREFIX) :].partition("/")[0]
    return None if name in ("+", "#", "") else name


def _topic_predicate(pattern: str) -> _Predicate:
    """Like a pattern's predicate, but a leading wildcard does not match topics that begin with `$`."""
    matches = compile_pattern(pattern)
    if pattern[0] not in "+#":
        return matches
    return lambda topic: not topic.startswith("$") and matches(topic)
