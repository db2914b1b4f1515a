"""Enhanced authentication, section 4.12: AUTH before and after CONNACK."""

import pytest

from protocols.mqtt import constants as c
from protocols.mqtt import packets as p
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import AuthReceived, ConnectionLost, ConnectReceived
from protocols.mqtt.properties import Properties
from tests.unit.protocols.mqtt.live import live, sent

CONNECT = p.Connect(5, "c", properties=Properties(authentication_method="m", authentication_data=b"first"))


def auth(code: int, data: bytes = b"", method: str = "m") -> bytes:
    properties = Properties(authentication_method=method, authentication_data=data)
    return encode_packet(p.Auth(code, properties), 5)


def asked() -> MqttConnection:
    connection = MqttConnection(0.0)
    (event,) = connection.receive(encode_packet(CONNECT, 5), 0.0)
    assert isinstance(event, ConnectReceived)
    connection.send_auth(c.CONTINUE_AUTHENTICATION, b"challenge")
    (challenge,) = sent(connection)
    wanted = Properties(authentication_method="m", authentication_data=b"challenge")
    assert challenge == p.Auth(c.CONTINUE_AUTHENTICATION, wanted)
    return connection


def test_client_is_let_in_after_auth_packets_of_its_method() -> None:
    """[MQTT-4.12.0-2], [MQTT-4.12.0-5]"""
    connection = asked()
    wire = auth(c.CONTINUE_AUTHENTICATION, b"answer") + encode_packet(p.PingReq(), 5)
    assert connection.receive(wire[:5], 0.0) == []
    (event,) = connection.receive(wire[5:], 0.0)
    assert isinstance(event, AuthReceived)
    assert event.data == b"answer"
    assert connection.accept(False) == []
    connack, pong = sent(connection)
    assert isinstance(connack, p.ConnAck)
    assert connack.properties.authentication_method == "m"
    assert isinstance(pong, p.PingResp)


@pytest.mark.parametrize(
    "wire",
    [
        auth(c.CONTINUE_AUTHENTICATION, method="other"),
        auth(c.REAUTHENTICATE),
        encode_packet(p.PingReq(), 5),
        encode_packet(p.Subscribe(1, [p.SubscriptionRequest("t")]), 5),
    ],
)
def test_anything_but_the_answer_ends_the_handshake(wire: bytes) -> None:
    """[MQTT-3.1.4-6], [MQTT-4.12.0-5]"""
    connection = asked()
    (lost,) = connection.receive(wire, 0.0)
    assert isinstance(lost, ConnectionLost)
    (connack,) = sent(connection)
    assert isinstance(connack, p.ConnAck)
    assert connack.reason_code == c.PROTOCOL_ERROR


def test_client_may_authenticate_again() -> None:
    """Section 4.12.1"""
    connection = live(5, CONNECT)
    (event,) = connection.receive(auth(c.REAUTHENTICATE, b"again"), 0.0)
    assert isinstance(event, AuthReceived)
    connection.send_auth(c.CONTINUE_AUTHENTICATION, b"challenge")
    (event,) = connection.receive(auth(c.CONTINUE_AUTHENTICATION, b"answer"), 0.0)
    assert event.data == b"answer"
    connection.send_auth(c.SUCCESS, None)
    assert [packet.reason_code for packet in sent(connection)] == [0x18, 0]


@pytest.mark.parametrize(
    ("connect", "wire"),
    [
        (p.Connect(5, "c"), auth(c.REAUTHENTICATE)),  # [MQTT-4.12.0-7]
        (CONNECT, auth(c.REAUTHENTICATE, method="other")),  # [MQTT-4.12.1-1]
        (CONNECT, auth(c.CONTINUE_AUTHENTICATION)),
    ],
)
def test_auth_out_of_turn_ends_the_connection(connect: p.Connect, wire: bytes) -> None:
    connection = live(5, connect)
    connection.receive(wire, 0.0)
    (farewell,) = sent(connection)
    assert farewell.reason_code == c.PROTOCOL_ERROR
