"""Consumers with selectors in one group."""

import pytest

from config import limits
from queue_manager.dispatch.by_selector import BySelector
from queue_manager.errors import LimitReached, PreconditionFailed
from queue_manager.filters import Fields, MessageFilter
from queue_manager.group.group import Group
from queue_manager.log.tail import RELEASED_BYTES
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.queue.queue import Queue
from tests.unit.queue_manager.managers import NOW_MS, Sink, make_manager, make_queue
from tests.unit.queue_manager.selecting import fields_of, select, send


@pytest.fixture
def manager() -> QueueManager:
    manager = make_manager()
    manager.context.fields.read_by(fields_of)
    return manager


@pytest.fixture(params=[True, False], ids=["durable", "ephemeral"])
def jobs(request: pytest.FixtureRequest, manager: QueueManager) -> Queue:
    return make_queue(manager, durable=request.param)


def is_selecting(group: Group) -> bool:
    """Whether any cursor of the group is served by filters."""
    return any(isinstance(cursor.dispatcher, BySelector) for cursor in group.cursors)


def test_each_consumer_gets_what_it_wants(manager: QueueManager, jobs: Queue) -> None:
    _, eu = select(manager, jobs, "region = 'eu'")
    _, us = select(manager, jobs, "region = 'us'")
    send(manager, "eu/1", "us/1", "asia/1", "eu/2", "us/2")
    manager.dispatch(NOW_MS)
    assert eu.offsets == [0, 3]
    assert us.offsets == [1, 4]
    group = jobs.groups.find("")
    assert group.cursors[0].position == 2
    assert group.ready_count() == 1
    assert group.serving.unmatched_count() == 1
    assert jobs.depth() == 1


def test_who_comes_later_gets_what_was_left(manager: QueueManager, jobs: Queue) -> None:
    send(manager, "eu/1", "us/1", "asia/1", "eu/2", "us/2")
    consumer, eu = select(manager, jobs, "region = 'eu'")
    manager.dispatch(NOW_MS)
    manager.ack(eu.claims, NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    group = jobs.groups.find("")
    assert group.ready_count() == 3
    assert group.serving.unmatched_count() == 0, "nobody is asked"
    _, rest = select(manager, jobs)
    manager.dispatch(NOW_MS)
    assert rest.offsets == [1, 2, 4]
    assert group.ready_count() == 0
    manager.seal(NOW_MS + 100)
    assert not is_selecting(group), "it is as if there had been no filters"
    send(manager, "eu/3")
    manager.dispatch(NOW_MS)
    assert rest.offsets == [1, 2, 4, 5]
    assert group.cursors[0].position == 6


def test_what_returns_comes_before_anything_newer(manager: QueueManager, jobs: Queue) -> None:
    consumer, eu = select(manager, jobs, "region = 'eu'", credit_max=2)
    send(manager, *["eu/1"] * 4)
    manager.dispatch(NOW_MS)
    assert eu.offsets == [0, 1]
    manager.requeue([eu.claims[1]], NOW_MS)
    manager.dispatch(NOW_MS)
    assert eu.offsets == [0, 1, 1]
    manager.ack([eu.claims[0]], NOW_MS)
    manager.dispatch(NOW_MS)
    assert eu.offsets == [0, 1, 1, 2]
    manager.consumption.unsubscribe(consumer, NOW_MS)
    _, us = select(manager, jobs, "region = 'us'")
    manager.dispatch(NOW_MS)
    assert us.offsets == []
    assert jobs.groups.find("").serving.unmatched_count() == 3
    _, all_of_it = select(manager, jobs)
    manager.dispatch(NOW_MS)
    assert all_of_it.offsets == [1, 2, 3]


def test_a_selector_consumer_does_not_starve(manager: QueueManager, jobs: Queue) -> None:
    _, everything = select(manager, jobs)
    _, eu = select(manager, jobs, "region = 'eu'")
    for _ in range(20):
        send(manager, "us/1", "eu/1", "us/1", "eu/1", "eu/2", "us/2")
        manager.dispatch(NOW_MS)
    assert len(eu.offsets) > 20
    assert sorted(everything.offsets + eu.offsets) == list(range(120))


def test_a_higher_priority_does_not_block_what_it_does_not_want(manager: QueueManager, jobs: Queue) -> None:
    _, low = select(manager, jobs)
    _, high = select(manager, jobs, "region = 'eu'", priority=5)
    send(manager, "us/1", "eu/1", "us/1", "eu/2")
    manager.dispatch(NOW_MS)
    assert high.offsets == [1, 3]
    assert low.offsets == [0, 2]


def test_get_takes_the_oldest_left(manager: QueueManager, jobs: Queue) -> None:
    select(manager, jobs, "region = 'eu'")
    send(manager, "us/1", "eu/1", "us/1", "eu/2")
    manager.dispatch(NOW_MS)
    sink = Sink()
    puller = manager.consumption.puller(jobs, sink, "p", lease_ms=1000)
    assert [manager.consumption.pull(puller, False, NOW_MS) for _ in range(3)] == [True, True, False]
    assert sink.offsets == [0, 2]


def test_a_group_selector_passes_over_the_rest(manager: QueueManager, jobs: Queue) -> None:
    _, eu = select(manager, jobs, group="eu", group_selector="region = 'eu'")
    send(manager, "us/1", "eu/1", "us/1", "eu/2")
    manager.dispatch(NOW_MS)
    assert eu.offsets == [1, 3]
    group = jobs.groups.find("eu")
    assert (group.ready_count(), is_selecting(group)) == (0, False)
    with pytest.raises(PreconditionFailed, match="region = 'eu'"):
        select(manager, jobs, group="eu", group_selector="region = 'us'")
    _, big = select(manager, jobs, "qty > 5", group="eu")
    send(manager, "eu/6", "us/7")
    manager.dispatch(NOW_MS)
    assert big.offsets + eu.offsets[2:] == [4]
    assert group.ready_count() == 0


def test_purge_drops_what_waits_and_nothing_else(manager: QueueManager, jobs: Queue) -> None:
    _, eu = select(manager, jobs, "region = 'eu'", credit_max=1)
    send(manager, "us/1", "eu/1", "us/1", "eu/2")
    manager.dispatch(NOW_MS)
    assert jobs.purge(NOW_MS) == 3
    group = jobs.groups.find("")
    assert (group.ready_count(), group.cursors[0].position) == (0, 4)
    manager.requeue(eu.claims, NOW_MS)
    send(manager, "eu/3")
    manager.dispatch(NOW_MS)
    assert eu.offsets == [1, 1]
    assert group.ready_count() == 1


def test_a_view_that_is_full_goes_on_where_it_stopped(
    manager: QueueManager, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SELECTED_MESSAGES_MAX", 3)
    _, eu = select(manager, jobs, "region = 'eu'", credit_max=1)
    _, us = select(manager, jobs, "region = 'us'")
    send(manager, *["eu/1"] * 10, *["us/1"] * 10)
    manager.dispatch(NOW_MS)
    assert us.offsets == list(range(10, 20))
    for _ in range(9):
        manager.ack(eu.claims[-1:], NOW_MS)
        manager.dispatch(NOW_MS)
    assert eu.offsets == list(range(10))


def test_a_long_search_takes_turns(
    manager: QueueManager, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SELECTOR_SCAN_MESSAGES_MAX", 10)
    monkeypatch.setattr(limits, "SELECTOR_SCAN_STEP_MESSAGES", 5)
    _, eu = select(manager, jobs, "region = 'eu'")
    send(manager, *["us/1"] * 25, "eu/1")
    manager.dispatch(NOW_MS)
    assert eu.offsets == []
    while manager.context.timers.next_ms() == NOW_MS:
        manager.fire_timers(NOW_MS)
    assert eu.offsets == [25]
    assert manager.context.timers.next_ms() is None


def test_memory_lets_go_of_what_was_taken_ahead(manager: QueueManager) -> None:
    jobs = make_queue(manager, durable=False)
    _, eu = select(manager, jobs, "region = 'eu'")
    send(manager, "us/1", *["eu/1"] * 100)
    one = jobs.log.tail.memory_bytes // 101
    manager.dispatch(NOW_MS)
    assert len(eu.offsets) == 100
    assert jobs.log.tail.memory_bytes <= one + 100 * RELEASED_BYTES
    _, rest = select(manager, jobs, "JMSXDeliveryCount >= 1")
    send(manager, "eu/2")
    manager.dispatch(NOW_MS)
    assert sorted(rest.offsets + eu.offsets[100:]) == [0, 101]


def test_a_new_group_passes_over_what_memory_let_go_of(manager: QueueManager) -> None:
    jobs = make_queue(manager, durable=False)
    _, eu = select(manager, jobs, "region = 'eu'")
    send(manager, "us/1", "eu/1", "us/2")
    manager.dispatch(NOW_MS)
    manager.ack(eu.claims, NOW_MS)
    _, late = select(manager, jobs, group="late")
    manager.dispatch(NOW_MS)
    assert late.offsets == [0, 2]
    send(manager, "eu/3")
    manager.dispatch(NOW_MS)
    assert late.offsets == [0, 2, 3]
    assert not is_selecting(jobs.groups.find("late"))


class Counting:
    """A condition that counts how often it is asked."""

    needs_delivery_count = needs_now = False

    def __init__(self, condition: MessageFilter) -> None:
        self.names = condition.names
        self.equality = condition.equality
        self.asked = 0
        self._condition = condition

    def matches(self, fields: Fields, /) -> bool:
        self.asked += 1
        return self._condition.matches(fields)


def test_each_filter_is_asked_once_about_each_message(manager: QueueManager, jobs: Queue) -> None:
    counting = {}
    for text in ("region = 'eu'", "region = 'eu'", "region = 'us'", "qty BETWEEN 1 AND 3", "asia"):
        consumer, _ = select(manager, jobs, text, credit_max=2)
        by_selector = jobs.groups.find("").cursors[0].dispatcher
        assert isinstance(by_selector, BySelector)
        view = by_selector._views_of[consumer]
        if view.condition is not None and not isinstance(view.condition, Counting):
            counting[text] = view.condition = Counting(view.condition)
    for index in range(40):
        send(manager, f"{['eu', 'us', 'asia'][index % 3]}/{index + 10}")
        manager.dispatch(NOW_MS)
    asked = [condition.asked for condition in counting.values()]
    assert asked == [14, 13, 40, 40], "the first two are found by their region, and shown nothing else"


def test_filters_of_a_group_are_limited(
    manager: QueueManager, jobs: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SELECTORS_PER_GROUP_MAX", 3)
    for text in ("", "qty = 1", "qty = 2", "qty = 3"):
        select(manager, jobs, text)
    with pytest.raises(LimitReached):
        select(manager, jobs, "qty = 4")
    select(manager, jobs, "qty = 2")
    assert len(jobs.groups.find("").consumers.members) == 5


def test_new_and_returned_messages_come_in_order(manager: QueueManager, jobs: Queue) -> None:
    first, eu = select(manager, jobs, "region = 'eu'")
    send(manager, "us/0", "eu/1", "us/2", "eu/3", "us/4")
    manager.dispatch(NOW_MS)
    manager.ack(eu.claims[1:], NOW_MS)
    manager.consumption.unsubscribe(first, NOW_MS)
    _, rest = select(manager, jobs, "qty < 100")
    manager.dispatch(NOW_MS)
    assert rest.calls == [[0], [1], [2, 4]]


def test_what_nobody_wanted_again_is_there_when_filters_are_gone(manager: QueueManager) -> None:
    jobs = make_queue(manager)
    first, sink = select(manager, jobs, "JMSXDeliveryCount = 1")
    send(manager, "eu/1", "eu/2")
    manager.dispatch(NOW_MS)
    manager.requeue(sink.claims, NOW_MS)
    manager.dispatch(NOW_MS)
    assert sink.offsets == [0, 1]
    assert jobs.groups.find("").serving.unmatched_count() == 2
    manager.consumption.unsubscribe(first, NOW_MS)
    manager.seal(NOW_MS + 100)
    assert not is_selecting(jobs.groups.find(""))
    _, rest = select(manager, jobs)
    manager.dispatch(NOW_MS)
    assert rest.calls == [[0, 1]]


def test_a_queue_with_priorities_selects_in_each_of_them(manager: QueueManager) -> None:
    jobs = make_queue(manager, priority_max=3)

    def send_at(priority: int, *keys: str) -> None:
        for key in keys:
            plan = manager.plan(f"$queue/jobs/{key}", 0, b"", True, PublishOptions(priority=priority))
            plan.aim(manager.publisher.route(plan.topic, NOW_MS))
            manager.publish(plan, [b"x"], NOW_MS)

    eu, eu_sink = select(manager, jobs, "region = 'eu'", credit_max=2)
    send_at(0, "us/1", "eu/1")
    send_at(2, "us/2", "eu/2", "eu/3")
    manager.dispatch(NOW_MS)
    high = 2 << 56
    assert eu_sink.offsets == [high + 1, high + 2]
    manager.ack(eu_sink.claims[:1], NOW_MS)
    manager.dispatch(NOW_MS)
    assert eu_sink.offsets[2:] == [1]
    group = jobs.groups.find("")
    assert (group.ready_count(), group.serving.unmatched_count()) == (2, 2)
    manager.consumption.unsubscribe(eu, NOW_MS)
    _, rest = select(manager, jobs, pattern="#")
    manager.dispatch(NOW_MS)
    assert rest.offsets == [high, high + 2, 0, 1]
    manager.seal(NOW_MS + 100)
    assert not is_selecting(group)
    _, patterned = select(manager, jobs, group="p", pattern="eu/#", group_selector="qty < 3")
    manager.dispatch(NOW_MS)
    assert patterned.offsets == [high + 1, 1]


@pytest.mark.parametrize("durable", [True, False])
def test_what_expired_as_it_came_back_does_not_keep_the_next_message_waiting(
    manager: QueueManager, durable: bool
) -> None:
    jobs = make_queue(manager, durable=durable, message_ttl_ms=1_000)
    _, plain = select(manager, jobs, credit_max=1)
    _, us = select(manager, jobs, "region = 'us'")
    send(manager, "eu/1")
    manager.dispatch(NOW_MS)
    send(manager, "eu/2", now_ms=NOW_MS + 900)
    manager.requeue(plain.claims, NOW_MS + 1_100)
    manager.dispatch(NOW_MS + 1_100)
    assert plain.offsets == [0, 1]
    assert us.offsets == []
