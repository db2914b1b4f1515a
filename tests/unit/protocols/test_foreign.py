"""protocols.foreign: what the first bytes of real clients of other protocols are taken for."""

import ssl

import pytest

from protocols.amqp091.connection import AmqpConnection
from protocols.foreign import foreign_protocol
from protocols.mqtt.connection import MqttConnection
from tests.e2e import raw_mqtt as wire


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


WEBSOCKET = b"GET /mqtt HTTP/1.1\r\nHost: broker\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
FOREIGN = {
    "TLS": client_hello(),
    "WebSocket": WEBSOCKET,
    "HTTP": b"POST / HTTP/1.1\r\n\r\n",
    "AMQP 1.0.0": b"AMQP\x03\x01\x00\x00",
}
AMQP = {"AMQP 0.9.1": b"AMQP\x00\x00\x09\x01"}
MQTT = {"MQTT": wire.connect(5, "device")}


@pytest.mark.parametrize(("name", "data"), [*FOREIGN.items(), *AMQP.items(), *MQTT.items()])
def test_protocol_is_known_by_its_first_bytes(name, data):
    assert foreign_protocol(data) == name


def test_long_and_old_connects_are_mqtt():
    assert foreign_protocol(wire.connect(4, "x" * 60_000)) == "MQTT"
    assert foreign_protocol(wire.connect(3, "x", name="MQIsdp")) == "MQTT"


@pytest.mark.parametrize("data", [b"", b"\x16", b"\x10\x04junk", b"hello", bytes(20), b"\x10\x00"])
def test_anything_else_is_unknown(data):
    assert foreign_protocol(data) == ""


@pytest.mark.parametrize(("name", "data"), [*FOREIGN.items(), *AMQP.items()])
def test_mqtt_port_names_what_the_client_speaks(name, data):
    connection = MqttConnection(0.0)
    lost = connection.receive(data, 0.0)[-1]
    assert connection.closed
    assert lost.reason == f"the client speaks {name}, this port plain MQTT"


@pytest.mark.parametrize(("name", "data"), [*FOREIGN.items(), *MQTT.items()])
def test_amqp_port_names_what_the_client_speaks(name, data):
    connection = AmqpConnection(131_072, 10, 0, {}, 0.0)
    lost = connection.receive(data, 0.0)[-1]
    assert connection.closed
    assert lost.reason == f"the client speaks {name}, this port plain AMQP 0.9.1"
    assert b"".join(connection.output) == b"AMQP\x00\x00\x09\x01"
