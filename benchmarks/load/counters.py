"""What the load sends, encoded once, and counters that need next to nothing for a message that comes."""

import random
import socket
import struct
from datetime import UTC, datetime

from broker.commands.bench_clients import DELIVERY, ClientError
from protocols.amqp091.client import PERSISTENT, encode_publish
from protocols.amqp091.content import Properties, encode_properties
from protocols.mqtt import hot
from protocols.mqtt.constants import MQTT_3_1_1

PACKET_IDS = 65_535
TRANSIENT = b"\x10\x00\x01"  # AMQP properties: delivery mode 1
_ACK = struct.Struct(">BHIHHQBB")
_ACK_FRAME_BYTES = _ACK.size
_FRAME_HEAD = struct.Struct(">BHI")
_U64 = struct.Struct(">Q")
_BASIC, _ACK_METHOD, _NACK_METHOD, _DELIVER_METHOD = 60, 80, 120, 60


def make_bodies(size: int, count: int) -> list[bytes]:
    """`count` bodies of `size` bytes, always the same ones, and none like another or compressible."""
    generator = random.Random(size)
    return [generator.randbytes(size) for _ in range(count)]


def amqp_batch(
    routing_key: str, bodies: list[bytes], properties: bytes = PERSISTENT, exchange: str = ""
) -> bytes:
    """The frames of publishes, one after the other."""
    return b"".join(encode_publish(routing_key, body, properties, exchange=exchange) for body in bodies)


def amqp_varied_batch(routing_key: str, bodies: list[bytes], delivery_mode: int) -> bytes:
    """Like `amqp_batch`, to be filled in (`%`) with a number for each message.

    Each has properties that no other has, as clients send them: an ID, a time, a header.
    """
    mark = "#" * 36
    properties = Properties(
        content_type="application/json",
        delivery_mode=delivery_mode,
        headers={"source": "benchmark"},
        message_id=mark,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )
    batch = amqp_batch(routing_key, bodies, encode_properties(properties))
    return batch.replace(b"%", b"%%").replace(mark.encode(), b"%036d")


def mqtt_publish(topic: str, payload: bytes, qos: int, packet_id: int = 0) -> bytes:
    """One PUBLISH of 3.1.1."""
    return hot.encode_publish(MQTT_3_1_1, topic.encode(), qos, False, False, packet_id, b"", payload)


def mqtt_ring(topic: str, payloads: list[bytes], devices: int = 0) -> tuple[bytes, int]:
    """QoS 1 PUBLISH packets with packet ids 1, 2, ... in one run of bytes, and the size of each.

    As many as there are packet ids, but a whole number of rounds through `payloads`. `devices`: the topics
    have one level more, which that many devices take turns to fill.
    """
    topics = [f"{topic}/device{device:05}" for device in range(devices)] or [topic]
    packets = [
        mqtt_publish(topics[number % len(topics)], payloads[number % len(payloads)], 1, number + 1)
        for number in range(PACKET_IDS - PACKET_IDS % len(payloads))
    ]
    return b"".join(packets), len(packets[0])


class ConfirmCounter:
    """Counts the confirms of a channel: single, multiple, out of order; `refused` counts nacks."""

    def __init__(self) -> None:
        self.refused = 0
        self._floor = 0
        self._ahead: set[int] = set()
        self._rest = b""

    @property
    def confirmed(self) -> int:
        return self._floor + len(self._ahead)

    def feed(self, data: bytes) -> None:
        if not data:
            raise ClientError("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % _ACK_FRAME_BYTES
        self._rest = data[whole:]
        for kind, _, size, _, method, tag, multiple, _ in _ACK.iter_unpack(data[:whole]):
            if method == _NACK_METHOD:
                self.refused += 1
            elif method != _ACK_METHOD or kind != 1 or size != 13:
                raise ClientError(f"expected a confirm, got {data[:80]!r}")
            if multiple:
                if tag > self._floor:
                    self._floor = tag
                    if self._ahead:
                        self._ahead = {other for other in self._ahead if other > tag}
            elif tag == self._floor + 1:
                self._floor = tag
            else:
                self._ahead.add(tag)
            while self._ahead and self._floor + 1 in self._ahead:
                self._floor += 1
                self._ahead.discard(self._floor)


class DeliveryCounter:
    """Counts deliveries of one size: the stride is learnt from the first and checked by the delivery tags.

    `bodies` are what was published, over and over; the first `skipped` of them were consumed before. The last
    delivery of each read must be the one whose turn it is.
    """

    def __init__(
        self, already_read: bytes = b"", bodies: list[bytes] | None = None, skipped: int = 0
    ) -> None:
        self._bodies = bodies
        self._skipped = skipped
        self._buffer = bytearray(4 << 20)
        self._view = memoryview(self._buffer)
        self._buffer[: len(already_read)] = already_read
        self._fill = len(already_read)
        self._stride = 0
        self._tag_offset = 0
        self.body_offset = 0
        self.count = 0
        self.last_bodies: list[bytes] = []

    def receive(self, sock: socket.socket, keep_bodies: int = 0) -> int:
        """Read once and count; returns the bytes read. `keep_bodies`: keep that many bytes of each body."""
        got = sock.recv_into(self._view[self._fill :])
        if not got:
            raise ClientError("the broker closed the connection")
        self._fill += got
        self.scan(keep_bodies)
        return got

    def scan(self, keep_bodies: int = 0) -> None:
        """Count what is buffered."""
        if not self._stride and not self._learn():
            return
        stride = self._stride
        whole = self._fill // stride
        if not whole:
            return
        last = (whole - 1) * stride
        tag = _U64.unpack_from(self._buffer, last + self._tag_offset)[0]
        if tag != self.count + whole:
            raise ClientError(
                f"deliveries are not of one size (the first has {stride} bytes): tag {tag}, counted "
                f"{self.count + whole}; one that was delivered before has a header more"
            )
        if self._bodies is not None:
            expected = self._bodies[(tag - 1 + self._skipped) % len(self._bodies)]
            if not self._buffer.startswith(expected, last + self.body_offset):
                raise ClientError(f"delivery {tag} is not the message whose turn it is")
        self.count = tag
        if keep_bodies:
            body = self.body_offset
            self.last_bodies = [
                bytes(self._buffer[at + body : at + body + keep_bodies])
                for at in range(0, whole * stride, stride)
            ]
        rest = self._fill - whole * stride
        if rest:
            self._buffer[:rest] = self._buffer[whole * stride : self._fill]
        self._fill = rest

    def _learn(self) -> bool:
        buffer, position, sizes = self._buffer, 0, []
        for expected in (1, 2, 3):
            if self._fill < position + 7:
                return False
            kind, _, size = _FRAME_HEAD.unpack_from(buffer, position)
            if kind != expected:
                raise ClientError(f"expected a delivery, got {bytes(buffer[: min(self._fill, 120)])!r}")
            sizes.append(size)
            position += size + 8
        class_id, method_id, tag_length = struct.unpack_from(">HHB", buffer, 7)
        if (class_id, method_id) != (_BASIC, _DELIVER_METHOD):
            raise ClientError(f"expected basic.deliver, got method {class_id}.{method_id}")
        self._tag_offset = 12 + tag_length
        self.body_offset = position - sizes[2] - 1
        self._stride = position
        return True


class MarkCounter:
    """Counts deliveries by how each begins, whatever their size and tags; `data` came already."""

    def __init__(self, sock: socket.socket, data: bytes = b"") -> None:
        self._sock = sock
        self._rest = data
        self.count = data.count(DELIVERY)

    def receive(self) -> None:
        """Read once."""
        data = self._rest[1 - len(DELIVERY) :] + self._sock.recv(1 << 20)
        self.count += data.count(DELIVERY)
        self._rest = data


class AckCounter:
    """Counts the PUBACKs of a publisher by bytes; the first of each chunk is looked at."""

    def __init__(self) -> None:
        self._bytes = 0

    @property
    def confirmed(self) -> int:
        return self._bytes // 4

    def feed(self, data: bytes) -> None:
        if not data:
            raise ClientError("the broker closed the connection")
        at = -self._bytes % 4
        if at < len(data) and data[at] != 0x40:
            raise ClientError(f"expected a PUBACK, got {data[at : at + 20]!r}")
        self._bytes += len(data)


class PublishCounter:
    """Counts PUBLISH packets of one size and collects their packet ids for the answers.

    The last packet of each read must carry one of `payloads` (if given), at QoS 1 the one whose turn it is.
    """

    def __init__(self, topic: str, payload_bytes: int, qos: int, payloads: list[bytes] | None = None) -> None:
        self._payloads = payloads
        self._known = frozenset(payloads or ())
        self._payload_bytes = payload_bytes
        sample = mqtt_publish(topic, bytes(payload_bytes), qos, 1)
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
            raise ClientError("the broker closed the connection")
        self._fill += got
        stride = self._stride
        whole = self._fill // stride
        if not whole:
            return b""
        end = whole * stride
        if not self._buffer.startswith(self._head) or not self._buffer.startswith(self._head, end - stride):
            raise ClientError(f"expected PUBLISH packets of one size, got {bytes(self._buffer[:60])!r}")
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
            raise ClientError(f"message {self.count} is not the one whose turn it is")


class LoneAcks:
    """Answers one QoS 1 publish that comes alone, of the size and topic length of the one before.

    What a reader with many connections gets most often: nothing is parsed of it but its packet identifier.
    """

    def __init__(self) -> None:
        self._head = b""
        self._size = self._at = 0

    def answer(self, data: bytes) -> bytes:
        """The PUBACK for what came; b"" if it is something else."""
        if len(data) != self._size or not data.startswith(self._head):
            return b""
        return b"\x40\x02" + data[self._at : self._at + 2]

    def learn(self, publish: bytes) -> None:
        """Take one whole publish for what comes from now on."""
        body = 2 if publish[1] < 0x80 else 3
        self._size = len(publish)
        self._head = publish[: body + 2]
        self._at = body + 2 + (publish[body] << 8 | publish[body + 1])


def packet_ids(data: bytes) -> tuple[list[int], bytes]:
    """The packet identifiers of the QoS 1 publishes in some bytes, and the bytes of one that is not whole."""
    ids, at, end = [], 0, len(data)
    while at + 4 < end:
        size, body = data[at + 1], at + 2
        if size & 0x80:
            size, body = size & 0x7F | data[at + 2] << 7, at + 3
        if body + size > end:
            break
        topic = data[body] << 8 | data[body + 1]
        ids.append(data[body + 2 + topic] << 8 | data[body + 3 + topic])
        at = body + size
    return ids, data[at:]
