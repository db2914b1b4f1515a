"""Staged rows with properties of their own, of attempts that take turns: each keeps its payload."""

from __future__ import annotations

import pytest

from broker.engine.shard import Shard
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.stage_tags import EpochPart, StageTag
from storage.envelope import PROPERTIES_AMQP, vary
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, drive, load
from tests.unit.queue_manager.managers import consume, make_queue


def open_shard(store: MemoryStore, clock: FakeClock) -> Shard:
    return drive(
        Shard.open(
            store,
            clock,  # type: ignore[arg-type]
            default_policy=DEFAULT_POLICY,
            auto_create=False,
            cache_bytes_max=0,
        )
    )


def stage(shard: Shard, clock: FakeClock, part: int, names: str) -> None:
    options = PublishOptions(stage=StageTag("job", 1, part, "a"))
    plan = shard.manager.plan("$queue/jobs", PROPERTIES_AMQP, b"", True, options)
    plan.aim(shard.manager.publisher.route(plan.topic, clock.ms))
    bodies = [name.encode() for name in names]
    templates = vary(plan.template, bodies, [True] * len(bodies))
    assert shard.manager.publish(plan, bodies, clock.ms, templates) == ACCEPTED


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("priority_max", [0, 2])
def test_rows_of_attempts_that_take_turns(crashes: bool, priority_max: int) -> None:
    store, clock = MemoryStore(), FakeClock()
    shard = open_shard(store, clock)
    queue = make_queue(shard.manager, priority_max=priority_max)
    for part, names in ((1, "abc"), (0, "xy"), (1, "de"), (0, "z"), (1, "f")):
        stage(shard, clock, part, names)
    drive(shard.commit_once(everything=True))
    parts = [EpochPart(0, "a", 3), EpochPart(1, "a", 6)]
    queue.rules.stage.commit("job", 1, parts, clock.ms)
    for _ in range(6):
        drive(shard.commit_once(everything=True))
        shard.manager.fire_timers(clock.ms)
        load(shard)
    if crashes:
        shard = open_shard(store.crash(), clock)
        queue = shard.manager.queues.find("jobs")
    _, sink = consume(shard.manager, queue)
    for _ in range(6):
        shard.manager.dispatch(clock.ms)
        load(shard)
    found = [(claim.message.body, claim.message.template.properties) for claim in sink.claims]
    assert found == [(name.encode(), name.encode()) for name in "xyzabcdef"]
