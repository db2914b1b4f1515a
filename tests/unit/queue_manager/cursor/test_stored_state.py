"""When a cursor is written: not at every change, and not at all once it is gone."""

import pytest

from config import limits
from queue_manager.cursor.stored_state import StoredState
from queue_manager.log.queue_log import QueueLog
from queue_manager.shard.commit import Commit
from storage.records import group_position, log_cursor
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue


class Written:
    """A cursor whose state does nothing but note when it was written."""

    def __init__(self, log: QueueLog, *, is_kept: bool = True) -> None:
        self.times: list[int] = []
        self.parts: list[bool] = []
        self.state = StoredState(self, log, log.name, is_kept=is_kept)

    def write(self, commit: Commit, now_ms: int, *, is_part: bool = False) -> None:
        self.times.append(now_ms)
        self.parts.append(is_part)
        self.state.written(now_ms)


def make_log(*, durable: bool = True) -> QueueLog:
    return make_queue(make_manager(), durable=durable).parts[0].log


def test_changes_within_one_interval_are_written_once() -> None:
    log = make_log()
    cursor = Written(log)
    interval_ms = limits.STATE_FLUSH_INTERVAL_MS
    for at_ms in range(NOW_MS, NOW_MS + 2 * interval_ms):
        cursor.state.mark_dirty()
        log.context.seal(at_ms)
    assert cursor.times == [NOW_MS, NOW_MS + interval_ms]


def test_write_soon_goes_with_the_open_commit() -> None:
    log = make_log()
    cursor = Written(log)
    cursor.state.mark_dirty()
    log.context.seal(NOW_MS)
    cursor.state.mark_dirty()
    cursor.state.write_soon()
    log.context.seal(NOW_MS + 1)
    assert cursor.times == [NOW_MS, NOW_MS + 1]
    assert cursor.parts == [True, False]


def test_write_soon_goes_whole_with_the_open_commit_though_it_is_written_early() -> None:
    log = make_log()
    cursor = Written(log)
    cursor.state.write_soon()
    cursor.state.mark_dirty()
    log.context.state_writes.write_early(cursor, log.context.commit, NOW_MS)
    cursor.state.mark_dirty()
    log.context.state_writes.write_early(cursor, log.context.commit, NOW_MS)
    assert cursor.parts == [False, True]


def test_what_is_made_due_is_written_whole_though_it_is_written_early() -> None:
    log = make_log()
    cursor = Written(log)
    cursor.state.mark_dirty()
    log.context.state_writes.make_due()
    log.context.state_writes.write_early(cursor, log.context.commit, NOW_MS)
    assert cursor.parts == [False]


def test_the_rest_of_what_was_written_in_part_goes_with_the_next_commit() -> None:
    log = make_log()
    cursor = Written(log)
    cursor.state.mark_dirty()
    log.context.seal(NOW_MS)
    cursor.state.write_rest(NOW_MS)
    log.context.seal(NOW_MS)
    assert (cursor.times, cursor.parts) == ([NOW_MS, NOW_MS], [True, True])


def test_write_at_puts_off_what_changes_from_then_on() -> None:
    log = make_log()
    cursor = Written(log)
    cursor.state.write_at(NOW_MS + 500)
    cursor.state.mark_dirty()
    log.context.seal(NOW_MS + 499)
    assert cursor.times == []
    log.context.seal(NOW_MS + 500)
    assert cursor.times == [NOW_MS + 500]


@pytest.mark.parametrize("why", ["in memory", "not kept", "queue deleted", "group gone"])
def test_what_is_not_kept_is_never_written(why: str) -> None:
    log = make_log(durable=why != "in memory")
    cursor = Written(log, is_kept=why != "not kept")
    if why == "queue deleted":
        log.deleted = True
    if why == "group gone":
        cursor.state.mark_dirty()
        cursor.state.leave()
    cursor.state.mark_dirty()
    log.context.seal(NOW_MS)
    assert (cursor.times, cursor.state.is_dirty) == ([], False)


def test_place_is_written_as_far_as_it_changed() -> None:
    log = make_log()
    state = Written(log).state
    keys = {"sequence": log_cursor.key(log.name, log.log_id), "position": group_position.key(log.name)}
    found = []
    for sequence, position in [(0, 0), (0, 5), (3, 5), (3, 5)]:
        commit = Commit()
        state.write_place(sequence, position, commit)
        found.append([name for name, key in keys.items() if key in commit.puts])
    assert found == [["sequence", "position"], ["position"], ["sequence"], []]
