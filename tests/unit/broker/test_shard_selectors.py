"""What selectors leave in the store, and what a start makes of it."""

from __future__ import annotations

import asyncio

from broker.engine.client.messages import MessageClient
from broker.engine.shard import Shard
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.records import claimed_bitmap, payload, queue_spec
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, drive
from tests.unit.queue_manager.managers import Sink, make_policy
from tests.unit.queue_manager.selecting import fields_of, select, send


class Broker:
    """One shard, driven by hand."""

    def __init__(self, store: MemoryStore | None = None, clock: FakeClock | None = None) -> None:
        self.store = store or MemoryStore()
        self.clock = clock or FakeClock()
        self.shard = drive(
            Shard.open(
                self.store,
                self.clock,  # type: ignore[arg-type]
                default_policy=DEFAULT_POLICY,
                auto_create=False,
                cache_bytes_max=0,
            )
        )
        self.manager = self.shard.manager
        self.manager.context.fields.read_by(fields_of)

    def jobs(self) -> Queue:
        return self.manager.queues.find("jobs")

    def send(self, *keys: str) -> None:
        send(self.manager, *keys)
        self.settle_down()

    def settle_down(self) -> None:
        self.manager.dispatch(self.clock.ms)
        while self.manager.context.loads:
            drive(self.shard.load_once())
        drive(self.shard.commit_once(everything=True))

    def take(self, selector: str = "", **options: object) -> Sink:
        _, sink = select(self.manager, self.jobs(), selector, **options)  # type: ignore[arg-type]
        self.settle_down()
        return sink

    def ack(self, sink: Sink) -> None:
        self.manager.ack(sink.claims, self.clock.ms)
        sink.claims = []
        self.settle_down()

    def sweep(self) -> None:
        self.clock.ms += 61_000
        for _ in range(2):
            drive(self.shard.sweep_once())
            drive(self.shard.commit_once(everything=True))

    def crashed(self) -> Broker:
        return Broker(self.store.crash(), self.clock)

    def rows(self, prefix: bytes) -> int:
        rows = drive(self.store.scan(prefix, prefix + b"\xff", limit=10_000))
        return len(rows)


def with_queue() -> Broker:
    broker = Broker()
    broker.manager.queues.declare(
        QueueDefinition("jobs", durable=True, policy=make_policy(done_retention_ms=60_000)), broker.clock.ms
    )
    return broker


def test_a_start_knows_what_was_taken_ahead() -> None:
    broker = with_queue()
    sink = broker.take("region = 'eu'")
    for key in ("us/1", "eu/1", "us/2", "eu/2", "us/3"):
        broker.send(key)  # each a log entry by itself
    broker.ack(sink)
    assert broker.rows(claimed_bitmap.prefix()) == 1
    for _ in range(3):
        broker = broker.crashed()
        broker.sweep()
        assert broker.rows(payload.prefix()) == 3
        assert broker.jobs().groups.find("").ready_count() == 3
    rest = broker.take()
    assert rest.offsets == [0, 2, 4]
    broker.ack(rest)
    assert broker.rows(claimed_bitmap.prefix()) == 0
    for _ in range(2):
        broker.sweep()
    assert broker.rows(payload.prefix()) == 0
    assert broker.jobs().log.head_offset == 5


def test_what_was_in_flight_comes_back_to_whom_it_is_for() -> None:
    broker = with_queue()
    broker.take("region = 'eu'")
    broker.send("us/1", "eu/1", "us/2", "eu/2")
    broker = broker.crashed()
    us = broker.take("region = 'us'")
    assert us.offsets == [0, 2]
    again = broker.take("region = 'eu' AND JMSXDeliveryCount = 2")
    assert again.offsets == [1, 3]
    assert [claim.attempts for claim in again.claims] == [2, 2]


def test_a_purge_keeps_what_is_in_flight() -> None:
    broker = with_queue()
    sink = broker.take("region = 'eu'", credit_max=1)
    broker.send("us/1", "eu/1", "us/2", "eu/2")
    assert sink.offsets == [1]
    assert broker.jobs().purge(broker.clock.ms) == 3
    for _ in range(2):
        broker.sweep()
    broker = broker.crashed()
    broker.sweep()
    assert broker.take().offsets == [1]
    assert broker.rows(payload.prefix()) == 1


def test_a_groups_selector_is_kept_in_its_specification() -> None:
    broker = with_queue()
    broker.take(group="eu", group_selector="region = 'eu'")
    broker.take(group_selector="qty > 1")
    spec = queue_spec.decode(drive(broker.store.get(queue_spec.key("jobs\x1feu"))) or b"")
    assert spec.selector == "region = 'eu'"
    broker.send("us/1", "eu/1")
    broker = broker.crashed()
    broker.send("us/2", "eu/2")
    assert broker.take(group="eu").offsets == [1, 3]
    assert broker.take(group_selector="qty > 1").offsets == [2, 3]
    broker.manager.queues.redefine(
        broker.jobs(), QueueDefinition("jobs", durable=True, policy=make_policy(attempts_max=3))
    )
    broker.settle_down()
    broker = broker.crashed()
    assert broker.jobs().groups.find("").selector == "qty > 1"


def test_deleting_takes_the_records_along() -> None:
    broker = with_queue()
    sink = broker.take("region = 'eu'")
    broker.send("us/1", "eu/1", "us/2", "eu/2")
    broker.ack(sink)
    broker.manager.queues.delete(broker.jobs(), broker.clock.ms)
    for _ in range(3):
        broker.sweep()
    assert broker.rows(claimed_bitmap.prefix()) == broker.rows(payload.prefix()) == 0


def test_redriving_takes_what_filters_left() -> None:
    broker = with_queue()
    broker.manager.queues.declare(
        QueueDefinition("back", durable=True, policy=make_policy()), broker.clock.ms
    )
    sink = broker.take("region = 'eu'", credit_max=2)
    broker.send("us/1", "eu/1", "us/2", "eu/2", "eu/3")
    assert sink.offsets == [1, 3]
    count = asyncio.run(MessageClient(broker.shard).redrive_dead_letters("jobs", to="back"))
    assert count == 3
    broker.ack(sink)
    broker = broker.crashed()
    assert broker.jobs().groups.find("").ready_count() == 0
    assert broker.manager.queues.find("back").ready_count() == 3


def test_failed_messages_return_to_whom_they_are_for() -> None:
    broker = with_queue()
    eu = broker.take("region = 'eu'")
    broker.send("us/1", "eu/1", "us/2", "eu/2")
    broker.manager.reject(eu.claims, broker.clock.ms)
    broker.settle_down()
    broker.sweep()
    us = broker.take("region = 'us'")
    assert us.offsets == [0, 2]
    assert asyncio.run(MessageClient(broker.shard).redrive("jobs", "")) == 2
    broker.settle_down()
    assert eu.offsets == [1, 3, 1, 3]
