"""When a queue that nobody uses goes."""

from collections.abc import Callable

import pytest

from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Use
from queue_manager.shard.timers import Timers
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_policy, make_queue


class Unused:
    """A queue of which nothing is known but this."""

    deleted = False

    def __init__(self, policy: QueuePolicy, *, durable: bool = False, owner: str | None = None) -> None:
        self.policy = policy
        self.durable = durable
        self.owner = owner
        self.consumers = 0
        self.found_unused_ms: list[int] = []

    def go_unused(self, now_ms: int) -> None:
        self.found_unused_ms.append(now_ms)

    def consumer_count(self) -> int:
        return self.consumers


@pytest.fixture
def timers() -> Timers:
    return Timers()


def watched(queue: Unused, timers: Timers) -> tuple[Use, list[int], Callable[[int], None]]:
    """The use of a queue from `NOW_MS` on, when it was found unused, and what lets time pass."""
    use = Use(queue, timers, NOW_MS)
    use.watch()
    return use, queue.found_unused_ms, timers.fire


@pytest.mark.parametrize("durable", [True, False])
def test_unused_queue_goes_after_what_its_kind_is_given(timers: Timers, durable: bool) -> None:
    queue = Unused(make_policy(expires_ms=100, unused_max_ms=500), durable=durable)
    _, found, fire = watched(queue, timers)
    due_ms = NOW_MS + (500 if durable else 100)
    fire(due_ms - 1)
    assert found == []
    fire(due_ms)
    assert found == [due_ms]


def test_queue_used_meanwhile_has_its_time_from_then_on(timers: Timers) -> None:
    use, found, fire = watched(Unused(make_policy(expires_ms=100)), timers)
    use.note(NOW_MS + 60)
    fire(NOW_MS + 100)
    assert found == []
    fire(NOW_MS + 160)
    assert found == [NOW_MS + 160]


@pytest.mark.parametrize("why", ["has a consumer", "is deleted", "is exclusive", "may stay"])
def test_queue_that_is_used_or_gone_or_may_stay_does_not_go(timers: Timers, why: str) -> None:
    policy = make_policy(expires_ms=0 if why == "may stay" else 100)
    queue = Unused(policy, owner="connection" if why == "is exclusive" else None)
    _, found, fire = watched(queue, timers)
    queue.consumers = int(why == "has a consumer")
    queue.deleted = why == "is deleted"
    fire(NOW_MS + 1_000)
    assert found == []


@pytest.mark.parametrize("is_used", [True, False])
def test_queue_found_unused_before_its_history_was_known_goes_then_if_it_was_not_used_since(
    is_used: bool,
) -> None:
    manager = make_manager()
    queue = make_queue(manager, unused_max_ms=1_000)
    queue.parts[0].retention.begin_unknown()
    manager.fire_timers(NOW_MS + 1_000)
    if is_used:
        manager.queues.declare(queue.definition(), NOW_MS + 1_500)
    queue.parts[0].retention.become_known()
    manager.queues.history_known(NOW_MS + 2_000)
    assert queue.deleted is not is_used
    manager.fire_timers(NOW_MS + 2_500)
    assert queue.deleted
