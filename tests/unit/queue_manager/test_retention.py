"""When payloads go: once every group is done with them, and not before."""

import pytest

from queue_manager.journal import Journal
from queue_manager.policy import FOREVER
from queue_manager.queue import Queue
from queue_manager.retention import add_to_runs, advance_head, release_gone, release_unshared
from storage.records import done, payload
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def deleted_payloads(journal: Journal) -> list[int]:
    return sorted(payload.parse_key(key) for key in journal.deletes if key.startswith(payload.PREFIX))


def queue_with_groups(*names: str) -> Queue:
    """A queue of ten messages with these groups, nothing claimed."""
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=0)
    publish(manager, 10)
    for name in names:
        manager.group(queue, name)
    return queue


def test_runs_join_what_follows_on() -> None:
    runs: list[tuple[int, int, int]] = []
    for offset, message_id in [(0, 5), (1, 6), (3, 8), (4, 9), (5, 11), (6, 12)]:
        add_to_runs(runs, offset, message_id)
    assert runs == [(0, 5, 2), (3, 8, 2), (5, 11, 2)]


def test_the_only_group_s_release_deletes_at_once() -> None:
    queue = queue_with_groups("a")
    journal = Journal()
    release_unshared(queue.groups["a"], [(2, 2, 3)], journal)
    assert deleted_payloads(journal) == [2, 3, 4]
    assert not advance_head(queue)
    release_unshared(queue.groups["a"], [(0, 0, 2)], journal)
    assert advance_head(queue)
    assert queue.head_offset == 5


def test_the_last_group_s_release_deletes() -> None:
    queue = queue_with_groups("a", "b", "c")
    a, b, c = queue.groups.values()
    journal = Journal()
    release_unshared(a, [(0, 0, 10)], journal)
    release_unshared(b, [(3, 3, 5)], journal)
    assert deleted_payloads(journal) == []
    release_unshared(c, [(0, 0, 5)], journal)
    assert deleted_payloads(journal) == [3, 4]
    release_unshared(b, [(0, 0, 3)], journal)
    assert deleted_payloads(journal) == [0, 1, 2, 3, 4]
    assert advance_head(queue)
    assert queue.head_offset == 5
    assert (a.released.starts, b.released.starts, c.released.starts) == ([5], [5], [])


def test_a_release_counts_once() -> None:
    queue = queue_with_groups("a", "b")
    a, b = queue.groups.values()
    journal = Journal()
    release_unshared(a, [(1, 1, 3)], journal)
    release_unshared(b, [(1, 1, 3)], journal)
    again = Journal()
    release_unshared(b, [(0, 0, 5)], again)
    release_unshared(a, [(0, 0, 5)], again)
    assert deleted_payloads(journal) == [1, 2, 3]
    assert deleted_payloads(again) == [0, 4]
    assert advance_head(queue)
    release_unshared(a, [(0, 0, 5)], again)
    assert not a.released.starts


def test_what_another_group_failed_keeps_its_payload() -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=0)
    publish(manager, 3)
    _, a = consume(manager, queue, "a")
    _, b = consume(manager, queue, "b")
    manager.dispatch(NOW_MS)
    manager.reject(a.entries[:1], NOW_MS)
    manager.ack(a.entries[1:] + b.entries, NOW_MS)
    journal = manager.seal(NOW_MS + 1_000)
    assert journal is not None
    assert [key for key in journal.puts if key.startswith(payload.PREFIX)] == [payload.key(0)]
    assert queue.head_offset == 3


def test_a_stretch_without_payloads_is_released_where_all_agree() -> None:
    queue = queue_with_groups("a", "b")
    a, b = queue.groups.values()
    release_gone(a, 0, 6)
    assert not advance_head(queue)
    release_gone(b, 0, 4)
    assert advance_head(queue)
    assert queue.head_offset == 4
    release_gone(b, 0, 4)
    assert not b.released.starts


@pytest.mark.parametrize(
    ("done_retention_ms", "after_ms", "records"),
    [(60_000, 59_999, 2), (60_000, 61_001, 0), (FOREVER, 1 << 40, 2)],
)
def test_done_records_are_kept_as_long_as_told(done_retention_ms: int, after_ms: int, records: int) -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=done_retention_ms, bucket_size=1)
    _, sink = consume(manager, queue)
    publish(manager, 15)
    manager.dispatch(NOW_MS)
    manager.ack(sink.entries, NOW_MS)
    rows: dict[bytes, bytes] = {}
    for now_ms in (NOW_MS + 1_000, NOW_MS + after_ms):
        manager.apply_purges(manager.take_purges(now_ms), {})
        journal = manager.seal(now_ms)
        if journal is not None:
            rows.update(journal.puts)
            for key in journal.deletes:
                rows.pop(key, None)
            manager.committed(journal, now_ms)
    assert sum(key.startswith(done.PREFIX) for key in rows) == records
    assert sum(key.startswith(payload.PREFIX) for key in rows) == (15 if records else 0)


def test_a_bucket_written_between_taking_a_purge_and_applying_it_keeps_what_was_done_meanwhile() -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=1_000, bucket_size=1)
    _, sink = consume(manager, queue)
    publish(manager, 8)
    manager.dispatch(NOW_MS)
    manager.ack(sink.entries[:3], NOW_MS)
    manager.seal(NOW_MS + 500)
    purges = manager.take_purges(NOW_MS + 1_500)
    manager.ack(sink.entries[3:5], NOW_MS + 1_500)
    manager.seal(NOW_MS + 1_600)
    manager.apply_purges(purges, {})
    journal = manager.seal(NOW_MS + 1_700)
    assert journal is not None
    assert deleted_payloads(journal) == [0, 1, 2]
    value = journal.puts[done.key("jobs", 1 << 60)]
    assert [message.message_id for message in done.decode(value)] == [3, 4]
