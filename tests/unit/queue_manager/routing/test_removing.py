"""Names of deleted queues: taken until nothing is left of them."""

import pytest

from queue_manager.errors import QueueBusy
from queue_manager.log.removals import QueueRemoval
from queue_manager.routing.watched_names import Removing
from queue_manager.spec_records import QueueDefinition
from storage.records import removal
from tests.unit.queue_manager.managers import make_manager, make_policy


def begin() -> Removing:
    return Removing(make_manager().context)


def definition(name: str, *, durable: bool = True, priority_max: int = 0) -> QueueDefinition:
    return QueueDefinition(name, durable=durable, policy=make_policy(priority_max=priority_max))


def test_name_is_taken_until_nothing_is_left_and_who_waits_is_told() -> None:
    context = make_manager().context
    removing = Removing(context)
    removing.begin("jobs")
    told: list[str] = []
    assert removing.when_removed("jobs", lambda: told.append("jobs"))
    assert not removing.when_removed("other", lambda: told.append("other"))
    with pytest.raises(QueueBusy):
        removing.check_free(definition("jobs"))
    removing.end(QueueRemoval("jobs", "q7", ("jobs",), 0, None, None))
    removing.check_free(definition("jobs"))
    assert (told, len(removing)) == (["jobs"], 0)
    assert removal.key("q7") in context.commit.deletes


def test_queue_in_memory_may_have_a_name_that_is_being_removed() -> None:
    removing = begin()
    removing.begin("jobs")
    removing.check_free(definition("jobs", durable=False))


def test_queue_with_priorities_waits_for_every_log() -> None:
    manager = make_manager()
    queue = manager.queues.declare(definition("jobs", priority_max=2), 0)
    removing = begin()
    removing.begin(queue.parts[2].log.name)
    removing.check_free(definition("jobs", priority_max=1))
    with pytest.raises(QueueBusy):
        removing.check_free(definition("jobs", priority_max=2))


def test_deletion_under_way_at_the_start_goes_on() -> None:
    context = make_manager().context
    removing = Removing(context)
    pending = QueueRemoval("jobs", "q3", ("jobs",), 0, None, None)
    removing.restore(pending)
    assert (context.removals, len(removing)) == ([pending], 1)
