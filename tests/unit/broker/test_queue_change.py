"""Queues that are there, changed over administration: what is not named stays, and what is told is so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from broker.admin.admin_views import ChangedQueue, Difference
from broker.admin.queue_change import QueueChange
from broker.amqp.topology.queue_arguments import equivalence, queue_policy
from broker.app import Broker
from broker.configured import default_policy
from broker.engine.group_settings import problems_of
from config.settings_loader import ConfigError
from queue_manager.api import QueueDeclaration
from queue_manager.errors import PreconditionFailed

DECLARED = {
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dead",
    "x-message-ttl": 60_000,
    "x-delivery-limit": 3,
    "x-max-length": 5,
    "x-overflow": "drop-head",
}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(storage="memory:") as broker:
        yield broker


async def change(broker: Broker, name: str, patch: dict[str, Any]) -> ChangedQueue:
    """What a PUT of this body does."""
    names = {view.name for view in await broker.admin.queues()}
    view = await broker.admin.queue(name) if name in names else None
    return await broker.admin.change(QueueChange(name, patch, view, problems_of))


def declaration(broker: Broker, name: str, arguments: dict[str, Any]) -> QueueDeclaration:
    """What a queue.declare with these arguments asks for."""
    policy = queue_policy(arguments, default_policy(broker.settings), durable=True)
    return QueueDeclaration(name=name, durable=True, policy=policy, arguments=equivalence(arguments))


async def test_a_setting_that_is_not_named_stays(broker: Broker) -> None:
    await broker.admin.declare_queue(declaration(broker, "q", DECLARED))
    before = (await broker.admin.queue("q")).policy
    view = await change(broker, "q", {"limits": {"max_depth": 7}})
    assert view.policy.fields() == {**before.fields(), "depth_max": 7}
    assert view.changed == {"limits.max_depth": Difference(5, 7)}


async def test_nothing_named_changes_nothing(broker: Broker) -> None:
    made = await change(
        broker, "q", {"dlq": "dead", "limits": {"message_ttl": "1m"}, "retry": {"max_retries": 2}}
    )
    assert made.changed == {}
    again = await change(broker, "q", {})
    assert (again.policy, again.changed) == (made.policy, {})


async def test_null_puts_a_setting_back_and_null_for_a_section_all_of_it(broker: Broker) -> None:
    await broker.admin.declare_queue(declaration(broker, "q", DECLARED))
    view = await change(broker, "q", {"dlq": None, "retry": None, "limits": {"message_ttl": None}})
    policy = view.policy
    assert (policy.dead_letter, policy.message_ttl_ms, policy.attempts_max) == ("", 0, 0)
    assert policy.depth_max == 5
    assert set(view.changed) == {"dlq", "limits.message_ttl", "retry.max_retries"}


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dead-letter-exchange": "dlx"},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"},
        {"x-max-length": 0, "x-max-length-bytes": 0},
        {"x-consumer-timeout": 5_000, "x-expires": 1_000_000, "x-max-priority": 3},
        {"x-retry-initial-backoff": 1_000, "x-retry-jitter": 0.5},
        {"x-delivery-limit": 0},
        {"x-queue-type": "stream", "x-max-age": "1D"},
        {"x-message-groups": "sticky", "x-single-active-consumer": True},
    ],
)
async def test_what_no_key_can_say_stays_too(broker: Broker, arguments: dict[str, Any]) -> None:
    await broker.admin.declare_queue(declaration(broker, "q", arguments))
    before = await broker.admin.queue("q")
    view = await change(broker, "q", {"description": "looked after"})
    assert (view.policy, view.arguments) == (before.policy, before.arguments)
    assert view.changed == {"description": Difference("", "looked after")}


async def test_a_dead_letter_exchange_goes_once_a_dlq_is_named(broker: Broker) -> None:
    await broker.admin.declare_queue(declaration(broker, "q", {"x-dead-letter-exchange": "dlx"}))
    view = await change(broker, "q", {"dlq": "dead"})
    policy = view.policy
    assert (policy.dead_letter, policy.dead_letter_exchange, policy.dead_letter_by_key) == ("dead", "", False)
    assert view.changed == {"dlq": Difference("exchange 'dlx'", "dead")}


async def test_arguments_tell_what_holds_now_and_a_client_may_declare_as_before(broker: Broker) -> None:
    wanted = declaration(broker, "q", {**DECLARED, "x-max-priority": 3})
    await broker.admin.declare_queue(wanted)
    view = await change(
        broker,
        "q",
        {"limits": {"max_depth": 7, "message_ttl": None}, "dlq": "other", "overflow": "reject-publish"},
    )
    assert view.arguments == {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "other",
        "x-delivery-limit": 3,
        "x-max-length": 7,
        "x-overflow": "reject-publish",
        "x-max-priority": 3,
    }
    await broker.admin.declare_queue(wanted)


@pytest.mark.parametrize("value", [0, 1, 60_000])
async def test_arguments_that_hold_are_told_as_they_were_declared(broker: Broker, value: int) -> None:
    declared = {"x-message-ttl": value, "x-max-length": 0, "x-delivery-limit": -1, "x-overflow": "drop-head"}
    await broker.admin.declare_queue(declaration(broker, "q", declared))
    assert (await broker.admin.queue("q")).arguments == declared


async def test_what_does_not_go_together_with_the_rest_is_refused(broker: Broker) -> None:
    await change(broker, "q", {"dlq": "dead", "unmatched": "dead_letter"})
    with pytest.raises(ConfigError, match="unmatched: dead_letter needs a dlq"):
        await change(broker, "q", {"dlq": None})
    with pytest.raises(ConfigError, match="need an initial_backoff"):
        await change(broker, "q", {"retry": {"jitter": 0.5}})
    with pytest.raises(PreconditionFailed, match="exists, but not as stream"):
        await change(broker, "q", {"type": "stream", "dlq": None, "unmatched": None})


async def test_topics_outside_the_queue_are_captured(broker: Broker) -> None:
    await change(broker, "q", {"topics": ["$queue/q/#", "sensors/#"], "capture": True})
    [binding] = [b for b in await broker.admin.bindings(queue="q") if b.source == "amq.topic"]
    assert binding.routing_key == "sensors.#"
