"""What serves the cursors of a group: message groups where they are asked for, filters before these."""

from queue_manager.group.group import Group
from queue_manager.spec_records import QueueDefinition
from tests.unit.queue_manager.managers import NOW_MS, consume, make_manager, make_policy, make_queue, publish
from tests.unit.queue_manager.selecting import fields_of, select


def servers(group: Group) -> list[str]:
    """The kinds of what serves each cursor."""
    return [type(cursor.dispatcher).__name__ for cursor in group.cursors]


def test_messages_go_out_in_order_unless_something_else_is_asked_for() -> None:
    manager = make_manager()
    group = make_queue(manager, priority_max=1).group("")
    assert servers(group) == ["InOrder", "InOrder"]
    assert group.serving.unmatched_count() == 0


def test_message_groups_wait_for_the_end_of_filters_and_of_what_is_out_of_order() -> None:
    manager = make_manager()
    manager.context.fields.read_by(fields_of)
    queue = make_queue(manager)
    group = queue.group("")
    consumer, sink = select(manager, queue, "region = 'us'")
    policy = make_policy(message_groups="sticky")
    queue.redefine(QueueDefinition("jobs", durable=True, policy=policy), policy)
    assert (servers(group), group.serving.by_key) == (["BySelector"], None)
    publish(manager, 1, "$queue/jobs/eu")
    publish(manager, 1, "$queue/jobs/us")
    manager.dispatch(NOW_MS)
    manager.ack(sink.claims, NOW_MS)
    manager.consumption.unsubscribe(consumer, NOW_MS)
    assert servers(group) == ["BySelector"], "offset 1 was claimed before offset 0"
    _, rest = consume(manager, queue)
    manager.dispatch(NOW_MS)
    manager.ack(rest.claims, NOW_MS)
    manager.seal(NOW_MS + 1_000)
    assert (sink.offsets, rest.offsets, servers(group)) == ([1], [0], ["ByKey"])
