"""The clients of `sluicemq bench`: blocking sockets that send what was encoded before."""

from __future__ import annotations

import socket
from typing import Any, Final, NamedTuple

from pamqp import base, commands

from protocols.amqp091.constants import FRAME_BODY, FRAME_END_BYTE, FRAME_HEADER, FRAME_METHOD
from protocols.amqp091.hot import encode_ack
from protocols.amqp091.methods import decode_method, encode_method
from protocols.mqtt import codec, hot
from protocols.mqtt import constants as c
from protocols.mqtt.packets import Connect

CHANNEL: Final = 1
WAIT_S: Final = 10.0
READ_BYTES: Final = 1 << 18
CONFIRM_BYTES: Final = 21  # basic.ack, a frame of one size
PUBACK_BYTES: Final = 4

_FRAME_HEAD_BYTES: Final = 7
_PERSISTENT: Final = b"\x10\x00\x02"  # property flags, delivery mode 2


class BenchError(Exception):
    """The broker did not do what a measurement needs."""


class Target(NamedTuple):
    """Where the broker is, and whom to log in as."""

    host: str
    amqp_port: int
    mqtt_port: int
    user: str
    password: str
    has_user: bool


class AmqpClient:
    """One connection with one channel. Raises BenchError for refusals and silence."""

    def __init__(self, target: Target) -> None:
        self.sock = connected(target.host, target.amqp_port)
        self._buffer = b""
        self.sock.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        response = f"\x00{target.user}\x00{target.password}"
        start_ok = commands.Connection.StartOk({"product": "sluicemq bench"}, "PLAIN", response, "en_US")
        self.sock.sendall(encode_method(0, start_ok))
        tune = self._expect(commands.Connection.Tune)
        tune_ok = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0)
        self.sock.sendall(encode_method(0, tune_ok) + encode_method(0, commands.Connection.Open("/")))
        self._expect(commands.Connection.OpenOk)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def call(self, method: base.Frame, answer: type) -> Any:
        """Send a method on the channel; its answer."""
        self.sock.sendall(encode_method(CHANNEL, method))
        return self._expect(answer)

    def declare(self, queue: str) -> None:
        """Make a durable queue."""
        self.call(commands.Queue.Declare(queue=queue, durable=True), commands.Queue.DeclareOk)

    def delete(self, queue: str) -> None:
        """Delete a queue with all it holds."""
        self.call(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)

    def select_confirms(self) -> None:
        """Have publishes confirmed."""
        self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def consume(self, queue: str, prefetch: int) -> bytes:
        """Begin to consume; what came behind the answer."""
        self.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        self.call(commands.Basic.Consume(queue=queue, consumer_tag="bench"), commands.Basic.ConsumeOk)
        rest, self._buffer = self._buffer, b""
        return rest

    def ack_up_to(self, delivery_tag: int) -> None:
        """Acknowledge all deliveries up to this one."""
        self.sock.sendall(encode_ack(CHANNEL, delivery_tag, True))

    def close(self) -> None:
        """Let go of the connection."""
        self.sock.close()

    def _expect(self, answer: type) -> Any:
        while True:
            method = decode_method(self._next_payload())
            if isinstance(method, answer):
                return method
            if isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise BenchError(f"the broker refused: {method.reply_code} {method.reply_text}")

    def _next_payload(self) -> bytes:
        """The payload of the next method frame."""
        while True:
            size = int.from_bytes(self._buffer[3:7], "big") + _FRAME_HEAD_BYTES + 1
            if len(self._buffer) >= _FRAME_HEAD_BYTES and len(self._buffer) >= size:
                kind, payload = self._buffer[0], self._buffer[_FRAME_HEAD_BYTES : size - 1]
                self._buffer = self._buffer[size:]
                if kind == FRAME_METHOD:
                    return payload
                continue
            self._buffer += received(self.sock)


def publish_frames(queue: str, body: bytes) -> bytes:
    """A persistent publish to a queue through the default exchange."""
    head = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + _PERSISTENT
    return (
        encode_method(CHANNEL, commands.Basic.Publish(routing_key=queue))
        + _frame(FRAME_HEADER, head)
        + _frame(FRAME_BODY, body)
    )


def last_tag(confirms: bytes) -> int:
    """The delivery tag of the last of some confirms, which come in order."""
    return int.from_bytes(confirms[-10:-2], "big")


class MqttDevice:
    """A device that publishes with QoS 1. Raises BenchError for refusals and silence."""

    def __init__(self, target: Target, client_id: str, topic: str, body: bytes) -> None:
        self.sock = connected(target.host, target.mqtt_port)
        user, password = (target.user, target.password.encode()) if target.has_user else (None, None)
        packet = Connect(c.MQTT_3_1_1, client_id, username=user, password=password)
        self.sock.sendall(codec.encode_packet(packet, c.MQTT_3_1_1))
        answer = received(self.sock)
        if len(answer) < PUBACK_BYTES or answer[3]:
            raise BenchError(f"the broker refused an MQTT client: {answer[:8].hex(' ')}")
        self._publish = hot.encode_publish(c.MQTT_3_1_1, topic.encode(), 1, False, False, 1, b"", body)

    def publish(self) -> None:
        """Send one message."""
        self.sock.sendall(self._publish)

    def close(self) -> None:
        """Let go of the connection."""
        self.sock.close()


def connected(host: str, port: int) -> socket.socket:
    """A socket that sends at once. Raises BenchError."""
    try:
        sock = socket.create_connection((host, port), WAIT_S)
    except OSError as error:
        raise BenchError(f"{host}:{port}: {error.strerror or error}") from None
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def received(sock: socket.socket) -> bytes:
    """What comes next. Raises BenchError when nothing does."""
    try:
        data = sock.recv(READ_BYTES)
    except TimeoutError:
        raise BenchError(f"the broker did not answer in {WAIT_S:.0f} s") from None
    except OSError as error:
        raise BenchError(f"the connection ended: {error.strerror or error}") from None
    if not data:
        raise BenchError("the broker closed the connection")
    return data


def _frame(kind: int, payload: bytes) -> bytes:
    head = kind.to_bytes(1, "big") + CHANNEL.to_bytes(2, "big") + len(payload).to_bytes(4, "big")
    return head + payload + FRAME_END_BYTE
