"""The end of every modelled life: consume everything, let retention pass, and see what is left."""

from __future__ import annotations

from queue_manager.policy import NOT_PAUSED
from tests.model.harness import Harness
from tests.model.leaks import all_rows, check_memory, check_store
from tests.model.oracle import DONE, topic_matches

MINUTE_MS = 60_000


def drain(h: Harness) -> None:
    """Consume everything, let retention pass, and look for what should not be there any more."""
    for queue in h.oracle.queues.values():
        h.pause(queue, NOT_PAUSED)
    # a queue may go with its last active consumer, and take cancelled ones along
    while active := [index for index, consumer in enumerate(h.consumers) if consumer[0].active]:
        h.unsubscribe(active[-1], keep_claims=False)
    h.advance(100_000)
    for _ in range(1_000):  # what is due is appended in steps
        if not any(queue.planned for queue in h.oracle.queues.values()):
            break
        h.quiesce()
        h.advance(1)
    else:
        raise AssertionError("messages never come due")
    for queue in list(h.oracle.queues.values()):
        for group in list(queue.groups.values()) or [queue.group("")]:
            h.subscribe(queue, group.name, group.pattern, credit_max=50)
        unmatched = queue.unmatched()
        if unmatched:  # but for an empty routing key there is a pattern that does not match all
            rest = (
                "#"
                if any(topic_matches(message.topic, f"$queue/{queue.name}") for message in unmatched)
                else "+/#"
            )
            h.subscribe(queue, "rest", rest, credit_max=50)
    while True:
        h.quiesce()
        held = h.held_items()
        if not held:
            break
        h.settle("ack", held)
    for queue in h.oracle.queues.values():
        for group in queue.groups.values():
            assert group.ready_bounds()[0] == 0, f"{queue.name}:{group.group_id} keeps {group.ready}"
            for offset in group.ready:
                group.settle(group.items[offset], DONE)
            group.ready = []
    clean_up(h)
    check_store(all_rows(h.store), h.oracle, may_leak=h.may_leak)
    check_memory(h.manager)
    h.crash()
    for queue in list(h.oracle.queues.values()):
        for group in queue.groups.values():
            h.subscribe(queue, group.name, group.pattern)
    h.quiesce()
    clean_up(h)
    check_store(all_rows(h.store), h.oracle, may_leak=h.may_leak)
    check_memory(h.manager)


def clean_up(h: Harness) -> None:
    """Let the broker clean up until it does not change anything any more."""
    rows: list[tuple[bytes, bytes]] = []
    unchanged = 0
    for _ in range(3_000):
        h.commit(everything=True)
        h.clock.ms += MINUTE_MS + 1_000
        h.sweep()
        h.quiesce()  # it may be known only now what was let go of
        h.commit(everything=True)
        before, rows = rows, all_rows(h.store)
        unchanged = unchanged + 1 if rows == before else 0
        if unchanged == 3:
            return
    raise AssertionError("cleaning up never ends")
