"""A schedule after a start, while what the store holds is still being counted."""

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
    counting.then([(scheduled.key(queue.name, DUE_MS, each), b"") for each in (first, second)], NOW_MS)  # type: ignore[call-arg]
    assert schedule.count == 1
