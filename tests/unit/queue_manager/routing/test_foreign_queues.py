"""Queues of other shards in the routing of one."""

from __future__ import annotations

import pytest

from queue_manager.effective_policy import NONE as NO_POLICIES
from queue_manager.effective_policy import Policy
from queue_manager.manager import QueueManager
from queue_manager.policy import QueuePolicy
from queue_manager.routing.exchange import ExchangeDefinition
from queue_manager.routing.exchange_types.base import NO_HEADERS
from queue_manager.routing.route import ForeignQueue, joined, open_to
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate
from tests.unit.queue_manager.managers import make_manager

POLICY = QueuePolicy(visibility_timeout_ms=1_000, message_bytes_max=1_000)


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


class Passed:
    """Keeps what was passed on."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []

    def __call__(self, queue: ForeignQueue, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        self.messages.append((queue.name, body))


def foreign(name: str, *, policy: QueuePolicy = POLICY, passed: Passed | None = None) -> ForeignQueue:
    return ForeignQueue(
        name,
        shard=1,
        durable=True,
        policy=policy,
        topics=(f"$queue/{name}/#",),
        is_exclusive=False,
        log_id="q1",
        pass_on=passed or Passed(),
    )


def exchange(manager: QueueManager, name: str, kind: str = "topic") -> None:
    manager.queues.exchanges.declare(ExchangeDefinition(name, kind, durable=True))


def through(manager: QueueManager, name: str, key: str) -> tuple[list[str], list[str]]:
    route = manager.queues.exchanges.route(name, (key,), lambda: NO_HEADERS)
    return [queue.name for queue in route.queues], [queue.name for queue in route.foreign]


def test_a_name_and_its_topics_lead_to_the_other_shard_until_the_queue_is_gone(manager: QueueManager) -> None:
    queue = foreign("q")
    manager.queues.take_foreign(queue)
    by_name, by_topic = manager.queues.route_to("q"), manager.queues.bindings.route("$queue/q/a")
    assert by_name.foreign == by_topic.foreign == (queue,)
    assert (by_name.queues, by_topic.queues) == ((), ())
    assert by_name
    assert by_topic
    manager.queues.forget_foreign(queue)
    assert not by_name.is_current
    assert not by_topic.is_current
    assert not manager.queues.route_to("q")
    assert not manager.queues.bindings.route("$queue/q/a")


def test_an_exchange_leads_to_queues_of_both_shards(manager: QueueManager) -> None:
    exchange(manager, "x")
    exchanges = manager.queues.exchanges
    here = manager.queues.declare(QueueDefinition("here", durable=True, policy=POLICY), 0)
    there = foreign("there")
    manager.queues.take_foreign(there)
    exchanges.bind(exchanges.find("x"), here, "a.#", {})
    binding = exchanges.bind(exchanges.find("x"), there, "a.*", {})
    assert binding is not None
    assert not binding.is_durable  # it is kept where the queue is
    assert through(manager, "x", "a.b") == (["here"], ["there"])
    assert through(manager, "x", "a.b.c") == (["here"], [])
    manager.queues.forget_foreign(there)
    assert through(manager, "x", "a.b") == (["here"], [])


def test_a_queue_that_is_told_anew_keeps_what_leads_to_it(manager: QueueManager) -> None:
    exchange(manager, "x")
    exchanges = manager.queues.exchanges
    first, second = foreign("q"), foreign("q")
    manager.queues.take_foreign(first)
    exchanges.bind(exchanges.find("x"), first, "a", {})
    route = exchanges.route("x", ("a",), lambda: NO_HEADERS)
    manager.queues.take_foreign(second)
    assert not route.is_current
    assert exchanges.route("x", ("a",), lambda: NO_HEADERS).foreign == (second,)


def test_routes_are_joined_and_kept_from_publishers_with_what_is_foreign(manager: QueueManager) -> None:
    one = foreign("one")
    other = foreign("other", policy=QueuePolicy(visibility_timeout_ms=1, message_bytes_max=9, not_from="me"))
    both = joined((one.route, other.route, one.route))
    assert both.foreign == (one, other)
    assert not both.is_current
    assert open_to(both, "me").foreign == (one,)
    assert open_to(both, "you") is both


def test_a_dead_letter_for_a_queue_of_another_shard_is_passed_on(manager: QueueManager) -> None:
    passed = Passed()
    manager.queues.take_foreign(foreign("dead", passed=passed))
    (target,) = manager.queues.targets("", ["dead"], EnvelopeTemplate("k"))
    assert target.why_not(10, 0) == ""
    target.append_one(EnvelopeTemplate("k"), b"m", 0)
    assert passed.messages == [("dead", b"m")]


class Told:
    """Follows what a shard's queues are."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def queue_changed(self, queue: object) -> None:
        self.told.append(f"changed {queue.name}")  # type: ignore[attr-defined]

    def queue_gone(self, queue: object) -> None:
        self.told.append(f"gone {queue.name}")  # type: ignore[attr-defined]

    def bound(self, binding: object) -> None:
        self.told.append(f"bound {binding.key}")  # type: ignore[attr-defined]

    def unbound(self, binding: object) -> None:
        self.told.append(f"unbound {binding.key}")  # type: ignore[attr-defined]


def test_a_follower_hears_of_the_own_queues_alone(manager: QueueManager) -> None:
    follower = Told()
    manager.queues.follow(follower)
    exchange(manager, "x")
    exchanges = manager.queues.exchanges
    queue = manager.queues.declare(QueueDefinition("q", durable=True, policy=POLICY), 0)
    manager.queues.take_foreign(foreign("other"))
    exchanges.bind(exchanges.find("x"), queue, "a", {})
    exchanges.bind(exchanges.find("x"), manager.queues.foreign["other"], "b", {})
    manager.queues.delete(queue, 0)
    assert follower.told == ["changed q", "bound a", "unbound a", "gone q"]


@pytest.mark.parametrize("is_operator", [False, True])
@pytest.mark.parametrize("is_set_before", [False, True])
def test_what_another_shard_is_owed_follows_no_policy(
    manager: QueueManager, *, is_set_before: bool, is_operator: bool
) -> None:
    settings = {"depth_max": 1, "message_ttl_ms": 1, "dead_letter": "elsewhere", "expires_ms": 1}
    policy = Policy(
        vhost="/",
        name="all",
        pattern=".*",
        apply_to="all",
        priority=9,
        definition=settings,
        settings=settings,
        is_operator=is_operator,
    )
    if is_set_before:
        manager.queues.set_policy(policy)
    owed = QueueDefinition("amq.outbox.0.dead", durable=True, policy=POLICY, is_server_named=True)
    beside = QueueDefinition("beside", durable=True, policy=POLICY)
    outbox, other = [manager.queues.declare(definition, 0) for definition in (owed, beside)]
    if not is_set_before:
        manager.queues.set_policy(policy)
    assert outbox.policy == POLICY
    assert other.policy.depth_max == other.policy.message_ttl_ms == 1
    assert manager.queues.policies_of(outbox) == NO_POLICIES
