"""AMQP 0.9.1 over a bare socket: frames as they are, legal or not. pamqp decodes content headers."""

import select
import socket
import struct
import time
from typing import Any, NamedTuple

from pamqp import base, commands
from pamqp import frame as pamqp_frame
from pamqp import header as pamqp_header

from protocols.amqp091.client import Frame, FrameReader, content_header, encode_publish, start_ok
from protocols.amqp091.client import encode_frame as frame
from protocols.amqp091.constants import CAPABILITIES, PROTOCOL_HEADER
from protocols.amqp091.constants import FRAME_BODY as BODY
from protocols.amqp091.constants import FRAME_HEADER as HEADER
from protocols.amqp091.constants import FRAME_HEARTBEAT as HEARTBEAT
from protocols.amqp091.constants import FRAME_METHOD as METHOD
from protocols.amqp091.methods import encode_method as method_frame

__all__ = [
    "BODY",
    "CAPABILITIES",
    "HEADER",
    "HEARTBEAT",
    "METHOD",
    "PROTOCOL_HEADER",
    "Content",
    "Frame",
    "RawAmqp",
    "content_header",
    "frame",
    "method_frame",
]

WAIT_S = 20.0


class Content(NamedTuple):
    """A delivery, return or get-ok with its content."""

    method: Any
    properties: pamqp_header.ContentHeader
    header_payload: bytes
    body: bytes


class RawAmqp:
    """A connection that sends any bytes and reads frames; opened to the vhost unless `handshake=False`."""

    def __init__(
        self,
        port: int,
        *,
        handshake: bool = True,
        frame_max: int = 131_072,
        channel_max: int = 2_047,
        heartbeat: int = 0,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
    ) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self.heartbeats = 0
        self.server_properties: dict[str, Any] = {}
        self.tune: Any = None
        if handshake:
            self.start(user, password)
            self.tune = self.expect(commands.Connection.Tune)
            self.send(0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat))
            self.send(0, commands.Connection.Open(vhost))
            self.expect(commands.Connection.OpenOk)

    def start(self, user: str = "guest", password: str = "guest", mechanism: str = "PLAIN") -> None:
        """Protocol header and start-ok."""
        self.send_bytes(PROTOCOL_HEADER)
        start = self.expect(commands.Connection.Start)
        self.server_properties = start.server_properties
        self.send(0, start_ok(user, password, product="raw", mechanism=mechanism))

    def open_channel(self, channel: int = 1, *, confirm: bool = False) -> int:
        self.send(channel, commands.Channel.Open())
        self.expect(commands.Channel.OpenOk)
        if confirm:
            self.send(channel, commands.Confirm.Select())
            self.expect(commands.Confirm.SelectOk)
        return channel

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, channel: int, method: base.Frame) -> None:
        self.send_bytes(method_frame(channel, method))

    def call(self, channel: int, method: base.Frame, answer: type) -> Any:
        self.send(channel, method)
        return self.expect(answer)

    def publish(
        self,
        channel: int,
        routing_key: str,
        body: bytes,
        properties: bytes = b"\x00\x00",
        *,
        mandatory: bool = False,
        exchange: str = "",
        body_frame_max: int = 131_064,
    ) -> None:
        self.send_bytes(
            encode_publish(
                routing_key,
                body,
                properties,
                exchange=exchange,
                channel=channel,
                mandatory=mandatory,
                body_frame_bytes_max=body_frame_max,
            )
        )

    def read(self, timeout_s: float = WAIT_S) -> Frame | None:
        """The next frame that is no heartbeat; None at the end of the stream. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            received = self._reader.next()
            if received is not None and received.kind != HEARTBEAT:
                return received
            if received is not None:
                self.heartbeats += 1
                continue
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise TimeoutError("no frame from the broker")
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._reader.feed(data)

    def expect(self, answer: type, timeout_s: float = WAIT_S) -> Any:
        """The next method, which must be an `answer`."""
        received = self.read(timeout_s)
        assert received is not None, f"the broker hung up, {answer.__name__} expected"
        assert isinstance(received.method, answer), f"{received} instead of {answer.__name__}"
        return received.method

    def read_content_bytes(self, answer: type, timeout_s: float = WAIT_S) -> tuple[Any, bytes, bytes]:
        """(method, payload of its content header, body), nothing decoded."""
        method = self.expect(answer, timeout_s)
        header = self.read(timeout_s)
        assert header is not None
        assert header.kind == HEADER
        size = struct.unpack_from(">Q", header.payload, 4)[0]
        body = b""
        while len(body) < size:
            part = self.read(timeout_s)
            assert part is not None
            assert part.kind == BODY
            body += part.payload
        return method, header.payload, body

    def read_content(self, answer: type, timeout_s: float = WAIT_S) -> Content:
        """A method that carries content, with its content."""
        method, header_payload, body = self.read_content_bytes(answer, timeout_s)
        decoded = pamqp_frame.unmarshal(frame(HEADER, 1, header_payload))[2]
        return Content(method, decoded, header_payload, body)

    def read_confirms(self, count: int, timeout_s: float = WAIT_S) -> list[int]:
        """The delivery tags the broker confirms, in order, until `count` are; basic.nack is a failure."""
        confirmed: list[int] = []
        while len(confirmed) < count:
            ack = self.expect(commands.Basic.Ack, timeout_s)
            first = (confirmed[-1] if confirmed else 0) + 1 if ack.multiple else ack.delivery_tag
            confirmed += range(first, ack.delivery_tag + 1)
        return confirmed

    def close_reason(self, timeout_s: float = WAIT_S) -> tuple[int, str, int] | None:
        """(reply code, text, channel) of the connection.close or channel.close that comes; None: just EOF."""
        deadline = time.monotonic() + timeout_s
        while True:
            received = self.read(max(deadline - time.monotonic(), 0.01))
            if received is None:
                return None
            close = received.method
            if isinstance(close, commands.Connection.Close):
                self.send_quietly(method_frame(0, commands.Connection.CloseOk()))
                return close.reply_code, close.reply_text, 0
            if isinstance(close, commands.Channel.Close):
                self.send(received.channel, commands.Channel.CloseOk())
                return close.reply_code, close.reply_text, received.channel

    def send_quietly(self, data: bytes) -> None:
        """Send; that the broker is gone already is fine."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass

    def wait_eof(self, timeout_s: float = WAIT_S) -> bool:
        """Whether the broker closes the stream in time; a connection.close of its is answered."""
        deadline = time.monotonic() + timeout_s
        try:
            while (received := self.read(max(deadline - time.monotonic(), 0.01))) is not None:
                if isinstance(received.method, commands.Connection.Close):
                    self.send_quietly(method_frame(0, commands.Connection.CloseOk()))
        except TimeoutError:
            return False
        return True

    def drop(self) -> None:
        """Close the socket with no farewell."""
        self.socket.close()
