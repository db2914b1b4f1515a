"""What no group of a queue wants: kept for groups to come, dead-lettered, or dropped."""

from __future__ import annotations

from typing import Any

import pytest

from config import limits
from queue_manager.group.keeper import KEPT
from queue_manager.log.tail import RELEASED_BYTES
from queue_manager.manager import QueueManager
from queue_manager.policy import DEAD_LETTER_UNMATCHED, DROP_HEAD, DROP_UNMATCHED, Pause
from queue_manager.queue.queue import Queue
from storage.envelope import EnvelopeTemplate
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, has_to_go_on, load, open_shard, run
from tests.model.leaks import all_rows
from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue
from tests.unit.queue_manager.selecting import fields_of, select, send

DURABLE = pytest.mark.parametrize("durable", [True, False])


@pytest.fixture
def manager() -> QueueManager:
    return make_manager()


def keys(sink: Sink) -> str:
    """The routing keys of what a consumer was given, in order."""
    return " ".join(claim.message.template.topic.split("/", 2)[2] for claim in sink.claims)


def group(manager: QueueManager, queue: Queue, name: str, pattern: str = "#") -> str:
    """What a new group is given."""
    _, sink = consume(manager, queue, name, pattern)
    manager.dispatch(NOW_MS)
    return keys(sink)


@DURABLE
def test_message_that_no_group_wants_comes_to_the_group_that_is_made_for_it(
    manager: QueueManager, durable: bool
) -> None:
    queue = make_queue(manager, durable=durable)
    assert group(manager, queue, "w", "eu/#") == ""
    send(manager, "us/1", "eu/1", "us/2", "us/3")
    manager.dispatch(NOW_MS)
    assert queue.unwanted_count() == 3
    assert group(manager, queue, "w", "us/#") == "us/1 us/2 us/3"
    assert queue.unwanted_count() == 0


@DURABLE
def test_message_from_before_the_first_group_is_kept_where_that_does_not_want_it(
    manager: QueueManager, durable: bool
) -> None:
    queue = make_queue(manager, durable=durable)
    send(manager, "us/1", "eu/1", "asia/1")
    assert group(manager, queue, "w", "eu/#") == "eu/1"
    assert group(manager, queue, "w", "us/#") == "us/1"
    assert queue.unwanted_count() == 1
    assert group(manager, queue, "rest") == "us/1 eu/1 asia/1", "what the others have not settled, too"
    assert queue.unwanted_count() == 0


def test_group_that_takes_everything_leaves_nothing_unwanted(manager: QueueManager) -> None:
    queue = make_queue(manager)
    consume(manager, queue, "w", "eu/#")
    consume(manager, queue)
    send(manager, "us/1", "eu/1")
    manager.dispatch(NOW_MS)
    assert (queue.unwanted_count(), queue.groups.keeper) == (0, None)
    assert not queue.groups.audience.wants_all() or queue.groups.find("").wants is None


def test_selector_of_a_group_counts_and_that_of_a_consumer_does_not(manager: QueueManager) -> None:
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager)
    select(manager, queue, group="g", group_selector="region = 'eu'")
    select(manager, queue, selector="region = 'mars'", group="h", pattern="asia/#")
    send(manager, "us", "eu", "asia")
    manager.dispatch(NOW_MS)
    assert queue.unwanted_count() == 1
    assert queue.groups.find("h@asia/#").ready_count() == 1, "it waits in its group, as before"


def test_keeper_is_none_of_the_groups_that_can_be_asked_for(manager: QueueManager) -> None:
    queue = make_queue(manager)
    consume(manager, queue, "w", "eu/#")
    assert queue.groups.keeper is not None
    assert queue.groups.ids() == ["w@eu/#"]
    assert (len(queue.groups), KEPT in queue.groups, queue.groups.get(KEPT)) == (1, False, None)


@DURABLE
def test_last_group_leaves_what_it_did_not_want_to_the_queue(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable)
    consumer, sink = consume(manager, queue, "w", "eu/#", credit_max=1)
    send(manager, "us/1", "eu/1", "eu/2", "us/2")
    manager.dispatch(NOW_MS)
    manager.ack(sink.claims, NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    queue.groups.delete("w@eu/#", NOW_MS, force=True)
    assert queue.groups.keeper is None
    assert group(manager, queue, "") == "us/1 eu/2 us/2"


def test_what_waits_for_groups_to_come_counts_towards_the_limit(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=2)
    consume(manager, queue, "w", "eu/#")
    send(manager, "us/1", "eu/1", "eu/2", "eu/3")
    manager.dispatch(NOW_MS)
    assert (queue.depth(), queue.has_room(1, 1)) == (1, True), "what others want does not count as kept"
    send(manager, "us/2")
    assert not queue.has_room(1, 1)


def test_of_too_many_unwanted_messages_the_oldest_go(manager: QueueManager) -> None:
    queue = make_queue(manager, depth_max=2, overflow=DROP_HEAD)
    consume(manager, queue, "w", "eu/#")
    for number in range(4):
        send(manager, f"us/{number}", "eu/x")
        manager.dispatch(NOW_MS)
    assert queue.unwanted_count() == 2
    assert group(manager, queue, "w", "us/#") == "us/2 us/3"


@DURABLE
def test_unwanted_message_expires_and_is_dead_lettered(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable, message_ttl_ms=1_000, dead_letter="dead")
    dead = make_queue(manager, "dead")
    consume(manager, queue, "w", "eu/#")
    send(manager, "us/1", "eu/1")
    manager.dispatch(NOW_MS)
    manager.fire_timers(NOW_MS + 1_000)
    assert (queue.unwanted_count(), dead.ready_count()) == (0, 1)


def test_purge_takes_what_no_group_wanted_along() -> None:
    life = Life()
    life.work("eu/#")
    send(life.manager, "us/1", "us/2")
    assert life.queue.purge(life.clock.ms) == 2
    life.sweep()
    assert (life.queue.unwanted_count(), life.payload_count()) == (0, 0)
    send(life.manager, "us/3")
    assert keys(life.work("us/#")["us/#"]) == "us/3"


@DURABLE
def test_what_was_purged_is_nothing_for_a_group_made_at_once(manager: QueueManager, durable: bool) -> None:
    queue = make_queue(manager, durable=durable)
    _, sink = consume(manager, queue, "w", "eu/#", credit_max=1)
    send(manager, "us/1", "eu/1")
    manager.dispatch(NOW_MS)
    queue.purge(NOW_MS)
    assert keys(sink) == "eu/1"
    assert group(manager, queue, "rest") == "eu/1", "what another group has claimed is kept"
    send(manager, "us/2")
    assert group(manager, queue, "w", "us/#") == "us/2"


@DURABLE
def test_unwanted_message_is_dead_lettered_where_the_queue_says_so(durable: bool) -> None:
    life = Life(durable=durable, dead_letter="dead", unmatched=DEAD_LETTER_UNMATCHED)
    dead = make_queue(life.manager, "dead")
    send(life.manager, "us/0")
    sink = life.work("eu/#")["eu/#"]
    send(life.manager, "us/1", "eu/1", "us/2")
    life.commit()
    assert keys(sink) == "eu/1"
    assert (dead.ready_count(), life.queue.unwanted_count(), life.queue.dropped_count) == (3, 0, 3)
    assert keys(life.work("#")["#"]) == "eu/1"


def test_queue_tells_beforehand_what_it_would_drop(manager: QueueManager) -> None:
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager, unmatched=DROP_UNMATCHED)
    eu, us = (EnvelopeTemplate(f"$queue/jobs/{key}") for key in ("eu", "us"))
    assert not queue.drops(us), "without groups all is kept"
    consume(manager, queue, "w", "eu/#")
    assert (queue.drops(eu), queue.drops(us), queue.groups.keeper) == (False, True, None)
    select(manager, queue, group="g", group_selector="region = 'us'")
    assert not queue.drops(us)
    assert queue.drops(EnvelopeTemplate("$queue/jobs/asia"))
    select(manager, queue, group="t", group_selector="JMSTimestamp > 0")
    assert not queue.drops(EnvelopeTemplate("$queue/jobs/asia")), "each message has its own time"


def test_queue_that_keeps_drops_nothing(manager: QueueManager) -> None:
    queue = make_queue(manager)
    consume(manager, queue, "w", "eu/#")
    assert not queue.drops(EnvelopeTemplate("$queue/jobs/us"))


def test_changed_policy_lets_go_of_what_was_kept(manager: QueueManager) -> None:
    queue = make_queue(manager)
    consume(manager, queue, "w", "eu/#")
    send(manager, "us/1")
    manager.dispatch(NOW_MS)
    changed = queue.definition()
    changed.policy = type(queue.policy)(**{**queue.policy.fields(), "unmatched": DROP_UNMATCHED})
    queue.redefine(changed, changed.policy)
    assert (queue.unwanted_count(), queue.groups.keeper) == (0, None)


def test_paused_queue_judges_all_the_same(manager: QueueManager) -> None:
    queue = make_queue(manager)
    consume(manager, queue, "w", "eu/#")
    queue.set_pause(Pause(deliver=True))
    send(manager, "us/1", "eu/1")
    assert queue.unwanted_count() == 1


@DURABLE
@pytest.mark.parametrize("priority", [0, 3])
def test_million_unwanted_messages_in_a_row_hold_no_memory_each(
    manager: QueueManager, durable: bool, priority: int
) -> None:
    queue = make_queue(manager, durable=durable, priority_max=priority)
    consume(manager, queue, "w", "eu/#")
    cursor = queue.parts[0].cursors[KEPT]
    send(manager, *["us"] * 5_000)
    assert queue.unwanted_count() == 5_000
    assert not cursor.claims.buckets.next_claim
    assert cursor.progress.claimed is not None
    assert len(cursor.progress.released.starts) == cursor.progress.claimed.count == 0


def test_queue_in_memory_lets_go_of_what_was_taken_beside_kept_messages(manager: QueueManager) -> None:
    queue = make_queue(manager, durable=False)
    consume(manager, queue, "w", "eu/#", no_ack=True)
    send(manager, "us")
    manager.dispatch(NOW_MS)
    kept_bytes = queue.log.tail.memory_bytes
    for _ in range(100):
        send(manager, "eu")
        manager.dispatch(NOW_MS)
    assert queue.log.tail.memory_bytes - kept_bytes <= 100 * RELEASED_BYTES


class Life:
    """A shard on a store in memory with the queue `jobs`."""

    def __init__(self, **fields: Any) -> None:
        self.clock = FakeClock(NOW_MS)
        self.open(MemoryStore())
        make_queue(self.manager, done_retention_ms=0, **fields)

    def open(self, store: MemoryStore) -> None:
        self.store = store
        self.shard = open_shard(store, self.clock, auto_create=False, cache_bytes_max=0)
        self.manager = self.shard.manager

    @property
    def queue(self) -> Queue:
        return self.manager.queues.find("jobs")

    def rest(self) -> None:
        for _ in range(1_000):
            self.manager.dispatch(self.clock.ms)
            if not has_to_go_on(self.shard):
                return
            load(self.shard)
        raise AssertionError("it never comes to rest")

    def commit(self) -> None:
        self.rest()
        run(self.shard.commit_once(everything=True))

    def sweep(self) -> None:
        self.commit()
        self.clock.ms += 1_000
        run(self.shard.sweep_once())
        self.commit()

    def crash(self) -> None:
        self.open(self.store.crash())

    def work(self, *patterns: str) -> dict[str, Sink]:
        sinks = {pattern: consume(self.manager, self.queue, "w", pattern)[1] for pattern in patterns}
        self.rest()
        return sinks

    def payload_count(self) -> int:
        return sum(key.startswith(payload.prefix()) for key, _ in all_rows(self.store))


def test_kept_message_is_there_after_a_crash() -> None:
    life = Life()
    life.work("eu/#")
    send(life.manager, "us/1", "eu/1", "us/2")
    life.commit()
    life.crash()
    send(life.manager, "us/3")
    assert keys(life.work("us/#")["us/#"]) == "us/1 us/2 us/3"


def test_kept_message_is_counted_after_a_crash_and_a_sweep() -> None:
    life = Life()
    life.work("eu/#")
    send(life.manager, "us/1", "eu/1", "us/2")
    life.commit()
    life.crash()
    life.sweep()
    assert life.queue.unwanted_count() == 2


def test_done_message_beside_kept_ones_leaves_the_store_and_kept_ones_do_not_leave_twice() -> None:
    life = Life()
    sink = life.work("eu/#")["eu/#"]
    send(life.manager, *["us/1", "eu/1"] * 50)
    life.rest()
    life.manager.ack(sink.claims, NOW_MS)
    life.sweep()
    assert life.payload_count() == 50
    life.crash()
    life.sweep()
    assert life.payload_count() == 50
    sink = life.work("us/#")["us/#"]
    assert len(sink.claims) == 50
    life.manager.ack(sink.claims, life.clock.ms)
    life.sweep()
    life.sweep()
    assert life.payload_count() == 0
    log = life.queue.log
    assert log.head_offset == log.next_offset == 100


def test_queue_of_an_older_store_gets_its_keeper_with_the_first_sweep() -> None:
    life = Life()
    life.work("eu/#")
    life.commit()
    keeper = life.queue.groups.keeper
    assert keeper is not None
    life.queue.groups._give_keeper_up(keeper)
    send(life.manager, "us/1")
    run(life.shard.commit_once(everything=True))
    life.crash()
    assert life.queue.groups.keeper is None
    life.sweep()
    assert life.queue.unwanted_count() == 1, "nobody had passed it"


def test_more_than_one_turn_takes_is_judged_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SELECTOR_SCAN_MESSAGES_MAX", 10)
    monkeypatch.setattr(limits, "SELECTOR_SCAN_STEP_MESSAGES", 4)
    life = Life()
    send(life.manager, *["us", "eu", "eu"] * 20)
    life.commit()
    life.work("eu/#")
    assert life.queue.unwanted_count() == 20
