"""What a queue that is no stream keeps while it has no group."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from broker.engine.shard import Shard
from config import limits
from queue_manager.manager import QueueManager
from queue_manager.options import PublishOptions
from queue_manager.policy import DROP_HEAD
from queue_manager.queue.queue import Queue
from queue_manager.rules.expiry.front import FutureGroups
from queue_manager.spec_records import QueueDefinition
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, drive
from tests.model.leaks import all_rows
from tests.unit.queue_manager.managers import (
    NOW_MS,
    Sink,
    consume,
    make_manager,
    make_policy,
    make_queue,
    publish,
    waiting_bytes,
)

DURABLE = pytest.mark.parametrize("durable", [True, False])


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


def send(manager: QueueManager, *bodies: str, now_ms: int = NOW_MS, **options: Any) -> None:
    for body in bodies:
        plan = manager.plan("$queue/jobs", 0, b"", True, PublishOptions(**options))
        plan.aim(manager.publisher.route("$queue/jobs", now_ms))
        manager.publish(plan, [body.encode()], now_ms)


def waiting(manager: QueueManager, queue: Queue, now_ms: int = NOW_MS) -> str:
    """The bodies a group that comes now is given, in order."""
    _, sink = consume(manager, queue)
    manager.dispatch(now_ms)
    return bodies(sink)


def bodies(sink: Sink) -> str:
    return " ".join((claim.message.body or b"").decode() for claim in sink.claims)


@DURABLE
def test_the_old_go(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, retention_age_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    manager.fire_timers(NOW_MS)
    send(manager, "a", "b")
    send(manager, "c", now_ms=NOW_MS + 1)
    manager.fire_timers(NOW_MS + 999)
    assert queue.ready_count() == 3
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), dead.ready_count(), len(queue.log.tail)) == (1, 0, 1 if not durable else 3)
    manager.fire_timers(NOW_MS + 1_001)
    assert (queue.ready_count(), dead.ready_count()) == (0, 0)


@DURABLE
@pytest.mark.parametrize("by_bytes", [False, True])
def test_the_oldest_go(manager: QueueManager, durable: bool, by_bytes: bool) -> None:
    kept = {"retention_bytes": 7} if by_bytes else {"retention_count": 3}
    queue = make_queue(manager, durable=durable, dead_letter="dead", **kept)
    dead = make_queue(manager, "dead")
    send(manager, "a1", "b2", "c3", "d4", "e5")
    assert (queue.ready_count(), dead.ready_count()) == (3, 0)
    assert waiting(manager, queue) == "c3 d4 e5"
    assert dead.ready_count() == 0


def test_of_one_publish_that_is_too_much_the_end_stays(manager: QueueManager) -> None:
    queue = make_queue(manager, retention_count=3)
    publish(manager, 5_000)
    assert (queue.ready_count(), queue.log.head_offset) == (3, 4_997)


@DURABLE
@pytest.mark.parametrize("by_bytes", [False, True])
def test_the_least_urgent_go_first(manager: QueueManager, durable: bool, by_bytes: bool) -> None:
    kept = {"retention_bytes": 6} if by_bytes else {"retention_count": 3}
    queue = make_queue(manager, durable=durable, priority_max=2, **kept)
    for number, priority in enumerate((2, 0, 1, 0, 2)):
        send(manager, f"{priority}{number}", priority=priority)
    assert queue.ready_count() == 3
    assert waiting(manager, queue) == "20 24 12"


@DURABLE
def test_the_old_go_whatever_their_priority(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, priority_max=2, retention_age_ms=1_000, retention_count=3)
    send(manager, "a", priority=2)
    send(manager, "b", "c", priority=0, now_ms=NOW_MS + 500)
    # the old one makes room: nothing else goes, though nobody looked at the clock in between
    send(manager, "d", priority=0, now_ms=NOW_MS + 1_000)
    assert queue.ready_count() == 3
    assert waiting(manager, queue, NOW_MS + 1_000) == "b c d"


@DURABLE
def test_nothing_goes_once_there_is_a_group(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, retention_age_ms=1_000, retention_count=2, retention_bytes=3)
    send(manager, "a", "b")
    consumer, sink = consume(manager, queue, credit_max=1)
    manager.dispatch(NOW_MS)
    send(manager, "c", "d")
    manager.fire_timers(NOW_MS + 1_000)
    send(manager, "e", now_ms=NOW_MS + 1_000)
    assert manager.context.timers.next_ms() is None
    manager.consumption.unsubscribe(consumer, NOW_MS + 2_000)
    manager.fire_timers(NOW_MS + 2_000)
    assert (bodies(sink), queue.ready_count()) == ("a", 5)
    assert waiting(manager, queue, NOW_MS + 2_000) == "a b c d e"


@DURABLE
def test_it_applies_again_when_no_group_is_left(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, retention_age_ms=1_000, retention_count=3, retention_bytes=2)
    queue.group("")
    send(manager, "a", "b", "c")
    send(manager, "d", now_ms=NOW_MS + 500)
    manager.fire_timers(NOW_MS + 1_000)
    assert queue.ready_count() == 4
    queue.groups.delete("", NOW_MS + 1_000)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), queue.log.head_offset) == (1, 3)
    send(manager, "e", "f", now_ms=NOW_MS + 1_001)
    assert (queue.ready_count(), queue.log.head_offset) == (2, 4)
    manager.fire_timers(NOW_MS + 2_001)
    assert queue.ready_count() == 0


@pytest.mark.parametrize("by_bytes", [False, True])
def test_what_a_deleted_group_had_done_does_not_count(manager: QueueManager, by_bytes: bool) -> None:
    queue = make_queue(manager, **({"retention_bytes": 6} if by_bytes else {"retention_count": 3}))
    _, sink = consume(manager, queue, credit_max=4)
    send(manager, "a0", "b1", "c2", "d3", "e4")
    manager.dispatch(NOW_MS)
    manager.ack(sink.claims[1:], NOW_MS)
    queue.groups.delete("", NOW_MS, force=True)
    manager.fire_timers(NOW_MS)
    assert queue.ready_count() == 2
    send(manager, "f5")
    assert (queue.ready_count(), queue.log.head_offset) == (3, 0)
    send(manager, "g6")
    assert (queue.ready_count(), queue.log.head_offset) == (3, 4)
    assert waiting(manager, queue) == "e4 f5 g6"


def test_what_a_deleted_group_had_done_does_not_count_for_the_next_one(manager: QueueManager) -> None:
    queue = make_queue(manager)
    _, sink = consume(manager, queue, credit_max=4)
    send(manager, "a0", "b1", "c2", "d3", "e4")
    manager.dispatch(NOW_MS)
    manager.ack(sink.claims[1:3], NOW_MS)
    manager.reject(sink.claims[3:], NOW_MS)
    queue.groups.delete("", NOW_MS, force=True)
    consume(manager, queue, "next", credit_max=0)
    assert queue.ready_count() == queue.depth() == queue.groups.find("next").ready_count() == 2


def test_a_purge_empties_what_is_counted(manager: QueueManager) -> None:
    queue = make_queue(manager, retention_age_ms=1_000, retention_count=2, retention_bytes=4)
    send(manager, "aa", "bb")
    assert queue.purge(NOW_MS) == 2
    send(manager, "cc", "dd", now_ms=NOW_MS + 500)
    assert (queue.ready_count(), waiting_bytes(queue)) == (2, 4)
    manager.fire_timers(NOW_MS + 1_000)
    assert queue.ready_count() == 2
    send(manager, "ee", now_ms=NOW_MS + 1_000)
    assert (queue.ready_count(), waiting_bytes(queue)) == (2, 4)
    manager.fire_timers(NOW_MS + 1_500)
    assert queue.ready_count() == 1


def test_purges_leave_nothing_in_memory(manager: QueueManager) -> None:
    queue = make_queue(manager, durable=False, retention_count=2)
    for _ in range(5):
        send(manager, "a", "b", "c")
        queue.purge(NOW_MS)
    gc.collect()
    found = [
        thing for thing in gc.get_objects() if isinstance(thing, FutureGroups) and thing.log is queue.log
    ]
    assert len(found) <= 1


def test_what_has_expired_is_dead_lettered_all_the_same(manager: QueueManager) -> None:
    queue = make_queue(
        manager, message_ttl_ms=1_000, retention_age_ms=1_500, retention_count=2, dead_letter="dead"
    )
    dead = make_queue(manager, "dead")
    send(manager, "a", "b")
    send(manager, "c", now_ms=NOW_MS + 2_000)  # both limits have passed, and there are too many
    assert (queue.ready_count(), dead.ready_count()) == (1, 2)


def test_drop_head_goes_on_beside_it(manager: QueueManager) -> None:
    queue = make_queue(
        manager,
        depth_max=2,
        overflow=DROP_HEAD,
        retention_count=3,
        retention_age_ms=1_000,
        dead_letter="dead",
    )
    dead = make_queue(manager, "dead")
    send(manager, "a", "b", "c")
    assert (queue.ready_count(), dead.ready_count()) == (2, 1)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.ready_count(), dead.ready_count()) == (0, 1)


def test_a_policy_that_is_new_looks_at_what_is_there(manager: QueueManager) -> None:
    queue = make_queue(manager)
    send(manager, "aa", "bb", "cc", "dd")
    for kept, count in (
        ({"retention_bytes": 6}, 3),
        ({"retention_count": 2}, 2),
        ({"retention_age_ms": 1}, 0),
    ):
        manager.queues.redefine(
            queue, QueueDefinition("jobs", durable=True, policy=make_policy(**kept), topics=queue.topics)
        )
        manager.fire_timers(NOW_MS + 1)
        assert queue.ready_count() == count


def test_queues_without_it_and_streams_have_no_rules(manager: QueueManager) -> None:
    assert not make_queue(manager).parts[0].has_rules
    kept = {"retention_age_ms": 1_000, "retention_bytes": 10, "retention_count": 5}
    assert not make_queue(manager, "stream", stream=True, **kept).parts[0].has_rules
    assert make_queue(manager, "kept", **kept).parts[0].has_rules


class Broker:
    """A shard on a store in memory, with one durable queue; nothing of it stays in memory."""

    def __init__(self, **fields: Any) -> None:
        self.clock = FakeClock(NOW_MS)
        self.fields = fields
        self.open(MemoryStore())
        make_queue(self.manager, **fields)

    def open(self, store: MemoryStore) -> None:
        self.store = store
        shard = Shard.open(
            store,
            self.clock,  # type: ignore[arg-type]
            default_policy=DEFAULT_POLICY,
            auto_create=False,
            cache_bytes_max=0,
        )
        self.shard = drive(shard)
        self.manager = self.shard.manager

    @property
    def queue(self) -> Queue:
        return self.manager.queues.find("jobs")

    def restart(self) -> None:
        self.open(self.store.crash())
        self.quiesce()

    def send(self, *bodies: str, **options: Any) -> None:
        send(self.manager, *bodies, now_ms=self.clock.ms, **options)

    def quiesce(self) -> None:
        """Let timers and loads run until nothing is left to do now."""
        for _ in range(1_000):
            self.manager.dispatch(self.clock.ms)
            due_ms = self.manager.context.timers.next_ms()
            if due_ms is not None and due_ms <= self.clock.ms:
                self.manager.fire_timers(self.clock.ms)
            elif self.manager.context.loads:
                drive(self.shard.load_once())
            else:
                return
        raise AssertionError("timers and loads never end")

    def commit(self) -> None:
        self.quiesce()
        drive(self.shard.commit_once(everything=True))

    def stored(self) -> list[bytes]:
        """The payloads on the store, once everything is cleaned up."""
        for _ in range(3):
            self.commit()
            drive(self.shard.sweep_once())
        return sorted(value for key, value in all_rows(self.store) if key.startswith(payload.prefix()))

    def taken(self) -> str:
        _, sink = consume(self.manager, self.queue)
        self.quiesce()
        return bodies(sink)


@pytest.mark.parametrize("with_priorities", [False, True])
def test_age_goes_on_over_a_restart(with_priorities: bool) -> None:
    broker = Broker(retention_age_ms=1_000, priority_max=2 if with_priorities else 0, dead_letter="jobs-dead")
    make_queue(broker.manager, "jobs-dead")
    broker.send("a", priority=2)
    broker.clock.ms += 500
    broker.send("b", priority=1)
    broker.commit()
    broker.restart()
    assert broker.queue.ready_count() == 2
    broker.clock.ms += 500
    broker.restart()
    assert broker.stored() == [b"b"]
    broker.clock.ms += 500
    broker.restart()
    assert (broker.stored(), broker.queue.ready_count()) == ([], 0)
    assert broker.manager.queues.find("jobs-dead").ready_count() == 0


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("with_priorities", [False, True])
def test_limits_are_exact_after_restarts(by_bytes: bool, with_priorities: bool) -> None:
    kept = {"retention_bytes": 8} if by_bytes else {"retention_count": 4}
    broker = Broker(priority_max=1 if with_priorities else 0, **kept)
    broker.send("a1", priority=1)
    broker.send("b2", "c3", "d4")
    broker.commit()
    for bodies_after in ("a1 c3 d4 e5", "a1 d4 e5 f6") if with_priorities else ("b2 c3 d4 e5", "c3 d4 e5 f6"):
        broker.restart()
        body = bodies_after.split()[-1]
        broker.send(body)
        assert broker.queue.ready_count() == 5  # what is on the store is read first
        broker.clock.ms += limits.EXPIRY_READ_INTERVAL_MS
        assert broker.stored() == sorted(bodies_after.encode().split())
        assert broker.queue.ready_count() == 4
    broker.restart()
    assert broker.taken() == bodies_after


def test_what_a_crash_undoes_is_there_again() -> None:
    broker = Broker(retention_count=2, retention_bytes=4)
    broker.send("a1", "b2")
    broker.commit()
    broker.send("c3")
    broker.clock.ms += limits.EXPIRY_READ_INTERVAL_MS
    broker.quiesce()
    broker.restart()
    assert (broker.queue.ready_count(), waiting_bytes(broker.queue)) == (2, 4)
    assert broker.taken() == "a1 b2"


def test_what_expired_while_the_broker_was_down_is_dead_lettered() -> None:
    broker = Broker(retention_age_ms=1_000, retention_count=2, dead_letter="dead")
    make_queue(broker.manager, "dead")
    broker.send("a", ttl_ms=500)
    broker.send("b")
    broker.commit()
    broker.clock.ms += 1_000
    broker.restart()
    assert broker.stored() == [b"a"]
    assert (broker.queue.ready_count(), broker.manager.queues.find("dead").ready_count()) == (0, 1)


def test_what_is_old_makes_room_once_it_has_been_read() -> None:
    broker = Broker(retention_age_ms=10_000, retention_count=3, priority_max=1)
    broker.send("a", priority=1)
    broker.commit()
    broker.clock.ms += 9_500
    broker.restart()
    broker.send("b", "c", "d", priority=0)
    broker.clock.ms += limits.EXPIRY_READ_INTERVAL_MS
    assert broker.stored() == [b"b", b"c", b"d"]


def test_bytes_are_known_at_the_start() -> None:
    broker = Broker(retention_bytes=4)
    broker.send("a1", "b2", "c3")
    broker.commit()
    broker.open(broker.store.crash())
    assert waiting_bytes(broker.queue) == 4
    assert not broker.manager.context.loads


def test_a_group_that_was_there_before_a_restart_still_counts() -> None:
    broker = Broker(retention_age_ms=1_000, retention_count=2, retention_bytes=2)
    broker.queue.group("later")
    broker.send("a", "b", "c")
    broker.commit()
    broker.clock.ms += 5_000
    broker.restart()
    assert broker.queue.ready_count() == 3
    broker.send("d")
    assert broker.stored() == [b"a", b"b", b"c", b"d"]


def test_reading_the_oldest_back_is_not_done_for_each_publish() -> None:
    broker = Broker(retention_count=3)
    broker.send("a", "b", "c")
    broker.commit()
    broker.restart()
    for body in "defgh":
        broker.send(body)
        broker.quiesce()
    assert broker.queue.ready_count() == 8
    broker.clock.ms += limits.EXPIRY_READ_INTERVAL_MS
    broker.quiesce()
    assert broker.queue.ready_count() == 3
