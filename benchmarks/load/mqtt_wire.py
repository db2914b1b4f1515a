"""The MQTT 3.1.1 a load generator needs: packets as bytes, counting by stride."""

import socket
import struct
import time

from benchmarks.load.crew import LoadError
from benchmarks.load.sockets import connect, set_wait
from benchmarks.load.target import ANYBODY, Login

PACKET_IDS = 65_535
CLOSE_TIMEOUT_S = 5.0
_U16 = struct.Struct(">H")


def encode_length(value: int) -> bytes:
    """Remaining length, MQTT 3.1.1 section 2.2.3."""
    encoded = bytearray()
    while True:
        value, digit = divmod(value, 128)
        encoded.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def encode_packet(first_byte: int, body: bytes) -> bytes:
    return bytes((first_byte,)) + encode_length(len(body)) + body


def encode_string(text: str) -> bytes:
    encoded = text.encode()
    return _U16.pack(len(encoded)) + encoded


def connect_packet(client_id: str, login: Login = ANYBODY) -> bytes:
    """CONNECT of a clean 3.1.1 session without keep-alive."""
    shown = encode_string(login.user) + encode_string(login.password) if login.user else b""
    flags = b"\xc2" if login.user else b"\x02"
    return encode_packet(0x10, b"\x00\x04MQTT\x04" + flags + b"\x00\x00" + encode_string(client_id) + shown)


def subscribe_packet(packet_id: int, topic_filter: str, qos: int) -> bytes:
    return encode_packet(0x82, _U16.pack(packet_id) + encode_string(topic_filter) + bytes((qos,)))


def publish_packet(topic: str, payload: bytes, qos: int, packet_id: int = 0) -> bytes:
    identifier = _U16.pack(packet_id) if qos else b""
    return encode_packet(0x30 | qos << 1, encode_string(topic) + identifier + payload)


def publish_ring(topic: str, payloads: list[bytes], devices: int = 0) -> tuple[bytes, int]:
    """QoS 1 PUBLISH packets with packet ids 1, 2, ... in one run of bytes, and the size of each.

    As many as there are packet ids, but a whole number of rounds through `payloads`. `devices`: the topics
    have one level more, which that many devices take turns to fill.
    """
    topics = [f"{topic}/device{device:05}" for device in range(devices)] or [topic]
    packets = [
        publish_packet(topics[number % len(topics)], payloads[number % len(payloads)], 1, number + 1)
        for number in range(PACKET_IDS - PACKET_IDS % len(payloads))
    ]
    return b"".join(packets), len(packets[0])


class MqttClient:
    """One connected 3.1.1 client. Refusals and silence raise LoadError."""

    def __init__(
        self, host: str, port: int, client_id: str, wait_s: float = 10.0, login: Login = ANYBODY
    ) -> None:
        self.sock = connect(host, port, wait_s, login.ca_file)
        self.sock.sendall(connect_packet(client_id, login))
        answer = self._read(4)
        if answer[0] != 0x20 or answer[3] != 0:
            raise LoadError(f"CONNECT was refused: {answer!r}")

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.sock.sendall(subscribe_packet(1, topic_filter, qos))
        answer = self._read(5)
        if answer[0] != 0x90 or answer[4] > 2:
            raise LoadError(f"SUBSCRIBE was refused: {answer!r}")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                got = self.sock.recv(size - len(data))
            except BlockingIOError:
                raise LoadError("the broker does not answer") from None
            if not got:
                raise LoadError("the broker closed the connection")
            data += got
        return data

    def set_wait(self, wait_s: float) -> None:
        set_wait(self.sock, wait_s)

    def close(self) -> None:
        """DISCONNECT, then read until the broker closes."""
        try:
            self.sock.sendall(b"\xe0\x00")
            self.set_wait(CLOSE_TIMEOUT_S)
            limit = time.monotonic() + CLOSE_TIMEOUT_S
            while time.monotonic() < limit and self.sock.recv(1 << 20):
                pass
        except OSError:
            pass
        self.sock.close()


class AckCounter:
    """Counts the PUBACKs of a publisher by bytes; the first of each chunk is looked at."""

    def __init__(self) -> None:
        self._bytes = 0

    @property
    def confirmed(self) -> int:
        return self._bytes // 4

    def feed(self, data: bytes) -> None:
        if not data:
            raise LoadError("the broker closed the connection")
        at = -self._bytes % 4
        if at < len(data) and data[at] != 0x40:
            raise LoadError(f"expected a PUBACK, got {data[at : at + 20]!r}")
        self._bytes += len(data)


class PublishCounter:
    """Counts PUBLISH packets of one size and collects their packet ids for the answers.

    The last packet of each read must carry one of `payloads` (if given), at QoS 1 the one whose turn it is.
    """

    def __init__(self, topic: str, payload_bytes: int, qos: int, payloads: list[bytes] | None = None) -> None:
        self._payloads = payloads
        self._known = frozenset(payloads or ())
        self._payload_bytes = payload_bytes
        sample = publish_packet(topic, bytes(payload_bytes), qos, 1)
        self._head = sample[: len(sample) - payload_bytes - (2 if qos else 0)]
        self._stride = len(sample)
        self._qos = qos
        self._buffer = bytearray(4 << 20)
        self._view = memoryview(self._buffer)
        self._fill = 0
        self.count = 0

    def receive(self, sock: socket.socket) -> bytes:
        """Read once and count; returns the PUBACKs to send (b"" at QoS 0)."""
        got = sock.recv_into(self._view[self._fill :])
        if not got:
            raise LoadError("the broker closed the connection")
        self._fill += got
        stride = self._stride
        whole = self._fill // stride
        if not whole:
            return b""
        end = whole * stride
        if not self._buffer.startswith(self._head) or not self._buffer.startswith(self._head, end - stride):
            raise LoadError(f"expected PUBLISH packets of one size, got {bytes(self._buffer[:60])!r}")
        self.count += whole
        if self._payloads is not None:
            self._check(bytes(self._buffer[end - self._payload_bytes : end]), self._payloads)
        acks = b""
        if self._qos:
            at = len(self._head)
            answers = bytearray(b"\x40\x02\x00\x00") * whole
            answers[2::4] = self._buffer[at:end:stride]
            answers[3::4] = self._buffer[at + 1 : end : stride]
            acks = bytes(answers)
        rest = self._fill - end
        if rest:
            self._buffer[:rest] = self._buffer[end : self._fill]
        self._fill = rest
        return acks

    def _check(self, payload: bytes, payloads: list[bytes]) -> None:
        if self._qos:
            right = payload == payloads[(self.count - 1) % len(payloads)]
        else:
            right = payload in self._known
        if not right:
            raise LoadError(f"message {self.count} is not the one whose turn it is")
