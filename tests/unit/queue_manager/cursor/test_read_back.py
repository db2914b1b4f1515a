"""What a cursor asked the store for, and what came of it."""

from queue_manager.claims.claim import DONE
from queue_manager.shard.loads import BodiesLoad
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_queue, publish


def test_claims_without_a_payload_are_done_and_whoever_waits_is_told() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    consumer, sink = consume(manager, queue)
    publish(manager, 2)
    manager.dispatch(NOW_MS)
    group = queue.groups.find("")
    manager.consumption.unsubscribe(consumer, NOW_MS)
    cursor = group.cursors[0]
    waiting = [claim for _, claim in cursor.claims.returned.heap]
    for claim in waiting:
        claim.message.body = None
    cursor.read_back.request_returned()
    [load] = manager.context.loads
    assert isinstance(load, BodiesLoad)
    assert cursor.reader.is_loading
    told: list[int] = []
    group.when_loaded(told.append)
    load.then({load.message_ids[1]: b"here"}, 2, NOW_MS)
    assert [claim.state == DONE for claim in waiting] == [True, False]
    assert (waiting[1].message.body, told, cursor.reader.is_loading) == (b"here", [NOW_MS], False)


def test_nothing_is_released_for_a_group_that_is_gone() -> None:
    manager = make_manager()
    queue = make_queue(manager)
    cursor = queue.group("g").cursors[0]
    publish(manager, 2)
    cursor.retire()
    assert cursor.read_back.is_over()
    cursor.read_back.release_gone(0, 2)
    assert not cursor.retention.payloads.released.starts
