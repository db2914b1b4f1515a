"""`$browse` shows the messages of a queue over AMQP, in every state, and does not disturb them."""

import json
import time

import pika
import pytest

from spark_bridge.listed import ListLink
from spark_bridge.settings import ConnectionSettings
from tests.e2e import amqp
from tests.waiting import until

pytestmark = pytest.mark.extension


def browse(channel, queue, *, timeout_s=5, **headers):
    """The messages of a page as (properties, body), and what its end says."""
    reply_to = channel.queue_declare("", exclusive=True).method.queue
    table = {f"x-{name.replace('_', '-')}": value for name, value in headers.items()}
    asked = pika.BasicProperties(headers=table, reply_to=reply_to, correlation_id="c")
    channel.basic_publish("", f"$queue/{queue}/$browse", b"", asked)
    found = []
    while True:
        got = until(lambda: amqp.get(channel, reply_to), timeout_s, told=lambda: "no end of the page")
        properties = got.properties
        if properties.headers and "x-browse-state" in properties.headers:
            found.append((properties, got.body.decode()))
        else:
            assert (properties.correlation_id, properties.content_type) == ("c", "application/json")
            return found, json.loads(got.body)


def bodies(page):
    return [body for _, body in page[0]]


def test_pages_show_waiting_messages_and_leave_them(channel, queue):
    for number in range(5):
        amqp.publish(channel, queue, str(number), headers={"n": number}, type="t", expiration="60000")
    page = browse(channel, queue, limit=2)
    assert bodies(page) == ["0", "1"]
    assert page[1] == {"status": "ok", "messages": 2, "next": "1"}
    page = browse(channel, queue, after=page[1]["next"])
    assert bodies(page) == ["2", "3", "4"]
    assert page[1]["next"] is None
    properties = page[0][0][0]
    assert properties.type == "t"
    assert properties.expiration is None
    assert properties.headers["n"] == 2
    assert properties.headers["x-browse-id"] == f"{queue}:2"
    assert properties.headers["x-browse-routing-key"] == queue
    assert (properties.headers["x-browse-state"], properties.headers["x-browse-attempts"]) == ("ready", 0)
    assert abs(properties.headers["x-browse-timestamp"] / 1000 - time.time()) < 60
    assert amqp.count(channel, queue) == 5
    assert amqp.bodies(amqp.Collector(channel, queue, ack=True).wait(5)) == list("01234")


def test_the_spark_bridge_reads_what_the_broker_tells_in_one_piece(channel, queue, broker):
    for number in range(3):
        amqp.publish(
            channel, queue, str(number), headers={"n": "1"}, message_id=f"m{number}", delivery_mode=2
        )
    with ListLink(ConnectionSettings(port=broker.amqp_port)) as link:
        link.request(link.take_replies(), f"$queue/{queue}/$browse", {})
        assert link.poll_delivery()
        rows = link.take_rows()
        assert len(link._known) == 1, "the rows were not read field by field"
    assert [(row.offset, row.body, row.message_id, row.headers) for row in rows] == [
        (number, b"%d" % number, f"m{number}", [("n", "1")]) for number in range(3)
    ]
    assert {(row.routing_key, row.state, row.state_ms, row.attempts, row.consumer) for row in rows} == {
        (queue, "ready", 0, 0, None)
    }


def test_each_state_shows_its_messages(channel, amqp_connect, queue):
    other = amqp_connect().channel()
    other.basic_qos(prefetch_count=3)
    amqp.publish(channel, queue, "failed", "held", "done", "waiting")
    amqp.publish(channel, queue, "later", headers={"x-delay": 60_000})
    held = amqp.Collector(other, queue).wait(3)
    other.basic_reject(held[0].tag, requeue=False)
    other.basic_ack(held[2].tag)
    amqp.count(other, queue)  # both are done by now; credit brought the fourth
    states = {
        state: bodies(browse(channel, queue, state=state))
        for state in ("ready", "in_flight", "scheduled", "failed", "done", "delayed")
    }
    assert states == {
        "ready": [], "in_flight": ["held", "waiting"], "scheduled": ["later"], "failed": ["failed"],
        "done": ["done"], "delayed": [],
    }  # fmt: skip
    failed = browse(channel, queue, state="failed")[0][0][0].headers
    assert failed["x-browse-attempts"] == 1
    assert abs(failed["x-browse-time"] / 1000 - time.time()) < 60


def test_group_and_stream_are_shown(channel, queue, name):
    amqp.publish(channel, queue, "a", "b")
    for group in ("g", "h"):
        collector = amqp.Collector(channel, queue, arguments={"x-consumer-group": group})
        collector.wait(2)
    assert bodies(browse(channel, queue, group_id="g", state="in_flight")) == ["a", "b"]
    page = browse(channel, queue)
    assert page[1]["status"] == "refused"
    assert "several consumer groups" in page[1]["reason"]
    stream = f"{name}-stream"
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    amqp.publish(channel, stream, "1", "2")
    assert bodies(browse(channel, stream)) == ["1", "2"]
    channel.queue_delete(stream)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"state": "gone"}, "x-state is one of ready"),
        ({"limit": 0}, "x-limit is 1 to 1000"),
        ({"limit": "all"}, "x-limit must be a whole number"),
        ({"after": "x"}, "not where a page"),
        ({"group_id": "nobody"}, "no consumer group"),
    ],
)
def test_invalid_call_is_refused_with_the_reason(channel, queue, headers, reason):
    found, end = browse(channel, queue, **headers)
    assert not found
    assert end["status"] == "refused"
    assert reason in end["reason"]


def test_call_without_reply_to_is_406(amqp_connect, queue):
    channel = amqp_connect().channel()
    channel.basic_publish("", f"$queue/{queue}/$browse", b"")
    with pytest.raises(amqp.ChannelClosedByBroker, match="reply_to") as closed:
        amqp.count(channel, queue)
    assert closed.value.reply_code == 406


@pytest.mark.parametrize("count", [3, 400])  # 400: more than go out in a turn of the loop
def test_a_page_and_its_end_come_by_direct_reply_to(channel, amqp_connect, queue, count):
    amqp.publish(channel, queue, *map(str, range(count)))
    asking = amqp_connect().channel()
    replies = amqp.Collector(asking, "amq.rabbitmq.reply-to", auto_ack=True)
    asked = pika.BasicProperties(
        headers={"x-limit": 1_000}, reply_to="amq.rabbitmq.reply-to", correlation_id="c"
    )
    asking.basic_publish("", f"$queue/{queue}/$browse", b"", asked)
    *found, end = replies.wait(count + 1)
    assert [delivery.body.decode() for delivery in found] == list(map(str, range(count)))
    assert end.properties.correlation_id == "c"
    assert json.loads(end.body) == {"status": "ok", "messages": count, "next": None}
