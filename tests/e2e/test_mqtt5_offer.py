"""MQTT 5 on a broker that is configured to offer less, or more, than by default."""

import pytest

from tests.e2e import raw_mqtt as wire

CONFIG = {
    "mqtt": {
        "max_qos": 1,
        "retain": False,
        "max_packet_size": "4KiB",
        "receive_maximum": 7,
        "topic_alias_maximum": 3,
        "max_keep_alive": "90s",
        "response_information": "answers/",
        "server_reference": "other.example:1883",
        "shared_subscriptions": "sticky",
    }
}


@pytest.fixture
def raw(own_broker, raw_mqtt):
    broker = own_broker(CONFIG)
    return broker, lambda **options: raw_mqtt(broker, **options)


def test_everything_that_is_configured_is_told_and_held_to(raw, mqtt):
    broker, connect = raw
    client = mqtt(broker, keep_alive=1_000, RequestResponseInformation=1)
    told = client.connack_properties
    assert (told.MaximumQoS, told.RetainAvailable, told.ServerKeepAlive) == (1, 0, 90)
    assert (told.MaximumPacketSize, told.ReceiveMaximum, told.TopicAliasMaximum) == (4_096, 7, 3)
    assert told.ResponseInformation == "answers/"
    assert client.subscribe("t", 2) == 2, "a subscription may ask for more"
    for packet, code in (
        (wire.publish("t", qos=2), 0x9B),
        (wire.publish("t", retain=True), 0x9A),
        (wire.publish("t", b"x" * 5_000), 0x95),
        (wire.publish("t", props=b"\x23\x00\x04"), 0x94),
    ):
        connection = connect()
        connection.send_bytes(packet)
        assert connection.farewell() == code
        connection = connect(version=wire.V311)
        if code != 0x94:
            old = b"\x30\x83\x40\x00\x01t" + b"x" * 8_192 if code == 0x95 else None
            kept = {"qos": 2} if code == 0x9B else {"retain": True}
            connection.send_quietly(old or wire.publish("t", version=wire.V311, **kept))
            assert connection.farewell() is None

    last = connect()
    broker.stop()
    farewell = last.expect(wire.DISCONNECT)
    assert farewell.body[0] == 0x9C
    assert b"\x1c" + wire.string("other.example:1883") in farewell.body


@pytest.mark.parametrize("will_flags", [0x04 | 0x10, 0x04 | 0x20])
def test_will_beyond_the_offer_refuses_the_client(raw, will_flags):
    """[MQTT-3.2.2-12], [MQTT-3.2.2-13]"""
    _, connect = raw
    connection = connect(version=None)
    after = b"\x00" + wire.string("t") + wire.string("x")
    connection.send_bytes(wire.connect(client_id="c", flags=0x02 | will_flags, after=after))
    assert connection.farewell() == (0x9B if will_flags & 0x10 else 0x9A)


def test_rates_that_are_configured_are_held(own_broker, raw_mqtt):
    broker = own_broker({"mqtt": {"connect_rate": 3, "message_rate": 20}})
    talker = raw_mqtt(broker)
    talker.send_bytes(wire.publish("t") * 15)
    talker.send_bytes(wire.packet(wire.PINGREQ, 0))
    talker.expect(wire.PINGRESP)
    talker.send_quietly(wire.publish("t") * 300)
    assert talker.farewell() == 0x96
    codes = []
    for number in range(8):
        client = raw_mqtt(broker, version=None)
        client.send_bytes(wire.connect(wire.V5 if number % 2 else wire.V311, f"c{number}"))
        codes.append(client.expect(wire.CONNACK).body[1])
    assert codes.count(0) < 6
    assert set(codes) <= {0, 3, 0x9F}
    assert {3, 0x9F} & set(codes)
