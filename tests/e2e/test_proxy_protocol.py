"""Listeners behind a proxy that says where connections come from."""

import socket
import struct

import pytest

from tests.e2e import raw_mqtt as wire
from tests.e2e.raw_amqp10 import RawAmqp10

V1 = b"PROXY TCP4 %s 127.0.0.1 4711 1883\r\n"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    from tests.e2e.broker_process import BrokerProcess

    listener = {"port": 0, "proxy_protocol": True}
    config = {"listeners": {"mqtt": listener, "mqtt_ws": listener, "amqp": listener}}
    process = BrokerProcess(tmp_path_factory.mktemp("proxied"), config).start()
    yield process
    assert process.stop() == 0


def answer_to(port, *parts):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        for part in parts:
            client.sendall(part)
        try:
            return client.recv(100)
        except ConnectionResetError:
            return b""


@pytest.mark.parametrize(
    "header",
    [
        V1 % b"127.0.0.7",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"
        + struct.pack(">4s4sHH", b"\x7f\0\0\x07", b"\x7f\0\0\1", 4711, 1),
        b"\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00",
    ],
)
def test_client_behind_the_header_is_served(broker, header):
    packet = wire.connect(wire.V311, "behind")
    assert answer_to(broker.mqtt_port, header + packet) == b"\x20\x02\x00\x00"
    assert answer_to(broker.mqtt_port, header[:9], header[9:], packet) == b"\x20\x02\x00\x00"


def test_amqp_1_0_behind_the_header_is_served(broker):
    with socket.create_connection(("127.0.0.1", broker.ports["amqp"]), timeout=5) as connection:
        connection.sendall(V1 % b"127.0.0.7")
        client = RawAmqp10(0, over=connection)
        assert client.begin().remote_channel == 0


def test_the_guest_of_amqp_1_0_comes_from_where_the_header_says(broker):
    with socket.create_connection(("127.0.0.1", broker.ports["amqp"]), timeout=5) as connection:
        connection.sendall(V1 % b"192.0.2.1")
        assert RawAmqp10(0, over=connection, handshake=False).log_in() == 1
    (line,) = [line for line in broker.log.splitlines() if "amqp.login_refused" in line]
    assert "192.0.2.1:4711" in line


def test_address_of_the_header_decides_who_comes_in_and_is_logged(broker):
    answer = answer_to(broker.mqtt_port, V1 % b"192.0.2.1", wire.connect(wire.V311, "from-afar"))
    assert answer == b"\x20\x02\x00\x05"
    (line,) = [line for line in broker.log.splitlines() if "from-afar" in line]
    assert "192.0.2.1:4711" in line


def test_connection_without_the_header_is_closed(broker):
    assert answer_to(broker.mqtt_port, wire.connect(wire.V311, "bare")) == b""
    assert "no PROXY header" in [line for line in broker.log.splitlines() if "proxy.refused" in line][-1]


def test_websocket_is_behind_the_header_too(broker):
    request = b"GET /other HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    request += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    assert answer_to(broker.ports["mqtt_ws"], V1 % b"192.0.2.1", request).startswith(b"HTTP/1.1 404")
    assert "192.0.2.1:4711" in [line for line in broker.log.splitlines() if "websocket.closed" in line][-1]


def test_unix_socket_is_served_and_taken_over_from_a_broker_that_was_killed(own_broker, tmp_path):
    path = str(tmp_path / "mqtt.sock")
    broker = own_broker({"listeners": {"mqtt": {"port": 0, "unix_socket": path}, "amqp": {"port": 0}}})
    for kill in (True, False):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            client.sendall(wire.connect(wire.V311, "local"))
            assert client.recv(10) == b"\x20\x02\x00\x00"
        broker.restart(kill=kill)
    broker.stop()
    assert not (tmp_path / "mqtt.sock").exists()
