from hypothesis import given
from hypothesis import strategies as st

from config import limits
from queue_manager.routing import Bindings
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


queues = st.lists(st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3).map(FakeQueue), max_size=6)


@given(queues, st.data())
def test_a_topic_goes_once_to_every_queue_bound_to_it(bound: list[FakeQueue], data: st.DataObject) -> None:
    bindings = Bindings()
    for queue in bound:
        bindings.add(queue)  # type: ignore[arg-type]
    gone = data.draw(st.sampled_from(bound)) if bound else None
    for _ in range(2):
        for topic in TOPICS:
            expected = [q for q in bound if any(binding_matches(t, topic) for t in q.topics)]
            found = bindings.match(topic)
            assert len(found) == len(set(found))
            assert set(found) == set(expected)
        if gone is None:
            return
        generation = bindings.generation
        bindings.remove(gone)  # type: ignore[arg-type]
        bound = [queue for queue in bound if queue is not gone]
        assert bindings.generation > generation


def test_a_leading_wildcard_does_not_reach_queue_addresses() -> None:
    bindings = Bindings()
    for topic in ("#", "+/a", "+/a/#"):
        bindings.add(FakeQueue([topic]))  # type: ignore[arg-type]
    assert bindings.match("$queue/a") == ()


def test_removed_bindings_leave_nothing_behind() -> None:
    bindings = Bindings()
    for number in range(100):
        queue = FakeQueue([f"$queue/q{number}/#", f"t/{number}"])
        bindings.add(queue)  # type: ignore[arg-type]
        bindings.match(f"$queue/q{number}/x")
        bindings.remove(queue)  # type: ignore[arg-type]
    assert not bindings._by_name
    assert not bindings._others
    assert not bindings._cache


def test_the_cache_of_topics_is_bounded() -> None:
    bindings = Bindings()
    for number in range(limits.ROUTE_CACHE_ENTRIES_MAX + 10):
        bindings.match(f"$queue/a/{number}")
    assert len(bindings._cache) <= limits.ROUTE_CACHE_ENTRIES_MAX
