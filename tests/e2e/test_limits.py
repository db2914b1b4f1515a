"""Configured limits and policies of queues are enforced, and the publisher told, over either protocol."""

import time
from collections.abc import Iterator

import pytest
from pika.exceptions import NackError

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.amqp import Collector
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.mqtt import V311, user_property

pytestmark = pytest.mark.extension
QUOTA_EXCEEDED = 0x97

CONFIG = {
    "queues": [
        {"name": "small", "limits": {"max_message_size": "100B"}},
        {"name": "short", "limits": {"max_depth": 3}},
        {"name": "short-mqtt", "limits": {"max_depth": 3}},
        {"name": "short-mqtt-3", "limits": {"max_depth": 1}},
        {"name": "twice", "retry": {"max_retries": 1}},
        {"name": "lease", "visibility_timeout": "500ms"},
        {"name": "memory", "type": "ephemeral"},
        *[
            {"name": f"{name}-{kind}", "topics": [f"$queue/{name}-both"], "limits": {"max_depth": depth}}
            for name in ("amqp", "mqtt", "mqtt-3", "mqtt-3-1", "mqtt-3-2", "device")
            for kind, depth in (("bounded", 1), ("free", 0))
        ],
        *[
            {"name": name, "topics": ["meters/#"], "capture": True, "limits": {"max_depth": depth}}
            for name, depth in (("meters-bounded", 1), ("meters-free", 0))
        ],
    ]
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("limits"), CONFIG).start()
    yield process
    process.kill9()


@pytest.fixture
def publishing(limited, amqp_connect):
    channel = amqp_connect(limited).channel()
    channel.confirm_delivery()
    return channel


def test_message_above_the_size_limit_is_refused_over_amqp(publishing):
    amqp.publish(publishing, "small", b"x" * 100)
    with pytest.raises((NackError, amqp.ChannelClosedByBroker)):
        amqp.publish(publishing, "small", b"x" * 101)


def test_message_above_the_size_limit_is_refused_over_mqtt(limited, mqtt, publishing):
    publishing.queue_purge("small")
    client = mqtt(limited)
    assert client.publish("$queue/small", b"x" * 100) == 0
    assert client.publish("$queue/small", b"x" * 101) == QUOTA_EXCEEDED
    assert amqp.count(publishing, "small") == 1


def test_full_queue_refuses_over_amqp(publishing):
    amqp.publish(publishing, "short", "a", "b", "c")
    with pytest.raises(NackError):
        amqp.publish(publishing, "short", "d")
    method, _, body = publishing.basic_get("short", auto_ack=True)
    assert body == b"a"
    amqp.publish(publishing, "short", "e")
    assert [publishing.basic_get("short", auto_ack=True)[2] for _ in range(3)] == [b"b", b"c", b"e"]
    assert method.message_count == 2


def test_full_queue_refuses_over_mqtt(limited, mqtt):
    client = mqtt(limited)
    assert [client.publish("$queue/short-mqtt", str(number)) for number in range(4)] == [
        0,
        0,
        0,
        QUOTA_EXCEEDED,
    ]


def taken(channel, name):
    """What the bounded and the free queue of that name hold."""
    found = []
    for queue in (f"{name}-bounded", f"{name}-free"):
        count = amqp.count(channel, queue)
        found.append([channel.basic_get(queue, auto_ack=True)[2].decode() for _ in range(count)])
    return found


def test_a_full_queue_keeps_messages_from_no_other_over_amqp(limited, publishing, raw_amqp):
    client = raw_amqp(limited)
    client.open_channel(confirm=True)
    for body in (b"1", b"2", b"3"):
        client.publish(1, "$queue/amqp-both", body)
    confirms = [client.read().method for _ in range(3)]
    assert {method.delivery_tag: type(method).__name__ for method in confirms} == {
        1: "Ack",
        2: "Nack",
        3: "Nack",
    }
    assert taken(publishing, "amqp") == [["1"], ["1", "2", "3"]]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_full_queue_keeps_messages_from_no_other_over_mqtt(limited, publishing, mqtt, qos):
    client = mqtt(limited)
    refused = QUOTA_EXCEEDED if qos else 0
    codes = [client.publish("$queue/mqtt-both", str(number), qos) for number in range(3)]
    assert codes == [0, refused, refused]
    client.publish("$queue/behind", "", 1)  # those at QoS 0 are not answered
    assert taken(publishing, "mqtt") == [["0"], ["0", "1", "2"]]


def refusals(broker, client_id):
    """The lines of the log that tell of the client."""
    return [line for line in broker.log.splitlines() if f"client_id={client_id} " in line]


@pytest.mark.parametrize(
    ("topic", "name", "qos"),
    [
        ("$queue/mqtt-3-both", "mqtt-3", 0),
        ("$queue/mqtt-3-1-both", "mqtt-3-1", 1),
        ("$queue/mqtt-3-2-both", "mqtt-3-2", 2),
        ("meters/7", "meters", 1),
    ],
)
def test_what_a_full_queue_refused_is_confirmed_over_mqtt_3_if_another_took_it(
    limited, publishing, mqtt, topic, name, qos
):
    client_id = f"device-of-{name}"
    client = mqtt(limited, version=V311, client_id=client_id)
    assert [client.publish(topic, str(number), qos) for number in range(2)] == [0, 0]
    client.publish("behind", "", 1)  # the connection goes on
    assert taken(publishing, name) == [["0"], ["0", "1"]]
    (line,) = refusals(limited, client_id)
    assert "publish.refused" in line
    assert f"queue={name}-bounded " in line
    assert f"topic={topic}" in line
    assert "the other queues took the message" in line


def test_what_no_queue_took_ends_the_connection_over_mqtt_3(limited, mqtt):
    client = mqtt(limited, version=V311, client_id="device-of-short")
    assert client.publish("$queue/short-mqtt-3", "0") == 0
    with pytest.raises(AssertionError, match="connection lost"):
        client.publish("$queue/short-mqtt-3", "1")
    (line,) = refusals(limited, "device-of-short")
    assert "publish.refused" in line
    assert "queue=short-mqtt-3 " in line


@pytest.mark.parametrize(("qos", "answer"), [(1, wire.PUBACK), (2, wire.PUBREC)])
def test_of_many_publishes_at_once_each_goes_where_there_is_room(limited, publishing, raw_mqtt, qos, answer):
    device = raw_mqtt(limited)
    device.send_bytes(
        b"".join(wire.publish("$queue/device-both", b"%d" % n, qos=qos, packet_id=n) for n in range(1, 6))
    )
    codes = {}
    for _ in range(5):
        body = device.expect(answer).body
        codes[int.from_bytes(body[:2], "big")] = body[2] if len(body) > 2 else 0
    assert codes == {1: 0} | dict.fromkeys(range(2, 6), QUOTA_EXCEEDED)
    assert taken(publishing, "device") == [["1"], ["1", "2", "3", "4", "5"]]


def test_message_is_not_delivered_beyond_max_retries(publishing):
    amqp.publish(publishing, "twice", "bad", "good")
    consumer = Collector(publishing, "twice")
    for position, expected in enumerate(["bad", "good", "bad"]):
        delivery = consumer.wait(position + 1)[position]
        assert delivery.body == expected.encode()
        if expected == "bad":
            publishing.basic_nack(delivery.tag, requeue=True)
        elif position == 1:
            good = delivery
    publishing.basic_ack(good.tag)
    consumer.wait_quiet()
    assert sorted(consumer.bodies()) == ["bad", "bad", "good"]


def test_visibility_timeout_of_a_queue_ends_its_leases(limited, mqtt):
    client = mqtt(limited)
    client.subscribe("$queue/lease", user=[("consumer-group", "g")])
    client.publish("$queue/lease", "x")
    began = time.monotonic()
    client.take(1)
    again = client.take_one(3)
    assert time.monotonic() - began < 2
    assert user_property(again, "attempts") == "2"


def test_configured_ephemeral_queue_keeps_messages(publishing):
    amqp.publish(publishing, "memory", "x")
    assert publishing.basic_get("memory", auto_ack=True)[2] == b"x"
