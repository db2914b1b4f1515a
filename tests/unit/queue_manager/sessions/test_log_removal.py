"""A filter log that nothing reads any more goes from the store, and its own record goes last."""

import pytest

from queue_manager.sessions.common import Bounds
from storage.records import filter_log, filter_log_entry
from tests.model.harness import load, run
from tests.unit.queue_manager.sessions.test_bounds import NUMBERS, Away


def entries_without_a_log(rows):
    logs = {filter_log.parse_key(key) for key in rows if key.startswith(filter_log.prefix())}
    numbers = {
        filter_log_entry.parse_key(key)[0] for key in rows if key.startswith(filter_log_entry.prefix())
    }
    return numbers - logs


@pytest.mark.parametrize("restarts", [False, True])
def test_log_whose_last_reader_ends_while_it_is_trimmed_leaves_no_entry(restarts):
    away = Away(Bounds(), ("dev", "other"))
    away.publish(NUMBERS)
    if restarts:
        away.restart()
    sessions, ms = away.sessions, away.clock.ms
    sessions.end(sessions.find("other", ms), ms)  # its log is looked through for what only it needed
    sessions.end(sessions.find("dev", ms), ms)
    while load(away.shard) or run(away.shard.commit_once(everything=False)):
        assert not entries_without_a_log(away.store._rows)
    away.commit()
    assert not away.rows()
