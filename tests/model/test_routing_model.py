"""Random topologies of exchanges, bindings and queues, over crashes, beside an oracle that tries every one.

The routes that publishers hold on to are compared too: one that says it is current must be right.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from queue_manager.errors import ExchangeNotFound, PreconditionFailed, QueueBusy
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.exchange import TOPICS, Exchange, ExchangeDefinition
from queue_manager.routing.exchange_directory import PREDECLARED
from queue_manager.routing.route import Route
from queue_manager.shard.event_notes import EVENT_EXCHANGE
from queue_manager.spec_records import QueueDefinition
from storage.records import binding as binding_record
from storage.records import exchange as exchange_record
from tests.memory_store import MemoryStore
from tests.model.leaks import all_rows
from tests.model.shard_model import ShardModel

POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=100, expires_ms=0)
TYPES = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message")
NAMES = ("x1", "x2", "x3", "x4")
EXCHANGES = (*NAMES, "amq.topic", "amq.headers")
QUEUES = {"q1": True, "q2": True, "q3": True, "mem": False}
WORDS = ("a", "b", "")
PATTERNS = st.sampled_from(("#", "a.#", "#.a", "a.#.b", "*", "a.*", "a")) | st.lists(
    st.sampled_from((*WORDS, "*", "#")), max_size=3
).map(".".join)
KEYS: tuple[tuple[str, ...], ...] = (
    ("",), ("a",), ("a.b",), ("b", "a.a"), ("a.b.a",), ("b..b",), ("*",), ("a.a.b.b",), ("b.a",), ("#.a",),
)  # fmt: skip
PUBLISHED_HEADERS: tuple[dict[str, Any], ...] = (
    {}, {"h": 1}, {"h": True, "i": "1"}, {"i": 2}, {"h": 1, "i": "1"}, {"x-h": 1}, {"h": 2, "x-h": "1"},
)  # fmt: skip
ROUTES_HELD_MAX = 100
VALUES = st.sampled_from((1, True, "1", None, 2))
HEADERS = st.dictionaries(st.sampled_from(("h", "i", "x-h")), VALUES, max_size=3)
MODES = st.sampled_from((None, "all", "any", "all-with-x", "any-with-x"))


class Bound(NamedTuple):
    """A binding of the oracle."""

    source: str
    kind: str
    destination: str
    key: str
    arguments: tuple[tuple[str, Any, str], ...]  # with the type: 1 is not True


class Declared(NamedTuple):
    """An exchange of the oracle."""

    type: str
    durable: bool = True
    auto_delete: bool = False
    alternate: str | None = None


class OracleRouting:
    """What there is, and the slowest way to route by it."""

    def __init__(self) -> None:
        self.exchanges = {name: Declared(kind) for name, kind in PREDECLARED.items()}
        self.queues: dict[str, bool] = {}
        self.bindings: set[Bound] = set()

    def survivors(self) -> OracleRouting:
        """What a crash leaves of it."""
        left = OracleRouting()
        left.exchanges = {name: each for name, each in self.exchanges.items() if each.durable}
        left.queues = {name: durable for name, durable in self.queues.items() if durable}
        left.bindings = {
            bound for bound in self.bindings if bound.source in left.exchanges and left.has_destination(bound)
        }
        return left

    def has_destination(self, bound: Bound) -> bool:
        return bound.destination in (self.exchanges if bound.kind == "exchange" else self.queues)

    def unbind(self, gone: set[Bound]) -> None:
        """Take bindings away; exchanges that were there only for them go too."""
        self.bindings -= gone
        for name in {bound.source for bound in gone}:
            exchange = self.exchanges.get(name)
            if exchange and exchange.auto_delete and not any(b.source == name for b in self.bindings):
                self.delete_exchange(name)

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = {bound for bound in self.bindings if bound.source != name}
        self.unbind({b for b in self.bindings if (b.kind, b.destination) == ("exchange", name)})

    def route(
        self, start: str, keys: tuple[str, ...], headers: Mapping[str, Any]
    ) -> tuple[set[str], set[str]]:
        """The queues that must take a message, and those of which one may (consistent hashing)."""
        queues: set[str] = set()
        seen: set[str] = set()
        pending = [start]
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            exchange = self.exchanges[name]
            taken = [b for b in self.bindings if b.source == name and takes(exchange, b, keys, headers)]
            if not taken and exchange.alternate in self.exchanges:
                pending.append(exchange.alternate)
            pending += [b.destination for b in taken if b.kind == "exchange"]
            queues |= {b.destination for b in taken if b.kind == "queue"}
        return queues, seen


def takes(exchange: Declared, bound: Bound, keys: tuple[str, ...], headers: Mapping[str, Any]) -> bool:
    if exchange.type in ("fanout", "x-consistent-hash"):
        return True
    if exchange.type == "headers":
        return headers_match(bound, headers)
    if exchange.type == "topic":
        return any(words_match(_words(bound.key), _words(key)) for key in keys)
    return bound.key in keys


def _words(key: str) -> list[str]:
    return key.split(".") if key else []


def words_match(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(words_match(pattern[1:], words[start:]) for start in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and words_match(pattern[1:], words[1:])


def headers_match(bound: Bound, headers: Mapping[str, Any]) -> bool:
    arguments = {name: value for name, value, _ in bound.arguments}
    mode = arguments.pop("x-match", None) or "all"
    verdicts = [
        name in headers and (value is None or (type(value), value) == (type(headers[name]), headers[name]))
        for name, value in arguments.items()
        if mode.endswith("-with-x") or not name.startswith("x-")
    ]
    return all(verdicts) if mode.startswith("all") else any(verdicts)


class RoutingModel(ShardModel):
    """The exchanges of a shard beside the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.oracle = OracleRouting()
        self.durable = self.oracle.survivors()
        self.held: list[tuple[str, tuple[str, ...], dict[str, Any], Route]] = []
        self.probe_count = 0

    @initialize(kinds=st.lists(st.sampled_from(TYPES), min_size=3, max_size=3), auto_delete=st.booleans())
    def begin(self, kinds: list[str], auto_delete: bool) -> None:
        self.attach(MemoryStore())
        for name, kind, alternate in zip(NAMES[1:], kinds, (None, "x2", "x3"), strict=True):
            self.declare_exchange(name, kind, True, auto_delete, alternate)
        for name in QUEUES:
            self.declare_queue(name)

    @property
    def exchanges(self) -> Any:
        return self.manager.queues.exchanges

    # what is done

    @rule(
        name=st.sampled_from(NAMES),
        kind=st.sampled_from(TYPES),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        alternate=st.sampled_from((None, None, *EXCHANGES, "missing")),
    )
    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, alternate: str | None
    ) -> None:
        arguments: dict[str, object] = {} if alternate is None else {"alternate-exchange": alternate}
        routes_as = kind
        if kind == "x-delayed-message":
            arguments["x-delayed-type"] = routes_as = "topic"
        wanted = Declared(routes_as, durable, auto_delete, alternate)
        definition = ExchangeDefinition(
            name, kind, durable=durable, auto_delete=auto_delete, arguments=arguments
        )
        if name in self.oracle.exchanges:
            there = self.exchanges.find(name).definition
            if (there.type, self.oracle.exchanges[name]) == (kind, wanted):
                self.exchanges.declare(definition)
            else:
                with pytest.raises(PreconditionFailed):
                    self.exchanges.declare(definition)
            return
        self.exchanges.declare(definition)
        self.oracle.exchanges[name] = wanted

    @rule(name=st.sampled_from(NAMES), if_unused=st.booleans())
    def delete_exchange(self, name: str, if_unused: bool) -> None:
        if name not in self.oracle.exchanges:
            with pytest.raises(ExchangeNotFound):
                self.exchanges.find(name)
            return
        exchange = self.exchanges.find(name)
        if if_unused and any(bound.source == name for bound in self.oracle.bindings):
            with pytest.raises(PreconditionFailed):
                self.exchanges.delete(exchange, if_unused=True)
            return
        self.exchanges.delete(exchange, if_unused=if_unused)
        self.oracle.delete_exchange(name)

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def declare_queue(self, name: str) -> None:
        try:
            self.manager.queues.declare(
                QueueDefinition(name, durable=QUEUES[name], policy=POLICY), self.clock.ms
            )
        except QueueBusy:
            return
        self.oracle.queues[name] = QUEUES[name]

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def delete_queue(self, name: str) -> None:
        if name in self.oracle.queues:
            self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
            del self.oracle.queues[name]
            self.oracle.unbind(
                {b for b in self.oracle.bindings if (b.kind, b.destination) == ("queue", name)}
            )

    @precondition(lambda self: self.oracle.queues)
    @rule(data=st.data(), pattern=PATTERNS, headers=HEADERS, mode=MODES, to_exchange=st.booleans())
    def bind(
        self, data: Any, pattern: str, headers: dict[str, Any], mode: str | None, to_exchange: bool
    ) -> None:
        source = data.draw(st.sampled_from(sorted(self.oracle.exchanges)))
        kind = "exchange" if to_exchange else "queue"
        known = self.oracle.exchanges if to_exchange else self.oracle.queues
        destination = data.draw(st.sampled_from(sorted(known)))
        arguments = headers if mode is None else {**headers, "x-match": mode}
        if self.oracle.exchanges[source].type == "x-consistent-hash":
            pattern = "2"
        made = self.exchanges.bind(
            self.exchanges.find(source), self._destination(kind, destination), pattern, arguments
        )
        typed = tuple(sorted((name, value, str(type(value))) for name, value in arguments.items()))
        bound = Bound(source, kind, destination, pattern, typed)
        assert (made is None) == (bound in self.oracle.bindings)
        self.oracle.bindings.add(bound)

    def _destination(self, kind: str, name: str) -> Queue | Exchange:
        found = self.exchanges.find(name) if kind == "exchange" else self.manager.queues.find(name)
        assert isinstance(found, Queue | Exchange)
        return found

    @precondition(lambda self: self.oracle.bindings)
    @rule(data=st.data())
    def unbind(self, data: Any) -> None:
        bound = data.draw(st.sampled_from(sorted(self.oracle.bindings, key=repr)))
        source = self.exchanges.find(bound.source)
        arguments = {name: value for name, value, _ in bound.arguments}
        found = source.find(self._destination(bound.kind, bound.destination), bound.key, arguments)
        assert found is not None
        self.exchanges.unbind(source, found)
        self.oracle.unbind({bound})

    @rule()
    def commit(self) -> None:
        self.commit_all()
        self.durable = self.oracle.survivors()

    @rule()
    def sweep(self) -> None:
        self.commit()
        self.sweep_once()

    @rule()
    def crash(self) -> None:
        self.attach(self.store.crash())
        self.oracle = copy.deepcopy(self.durable)
        self.held = []
        self.check_bindings()

    # what must hold

    def check(self, start: str, keys: tuple[str, ...], headers: dict[str, Any], route: Route) -> None:
        names = [queue.name for queue in route.queues]
        assert len(set(names)) == len(names)
        wanted, seen = self.oracle.route(start, keys, headers)
        if any(self.oracle.exchanges[name].type == "x-consistent-hash" for name in seen):
            assert set(names) <= wanted
            again = self.exchanges.route(start, keys, lambda: headers)
            assert [queue.name for queue in again.queues] == names
        else:
            assert set(names) == wanted
            assert (route.topics_of is not None) == (TOPICS in seen)

    @invariant()
    def held_routes_are_right_or_say_so(self) -> None:
        self.held = [held for held in self.held if held[3].is_current]
        for held in self.held:
            self.check(*held)
        for start in self.oracle.exchanges:
            self.probe_count += 1
            keys = KEYS[self.probe_count % len(KEYS)]
            headers = PUBLISHED_HEADERS[self.probe_count % len(PUBLISHED_HEADERS)]
            route = self.exchanges.route(start, keys, lambda headers=headers: headers)
            assert route.is_current
            self.check(start, keys, headers, route)
            if len(self.held) < ROUTES_HELD_MAX:
                self.held.append((start, keys, headers, route))

    @invariant()
    def check_bindings(self) -> None:
        there = {exchange.name for exchange in self.exchanges}
        assert there == {*self.oracle.exchanges, EVENT_EXCHANGE}
        assert sum(len(exchange.bindings) for exchange in self.exchanges) == len(self.oracle.bindings)

    def teardown(self) -> None:
        """Nothing is left on the store of what is deleted."""
        if not hasattr(self, "shard"):
            return
        self.commit()
        keys = [key for key, _ in all_rows(self.store)]
        stored = {exchange_record.parse_key(k) for k in keys if k.startswith(exchange_record.prefix())}
        assert stored == set(self.durable.exchanges) - set(PREDECLARED)
        bindings = [key for key in keys if key.startswith(binding_record.prefix())]
        assert len(bindings) == len(self.durable.bindings)


TestRoutingModel = RoutingModel.TestCase
TestRoutingModel.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestRoutingModelLong(RoutingModel.TestCase):
    settings = settings(max_examples=2_000, stateful_step_count=60, deadline=None)
