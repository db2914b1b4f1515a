"""A schedule after a start, while what the store holds is still being counted."""

import pytest

from config import limits
from queue_manager.model import Message
from queue_manager.shard.loads import ScanLoad
from storage.envelope import EnvelopeTemplate
from storage.records import scheduled
from tests.unit.queue_manager.managers import NOW_MS, make_manager, make_queue

TEMPLATE = EnvelopeTemplate("$queue/jobs", 0, b"", persistent=True, shared=False)
DUE_MS = NOW_MS + 60_000


def test_what_was_staged_before_a_start_is_counted_once_though_the_count_meets_it():
    manager = make_manager()
    queue = make_queue(manager)
    first, second = (queue.store([body], 1) for body in (b"x", b"y"))
    queue.rules.restore_schedule()
    _, counting = manager.context.loads
    schedule = queue.rules.schedule
    for message_id, body in ((first, b"x"), (second, b"y")):  # handed over by an epoch that goes on
        schedule.enter(TEMPLATE, message_id, [body], DUE_MS, NOW_MS)
    schedule.cancel((DUE_MS, first))
    assert schedule.count == 1
    assert isinstance(counting, ScanLoad)
    counting.then([(scheduled.key(queue.name, DUE_MS, each), b"") for each in (first, second)], NOW_MS)
    assert schedule.count == 1


def test_window_that_grows_too_large_while_it_is_read_on_loses_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "SCHEDULE_WINDOW_MESSAGES", 4)
    manager = make_manager()
    queue = make_queue(manager)
    ids = [queue.store([b"x"], 1) for _ in range(4)]
    queue.rules.restore_schedule()
    schedule = queue.rules.schedule
    stored = [(DUE_MS + 10 * number, each) for number, each in enumerate(ids)]
    envelope = Message(0, 0, None, TEMPLATE, NOW_MS).envelope()
    rows = [(scheduled.key(queue.name, *key), envelope) for key in stored]
    schedule._rows_read(rows, NOW_MS)
    for key in stored[:3]:
        schedule.cancel(key)
    schedule.on_timer(NOW_MS)
    assert schedule._is_scanning
    schedule.enter(TEMPLATE, queue.store([b"y"] * 8, 8), [b"y"] * 8, DUE_MS, NOW_MS)
    schedule._rows_read([], NOW_MS)
    assert stored[3] in schedule.rows or schedule.horizon < stored[3], "it is there, or read again"
