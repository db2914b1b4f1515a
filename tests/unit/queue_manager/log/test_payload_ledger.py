"""When payloads go: once every group is done with them, and not before."""

import pytest

from config import limits
from queue_manager.cursor.cursor import Cursor
from queue_manager.log.payloads import add_to_runs
from queue_manager.log.retention import Retention
from queue_manager.policy import FOREVER
from queue_manager.shard.commit import Commit
from storage.records import done, payload
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def deleted_payloads(commit: Commit) -> list[int]:
    return sorted(payload.parse_key(key) for key in commit.deletes if key.startswith(payload.prefix()))


def payloads_put(commit: Commit | None) -> list[int]:
    assert commit is not None
    return sorted(payload.parse_key(key) for key in commit.puts if key.startswith(payload.prefix()))


def retention_with_groups(*names: str) -> tuple[Retention[Cursor], list[Cursor]]:
    """Give the ledger of a log with ten messages, and the cursors of these groups, nothing claimed."""
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=0)
    publish(manager, 10)
    cursors = [queue.group(name).cursors[0] for name in names]
    return queue.parts[0].retention, cursors


def begin_commit(retention: Retention[Cursor]) -> Commit:
    """Give a commit that is open from now on, with nothing in it."""
    context = retention.log.context
    context.seal(NOW_MS)
    return context.commit


def test_runs_join_what_follows_on() -> None:
    runs: list[tuple[int, int, int]] = []
    for offset, message_id in [(0, 5), (1, 6), (3, 8), (4, 9), (5, 11), (6, 12)]:
        add_to_runs(runs, offset, message_id)
    assert runs == [(0, 5, 2), (3, 8, 2), (5, 11, 2)]


def test_the_only_group_s_release_deletes_at_once() -> None:
    retention, [a] = retention_with_groups("a")
    commit = begin_commit(retention)
    retention.payloads.release_unshared(a, [(2, 2, 3)])
    assert deleted_payloads(commit) == [2, 3, 4]
    assert not retention.move_head()
    retention.payloads.release_unshared(a, [(0, 0, 2)])
    assert retention.move_head()
    assert retention.log.head_offset == 5


def test_the_last_group_s_release_deletes() -> None:
    retention, [a, b, c] = retention_with_groups("a", "b", "c")
    commit = begin_commit(retention)
    retention.payloads.release_unshared(a, [(0, 0, 10)])
    retention.payloads.release_unshared(b, [(3, 3, 5)])
    assert deleted_payloads(commit) == []
    retention.payloads.release_unshared(c, [(0, 0, 5)])
    assert deleted_payloads(commit) == [3, 4]
    retention.payloads.release_unshared(b, [(0, 0, 3)])
    assert deleted_payloads(commit) == [0, 1, 2, 3, 4]
    assert retention.move_head()
    assert retention.log.head_offset == 5
    assert [list(cursor.progress.released.starts) for cursor in (a, b, c)] == [[5], [5], []]


def test_a_release_counts_once() -> None:
    retention, [a, b] = retention_with_groups("a", "b")
    commit = begin_commit(retention)
    retention.payloads.release_unshared(a, [(1, 1, 3)])
    retention.payloads.release_unshared(b, [(1, 1, 3)])
    again = begin_commit(retention)
    retention.payloads.release_unshared(b, [(0, 0, 5)])
    retention.payloads.release_unshared(a, [(0, 0, 5)])
    assert deleted_payloads(commit) == [1, 2, 3]
    assert deleted_payloads(again) == [0, 4]
    assert retention.move_head()
    retention.payloads.release_unshared(a, [(0, 0, 5)])
    assert not a.progress.released.starts


def test_what_another_group_failed_keeps_its_payload() -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=0)
    publish(manager, 3)
    _, a = consume(manager, queue, "a")
    _, b = consume(manager, queue, "b")
    manager.dispatch(NOW_MS)
    manager.reject(a.claims[:1], NOW_MS)
    manager.ack(a.claims[1:] + b.claims, NOW_MS)
    commit = manager.seal(NOW_MS + 1_000)
    assert commit is not None
    assert [key for key in commit.puts if key.startswith(payload.prefix())] == [payload.key(0)]
    assert queue.log.head_offset == 3


@pytest.mark.parametrize(
    ("done_retention_ms", "large_is_kept"), [(0, False), (60_000, False), (FOREVER, True)]
)
def test_done_messages_that_are_large_go_at_once(
    monkeypatch: pytest.MonkeyPatch, done_retention_ms: int, large_is_kept: bool
) -> None:
    monkeypatch.setattr(limits, "DONE_BODY_BYTES_MAX", 100)
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=done_retention_ms)
    _, a = consume(manager, queue, "a")
    _, b = consume(manager, queue, "b")
    for size in (100, 101, 1):
        publish(manager, 1, size=size)
    manager.dispatch(NOW_MS)
    manager.ack(a.claims, NOW_MS)
    assert len(payloads_put(manager.seal(NOW_MS))) == 3, "b needs them"
    manager.ack(b.claims, NOW_MS)
    commit = manager.seal(NOW_MS + 1_000)
    assert commit is not None
    gone = [0, 1, 2] if not done_retention_ms else [] if large_is_kept else [1]
    assert deleted_payloads(commit) == gone


def test_a_large_message_taken_before_it_is_written_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DONE_BODY_BYTES_MAX", 100)
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=60_000)
    consume(manager, queue, "a", no_ack=True)
    publish(manager, 2, size=101)
    publish(manager, 1)
    manager.dispatch(NOW_MS)
    assert payloads_put(manager.seal(NOW_MS)) == [2]


def test_a_stretch_without_payloads_is_released_where_all_agree() -> None:
    retention, [a, b] = retention_with_groups("a", "b")
    retention.payloads.release_gone(a, 0, 6)
    assert not retention.move_head()
    retention.payloads.release_gone(b, 0, 4)
    assert retention.move_head()
    assert retention.log.head_offset == 4
    retention.payloads.release_gone(b, 0, 4)
    assert not b.progress.released.starts


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
    manager.ack(sink.claims, NOW_MS)
    rows: dict[bytes, bytes] = {}
    for now_ms in (NOW_MS + 1_000, NOW_MS + after_ms):
        manager.apply_purges(manager.take_purges(now_ms), {})
        commit = manager.seal(now_ms)
        if commit is not None:
            rows.update(commit.puts)
            for key in commit.deletes:
                rows.pop(key, None)
            manager.committed(commit)
    assert sum(key.startswith(done.prefix()) for key in rows) == records
    assert sum(key.startswith(payload.prefix()) for key in rows) == (15 if records else 0)


def test_a_bucket_written_between_taking_a_purge_and_applying_it_keeps_what_was_done_meanwhile() -> None:
    manager = make_manager()
    queue = make_queue(manager, done_retention_ms=1_000, bucket_size=1)
    _, sink = consume(manager, queue)
    publish(manager, 8)
    manager.dispatch(NOW_MS)
    manager.ack(sink.claims[:3], NOW_MS)
    manager.seal(NOW_MS + 500)
    purges = manager.take_purges(NOW_MS + 1_500)
    manager.ack(sink.claims[3:5], NOW_MS + 1_500)
    manager.seal(NOW_MS + 1_600)
    manager.apply_purges(purges, {})
    commit = manager.seal(NOW_MS + 1_700)
    assert commit is not None
    assert deleted_payloads(commit) == [0, 1, 2]
    value = commit.puts[done.key("jobs", 1 << 60)]
    assert [message.message_id for message in done.decode(value)] == [3, 4]
