"""Where a publish goes: exchanges and bindings, worked out anew for every message, with nothing kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

BUILT_IN = {
    "": "default",
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


def key_matches(pattern: list[str], words: list[str]) -> bool:
    """Whether an AMQP topic pattern matches: `*` is one word, `#` any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(key_matches(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and key_matches(pattern[1:], words[1:])


def filter_matches(topic_filter: str, topic: str) -> bool:
    """Whether an MQTT topic filter matches a topic; wildcards at the first level leave out `$...`."""
    pattern, levels = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and pattern[0] in ("+", "#"):
        return False
    for position, level in enumerate(pattern):
        if level == "#":
            return True
        if position >= len(levels) or level not in ("+", levels[position]):
            return False
    return len(pattern) == len(levels)


@dataclass
class Exchange:
    """As declared; `alternate` takes what no binding takes."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str = ""
    had_binding: bool = False

    def declared_as(self) -> tuple[Any, ...]:
        return self.kind, self.durable, self.auto_delete, self.internal, self.alternate


@dataclass(frozen=True)
class Binding:
    """From an exchange to a queue (`to_queue`) or an exchange; `arguments` are pairs, sorted."""

    source: str
    to_queue: bool
    target: str
    key: str
    arguments: tuple[tuple[str, Any], ...] = ()


@dataclass
class Route:
    """What a publish reaches: queues by name, and topics of MQTT subscribers by way of `amq.topic`."""

    queues: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)


class Routes:
    """Exchanges and bindings of a virtual host."""

    def __init__(self) -> None:
        self.exchanges = {name: Exchange(name, kind) for name, kind in BUILT_IN.items()}
        self.bindings: list[Binding] = []

    def bind(self, binding: Binding) -> None:
        if binding not in self.bindings:
            self.bindings.append(binding)
            self.exchanges[binding.source].had_binding = True

    def unbind(self, binding: Binding) -> None:
        if binding in self.bindings:
            self.bindings.remove(binding)
            self._sweep(binding.source)

    def drop_queue(self, name: str) -> None:
        self._drop([found for found in self.bindings if found.to_queue and found.target == name])

    def drop_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self._drop(
            [
                found
                for found in self.bindings
                if found.source == name or (not found.to_queue and found.target == name)
            ]
        )

    def _drop(self, bindings: list[Binding]) -> None:
        for binding in bindings:
            if binding in self.bindings:
                self.bindings.remove(binding)
        for source in {binding.source for binding in bindings}:
            self._sweep(source)

    def _sweep(self, source: str) -> None:
        """An auto-delete exchange goes with its last binding."""
        exchange = self.exchanges.get(source)
        bound = any(binding.source == source for binding in self.bindings)
        if exchange is not None and exchange.auto_delete and exchange.had_binding and not bound:
            self.drop_exchange(source)

    def crash(self, durable_queues: set[str]) -> None:
        """Keep what is durable, as any end of the broker does."""
        for name in [name for name, exchange in self.exchanges.items() if not exchange.durable]:
            self.drop_exchange(name)
        self._drop(
            [found for found in self.bindings if found.to_queue and found.target not in durable_queues]
        )

    def route(self, exchange: str, keys: list[str], headers: dict[str, Any], queues: set[str]) -> Route:
        """Where a message with these routing keys (its own, CC, BCC) goes; `queues` are those there are.

        Every exchange on the way looks at all of the keys, also where only one of them led there, as with
        RabbitMQ; an alternate exchange has what none of them brings anywhere.
        """
        route = Route()
        self._pass(exchange, keys, headers, queues, route, set())
        return route

    def _pass(
        self,
        name: str,
        keys: list[str],
        headers: dict[str, Any],
        queues: set[str],
        route: Route,
        seen: set[str],
    ) -> None:
        exchange = self.exchanges.get(name)
        if exchange is None or name in seen:
            return
        seen.add(name)
        if exchange.kind == "default":
            route.queues |= queues.intersection(keys)
            return
        if name == "amq.topic":
            route.topics |= {key.replace(".", "/") for key in keys}
        taken = False
        for binding in self.bindings:
            if binding.source != name:
                continue
            if not any(self._takes(exchange.kind, binding, key, headers) for key in keys):
                continue
            taken = True
            if binding.to_queue:
                route.queues.add(binding.target)
            else:
                self._pass(binding.target, keys, headers, queues, route, seen)
        if not taken and exchange.alternate:
            self._pass(exchange.alternate, keys, headers, queues, route, seen)

    @staticmethod
    def _takes(kind: str, binding: Binding, key: str, headers: dict[str, Any]) -> bool:
        if kind == "fanout":
            return True
        if kind == "direct":
            return binding.key == key
        if kind == "topic":
            return key_matches(binding.key.split("."), key.split("."))
        wanted = dict(binding.arguments)
        mode = wanted.pop("x-match", "all")
        hits = [headers.get(name) == value for name, value in wanted.items()]
        return any(hits) if mode == "any" else all(hits)
