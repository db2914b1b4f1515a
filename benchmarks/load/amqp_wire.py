"""The AMQP 0.9.1 a load generator needs: set-up through pamqp, the hot frames as bytes."""

import socket
import struct
import time
from datetime import UTC, datetime
from typing import Any

from pamqp import base, commands, frame, header

from benchmarks.load.crew import LoadError
from benchmarks.load.sockets import connect, set_wait
from benchmarks.load.target import ANYBODY, Login

CHANNEL = 1
CONSUMER_TAG = "c"
BODY_BYTES_MAX = 131_072 - 8
_ACK = struct.Struct(">BHIHHQBB")
_ACK_FRAME_BYTES = _ACK.size
_CLOSE_OK = frame.marshal(commands.Connection.CloseOk(), 0)
CLOSE_TIMEOUT_S = 10.0
_FRAME_HEAD = struct.Struct(">BHI")
_U64 = struct.Struct(">Q")
_BASIC, _ACK_METHOD, _NACK_METHOD, _DELIVER_METHOD = 60, 80, 120, 60


class AmqpClient:
    """One connection with one channel. Waits are bounded by `wait_s`; refusals raise LoadError."""

    def __init__(self, host: str, port: int, wait_s: float = 10.0, login: Login = ANYBODY) -> None:
        self.sock = connect(host, port, wait_s, login.ca_file)
        self._buffer = b""
        self._open(f"\x00{login.user}\x00{login.password}" if login.user else "\x00guest\x00guest")

    def _open(self, response: str) -> None:
        self.sock.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        self.sock.sendall(
            frame.marshal(
                commands.Connection.StartOk({"product": "benchmark"}, "PLAIN", response, "en_US"),
                0,
            )
        )
        tune = self._expect(commands.Connection.Tune)
        tuned = commands.Connection.TuneOk(tune.channel_max, min(tune.frame_max or 131_072, 131_072), 0)
        self.sock.sendall(frame.marshal(tuned, 0))
        self.sock.sendall(frame.marshal(commands.Connection.Open("/"), 0))
        self._expect(commands.Connection.OpenOk)
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def call(self, method: base.Frame, answer: type) -> Any:
        """Send a synchronous method on the channel and return its answer."""
        self.sock.sendall(frame.marshal(method, CHANNEL))
        return self._expect(answer)

    def _expect(self, answer: type) -> Any:
        while True:
            got = self.next_frame()
            if isinstance(got, answer):
                return got
            if isinstance(got, commands.Connection.Close | commands.Channel.Close):
                raise LoadError(f"the broker closed: {got.reply_code} {got.reply_text}")

    def next_frame(self) -> Any:
        """The next frame, decoded."""
        while True:
            if len(self._buffer) >= 7:
                size = _FRAME_HEAD.unpack_from(self._buffer)[2] + 8
                if len(self._buffer) >= size:
                    used, _channel, got = frame.unmarshal(self._buffer)
                    self._buffer = self._buffer[used:]
                    return got
            try:
                data = self.sock.recv(65_536)
            except BlockingIOError:
                raise LoadError("the broker does not answer") from None
            if not data:
                raise LoadError("the broker closed the connection")
            self._buffer += data

    def declare_queue(self, name: str, *, durable: bool, arguments: dict[str, Any] | None = None) -> None:
        self.call(
            commands.Queue.Declare(queue=name, durable=durable, arguments=arguments or {}),
            commands.Queue.DeclareOk,
        )

    def declare_exchange(self, name: str, kind: str, *, durable: bool) -> None:
        self.call(
            commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=durable),
            commands.Exchange.DeclareOk,
        )

    def delete_exchange(self, name: str) -> None:
        self.call(commands.Exchange.Delete(exchange=name), commands.Exchange.DeleteOk)

    def bind_queue(self, name: str, exchange: str, routing_key: str) -> None:
        self.call(
            commands.Queue.Bind(queue=name, exchange=exchange, routing_key=routing_key), commands.Queue.BindOk
        )

    def delete_queue(self, name: str) -> None:
        self.call(commands.Queue.Delete(queue=name), commands.Queue.DeleteOk)

    def select_confirms(self) -> None:
        self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)

    def consume(self, queue: str, *, prefetch: int, no_ack: bool) -> None:
        """Start consuming; the deliveries stay unread on the socket for a DeliveryCounter."""
        if not no_ack:
            self.call(commands.Basic.Qos(prefetch_count=prefetch), commands.Basic.QosOk)
        self.call(
            commands.Basic.Consume(queue=queue, consumer_tag=CONSUMER_TAG, no_ack=no_ack),
            commands.Basic.ConsumeOk,
        )

    def cancel(self) -> None:
        """Be given nothing more; what was given stays unsettled."""
        self.call(commands.Basic.Cancel(consumer_tag=CONSUMER_TAG), commands.Basic.CancelOk)

    def take_buffered(self) -> bytes:
        """What was read beyond the last answer."""
        rest, self._buffer = self._buffer, b""
        return rest

    def set_wait(self, wait_s: float) -> None:
        set_wait(self.sock, wait_s)

    def close(self) -> None:
        """Close in order: what was published without confirms has been taken when close-ok comes."""
        try:
            self.set_wait(CLOSE_TIMEOUT_S)
            self.sock.sendall(frame.marshal(commands.Connection.Close(200, "bye", 0, 0), 0))
            limit, end = time.monotonic() + CLOSE_TIMEOUT_S, b""
            while time.monotonic() < limit and not end.endswith(_CLOSE_OK):
                data = self.sock.recv(1 << 20)
                if not data:
                    break
                end = (end + data)[-len(_CLOSE_OK) :]
        except OSError:
            pass
        self.sock.close()


def publish_frames(routing_key: str, body: bytes, *, delivery_mode: int, exchange: str = "") -> bytes:
    """Method, header and body frame of one publish."""
    properties = commands.Basic.Properties(delivery_mode=delivery_mode)
    return (
        frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=routing_key), CHANNEL)
        + frame.marshal(header.ContentHeader(0, len(body), properties), CHANNEL)
        + _FRAME_HEAD.pack(3, CHANNEL, len(body))
        + body
        + b"\xce"
    )


def publish_batch(routing_key: str, bodies: list[bytes], *, delivery_mode: int, exchange: str = "") -> bytes:
    """The frames of publishes, one after the other."""
    return b"".join(
        publish_frames(routing_key, body, delivery_mode=delivery_mode, exchange=exchange) for body in bodies
    )


def varied_batch(routing_key: str, bodies: list[bytes], *, delivery_mode: int) -> bytes:
    """Like `publish_batch`, to be filled in (`%`) with a number for each message.

    Each has properties that no other has, as clients send them: an ID, a time, a header.
    """
    mark = "#" * 36
    properties = commands.Basic.Properties(
        content_type="application/json",
        delivery_mode=delivery_mode,
        headers={"source": "benchmark"},
        message_id=mark,
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
    )
    pieces = []
    for body in bodies:
        pieces += [
            frame.marshal(commands.Basic.Publish(routing_key=routing_key), CHANNEL),
            frame.marshal(header.ContentHeader(0, len(body), properties), CHANNEL),
            _FRAME_HEAD.pack(3, CHANNEL, len(body)) + body + b"\xce",
        ]
    return b"".join(pieces).replace(b"%", b"%%").replace(mark.encode(), b"%036d")


def encode_ack_multiple(delivery_tag: int) -> bytes:
    return _ACK.pack(1, CHANNEL, 13, _BASIC, _ACK_METHOD, delivery_tag, 1, 0xCE)


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
            raise LoadError("the broker closed the connection")
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % _ACK_FRAME_BYTES
        self._rest = data[whole:]
        for kind, _, size, _, method, tag, multiple, _ in _ACK.iter_unpack(data[:whole]):
            if method == _NACK_METHOD:
                self.refused += 1
            elif method != _ACK_METHOD or kind != 1 or size != 13:
                raise LoadError(f"expected a confirm, got {data[:80]!r}")
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
            raise LoadError("the broker closed the connection")
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
            raise LoadError(
                f"deliveries are not of one size (the first has {stride} bytes): tag {tag}, counted "
                f"{self.count + whole}; one that was delivered before has a header more"
            )
        if self._bodies is not None:
            expected = self._bodies[(tag - 1 + self._skipped) % len(self._bodies)]
            if not self._buffer.startswith(expected, last + self.body_offset):
                raise LoadError(f"delivery {tag} is not the message whose turn it is")
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
                raise LoadError(f"expected a delivery, got {bytes(buffer[: min(self._fill, 120)])!r}")
            sizes.append(size)
            position += size + 8
        class_id, method_id, tag_length = struct.unpack_from(">HHB", buffer, 7)
        if (class_id, method_id) != (_BASIC, _DELIVER_METHOD):
            raise LoadError(f"expected basic.deliver, got method {class_id}.{method_id}")
        self._tag_offset = 12 + tag_length
        self.body_offset = position - sizes[2] - 1
        self._stride = position
        return True
