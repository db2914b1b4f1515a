"""MQTT subscriptions to `$queue/...` at QoS 0: a delivery settles by its sending, and nothing else does."""

import pytest

from tests.e2e import amqp
from tests.e2e.mqtt import V5, V311, payloads, user_property
from tests.waiting import until

pytestmark = pytest.mark.extension
VERSIONS = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])
KINDS = {
    "classic": {"durable": True},
    "ephemeral": {"durable": False},
    "stream": {"durable": True, "arguments": {"x-queue-type": "stream"}},
    "priorities": {"durable": True, "arguments": {"x-max-priority": 3}},
    "message-groups": {"durable": True, "arguments": {"x-message-groups": "sticky"}},
    "ephemeral-message-groups": {"durable": False, "arguments": {"x-message-groups": "sticky"}},
    "priorities-message-groups": {
        "durable": True,
        "arguments": {"x-message-groups": "sticky", "x-max-priority": 3},
    },
}
FILTERED_KINDS = {name: kind for name, kind in KINDS.items() if "message-groups" not in name}
BODIES = ["m1", "m2", "m3", "m4", "m5"]


@pytest.fixture(name="kind", params=KINDS)
def _kind(request, channel, name):
    """A queue of each kind."""
    channel.queue_declare(name, **KINDS[request.param])
    yield request.param
    if channel.is_open:
        channel.queue_delete(name)


@pytest.fixture(name="filtered_kind", params=FILTERED_KINDS)
def _filtered_kind(request, channel, name):
    """A queue of each kind whose consumers may have filters."""
    channel.queue_declare(name, **FILTERED_KINDS[request.param])
    yield request.param
    if channel.is_open:
        channel.queue_delete(name)


def shared(queue):
    """The subscription of a member of the group `workers`."""
    return f"$share/workers/$queue/{queue}"


def publish(channel, queue, *bodies):
    """All of one message group, with a property to filter by."""
    amqp.publish(channel, queue, *bodies, headers={"JMSXGroupID": "one", "region": "eu"})


def make_holder(mqtt, channel, queue, version, **options):
    """A QoS 1 member that was given five messages and acknowledged none."""
    holder = mqtt(version=version, manual_ack=True)
    assert holder.subscribe(shared(queue), 1, **options) == 1
    publish(channel, queue, *BODIES)
    assert payloads(holder.take(5)) == BODIES
    return holder


def wait_until_nobody_consumes(channel, queue):
    """A DISCONNECT has no answer: what is published right after it may still go to the one who leaves."""
    until(lambda: not channel.queue_declare(queue, passive=True).method.consumer_count)


def assert_nothing_is_left(mqtt, queue, version):
    """A later member is given none of it."""
    later = mqtt(version=version)
    assert later.subscribe(shared(queue), 1) == 1
    assert later.quiet()


@VERSIONS
def test_messages_of_a_lost_consumer_are_delivered_at_qos_0(mqtt, channel, name, kind, version):
    make_holder(mqtt, channel, name, version).drop()
    taker = mqtt(version=version)
    assert taker.subscribe(shared(name), 0) == 0
    messages = taker.take(5)
    assert payloads(messages) == BODIES
    assert {message.qos for message in messages} == {0}
    if version == V5:
        assert {user_property(message, "attempts") for message in messages} == {"2"}
    publish(channel, name, "m6")
    assert payloads([taker.take_one()]) == ["m6"]
    assert not taker.disconnected.is_set()
    taker.disconnect()
    assert_nothing_is_left(mqtt, name, version)


@VERSIONS
def test_waiting_and_new_messages_are_delivered_at_qos_0(mqtt, channel, name, kind, version):
    taker = mqtt(version=version)
    assert taker.subscribe(shared(name), 0) == 0
    publish(channel, name, "coming")
    assert payloads([taker.take_one()]) == ["coming"]
    taker.disconnect()
    wait_until_nobody_consumes(channel, name)
    publish(channel, name, *BODIES)
    taker = mqtt(version=version)
    assert taker.subscribe(shared(name), 0) == 0
    messages = taker.take(5)
    assert payloads(messages) == BODIES
    if version == V5:
        assert {user_property(message, "attempts") for message in messages} == {"1"}
    assert not taker.disconnected.is_set()
    taker.disconnect()
    assert_nothing_is_left(mqtt, name, version)


@VERSIONS
def test_resubscribing_at_qos_0_delivers_unsettled_messages(mqtt, channel, name, kind, version):
    client = make_holder(mqtt, channel, name, version)
    assert client.subscribe(shared(name), 0) == 0
    assert payloads(client.take(5)) == BODIES
    assert not client.disconnected.is_set()
    client.disconnect()
    assert_nothing_is_left(mqtt, name, version)


def test_messages_of_a_lost_consumer_are_delivered_to_a_filter_at_qos_0(mqtt, channel, name, filtered_kind):
    wanted = [("selector", "region = 'eu'")]
    make_holder(mqtt, channel, name, V5, user=wanted).drop()
    taker = mqtt()
    assert taker.subscribe(shared(name), 0, user=wanted) == 0
    messages = taker.take(5)
    assert payloads(messages) == BODIES
    assert {user_property(message, "attempts") for message in messages} == {"2"}
    publish(channel, name, "m6")
    assert payloads([taker.take_one()]) == ["m6"]
    taker.disconnect()
    assert_nothing_is_left(mqtt, name, V5)
