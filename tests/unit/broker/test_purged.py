"""What is kept of messages that were there at a purge is nothing for a group that begins later."""

from __future__ import annotations

import pytest

from broker.engine.shard import Shard
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, drive, load, open_shard
from tests.unit.queue_manager import managers

POLICY = managers.make_policy(done_retention_ms=600_000, bucket_size=0)


class Life:
    """A shard with a durable queue."""

    def __init__(self, priority_max: int = 0) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.shard: Shard = open_shard(self.store, self.clock)
        policy = managers.make_policy(done_retention_ms=600_000, bucket_size=0, priority_max=priority_max)
        definition = QueueDefinition("jobs", durable=True, policy=policy)
        self.shard.manager.queues.declare(definition, self.clock.ms)

    @property
    def queue(self) -> Queue:
        return self.shard.manager.queues.find("jobs")

    def publish(self, count: int) -> None:
        managers.publish(self.shard.manager, count)
        self.settle()

    def settle(self) -> None:
        for _ in range(3):
            self.shard.manager.dispatch(self.clock.ms)
            load(self.shard)
            drive(self.shard.commit_once(everything=True))
            drive(self.shard.sweep_once())

    def consume(self, group: str, *, credit_max: int = 100) -> managers.Sink:
        self.consumer, sink = managers.consume(self.shard.manager, self.queue, group, credit_max=credit_max)
        self.settle()
        return sink

    def restart(self, *, is_known: bool = True) -> None:
        """`is_known`: what the groups have done was read."""
        self.settle()
        self.store = self.store.crash()
        self.shard = open_shard(self.store, self.clock)
        if is_known:
            self.settle()


@pytest.mark.parametrize("restart", ["none", "known", "at once"])
@pytest.mark.parametrize("priority_max", [0, 3])
def test_what_was_done_before_a_purge_is_not_given_to_a_new_group(restart: str, priority_max: int) -> None:
    life = Life(priority_max)
    life.publish(3)
    sink = life.consume("a", credit_max=3)
    life.shard.manager.consumption.unsubscribe(life.consumer, life.clock.ms)
    life.shard.manager.ack(sink.claims, life.clock.ms)
    life.publish(2)
    life.queue.purge(life.clock.ms)
    life.settle()
    if restart != "none":
        life.restart(is_known=restart == "known")
    new = life.consume("b")
    assert new.offsets == []
    life.publish(2)
    assert new.offsets == [5, 6]
    life.restart()
    assert life.consume("b").offsets == [5, 6]
    assert life.consume("c").offsets == [5, 6]


def test_what_was_claimed_at_a_purge_is_given_to_a_new_group_until_it_is_settled() -> None:
    life = Life()
    life.publish(5)
    sink = life.consume("a", credit_max=3)
    life.shard.manager.ack(sink.claims[:1], life.clock.ms)
    life.settle()
    life.queue.purge(life.clock.ms)
    assert set(life.consume("b").offsets) >= {1, 2}
    life.shard.manager.ack(sink.claims[1:3], life.clock.ms)
    life.settle()
    assert life.consume("c").offsets[:1] not in ([0], [3])


def test_what_the_last_group_had_not_done_at_a_purge_stays_for_the_next() -> None:
    life = Life()
    life.publish(5)
    life.consume("a", credit_max=2)
    life.queue.purge(life.clock.ms)
    life.settle()
    life.queue.groups.delete("a", life.clock.ms, force=True)
    life.settle()
    assert life.consume("b").offsets == [0, 1]


def test_what_was_claimed_at_a_purge_and_another_group_has_yet_to_read_is_given_to_a_new_group() -> None:
    life = Life()
    life.publish(5)
    sink = life.consume("a", credit_max=3)
    life.queue.purge(life.clock.ms)
    life.settle()
    life.queue.groups.ensure("b", "#", "")
    life.settle()
    life.shard.manager.ack(sink.claims[:1], life.clock.ms)
    life.settle()
    assert life.consume("c").offsets[:3] == [0, 1, 2]
    assert life.consume("b").offsets[:3] == [0, 1, 2]


def test_a_group_made_right_after_a_purge_beside_an_open_claim_is_given_the_claimed_message_alone() -> None:
    life = Life()
    life.publish(3)
    sink = life.consume("a", credit_max=1)
    life.queue.purge(life.clock.ms)
    life.queue.groups.ensure("b", "#", "")  # before what was purged is gone from the store
    assert life.consume("b").offsets == [0]
    life.settle()
    life.shard.manager.ack(sink.claims, life.clock.ms)
    life.publish(1)
    assert life.consume("c").offsets == [0, 3]
