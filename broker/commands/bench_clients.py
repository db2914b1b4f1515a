"""Blocking AMQP and MQTT clients: for `sluicemq bench`, the benchmarks and the tests.

They connect, ask and wait for the answer; what is to be fast sends its own bytes by `sock`.
"""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Final

from pamqp import base, commands

from protocols.amqp091.client import FRAME_BYTES_MAX, Frame, FrameReader, start_ok
from protocols.amqp091.constants import PROTOCOL_HEADER
from protocols.amqp091.methods import encode_method
from protocols.mqtt import codec, packets
from protocols.mqtt.client import PacketReader
from protocols.mqtt.constants import MQTT_3_1_1

CHANNEL: Final = 1
CONSUMER_TAG: Final = "c"
DELIVERY: Final = b"\x00\x3c\x00\x3c\x01c"  # how each basic.deliver to it begins: by that they are counted
WAIT_S: Final = 10.0
READ_BYTES: Final = 1 << 18


class ClientError(Exception):
    """The broker refused, closed the connection, or did not answer."""


@dataclass(frozen=True)
class Target:
    """Where a broker listens, and the login; without `user` AMQP takes guest, and MQTT none."""

    host: str = "127.0.0.1"
    amqp_port: int = 0
    mqtt_port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None

    def connect(self, port: int, wait_s: float) -> socket.socket:
        """Return a socket that sends at once and waits `wait_s` for what comes. Raises ClientError."""
        try:
            sock = socket.create_connection((self.host, port), wait_s)
        except OSError as error:
            raise ClientError(f"{self.host}:{port}: {error.strerror or error}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is None:
            return sock
        try:
            return self.tls.wrap_socket(sock, server_hostname=self.host)
        except OSError as error:
            raise ClientError(f"{self.host}:{port}: {error.strerror or error}") from None

    def amqp(self, wait_s: float = WAIT_S, vhost: str = "/") -> AmqpClient:
        """Return a connection with one open channel. Raises ClientError."""
        login = (self.user, self.password) if self.user else ("guest", "guest")
        return AmqpClient(self.connect(self.amqp_port, wait_s), *login, vhost)

    def mqtt(
        self, client_id: str, wait_s: float = WAIT_S, *, version: int = MQTT_3_1_1, clean: bool = True
    ) -> MqttClient:
        """Return a connected client. Raises ClientError."""
        login = (self.user, self.password.encode()) if self.user else (None, None)
        connect = packets.Connect(version, client_id, clean_start=clean, username=login[0], password=login[1])
        return MqttClient(self.connect(self.mqtt_port, wait_s), connect)


class AmqpClient:
    """An AMQP 0.9.1 connection with one channel, 1. Raises ClientError for refusals and silence."""

    def __init__(self, sock: socket.socket, user: str, password: str, vhost: str = "/") -> None:
        self.sock = sock
        self._reader = FrameReader()
        sock.sendall(PROTOCOL_HEADER)
        start = self._expect(commands.Connection.Start)
        self.server_properties: dict[str, Any] = start.server_properties or {}
        self._send(0, start_ok(user, password, product="sluicemq"))
        tune = self._expect(commands.Connection.Tune)
        frame_max = min(tune.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        self._send(0, commands.Connection.TuneOk(tune.channel_max, frame_max, 0))
        self._send(0, commands.Connection.Open(vhost))
        self._expect(commands.Connection.OpenOk)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def _send(self, channel: int, method: base.Frame) -> None:
        self.send(encode_method(channel, method))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise ClientError(f"the connection ended: {error.strerror or error}") from None

    def call(self, method: base.Frame, answer: type, before: list[Frame] | None = None) -> Any:
        """Send a method on the channel and return its answer; what comes `before` it goes there."""
        self._send(CHANNEL, method)
        return self._expect(answer, before)

    def _expect(self, answer: type, before: list[Frame] | None = None) -> Any:
        while True:
            frame = self.next_frame()
            method = frame.method
            if isinstance(method, answer):
                return method
            if isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise ClientError(f"the broker refused: {method.reply_code} {method.reply_text}")
            if before is not None:
                before.append(frame)

    def reopen(self) -> None:
        """Open the channel again, which the broker closed."""
        self._send(CHANNEL, commands.Channel.CloseOk())
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    @property
    def has_read(self) -> bool:
        """Whether something was read that is not given yet: whoever waits for the socket would not see it."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def frames(self) -> list[Frame]:
        """Return what is there to be read, once something is."""
        self._reader.feed(received(self.sock))
        while self.has_read:
            self._reader.feed(received(self.sock))
        return self.whole_frames()

    def whole_frames(self) -> list[Frame]:
        """Return what was read and not given yet."""
        frames = []
        while (frame := self._reader.next()) is not None:
            frames.append(frame)
        return frames

    def next_frame(self) -> Frame:
        """Return the next frame."""
        while (frame := self._reader.next()) is None:
            self._reader.feed(received(self.sock))
        return frame

    def declare(self, queue: str, *, durable: bool = True, arguments: dict[str, Any] | None = None) -> None:
        """Declare a queue."""
        method = commands.Queue.Declare(queue=queue, durable=durable, arguments=arguments or {})
        self.call(method, commands.Queue.DeclareOk)

    def delete(self, queue: str) -> None:
        """Delete a queue with all it holds."""
        self.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)

    def select_confirms(self) -> None:
        """Have publishes confirmed."""
        self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def consume(self, queue: str, prefetch: int = 0, *, no_ack: bool = False) -> bytes:
        """Begin to consume; return what came behind the answer."""
        if prefetch:
            self.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        method = commands.Basic.Consume(queue=queue, consumer_tag=CONSUMER_TAG, no_ack=no_ack)
        self.call(method, commands.Basic.ConsumeOk)
        return self._reader.take_rest()

    def close(self) -> None:
        """Close in order: what was published before has been taken when the answer comes."""
        try:
            self._reader.take_rest()
            self._send(0, commands.Connection.Close(200, "bye", 0, 0))
            end = b""
            while not end.endswith(_CLOSE_OK):  # deliveries may come before it
                end = (end + received(self.sock))[-len(_CLOSE_OK) :]
        except (OSError, ClientError):
            pass
        self.sock.close()


_CLOSE_OK: Final = encode_method(0, commands.Connection.CloseOk())


class MqttClient:
    """A connected MQTT client. Raises ClientError for refusals and silence."""

    def __init__(self, sock: socket.socket, connect: packets.Connect) -> None:
        self.sock = sock
        self._version = connect.protocol_version
        self._reader = PacketReader()
        self._packets: list[tuple[int, bytes]] = []
        self._send(connect)
        answer = self.next_packet()
        if not isinstance(answer, packets.ConnAck) or answer.reason_code:
            raise ClientError(f"the broker refused an MQTT client: {answer}")
        self.session_present = answer.session_present

    def _send(self, packet: packets.Packet) -> None:
        self.sock.sendall(codec.encode_packet(packet, self._version))

    def next_packet(self) -> packets.Packet:
        """Return the next packet."""
        while not self._packets:
            self._packets = self._reader.feed(received(self.sock))
        return codec.decode_packet(*self._packets.pop(0), self._version)

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Subscribe to one filter, packet identifier 1."""
        self._send(packets.Subscribe(1, [packets.SubscriptionRequest(topic_filter, qos)]))
        answer = self.next_packet()
        if not isinstance(answer, packets.SubAck) or answer.reason_codes[0] > 2:
            raise ClientError(f"SUBSCRIBE was refused: {answer}")

    def close(self) -> None:
        """Say DISCONNECT and wait until the broker closes."""
        try:
            self._send(packets.Disconnect())
            while received(self.sock):
                pass
        except (OSError, ClientError):
            pass
        self.sock.close()


def received(sock: socket.socket) -> bytes:
    """Return what comes next. Raises ClientError when nothing does."""
    try:
        data = sock.recv(READ_BYTES)
    except (TimeoutError, BlockingIOError):
        raise ClientError("the broker does not answer") from None
    except OSError as error:
        raise ClientError(f"the connection ended: {error.strerror or error}") from None
    if not data:
        raise ClientError("the broker closed the connection")
    return data
