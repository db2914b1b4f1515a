"""What is written when claims are settled, and what a start makes of it."""

from __future__ import annotations

import pytest

from config import limits
from queue_manager.claims.claim import Claim
from queue_manager.manager import QueueManager
from queue_manager.policy import FOREVER
from storage.batch import WriteOps
from storage.records import active, claim_state, done, group_position, settlements
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, drive, open_shard
from tests.unit.queue_manager.managers import NOW_MS, Sink, consume, make_manager, make_queue, publish

LONE_ACK_BYTES_MAX = 400


class Settling:
    """A queue whose messages are all claimed, and its commits."""

    def __init__(self, manager: QueueManager, count: int, credit_max: int = 1 << 20, **policy: int) -> None:
        self.manager = manager
        self.queue = make_queue(manager, **policy)
        _, self.sink = consume(manager, self.queue, credit_max=credit_max)
        self.now_ms = NOW_MS
        publish(manager, count)
        self.commit()

    @property
    def claims(self) -> list[Claim]:
        return self.sink.claims

    def commit(self) -> WriteOps:
        """Dispatch, let time pass, and give what is written then."""
        self.manager.dispatch(self.now_ms)
        self.now_ms += limits.STATE_FLUSH_INTERVAL_MS
        commit = self.manager.seal(self.now_ms)
        if commit is None:
            return WriteOps()
        self.manager.committed(commit)
        return commit.write_ops()

    def ack(self, *claims: Claim) -> WriteOps:
        assert self.manager.ack(claims, self.now_ms) == 0
        return self.commit()


def written_bytes(ops: WriteOps) -> int:
    return sum(len(key) + len(value) for key, value in ops.puts) + sum(map(len, ops.deletes))


@pytest.mark.parametrize("done_retention_ms", [0, 60_000, FOREVER])
def test_a_lone_ack_writes_few_bytes_however_much_is_in_flight(done_retention_ms: int) -> None:
    settling = Settling(make_manager(), 99, done_retention_ms=done_retention_ms)
    sizes = [written_bytes(settling.ack(claim)) for claim in settling.claims]
    assert 0 < max(sizes) <= LONE_ACK_BYTES_MAX


def test_an_ack_writes_no_place_and_no_claim_number_that_did_not_change() -> None:
    settling = Settling(make_manager(), 3, done_retention_ms=60_000)
    settling.ack(settling.claims[0])
    ops = settling.ack(settling.claims[1])
    assert [key[:2] for key, _ in ops.puts] == [settlements.prefix()]
    publish(settling.manager, 1)
    written = {key[:2] for key, _ in settling.commit().puts}
    assert {active.prefix(), claim_state.prefix(), group_position.prefix()} <= written
    assert done.prefix() not in written


def test_one_by_one_each_claim_and_each_ack_writes_little() -> None:
    settling = Settling(make_manager(), 50, credit_max=1, done_retention_ms=60_000)
    for index in range(50):
        assert written_bytes(settling.ack(settling.claims[index])) <= LONE_ACK_BYTES_MAX


def test_a_bucket_that_closes_is_written_whole_and_leaves_no_settlements() -> None:
    settling = Settling(make_manager(), 10, done_retention_ms=60_000, bucket_size=1)
    rows: dict[bytes, bytes] = {}
    for claim in settling.claims:
        ops = settling.ack(claim)
        rows.update(ops.puts)
        for key in ops.deletes:
            rows.pop(key, None)
    assert not [key for key in rows if key.startswith((settlements.prefix(), active.prefix()))]
    [value] = [value for key, value in rows.items() if key.startswith(done.prefix())]
    assert len(done.decode(value)) == 10


def test_settlements_of_a_bucket_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SETTLEMENTS_PER_BUCKET_MAX", 3)
    settling = Settling(make_manager(), 50, done_retention_ms=FOREVER)
    rows: dict[bytes, bytes] = {}
    for claim in settling.claims:
        ops = settling.ack(claim)
        rows.update(ops.puts)
        for key in ops.deletes:
            rows.pop(key, None)
        assert sum(key.startswith(settlements.prefix()) for key in rows) <= 3


def test_acks_are_due_for_the_store_soon_however_many_follow() -> None:
    settling = Settling(make_manager(), 90)
    manager = settling.manager
    began_ms = settling.now_ms
    for claim in settling.claims[:15]:
        manager.ack([claim], settling.now_ms)
        due_ms = manager.commit_due_ms(settling.now_ms)
        assert due_ms is not None
        assert settling.now_ms + due_ms <= began_ms + limits.STATE_FLUSH_INTERVAL_MS
        settling.now_ms += 1
    assert manager.seal(began_ms + limits.STATE_FLUSH_INTERVAL_MS) is not None
    assert manager.commit_due_ms(began_ms + limits.STATE_FLUSH_INTERVAL_MS) is None


@pytest.mark.parametrize("done_retention_ms", [0, FOREVER])
@pytest.mark.parametrize("again", [1, 2], ids=["one start", "two starts"])
def test_what_was_settled_one_by_one_stays_settled_after_a_start(done_retention_ms: int, again: int) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    queue = make_queue(shard.manager, done_retention_ms=done_retention_ms)
    _, sink = consume(shard.manager, queue)
    publish(shard.manager, 20)
    shard.manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    for claim in sink.claims[3:15:2]:
        shard.manager.ack([claim], clock.ms)
        drive(shard.commit_once(everything=True))
    for _ in range(again):
        store = store.crash()
        shard = open_shard(store, clock)
    claims = shard.manager.queues.find("jobs").groups.find("").cursors[0].claims
    waiting = sorted(claim.message.offset for claim in claims.waiting())
    assert waiting == sorted(set(range(20)) - set(range(3, 15, 2)))


class Shared:
    """A store and the shard on it, with 1,000 messages that a consumer holds and its claims on the store."""

    def __init__(self, done_retention_ms: int) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore()
        self.shard = open_shard(self.store, self.clock)
        self.manager = self.shard.manager
        self.queue = make_queue(self.manager, done_retention_ms=done_retention_ms)
        _, self.sink = consume(self.manager, self.queue, credit_max=1_000)
        publish(self.manager, 1_000)
        self.manager.dispatch(self.clock.ms)
        drive(self.shard.commit_once(everything=True))

    def waiting_after_a_crash(self) -> set[int]:
        rows = drive(self.store.scan(b"", None, limit=100_000))
        shard = open_shard(MemoryStore(rows=dict(rows)), self.clock)
        [cursor] = shard.manager.queues.find("jobs").groups.find("").cursors
        return {claim.message.offset for claim in cursor.claims.waiting()}


@pytest.mark.parametrize("done_retention_ms", [0, FOREVER])
def test_what_many_acks_settle_is_written_in_parts(
    monkeypatch: pytest.MonkeyPatch, done_retention_ms: int
) -> None:
    monkeypatch.setattr(limits, "PART_COST_MAX", 200)
    monkeypatch.setattr(limits, "PART_BUCKETS_MIN", 1)
    shared = Shared(done_retention_ms)
    shared.manager.ack(shared.sink.claims, shared.clock.ms)
    publish(shared.manager, 50)
    shared.manager.dispatch(shared.clock.ms)  # the claims of these are put into the same commits
    waiting = []
    while shared.manager.commit_due_ms(shared.clock.ms) is not None:
        shared.clock.ms += limits.STATE_FLUSH_INTERVAL_MS
        drive(shared.shard.commit_once())
        waiting.append(shared.waiting_after_a_crash())
        assert shared.manager.commit_due_ms(shared.clock.ms) in (0, None), "the rest follows at once"
    assert [len(offsets) for offsets in waiting] == [850, 650, 450, 250, 50]
    assert waiting[-1] == set(range(1_000, 1_050))
    assert min(waiting[0] - waiting[1]) < min(waiting[1] - waiting[2]), "the oldest go first"


@pytest.mark.parametrize("why", ["waited for", "everything"])
def test_what_many_acks_settle_is_written_at_once_where_that_is(
    monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(limits, "PART_COST_MAX", 200)
    monkeypatch.setattr(limits, "PART_BUCKETS_MIN", 1)
    shared = Shared(FOREVER)
    shared.manager.ack(shared.sink.claims[:900], shared.clock.ms)
    if why == "waited for":
        shared.queue.groups.find("").write_soon()
        publish(shared.manager, 50)
        shared.manager.dispatch(shared.clock.ms)
    drive(shared.shard.commit_once(everything=why == "everything"))
    assert len(shared.waiting_after_a_crash()) == (150 if why == "waited for" else 100)


def test_many_acks_are_written_in_parts_where_the_turn_hands_out_much_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PART_COST_MAX", 200)
    monkeypatch.setattr(limits, "PART_BUCKETS_MIN", 1)
    shared = Shared(FOREVER)
    publish(shared.manager, 500)
    shared.manager.ack(shared.sink.claims, shared.clock.ms)
    monkeypatch.setattr(limits, "DISPATCHED_PER_TURN_MAX", 100)
    monkeypatch.setattr(limits, "UNWRITTEN_BUCKETS_MAX", 4)
    shared.manager.dispatch(shared.clock.ms)
    shared.clock.ms += limits.STATE_FLUSH_INTERVAL_MS
    drive(shared.shard.commit_once())
    assert len(shared.waiting_after_a_crash() & set(range(1_000))) == 600  # two parts: of dispatch and commit


def test_buckets_that_are_wanted_whole_are_written_so_with_the_first_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PART_COST_MAX", 200)
    monkeypatch.setattr(limits, "PART_BUCKETS_MIN", 1)
    shared = Shared(FOREVER)
    for start in (0, 2):
        shared.manager.ack(shared.sink.claims[start::4], shared.clock.ms)
        drive(shared.shard.commit_once(everything=True))
    shared.clock.ms += limits.STATE_FLUSH_INTERVAL_MS
    shared.manager.ack(shared.sink.claims[1::4], shared.clock.ms)
    records = shared.queue.groups.find("").cursors[0].claims.buckets.records
    records.want_all_whole()
    drive(shared.shard.commit_once())
    assert not records.has_changes
    assert not drive(shared.store.scan(settlements.prefix(), settlements.prefix() + b"\xff", limit=100))


def test_a_part_is_measured_by_the_work_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PART_COST_MAX", 10 * (limits.BUCKET_COST + 1))
    monkeypatch.setattr(limits, "PART_BUCKETS_MIN", 1)
    shared = Shared(FOREVER)
    shared.manager.ack(shared.sink.claims[::100], shared.clock.ms)  # one in each of ten buckets
    shared.clock.ms += limits.STATE_FLUSH_INTERVAL_MS
    drive(shared.shard.commit_once())
    assert len(shared.waiting_after_a_crash()) == 990


def test_a_deleted_queue_leaves_no_settlements() -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    queue = make_queue(shard.manager, done_retention_ms=FOREVER)
    _, sink = consume(shard.manager, queue)
    publish(shard.manager, 9)
    shard.manager.dispatch(clock.ms)
    for claim in sink.claims[:4]:
        drive(shard.commit_once(everything=True))
        shard.manager.ack([claim], clock.ms)
    drive(shard.commit_once(everything=True))
    assert drive(store.scan(settlements.prefix(), None, limit=100))
    shard.manager.queues.delete(queue, clock.ms)
    drive(shard.commit_once(everything=True))
    drive(shard.sweep_once())
    drive(shard.commit_once(everything=True))
    rows = drive(store.scan(settlements.prefix(), settlements.prefix() + b"\xff", limit=100))
    assert not rows


@pytest.mark.parametrize("written_count", [0, 1, 2])
def test_a_deleted_group_leaves_no_settlements(written_count: int) -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    queue = make_queue(shard.manager, done_retention_ms=FOREVER)
    _, sink = consume(shard.manager, queue, group="g")
    publish(shard.manager, 9)
    shard.manager.dispatch(clock.ms)
    for claim in sink.claims[:written_count]:
        shard.manager.ack([claim], clock.ms)
        drive(shard.commit_once(everything=True))
    shard.manager.ack(sink.claims[4:6], clock.ms)  # in no commit yet
    queue.groups.delete("g", clock.ms, force=True)
    drive(shard.commit_once(everything=True))
    drive(shard.sweep_once())
    drive(shard.commit_once(everything=True))
    rows = drive(store.scan(settlements.prefix(), settlements.prefix() + b"\xff", limit=100))
    assert not rows


def test_what_was_let_go_of_does_not_come_back_after_a_start() -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    queue = make_queue(shard.manager, done_retention_ms=60_000)
    _, sink = consume(shard.manager, queue)
    publish(shard.manager, 5)
    shard.manager.dispatch(clock.ms)
    drive(shard.commit_once(everything=True))
    for claim in sink.claims[1:3]:
        shard.manager.ack([claim], clock.ms)
        drive(shard.commit_once(everything=True))
    clock.ms += 61_000
    drive(shard.sweep_once())
    drive(shard.commit_once(everything=True))  # what is done was let go of
    shard = open_shard(store.crash(), clock)
    later = Sink()
    shard.manager.consumption.subscribe(
        shard.manager.queues.find("jobs"), "", "#", later,
        consumer_id="c", credit_max=100, no_ack=False, exclusive=False, lease_ms=1_000,
    )  # fmt: skip
    for _ in range(4):
        shard.manager.dispatch(clock.ms)
        drive(shard.load_once())
    assert sorted(later.offsets) == [0, 3, 4]
