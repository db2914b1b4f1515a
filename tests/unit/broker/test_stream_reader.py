"""Streams read back from the store: one read for many, whatever lies between their messages."""

import pytest

from broker.engine.shard import Shard
from config import limits
from queue_manager.claims.claim import UNLIMITED
from queue_manager.log.stream_start import FIRST, OFFSET, StreamStart
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.queue.stream import Stream
from queue_manager.spec_records import QueueDefinition
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, drive
from tests.unit.queue_manager.managers import Sink, make_policy

STREAM = make_policy(stream=True)


class Side:
    """A shard that is driven by hand, restarted by `restart`."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.open(MemoryStore())
        for name in ("s", "t"):
            self.manager.queues.declare(QueueDefinition(name, durable=True, policy=STREAM), self.clock.ms)
        self.commit()

    def open(self, store: MemoryStore) -> None:
        self.store = store
        self.shard = drive(
            Shard.open(store, self.clock, default_policy=STREAM, auto_create=False, cache_bytes_max=0)
        )
        self.manager = self.shard.manager

    def restart(self) -> None:
        self.open(self.store.crash())

    def commit(self) -> None:
        drive(self.shard.commit_once(everything=True))

    def publish(self, name: str, *bodies: bytes, delay_ms: int = 0, properties: bytes = b"") -> None:
        plan = self.manager.plan(f"$queue/{name}", 2, properties, True, PublishOptions(delay_ms=delay_ms))
        plan.aim(self.manager.publisher.route(f"$queue/{name}", self.clock.ms))
        assert self.manager.publish(plan, list(bodies), self.clock.ms) == ACCEPTED

    def read(self, group: str, start: StreamStart | None = None) -> Sink:
        sink = BodySink()
        self.manager.consumption.subscribe_stream(
            self.manager.queues.find("s"), group, "#", sink, start=start or StreamStart(FIRST),
            auto_commit=True, consumer_id="c", credit_max=UNLIMITED, no_ack=True, exclusive=False,
            lease_ms=1_000,
        )  # fmt: skip
        return sink

    def stream(self) -> Stream:
        found = self.manager.queues.find("s")
        assert isinstance(found, Stream)
        return found

    def run(self) -> None:
        self.manager.dispatch(self.clock.ms)
        while self.manager.context.loads:
            drive(self.shard.load_once())
            self.manager.dispatch(self.clock.ms)


class BodySink(Sink):
    """Keeps the bodies, too."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self.properties: list[bytes] = []

    def deliver(self, consumer, messages, claims) -> bool:
        super().deliver(consumer, messages, claims)
        self.bodies += [message.body for message in messages]
        self.properties += [message.template.properties for message in messages]
        return True


@pytest.fixture
def side(monkeypatch):
    monkeypatch.setattr(limits, "STREAM_CHUNK_MESSAGES", 10)
    return Side()


def test_groups_share_reads(side):
    bodies = [b"%d" % number for number in range(95)]
    for start in range(0, 95, 5):
        side.publish("s", *bodies[start : start + 5])
        side.commit()
    side.restart()
    sinks = [side.read(f"g{number}") for number in range(4)]
    side.run()
    assert [sink.bodies for sink in sinks] == [bodies] * 4
    blocks = side.manager.queues.find("s").retention.blocks
    assert blocks.read_count == 10
    assert blocks.memory_bytes == 0, "nobody needs it any more"
    late = side.read("late", StreamStart(OFFSET, 42))
    side.run()
    assert late.bodies == bodies[42:]
    assert blocks.read_count == 16


def test_streams_that_are_published_in_turns(side):
    for number in range(60):
        side.publish("s", b"s%d" % number)
        side.publish("t", b"t%d" % number)
        if number % 7 == 0:
            side.commit()
    side.commit()
    side.restart()
    sink = side.read("g")
    side.run()
    assert sink.bodies == [b"s%d" % number for number in range(60)]


def test_messages_of_all_kinds_in_one_entry(side):
    side.publish("s", b"later", delay_ms=50)
    side.publish("s", b"a", properties=b"\x03\x00\x01x")
    side.publish("s", b"b", b"c")
    side.commit()
    side.clock.ms += 50
    for _ in range(3):
        side.manager.fire_timers(side.clock.ms)
        side.run()
    side.publish("s", b"d" * 5_000)
    side.commit()
    side.restart()
    sink = side.read("g")
    side.run()
    assert sink.bodies == [b"a", b"b", b"c", b"later", b"d" * 5_000]


def test_properties_of_one_size(side):
    properties = [b"\x03\x00\x01" + letter for letter in (b"x", b"y", b"x")]
    for block in properties:
        side.publish("s", b"a", properties=block)
    side.commit()
    side.restart()
    sink = side.read("g")
    side.run()
    assert sink.properties == properties


def test_what_is_too_large_is_read_bit_by_bit(side, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_BLOCK_BYTES", 100)
    monkeypatch.setattr(limits, "LOAD_BYTES_MAX", 150)
    bodies = [bytes([number]) * 60 for number in range(30)]
    side.publish("s", *bodies)
    side.commit()
    side.restart()
    sink = side.read("g")
    side.run()
    assert sink.bodies == bodies
    assert side.manager.queues.find("s").retention.blocks.read_count > 5


def test_memory_for_reads_is_bounded(side, monkeypatch):
    monkeypatch.setattr(limits, "STREAM_READ_BYTES_MAX", 10_000)
    for _ in range(30):
        side.publish("s", *[b"x" * 10] * 10)
        side.commit()
    side.restart()
    sink = side.read("g")
    side.run()
    assert len(sink.bodies) == 300
    assert side.manager.queues.find("s").retention.blocks.memory_bytes <= 10_000


def test_a_crash_between_the_cut_and_the_deletes(side):
    side.publish("s", *[b"x"] * 25)
    side.publish("s", b"y")
    side.commit()
    side.manager.queues.find("s").purge(side.clock.ms)
    side.publish("s", b"z")
    side.commit()
    side.restart()
    stream = side.manager.queues.find("s")
    assert (stream.log.head_offset, stream.ready_count()) == (26, 1)
    sink = side.read("g")
    side.run()
    assert sink.bodies == [b"z"]
    drive(side.shard.sweep_once())
    side.commit()
    rows = drive(side.store.scan(b"\x01\x01", b"\x01\x02", limit=100))
    assert [value for _, value in rows] == [b"z"]


def test_a_group_is_told_after_a_restart_what_was_deleted_before() -> None:
    side = Side()
    side.publish("s", *[b"x"] * 10)
    side.commit()
    side.stream().stream_group("g").cursor.commit(1)
    side.commit()
    side.stream().purge(side.clock.ms)
    side.commit()
    side.restart()
    cursor = side.stream().stream_group("g").cursor
    cursor.backlog.at_hand()
    assert (cursor.position, cursor.backlog.take_gap()) == (10, 8)
