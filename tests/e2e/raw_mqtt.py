"""MQTT over a bare socket: packets built byte by byte, legal or not, and read back."""

import select
import socket
import struct
import time
from typing import NamedTuple

from protocols.mqtt.client import PacketReader
from protocols.mqtt.wire import encode_binary
from protocols.mqtt.wire import encode_varint as variable_int

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14
V311, V5 = 4, 5
WAIT_S = 20.0


class Packet(NamedTuple):
    """One control packet: its type, the low four bits of its first byte, and all after the length."""

    kind: int
    flags: int
    body: bytes


def string(value: str | bytes) -> bytes:
    return encode_binary(value.encode() if isinstance(value, str) else value)


def properties(version: int, data: bytes = b"") -> bytes:
    """The property block with its length; nothing in 3.1.1."""
    return variable_int(len(data)) + data if version == V5 else b""


def packet(kind: int, flags: int, body: bytes = b"") -> bytes:
    return bytes([kind << 4 | flags]) + variable_int(len(body)) + body


def user_property(key: str, value: str) -> bytes:
    return b"\x26" + string(key) + string(value)


def connect(
    version: int = V5,
    client_id: str = "",
    *,
    keep_alive: int = 0,
    flags: int = 0x02,
    name: str | bytes = "MQTT",
    props: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """CONNECT, clean start; `after` follows the client id (will, user name, password)."""
    body = string(name) + bytes([version, flags]) + struct.pack(">H", keep_alive)
    return packet(CONNECT, 0, body + properties(version, props) + string(client_id) + after)


def publish(
    topic: str | bytes,
    payload: bytes = b"",
    *,
    version: int = V5,
    qos: int = 0,
    packet_id: int = 1,
    retain: bool = False,
    dup: bool = False,
    props: bytes = b"",
) -> bytes:
    body = string(topic)
    if qos:
        body += struct.pack(">H", packet_id)
    return packet(PUBLISH, dup << 3 | qos << 1 | retain, body + properties(version, props) + payload)


def subscribe(
    topic: str | bytes, options: int = 1, *, version: int = V5, packet_id: int = 1, props: bytes = b""
) -> bytes:
    body = struct.pack(">H", packet_id) + properties(version, props) + string(topic) + bytes([options])
    return packet(SUBSCRIBE, 2, body)


def acknowledgement(kind: int, packet_id: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP that says success."""
    return packet(kind, 2 if kind == PUBREL else 0, struct.pack(">H", packet_id))


class RawMqtt:
    """A connection that sends any bytes and reads packets; connected unless `version=None`."""

    def __init__(
        self,
        port: int,
        *,
        version: int | None = V5,
        client_id: str = "",
        keep_alive: int = 0,
        props: bytes = b"",
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = PacketReader()
        self._packets: list[tuple[int, bytes]] = []
        if version is not None:
            self.send_bytes(
                connect(version, client_id or f"raw-{id(self)}", keep_alive=keep_alive, props=props)
            )
            self.connack = self.expect(CONNACK)
            assert self.connack.body[1] == 0, f"refused: {self.connack}"

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_quietly(self, data: bytes) -> None:
        """Send; that the broker hangs up meanwhile is fine."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def read(self, timeout_s: float = WAIT_S) -> Packet | None:
        """The next packet; None at the end of the stream. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while not self._packets:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError("no packet from the broker")
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._packets = self._reader.feed(data)
        first, body = self._packets.pop(0)
        return Packet(first >> 4, first & 15, body)

    def expect(self, kind: int, timeout_s: float = WAIT_S) -> Packet:
        received = self.read(timeout_s)
        assert received is not None, f"the broker hung up, packet type {kind} expected"
        assert received.kind == kind, f"{received} instead of packet type {kind}"
        return received

    def farewell(self, timeout_s: float = WAIT_S) -> int | None:
        """The reason code of the DISCONNECT or CONNACK before the broker hangs up; None: it just hung up.

        Fails when it stays connected.
        """
        deadline = time.monotonic() + timeout_s
        reason: int | None = None
        while True:
            received = self.read(max(deadline - time.monotonic(), 0.01))
            if received is None:
                return reason
            if received.kind == DISCONNECT:
                reason = received.body[0] if received.body else 0
            elif received.kind == CONNACK:
                reason = received.body[1]

    def quiet(self, rounds: int = 3) -> None:
        """Fail if anything comes before the answers to some pings; what can go out does between them."""
        for _ in range(rounds):
            self.send_bytes(packet(PINGREQ, 0))
            self.expect(PINGRESP)

    def drop(self) -> None:
        """Close the socket with no farewell."""
        self.socket.close()
