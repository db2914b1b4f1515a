"""CPU time of routing by exchanges, in the queue manager alone: `python -m benchmarks.routing`.

For a topic exchange with more and more bindings: publishes with one routing key (as a publisher's plan holds
it), publishes with a new key each, and a bind with the publish that follows it. Then headers exchanges, and
fan-out to ten queues. The best of several rounds counts, as other programs can only make one slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from benchmarks.core import NOW_MS, new_manager
from queue_manager.definitions import QueueDefinition
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.exchange import Exchange, ExchangeDefinition

ROUNDS = 5
PUBLISHES = 20_000
BINDS = 2_000
RUN = 50  # publishes that come in one chunk
FANOUT = 10
BINDING_COUNTS = (1, 1_000, 10_000)
WORST_RATIO = 2.0  # with 10,000 bindings, of what one binding costs

_POLICY = QueuePolicy(visibility_timeout_ms=30_000, message_bytes_max=1 << 20)


class Bench:
    """A queue manager with queues, of which the first takes what is measured."""

    def __init__(self, queue_count: int = 1) -> None:
        self.manager = new_manager(_POLICY)
        self.queues = [self._queue(f"q{number}") for number in range(queue_count)]

    def _queue(self, name: str) -> Queue:
        return self.manager.queues.declare(QueueDefinition(name, durable=False, policy=_POLICY), NOW_MS)

    def exchange(self, kind: str) -> Exchange:
        """An exchange of that type."""
        return self.manager.queues.exchanges.declare(ExchangeDefinition(kind, kind, durable=False))

    def bind(self, source: Exchange, key: str, arguments: dict[str, object] | None = None) -> None:
        """Bind the first queue."""
        self.manager.queues.exchanges.bind(source, self.queues[0], key, arguments or {})

    def publish(self, source: Exchange, keys: list[str], headers: dict[str, object] | None = None) -> None:
        """Publish runs, each with the next of the keys; they are held as a front-end holds them."""
        manager = self.manager
        given = headers or {}
        plans = {}
        bodies = [b"x" * 100] * RUN
        for number in range(PUBLISHES // RUN):
            key = keys[number % len(keys)]
            plan = plans.get(key)
            if plan is None or not plan.is_current:
                plan = plans[key] = manager.plan(key, 0, b"", False, exchange=source.name)
                plan.aim(manager.queues.exchanges.route(source.name, (key,), lambda: given))
            manager.publish(plan, bodies, NOW_MS)
        for queue in self.queues:
            queue.purge(NOW_MS)


def best_us(prepare: Callable[[], Callable[[], None]], count: int) -> float:
    """Microseconds of CPU time for each of `count` things that what is prepared does."""
    best = float("inf")
    for _ in range(ROUNDS):
        act = prepare()
        begun = time.process_time_ns()
        act()
        best = min(best, (time.process_time_ns() - begun) / count / 1_000)
    return best


def topic_bench(binding_count: int) -> tuple[Bench, Exchange]:
    """A topic exchange with so many patterns."""
    bench = Bench()
    source = bench.exchange("topic")
    for number in range(binding_count):
        bench.bind(source, f"site.{number}.*.temperature")
    return bench, source


def same_key(binding_count: int) -> Callable[[], None]:
    bench, source = topic_bench(binding_count)
    return lambda: bench.publish(source, ["site.0.a.temperature"])


def new_keys(binding_count: int) -> Callable[[], None]:
    bench, source = topic_bench(binding_count)
    keys = [f"site.0.{number}.temperature" for number in range(PUBLISHES // RUN)]
    return lambda: bench.publish(source, keys)


def binds(binding_count: int) -> Callable[[], None]:
    bench, source = topic_bench(binding_count)
    exchanges = bench.manager.queues.exchanges

    def act() -> None:
        for number in range(BINDS):
            bench.bind(source, f"other.{number}.#")
            exchanges.route(source.name, ("site.0.a.temperature",), dict)

    return act


def by_headers(binding_count: int) -> Callable[[], None]:
    bench = Bench()
    source = bench.exchange("headers")
    for number in range(binding_count):
        bench.bind(source, "", {"site": number, "kind": "temperature"})
    headers: dict[str, object] = {"site": 0, "kind": "temperature", "unit": "K"}
    exchanges = bench.manager.queues.exchanges

    def act() -> None:
        for _ in range(PUBLISHES // RUN):
            exchanges.route(source.name, ("",), lambda: headers)

    return act


def fanout() -> Callable[[], None]:
    bench = Bench(FANOUT)
    source = bench.exchange("fanout")
    for queue in bench.queues:
        bench.manager.queues.exchanges.bind(source, queue, "", {})
    return lambda: bench.publish(source, ["k"])


def main() -> None:
    print(f"{'us of CPU':>10}")
    publishes: list[float] = []
    for count in BINDING_COUNTS:
        publishes.append(best_us(partial(same_key, count), PUBLISHES))
        tell(publishes[-1], f"a publish, topic exchange, {count:,} bindings")
        tell(best_us(partial(new_keys, count), PUBLISHES // RUN), f"a run of {RUN} with a new key")
        tell(best_us(partial(binds, count), BINDS), "a bind, and routing anew")
        tell(best_us(partial(by_headers, count), PUBLISHES // RUN), f"routing by headers, {count:,} bindings")
    tell(best_us(fanout, PUBLISHES), f"a publish, fanout to {FANOUT} queues")
    ratio = publishes[-1] / publishes[0]
    verdict = "ok" if ratio <= WORST_RATIO else "too slow"
    print(f"with {BINDING_COUNTS[-1]:,} bindings {ratio:.2f} times that of one (of {WORST_RATIO}): {verdict}")


def tell(cost_us: float, what: str) -> None:
    print(f"{cost_us:>10.3f}  {what}")


if __name__ == "__main__":
    main()
