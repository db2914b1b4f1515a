"""Reading a backlog back from the store: nothing is passed over, nothing is read for ever."""

from __future__ import annotations

import pytest

from broker.engine.client.browsing import read_page
from broker.engine.log_reader import LogReader
from config import limits
from queue_manager.policy import QueuePolicy
from storage.batch import WriteOps
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.drain import clean_up, drain
from tests.model.harness import DEFAULT_POLICY, Harness, drive
from tests.model.leaks import all_rows
from tests.model.oracle import OracleQueue
from tests.model.tight_limits import tight_limits


class CountingStore(MemoryStore):
    """Counts reads."""

    scan_count = 0
    get_count = 0

    async def get(self, key: bytes) -> bytes | None:
        self.get_count += 1
        return await super().get(key)

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        self.scan_count += 1
        return await super().scan(start, end, limit=limit, reverse=reverse)


def backlog(sizes: list[int], *, count: int = 10, policy: QueuePolicy = DEFAULT_POLICY) -> Harness:
    """A restarted broker with one queue of `count` messages per size, one log entry each."""
    h = Harness()
    h.declare("jobs", policy)
    for size in sizes:
        h.publish("$queue/jobs/eu", count, size)
        h.commit(everything=True)
    h.crash()
    return h


def test_a_page_of_a_listing_reads_little_more_than_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    h = backlog([0] * 20, count=100)
    scan = h.shard.store.scan
    entries: list[int] = []

    async def counted(start: bytes, end: bytes | None, *, limit: int) -> list[tuple[bytes, bytes]]:
        rows = await scan(start, end, limit=limit)
        entries.append(len(rows))
        return rows

    monkeypatch.setattr(h.shard.store, "scan", counted)
    queue = h.manager.queues.find("jobs")
    for after in (None, "149", "1749"):
        page = drive(read_page(h.shard, queue, None, "ready", after=after, limit=100, bodies=False))
        assert len(page.messages) == 100
    # each message of an entry is decoded: finding the place reads one at a time, the page a few
    assert sum(count for count in entries if count > 1) <= 3 * 3, entries


def jobs(h: Harness) -> OracleQueue:
    return h.oracle.queues["jobs"]


def test_a_restart_finds_what_was_read_ahead_but_not_delivered() -> None:
    h = backlog([0, 0, 0])
    h.subscribe(jobs(h), credit_max=5)
    h.quiesce()
    h.settle("ack", h.held_items())
    h.commit(everything=True)
    h.crash()
    h.subscribe(jobs(h))
    h.quiesce()
    assert len(h.held_items()) == 25
    drain(h)


@pytest.mark.parametrize("bytes_max", [1, 3_000, 30_000])
def test_a_load_cut_short_by_bytes_goes_on_where_it_stopped(
    bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = backlog([900] * 20, count=3)
    monkeypatch.setattr(limits, "LOAD_BYTES_MAX", bytes_max)
    h.subscribe(jobs(h))
    h.quiesce()
    assert [item.message.offset for _, item in h.held_items()] == list(range(60))
    drain(h)


async def test_a_load_of_large_payloads_stops_soon_after_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    h = backlog([9_000])
    monkeypatch.setattr(limits, "LOAD_BYTES_MAX", 10_000)
    bodies, _ = await h.shard.reader.read_payloads(
        list(range(h.shard.manager.context.message_ids.next_value))
    )
    assert len(bodies) <= 4


@pytest.mark.parametrize(("size", "get_count"), [(10, 0), (2_000, 30)])
async def test_payloads_of_every_tenth_id_are_scanned_if_they_are_small(size: int, get_count: int) -> None:
    h = backlog([size], count=300)
    store = CountingStore(rows=dict(all_rows(h.store)))
    reader = LogReader(store, h.manager.context.metadata_log)
    await reader.read_payloads([0, 1, 2, 3])  # now it knows their size
    wanted = list(range(0, 300, 10))
    bodies, read_count = await reader.read_payloads(wanted)
    assert (sorted(bodies), read_count) == (wanted, 30)
    assert store.get_count == get_count


def test_a_consumer_without_credit_does_not_have_the_store_read_again_and_again() -> None:
    h = backlog([0])
    store = CountingStore(rows=dict(all_rows(h.store)))
    h.shard.reader = LogReader(store, h.manager.context.metadata_log)
    h.subscribe(jobs(h), credit_max=8)
    h.quiesce()
    before = store.scan_count
    h.quiesce()
    h.settle("ack", h.held_items()[:1])
    h.quiesce()
    assert store.scan_count - before <= 2
    drain(h)


def test_what_is_gone_from_the_store_is_passed_over_and_its_log_goes() -> None:
    h = backlog([0, 0, 0])
    ids = [payload.parse_key(key) for key, _ in all_rows(h.store) if key.startswith(payload.prefix())]
    ops = WriteOps()
    for message_id in ids[5:25]:
        ops.delete(payload.key(message_id))
    drive(h.store.write(ops))
    for message in jobs(h).messages[5:25]:
        message.purged = True
    h.subscribe(jobs(h), credit_max=3)
    for _ in range(4):
        h.quiesce()
        h.settle("ack", h.held_items())
    drain(h)


def test_a_purge_while_a_load_is_under_way() -> None:
    h = backlog([0, 0])
    h.subscribe(jobs(h), credit_max=3)
    h.manager.dispatch(h.clock.ms)
    assert h.manager.context.loads
    h.purge(jobs(h))
    h.publish("$queue/jobs/eu", 4)
    h.quiesce()
    assert [item.message.offset for _, item in h.held_items()] == [20, 21, 22]
    drain(h)


def test_what_was_read_ahead_is_let_go_of_with_the_last_consumer() -> None:
    h = backlog([0, 0])
    h.subscribe(jobs(h), credit_max=3)
    h.quiesce()
    h.unsubscribe(0, keep_claims=False)
    group = h.manager.queues.find("jobs").groups.find("")
    assert not group.cursors[0].reader._loaded
    h.subscribe(jobs(h))
    h.quiesce()
    assert len(h.held_items()) == 20
    drain(h)


@pytest.mark.parametrize("credit", range(1, 9))
def test_a_consumer_that_leaves_while_more_is_being_read(credit: int) -> None:
    with tight_limits():
        h = backlog([0, 0, 0])
        h.subscribe(jobs(h), credit_max=credit)
        h.manager.dispatch(h.clock.ms)
        h.load()
        h.settle("ack", h.held_items())
        h.manager.dispatch(h.clock.ms)
        h.unsubscribe(0, keep_claims=False)
        h.load()
        h.subscribe(jobs(h))
        h.quiesce()
        drain(h)


def test_a_log_entry_s_worth_of_other_groups_messages_is_read_for_a_late_group() -> None:
    with tight_limits():
        h = Harness()
        h.declare("jobs", DEFAULT_POLICY)
        h.subscribe(jobs(h))
        h.publish("$queue/jobs/eu", 40)
        h.quiesce()
        h.commit(everything=True)
        assert len(h.manager.queues.find("jobs").log.tail) == 0
        h.subscribe(jobs(h), "late")
        h.quiesce()
        assert len(jobs(h).groups["late"].held()) == 40
        drain(h)


def test_what_was_read_ahead_is_not_used_after_newer_messages_came_from_memory() -> None:
    with tight_limits():
        h = Harness()
        h.declare("jobs", DEFAULT_POLICY)
        h.publish("$queue/jobs", 5)
        h.commit(everything=False)
        h.publish("$queue/jobs", 2)
        for _ in range(2):
            h.pull(jobs(h), no_ack=False)  # the first from the store, the second from memory
        h.commit(everything=False)
        h.pull(jobs(h), no_ack=False)
        assert [item.message.offset for _, item in h.held_items()] == [0, 1, 2]
        drain(h)


@pytest.mark.parametrize("pattern", ["eu/#", "us"])
def test_a_pattern_over_a_backlog(pattern: str) -> None:
    with tight_limits():
        h = Harness()
        h.declare("jobs", DEFAULT_POLICY)
        for _ in range(10):
            h.publish("$queue/jobs/eu/1", 6)
            h.publish("$queue/jobs/us", 3)
            h.commit(everything=True)
        h.crash()
        h.subscribe(jobs(h), "g", pattern, credit_max=7)
        for _ in range(3):
            h.quiesce()
            h.settle("ack", h.held_items())
        h.commit(everything=True)
        h.crash()
        h.subscribe(jobs(h), "g", pattern, credit_max=11)
        h.quiesce()
        drain(h)


def test_tails_of_many_queues_share_the_cache() -> None:
    with tight_limits():
        h = Harness(cache_bytes_max=40_000)
        for number in range(10):
            h.declare(f"q{number}", DEFAULT_POLICY)
            h.publish(f"$queue/q{number}", 60)
            h.commit(everything=True)
        h.sweep()
        assert sum(queue.log.tail.memory_bytes for queue in h.manager.queues) <= 40_000
        drain(h)


def test_memory_of_consumed_messages_goes_without_another_publish() -> None:
    h = Harness(cache_bytes_max=1 << 20)
    h.declare("jobs", DEFAULT_POLICY)
    h.publish("$queue/jobs", 50)
    h.commit(everything=True)
    h.subscribe(jobs(h))
    h.quiesce()
    h.settle("ack", h.held_items())
    h.commit(everything=True)
    h.sweep()
    assert len(h.manager.queues.find("jobs").log.tail) == 0
    clean_up(h)
    drain(h)
