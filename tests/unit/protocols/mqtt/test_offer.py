"""What the broker offers: told in CONNACK, and what becomes of clients that ask for more."""

import pytest

from protocols.mqtt import constants as c
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.offer import Offer
from protocols.mqtt.properties import Properties
from tests.unit.protocols.mqtt.live import live, sent

LESS = Offer(maximum_qos=1, retain_available=False, topic_alias_maximum=0)


def connack_of(connect: p.Connect, offer: Offer) -> p.ConnAck:
    connection = MqttConnection(0.0, offer)
    connection.receive(encode_packet(connect, connect.protocol_version), 0.0)
    connection.accept(False)
    (connack,) = sent(connection)
    assert isinstance(connack, p.ConnAck)
    return connack


def test_what_is_less_than_everything_is_told() -> None:
    """[MQTT-3.2.2-9], section 3.2.2.3.5"""
    told = connack_of(p.Connect(5, "c"), LESS).properties
    assert (told.maximum_qos, told.retain_available, told.topic_alias_maximum) == (1, 0, 0)
    everything = connack_of(p.Connect(5, "c"), Offer()).properties
    assert (everything.maximum_qos, everything.retain_available) == (None, None)


@pytest.mark.parametrize(("asked_s", "told_s"), [(0, 60), (61, 60), (60, None), (10, None)])
def test_longer_keep_alive_becomes_that_of_the_server(asked_s: int, told_s: int | None) -> None:
    """[MQTT-3.2.2-21]"""
    told = connack_of(p.Connect(5, "c", keep_alive_s=asked_s), Offer(keep_alive_s_max=60)).properties
    assert told.server_keep_alive_s == told_s


@pytest.mark.parametrize(("asked", "told"), [(1, "answers/"), (0, None), (None, None)])
def test_response_information_is_for_those_who_ask(asked: int | None, told: str | None) -> None:
    """[MQTT-3.1.2-28]"""
    connect = p.Connect(5, "c", properties=Properties(request_response_information=asked))
    assert connack_of(connect, Offer(response_information="answers/")).properties.response_information == told


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(
    ("publish", "code"),
    [
        (p.Publish("t", b"", qos=2, packet_id=1), c.QOS_NOT_SUPPORTED),  # [MQTT-3.2.2-11]
        (p.Publish("t", b"", retain=True), c.RETAIN_NOT_SUPPORTED),  # [MQTT-3.2.2-14]
    ],
)
def test_publish_beyond_the_offer_ends_the_connection(version: int, publish: p.Publish, code: int) -> None:
    connection = live(version, offer=LESS)
    (lost,) = connection.receive(encode_packet(publish, version), 0.0)
    assert lost.reason_code == code
    assert [packet.reason_code for packet in sent(connection)] == ([code] if version == 5 else [])


@pytest.mark.parametrize(
    ("will", "code"),
    [
        (p.Will("t", b"", 2, False), c.QOS_NOT_SUPPORTED),  # [MQTT-3.2.2-12]
        (p.Will("t", b"", 0, True), c.RETAIN_NOT_SUPPORTED),  # [MQTT-3.2.2-13]
    ],
)
def test_will_beyond_the_offer_refuses_the_client(will: p.Will, code: int) -> None:
    connection = MqttConnection(0.0, LESS)
    connection.receive(encode_packet(p.Connect(5, "c", will=will), 5), 0.0)
    (connack,) = sent(connection)
    assert connack == p.ConnAck(False, code, connack.properties)


def test_client_of_mqtt_3_1_is_one_of_3_1_1() -> None:
    connection = MqttConnection(0.0)
    (event,) = connection.receive(bytes.fromhex("100f 00064d5149736470 03 02 0000 0001 63"), 0.0)
    assert (event.packet.client_id, connection.protocol_version) == ("c", 4)
    connection.accept(False)
    assert b"".join(connection.output) == b"\x20\x02\x00\x00"
