"""What is not done is told: to the client where its protocol has words for it, and in one line of the log."""

import socket
from collections.abc import Iterator

import httpx
import pika
import pytest

from tests.e2e import amqp
from tests.e2e import raw_mqtt as wire
from tests.e2e.broker_process import BrokerProcess
from tests.e2e.raw_mqtt import RawMqtt
from tests.waiting import until

pytestmark = pytest.mark.extension

NO_CLEAN_START = 0x00
WITH_CREDENTIALS = 0xC2
SESSION_EXPIRY_1H = b"\x11\x00\x00\x0e\x10"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose log no other test writes to."""
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), storage="memory:").start()
    yield process
    process.kill9()


class LogTail:
    """The log of a broker from here on."""

    def __init__(self, process: BrokerProcess) -> None:
        self._process = process
        self._seen = len(process.log)

    def lines(self, *, at_least: int = 1) -> list[str]:
        """What was logged: at least so many lines, and what comes before the broker answers others."""
        until(lambda: len(self._found()) >= at_least, told=self._found)
        for _ in range(3):
            httpx.get(self._process.http_url, timeout=20, trust_env=False)
        return self._found()

    def _found(self) -> list[str]:
        found = self._process.log[self._seen :].splitlines()
        return [line for line in found if "loop.stalled" not in line]  # a busy machine's


def send_first(port: int, data: bytes) -> None:
    """Connect, say only this, and wait for the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall(data)
        while client.recv(1_000):
            pass


def mqtt_wrong_password(process: BrokerProcess) -> None:
    credentials = wire.string("root") + wire.string("x")
    send_first(process.mqtt_port, wire.connect(flags=WITH_CREDENTIALS, after=credentials))


def mqtt_taken_over(process: BrokerProcess) -> None:
    first, second = RawMqtt(process.mqtt_port, client_id="one"), RawMqtt(process.mqtt_port, client_id="one")
    assert first.farewell() == 0x8E
    first.drop()
    second.drop()


def mqtt_broken_packet(process: BrokerProcess) -> None:
    client = RawMqtt(process.mqtt_port)
    client.send_bytes(b"\xf0\x00\x00")
    client.farewell()
    client.drop()


def amqp_wrong_password(process: BrokerProcess) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp.connect(process.amqp_port, password="x")


def amqp_wrong_vhost(process: BrokerProcess) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp.connect(process.amqp_port, vhost="other")


def amqp_missing_queue(process: BrokerProcess) -> None:
    connection = amqp.connect(process.amqp_port)
    with pytest.raises(amqp.ChannelClosedByBroker):
        connection.channel().queue_declare("missing", passive=True)
    connection.close()


@pytest.mark.parametrize(
    "refused",
    [
        mqtt_wrong_password,
        mqtt_taken_over,
        mqtt_broken_packet,
        amqp_wrong_password,
        amqp_wrong_vhost,
        amqp_missing_queue,
    ],
)
def test_refusal_is_logged_once(broker, refused):
    log = LogTail(broker)
    refused(broker)
    lines = log.lines()
    assert len(lines) == 1, lines
    assert "reason=" in lines[0]


@pytest.mark.parametrize("listener", ["mqtt", "amqp"])
@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        ("TLS", b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + bytes(200)),
        ("WebSocket", b"GET /mqtt HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
    ],
)
def test_client_of_another_protocol_is_named_in_the_log(broker, listener, protocol, data):
    log = LogTail(broker)
    send_first(broker.ports[listener], data)
    (line,) = log.lines()
    assert f"the client speaks {protocol}, this port plain {listener.upper()}" in line


@pytest.mark.parametrize(("qos", "answer"), [(1, wire.PUBACK), (2, wire.PUBREC)])
@pytest.mark.parametrize("durable", [True, False])
def test_retain_flag_for_a_queue_is_told_in_its_answer(broker, channel, raw_mqtt, name, qos, answer, durable):
    if durable:
        channel.queue_declare(name, durable=True)
    log = LogTail(broker)
    device = raw_mqtt()
    for packet_id in (1, 2):
        device.send_bytes(wire.publish(f"$queue/{name}", b"x", qos=qos, packet_id=packet_id, retain=True))
        told = device.expect(answer).body
        assert told[:3] == bytes((0, packet_id, 0)), "taken"
        assert b"queued, not retained" in told
    device.send_bytes(wire.publish(f"$queue/{name}", b"x", qos=qos, packet_id=3))
    assert len(device.expect(answer).body) == 2
    (line,) = log.lines()
    assert "mqtt.retain_refused" in line


@pytest.mark.parametrize("version", [wire.V311, wire.V5])
def test_retain_flag_for_a_queue_is_logged_where_it_cannot_be_told(broker, raw_mqtt, name, version):
    log = LogTail(broker)
    device = raw_mqtt(version=version)
    for _ in range(10):
        device.send_bytes(wire.publish(f"$queue/{name}", b"x", version=version, retain=True))
    (line,) = log.lines()
    assert "mqtt.retain_refused" in line
    assert "queued, not retained" in line


def own_address() -> str:
    """An address of this machine that is not loopback, or ""."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address = probe.getsockname()[0]
    return "" if address.startswith("127.") else address


def test_bind_that_nobody_from_outside_can_use_warns_and_tells_the_client(own_broker):
    bound_to_all = {"bind": "0.0.0.0"}
    process = own_broker({"listeners": {"mqtt": bound_to_all, "amqp": bound_to_all}})
    for name in ("mqtt", "amqp"):
        (line,) = [line for line in process.log.splitlines() if f"listener={name}" in line]
        assert "listener.local_only" in line
        assert "from the broker's own machine" in line
    address = own_address()
    if not address:
        pytest.skip("this machine has no address but loopback")
    with socket.create_connection((address, process.mqtt_port), timeout=5) as client:
        client.sendall(wire.connect())
        connack = client.recv(1_000)
    assert connack[3] == 0x87
    assert b"from the broker's own machine" in connack
    with pytest.raises(pika.exceptions.AMQPConnectionError) as refusal:
        pika.BlockingConnection(pika.ConnectionParameters(address, process.amqp_port))
    assert "may only connect from the broker" in repr(refusal.value)


def test_bind_to_loopback_warns_of_nothing(own_broker):
    assert "listener.local_only" not in own_broker({"listeners": {"mqtt": {"bind": "localhost"}}}).log
