"""Streams with real clients: replay, offsets in every form, commits, retention, kill -9."""

import time
from datetime import UTC, datetime, timedelta

import pika
import pytest
from pika.exceptions import NackError

from tests.e2e import amqp
from tests.e2e.mqtt import payloads, user_property

pytestmark = pytest.mark.extension
STREAM = {"x-queue-type": "stream"}


def declare(channel, name, **arguments):
    table = STREAM | {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return channel.queue_declare(name, durable=True, arguments=table)


def reader(channel, name, *, ack=True, **arguments):
    table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    return amqp.Collector(channel, name, ack=ack, arguments=table)


@pytest.fixture
def stream(channel, name):
    declare(channel, name)
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=100)
    amqp.publish(channel, name, *"abcdef")
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def test_messages_can_be_read_again(channel, stream):
    for _ in range(2):
        got = reader(channel, stream, stream_offset="first").wait(6)
        assert amqp.bodies(got) == list("abcdef")
        assert [d.headers["x-stream-offset"] for d in got] == list(range(6))
        assert all(abs(d.headers["x-stream-timestamp"] / 1000 - time.time()) < 60 for d in got)
        assert "x-stream-gap" not in got[0].headers
    assert amqp.count(channel, stream) == 6


@pytest.mark.parametrize(
    ("offset", "first"),
    [
        ("first", "a"),
        ("last", "f"),
        ("next", "g"),
        (2, "c"),
        ("2", "c"),
        ("offset=4", "e"),
        ("1h", "a"),
        ("timestamp=1000", "a"),
        (datetime.now(UTC) - timedelta(hours=1), "a"),
        (datetime.now(UTC) + timedelta(hours=1), None),
        (1 << 40, "g"),
    ],
)
def test_stream_offset_decides_the_first_message(channel, stream, offset, first):
    collector = reader(channel, stream, stream_offset=offset)
    amqp.publish(channel, stream, "g")
    if first is None:
        assert collector.wait_quiet() == []
    else:
        assert collector.wait(1)[0].body.decode() == first


@pytest.mark.parametrize("offset", ["sometime", -1, True, "1x", "timestamp=x"])
def test_invalid_stream_offset_is_refused(amqp_connect, channel, stream, offset):
    other = amqp_connect().channel()
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        reader(other, stream, stream_offset=offset)
    assert closed.value.reply_code == 406
    assert "x-stream-offset" in closed.value.reply_text


def test_group_shares_messages_and_continues_at_its_offset(amqp_connect, channel, stream):
    others = [amqp_connect().channel() for _ in range(2)]
    for other in others:
        other.basic_qos(prefetch_count=3)
    first, second = (reader(other, stream, ack=False, consumer_group="g") for other in others)
    first.wait(3)
    second.wait(3)
    assert sorted(first.bodies() + second.bodies()) == list("abcdef")
    for delivery in first.deliveries[:2]:
        others[0].basic_ack(delivery.tag)
    others[0].connection.close()
    for delivery in second.deliveries:
        others[1].basic_ack(delivery.tag)
    again = second.wait(4)[3:]
    assert amqp.bodies(again) == first.bodies()[2:]
    assert again[0].method.redelivered
    others[1].basic_ack(again[0].tag)
    others[1].connection.close()
    amqp.publish(channel, stream, "g")
    assert reader(channel, stream, consumer_group="g").wait(1)[0].body == b"g"


def test_nacked_message_returns_and_rejected_one_does_not(channel, stream):
    collector = reader(channel, stream, ack=False, consumer_group="g")
    got = collector.wait(6)
    channel.basic_reject(got[1].tag, requeue=False)
    channel.basic_nack(got[0].tag, requeue=True)
    again = collector.wait(7)[6]
    assert (again.body, again.method.redelivered) == (b"a", True)
    assert len(collector.wait_quiet()) == 7


def test_leaving_consumer_nack_does_not_skip_messages(amqp_connect, channel, stream):
    """pika requeues messages that it prefetched and the application has not processed."""

    def take(count):
        own = amqp_connect().channel()
        own.basic_qos(prefetch_count=4)
        bodies = []
        for method, _, body in own.consume(stream, arguments={"x-consumer-group": "g"}, inactivity_timeout=5):
            bodies.append(body)
            own.basic_ack(method.delivery_tag)
            if len(bodies) == count:
                break
        own.cancel()
        own.connection.close()
        return bodies

    assert [take(2), take(4)] == [[b"a", b"b"], [b"c", b"d", b"e", b"f"]]


def test_only_commit_moves_a_group_without_auto_commit(amqp_connect, channel, stream):
    """Acks give credit only; an invalid `$commit` is refused."""
    other = amqp_connect().channel()
    reader(other, stream, consumer_group="g", auto_commit=False).wait(6)

    def commit(offset, group="g"):
        headers = {"x-group-id": group, "x-offset": offset}
        channel.basic_publish("", f"$queue/{stream}/$commit", b"", pika.BasicProperties(headers=headers))

    commit(2)
    for offset, group in ((6, "g"), (1, "nobody"), ("x", "g")):
        with pytest.raises(NackError):
            commit(offset, group)
    other.connection.close()
    assert amqp.bodies(reader(channel, stream, consumer_group="g").wait(3)) == list("def")


def test_each_pattern_has_an_offset_of_its_own(channel, stream):
    for key in ("eu/1", "us/1", "eu/2"):
        amqp.publish(channel, f"$queue/{stream}/{key}", key)
    for _ in range(2):
        collector = amqp.Collector(channel, f"$queue/{stream}/eu/#", arguments={"x-stream-offset": "first"})
        assert collector.wait(2)[1].headers["x-stream-offset"] == 8
    grouped = amqp.Collector(channel, f"$queue/{stream}/us/#", arguments={"x-consumer-group": "g"})
    assert grouped.wait(1)[0].headers["x-group-id"] == "g@us/#"


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ({"durable": False}, {}),
        ({"durable": True, "exclusive": True}, {}),
        ({"durable": True, "auto_delete": True}, {}),
        ({"durable": True}, {"x-max-age": "7X"}),
        ({"durable": True}, {"x-delivery-limit": 3}),
        ({"durable": True}, {"x-dead-letter-exchange": ""}),
        ({"durable": True}, {"x-max-length": 0}),
    ],
)
def test_invalid_stream_declaration_is_refused(channel, name, flags, arguments):
    with pytest.raises(amqp.ChannelClosedByBroker) as closed:
        channel.queue_declare(name, arguments=STREAM | arguments, **flags)
    assert closed.value.reply_code == 406


def test_classic_declare_and_get_of_a_stream_are_refused(amqp_connect, channel, stream):
    for attempt in (
        lambda other: other.queue_declare(stream, durable=True),
        lambda other: other.basic_get(stream),
    ):
        with pytest.raises(amqp.ChannelClosedByBroker) as closed:
            attempt(amqp_connect().channel())
        assert closed.value.reply_code == 406
        assert "stream" in closed.value.reply_text


def test_mqtt_client_reads_from_an_offset_and_continues(mqtt, channel, stream):
    client = mqtt()
    client.subscribe(f"$queue/{stream}", user=[("x-stream-offset", "3")])
    got = client.take(3)
    assert payloads(got) == list("def")
    assert user_property(got[0], "x-stream-offset") == "3"
    assert user_property(got[0], "message-id") == f"{stream}:3"
    assert int(user_property(got[0], "x-stream-timestamp")) > 0
    client.publish("flush", "", 1)  # behind the acknowledgements
    client.drop()
    again = mqtt(client_id=client.client_id)
    again.subscribe(f"$queue/{stream}")
    amqp.publish(channel, stream, "g")
    assert payloads(again.take(1)) == ["g"]


def test_mqtt_commit_moves_a_group_without_auto_commit(mqtt, channel, stream):
    own = [("consumer-group", "m"), ("auto-commit", "false")]
    client = mqtt()
    client.subscribe(f"$queue/{stream}", user=own)
    client.take(6)
    topic = f"$queue/{stream}/$commit"
    assert client.publish(topic, "", 1, user=[("group-id", "m"), ("offset", "3")]) == 0
    assert client.publish(topic, "2", 1, user=[("group-id", "m")]) == 0
    assert client.publish(topic, "99", 1, user=[("group-id", "m")]) == 0x90
    assert client.publish(topic, "1", 1, user=[("group-id", "nobody")]) == 0x90
    client.drop()
    again = mqtt()
    again.subscribe(f"$queue/{stream}", user=own)
    assert payloads(again.take(3)) == list("def")


def test_configured_stream_keeps_its_retention_and_primary_group(own_broker, amqp_connect, mqtt):
    broker = own_broker(
        {
            "queues": [
                {"name": "few", "type": "stream", "retention": {"max_length_messages": 20}},
                {"name": "work", "type": "stream", "primary_group": "workers"},
            ]
        }
    )
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    amqp.publish(channel, "few", *map(str, range(30)))
    assert amqp.count(channel, "few") == 20
    got = reader(channel, "few", stream_offset=4).wait(20)
    assert got[0].body == b"10"
    assert got[0].headers["x-stream-gap"] == 6
    assert "x-stream-gap" not in got[1].headers
    client = mqtt(broker)
    client.subscribe("$queue/few", user=[("x-stream-offset", "0")])
    assert user_property(client.take(20)[0], "x-stream-gap") == "10"
    amqp.publish(channel, "work", *"abc")
    worker = reader(channel, "work", ack=False, consumer_group="workers").wait(3)
    channel.basic_ack(worker[0].tag)
    channel.connection.process_data_events(0.05)
    seen = reader(channel, "work", stream_offset="first").wait(3)
    assert [d.headers["x-work-acked"] for d in seen] == [True, False, False]
    assert (seen[0].headers["x-work-group"], seen[0].headers["x-work-committed-offset"]) == ("workers", 1)


def test_messages_and_offsets_survive_a_kill(own_broker, amqp_connect):
    broker = own_broker({"queue_manager": {"auto_commit_interval": "100ms"}}, timed=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    declare(channel, "s", max_age="7D", max_length_bytes=10_000_000)
    channel.queue_declare("other", durable=True)
    channel.basic_qos(prefetch_count=10)
    amqp.publish(channel, "s", *map(str, range(100)))
    got = reader(channel, "s", consumer_group="g").wait(100)
    assert len(got) == 100
    reader(channel, "s", consumer_group="half", auto_commit=False).wait(10)
    headers = {"x-group-id": "half", "x-offset": 4}
    channel.basic_publish("", "$queue/s/$commit", b"", pika.BasicProperties(headers=headers))
    amqp.until_settled(broker, channel, "other")
    broker.restart(kill=True)
    channel = amqp_connect(broker).channel()
    channel.confirm_delivery()
    everything = reader(channel, "s", stream_offset="first").wait(100)
    assert amqp.bodies(everything) == list(map(str, range(100)))
    assert reader(channel, "s", consumer_group="half").wait(1)[0].body == b"5"
    amqp.publish(channel, "s", "more")
    assert amqp.bodies(reader(channel, "s", consumer_group="g").wait(1)) == ["more"]


def test_filters_select_messages_of_readers_and_groups(channel, amqp_connect, mqtt, name):
    declare(channel, name)
    for number, region in enumerate(("eu", "us", "eu", "asia", "eu")):
        amqp.publish(channel, name, str(number), headers={"region": region})
    got = reader(channel, name, stream_offset="first", jms_selector="region = 'eu'").wait(3)
    assert amqp.bodies(got) == ["0", "2", "4"]
    table = {"x-application-properties-filter": {"region": "us"}, "x-stream-offset": "first"}
    assert amqp.bodies(amqp.Collector(channel, name, ack=True, arguments=table).wait(1)) == ["1"]
    group = {"consumer_group": "west", "group_selector": "region <> 'asia'"}
    assert amqp.bodies(reader(channel, name, **group).wait(4)) == ["0", "1", "2", "4"]
    with pytest.raises(amqp.ChannelClosedByBroker, match="is read with another filter") as closed:
        reader(amqp_connect().channel(), name, consumer_group="west", jms_selector="region = 'us'")
    assert closed.value.reply_code == 406
    client = mqtt()
    assert client.subscribe(f"$queue/{name}", user=[("selector", "region = 'asia'")]) == 1
    assert payloads(client.take(1)) == ["3"]
    channel.queue_delete(name)
