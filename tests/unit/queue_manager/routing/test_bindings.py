import gc
import weakref
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from queue_manager.queue.queue import Queue
from queue_manager.routing.bindings import Bindings
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.route import Route
from tests.model.oracle import binding_matches

TOPICS = ["$queue/a", "$queue/a/x", "$queue/ab/x", "a/x", "b/x/y", "x", "/x", "$other/x", "$queue/b/x/y"]
PATTERNS = [
    "$queue/a/#",
    "$queue/a/x",
    "$queue/ab/#",
    "$queue/+/x",
    "$queue/#",
    "#",
    "+/x",
    "a/#",
    "b/+/y",
    "+",
]


class FakeQueue:
    """A queue as far as bindings care."""

    def __init__(self, topics: list[str]) -> None:
        self.topics = tuple(topics)
        self.durable = True


def fake_queue(topics: list[str]) -> Queue:
    return cast(Queue, FakeQueue(topics))


queues = st.lists(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3).map(fake_queue), max_size=6)


@given(queues, st.data())
def test_a_topic_goes_once_to_every_queue_bound_to_it(bound: list[Queue], data: st.DataObject) -> None:
    bindings = Bindings()
    for queue in bound:
        bindings.add(queue)
    gone = data.draw(st.sampled_from(bound)) if bound else None
    routes: dict[str, Route] = {}
    for _ in range(2):
        for topic in TOPICS:
            expected = [q for q in bound if any(binding_matches(t, topic) for t in q.topics)]
            route = routes[topic] = bindings.route(topic)
            assert len(route.queues) == len(set(route.queues)) == route.durable_count
            assert set(route.queues) == set(expected)
            assert route.is_current
        if gone is None:
            return
        bindings.remove(gone)
        bound = [queue for queue in bound if queue is not gone]
        assert not any(route.is_current for route in routes.values() if gone in route.queues)


def test_a_leading_wildcard_does_not_reach_queue_addresses() -> None:
    bindings = Bindings()
    for topic in ("#", "+/a", "+/a/#"):
        bindings.add(fake_queue([topic]))
    assert bindings.route("$queue/a").queues == ()


def test_removed_bindings_leave_nothing_behind() -> None:
    bindings = Bindings()
    removed = []
    for number in range(100):
        queue = fake_queue([f"$queue/q{number}/#", f"t/{number}"])
        bindings.add(queue)
        for topic in (f"$queue/q{number}/x", f"t/{number}"):
            assert bindings.route(topic).queues == (queue,)
        bindings.to_queue(queue)
        bindings.remove(queue)
        removed.append(weakref.ref(queue))
    del queue
    gc.collect()
    assert not any(queue() for queue in removed)


def test_the_cache_of_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROUTE_CACHE_ENTRIES_MAX", 10)
    bindings = Bindings()
    routes = [bindings.route(f"$queue/{number % 3}/{number}") for number in range(25)]
    assert [route.is_current for route in routes] == [False] * 20 + [True] * 5


@pytest.mark.parametrize("topic", ["$queue/a/x", "a/x"])
def test_a_plan_is_not_current_any_more_once_its_topic_has_another_queue(topic: str) -> None:
    bindings = Bindings()
    plan = PublishPlan(topic, 0, b"", True)
    assert not plan.is_current
    plan.aim(bindings.route(topic))
    bindings.add(fake_queue(["$queue/b/#"]))
    assert plan.is_current
    bindings.add(fake_queue([topic]))
    assert not plan.is_current
    plan.aim(bindings.route(topic))
    assert (plan.is_current, len(plan.queues)) == (True, 1)


def test_the_route_to_a_queue_ends_when_the_queue_goes() -> None:
    bindings = Bindings()
    queue, other = fake_queue([]), fake_queue([])
    for one in (queue, other):
        bindings.add(one)
    routes = [bindings.to_queue(one) for one in (queue, other)]
    assert [list(route.queues) for route in routes] == [[queue], [other]]
    bindings.remove(queue)
    assert [route.is_current for route in routes] == [False, True]


@pytest.mark.parametrize("pattern", ["$queue/a%2Fb/#", "$queue/a%2fb/#", "$queue/a%2Fb/+", "$queue/+/x"])
@pytest.mark.parametrize("topic", ["$queue/a%2Fb/x", "$queue/a%2fb/x"])
def test_a_name_is_the_same_however_its_code_is_written(pattern: str, topic: str) -> None:
    bindings = Bindings()
    queue = fake_queue([pattern])
    bindings.add(queue)
    assert bindings.route(topic).queues == (queue,)
    assert not bindings.route("$queue/a/b/x")
    assert not bindings.route("$queue/a%2Fb2/y")
    bindings.remove(queue)
    assert not bindings.route(topic)
