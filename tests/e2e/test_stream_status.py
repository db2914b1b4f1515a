"""`$stream-status`: the offsets of a stream, and groups created at a place."""

import time

import pytest

from tests.e2e import amqp
from tests.e2e.staging import call
from tests.waiting import until

pytestmark = pytest.mark.extension

VERB = "$stream-status"


@pytest.fixture
def stream(channel, name):
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    amqp.publish(channel, name, *map(str, range(5)))
    yield name
    channel.queue_delete(name)


def test_status_tells_offsets_and_creates_groups(channel, stream):
    assert call(channel, stream, VERB) == {"status": "ok", "first": 0, "next": 5}
    assert call(channel, stream, VERB, **{"x-group-id": "g"})["committed"] is None
    made = {"x-group-id": "g", "x-stream-offset": "next"}
    assert call(channel, stream, VERB, **made)["committed"] == 5
    amqp.publish(channel, stream, "5")
    # it stays where it was made, whoever asks again
    assert call(channel, stream, VERB, **made)["committed"] == 5
    assert call(channel, stream, VERB, **{"x-group-id": "h", "x-stream-offset": 3})["committed"] == 3


def test_status_tells_the_offset_of_a_place(channel, stream):
    for place, offset in (("first", 0), ("last", 4), ("next", 5), (3, 3), (99, 5), ("1h", 0)):
        assert call(channel, stream, VERB, **{"x-stream-offset": place})["offset"] == offset
    to_come = f"timestamp={int(time.time() * 1_000) + 60_000}"
    assert call(channel, stream, VERB, **{"x-stream-offset": to_come})["offset"] == 5


def test_group_created_by_status_keeps_its_place_over_a_kill(own_broker, amqp_connect):
    broker = own_broker({"queues": [{"name": "s", "type": "stream"}]})
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "s", "0", "1")
    assert call(channel, "s", VERB, **{"x-group-id": "g", "x-stream-offset": "next"})["committed"] == 2
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "s", "2")
    assert call(channel, "s", VERB, **{"x-group-id": "g", "x-stream-offset": "next"})["committed"] == 2


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"x-stream-offset": "soon"}, "x-stream-offset is first"),
        ({"x-group-id": "g", "x-stream-offset": "soon"}, "x-stream-offset is first"),
        ({"x-group-id": "a@b"}, "consumer group name"),
    ],
)
def test_invalid_status_call_is_refused_with_the_reason(channel, stream, headers, reason):
    assert reason in call(channel, stream, VERB, **headers)["reason"]


def test_status_of_a_queue_that_is_no_stream_is_refused(channel, queue):
    assert "is no stream" in call(channel, queue, VERB)["reason"]


def test_a_consumer_is_told_how_far_it_has_read_when_its_filter_leaves_the_rest(channel, stream):
    amqp.publish(channel, stream, *map(str, range(20)), headers={"n": 1})
    amqp.publish(channel, stream, "wanted", headers={"n": 2})
    amqp.publish(channel, stream, *map(str, range(20)), headers={"n": 1})
    channel.basic_qos(prefetch_count=10)
    reader = amqp.Collector(channel, stream, consumer_tag="r", arguments={"x-jms-selector": "n = 2"})
    assert [delivery.body for delivery in reader.wait(1)] == [b"wanted"]
    until(lambda: call(channel, stream, "$stream-status", **{"x-consumer-tag": "r"})["position"] == 46)
    amqp.publish(channel, stream, "wanted", headers={"n": 2})
    until(lambda: call(channel, stream, "$stream-status", **{"x-consumer-tag": "r"})["position"] == 47)
    assert len(reader.wait(2)) == 2
    for tag in ("nobody", 1):
        refused = call(channel, stream, "$stream-status", **{"x-consumer-tag": tag})
        assert refused["status"] == "refused"
        assert "no consumer of stream" in refused["reason"]
