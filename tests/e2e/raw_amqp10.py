"""AMQP 1.0 over a bare socket: performatives as they are, legal or not."""

from __future__ import annotations

import itertools
import socket
import time
from typing import Any, NamedTuple, TypeVar

from protocols.amqp10 import constants as c
from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.framing import Frame, FrameReader, encode_frame, encode_sasl_frame

WAIT_S = 20.0
T = TypeVar("T")


class Delivered(NamedTuple):
    """A delivery: its first transfer, and its sections by code (those of a list or map decoded)."""

    transfer: p.Transfer
    payload: bytes

    @property
    def sections(self) -> dict[int, Any]:
        return sections(self.payload)

    @property
    def header(self) -> p.Header:
        header = p.compose(t.Described(t.ULong(0x70), self.sections.get(0x70, [])))
        assert isinstance(header, p.Header)
        return header

    @property
    def body(self) -> Any:
        found = self.sections
        return next(found[code] for code in (0x75, 0x76, 0x77) if code in found)


def sections(payload: bytes) -> dict[int, Any]:
    """The values of the sections of a message, by code."""
    found: dict[int, Any] = {}
    at = 0
    while at < len(payload):
        described, at = t.decode_value(payload, at, len(payload))
        found[int(described.descriptor)] = described.value
    return found


def section(code: int, value: Any) -> bytes:
    return t.encode_value(t.Described(t.ULong(code), value))


def message(
    body: bytes = b"",
    *,
    durable: bool = True,
    annotations: dict[str, Any] | None = None,
    application: dict[str, Any] | None = None,
    value: Any = None,
    **properties: Any,
) -> bytes:
    """A message with a data section, or with `value`."""
    parts = [p.encode(p.Header(durable=True))] if durable else []
    if annotations is not None:
        parts.append(section(0x72, {t.Symbol(name): item for name, item in annotations.items()}))
    if properties:
        parts.append(p.encode(p.Properties(**properties)))
    if application is not None:
        parts.append(section(0x74, application))
    parts.append(section(0x75, body) if value is None else section(0x77, value))
    return b"".join(parts)


class RawAmqp10:
    """A connection that sends any performatives and reads frames; opened unless `handshake=False`."""

    def __init__(
        self,
        port: int,
        *,
        handshake: bool = True,
        user: str = "guest",
        password: str = "guest",
        hostname: str | None = None,
        container: str = "raw",
        frame_max: int = c.UINT_MAX,
        over: socket.socket | None = None,
    ) -> None:
        """`over` is a socket that is connected, as one of TLS."""
        self.socket = over or socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._frames: list[Frame] = []
        self.open: Any = None
        self.next_delivery_id = 0
        if handshake:
            assert self.log_in(user, password) == c.SASL_OK
            self.greet(container, hostname, frame_max)

    def greet(self, container: str = "raw", hostname: str | None = None, frame_max: int = c.UINT_MAX) -> None:
        """Open, once SASL is over."""
        self.send_bytes(c.AMQP_HEADER)
        self.expect_header(c.AMQP_HEADER)
        self.send(0, p.Open(container, hostname, frame_max))
        self.open = self.expect(p.Open)

    def log_in(self, user: str = "guest", password: str = "guest", mechanism: str = "PLAIN") -> int:
        """SASL as far as its outcome, which is given."""
        self.send_bytes(c.SASL_HEADER)
        self.expect_header(c.SASL_HEADER)
        self.mechanisms = self.expect(p.SaslMechanisms).sasl_server_mechanisms
        response = f"\0{user}\0{password}".encode() if mechanism == "PLAIN" else b""
        self.send_bytes(encode_sasl_frame(p.SaslInit(mechanism, response)))
        return int(self.expect(p.SaslOutcome).code)

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, channel: int, performative: Any, payload: bytes = b"") -> None:
        self.send_bytes(encode_frame(channel, performative, payload))

    # sessions and links

    def begin(self, channel: int = 0, *, incoming_window: int = 2_048) -> p.Begin:
        self.send(channel, p.Begin(None, 0, incoming_window, 2_048))
        return self.expect(p.Begin)

    def attach(self, attach: p.Attach, channel: int = 0) -> p.Attach:
        self.send(channel, attach)
        return self.expect(p.Attach)

    def attach_sender(
        self, address: str | None, handle: int = 0, *, channel: int = 0, name: str = "", mode: int = 2
    ) -> p.Flow:
        """A link to a target; gives the flow with its credit."""
        link = name or f"sender-{handle}"
        target = p.Target(address)
        attach = p.Attach(link, handle, c.SENDER, mode, 0, p.Source(), target, initial_delivery_count=0)
        answer = self.attach(attach, channel)
        assert answer.target is not None, self.read()
        return self.expect(p.Flow)

    def attach_receiver(
        self,
        address: str,
        handle: int = 1,
        *,
        channel: int = 0,
        mode: int = 0,
        credit: int = 0,
        name: str = "",
        properties: dict[Any, Any] | None = None,
        **source: Any,
    ) -> p.Attach:
        """A link from a source; gives the answer."""
        link = name or f"receiver-{handle}"
        wanted = p.Source(address, **source)
        attach = p.Attach(link, handle, c.RECEIVER, mode, 0, wanted, p.Target(), properties=properties)
        answer = self.attach(attach, channel)
        assert answer.source is not None, self.read()
        if credit:
            self.give_credit(credit, handle, channel=channel)
        return answer

    def give_credit(
        self,
        credit: int,
        handle: int = 1,
        *,
        channel: int = 0,
        delivery_count: int = 0,
        drain: bool = False,
        echo: bool = False,
    ) -> None:
        self.send(
            channel,
            p.Flow(0, 2_048, 0, 2_048, handle, delivery_count, credit, drain=drain, echo=echo),
        )

    def transfer(
        self, payload: bytes, handle: int = 0, *, channel: int = 0, settled: bool = False, **fields: Any
    ) -> int:
        """Send a delivery; gives its ID."""
        number = self.next_delivery_id
        self.next_delivery_id += 1
        tag = number.to_bytes(4, "big")
        self.send(channel, p.Transfer(handle, number, tag, 0, settled, **fields), payload)
        return number

    def transfer_in_parts(self, payload: bytes, handle: int = 0, part_bytes: int = 100_000) -> int:
        """Send a delivery in several frames; gives its ID."""
        parts = [payload[at : at + part_bytes] for at in range(0, len(payload), part_bytes)]
        number = self.transfer(parts[0], handle, more=len(parts) > 1)
        for index, part in enumerate(parts[1:], 2):
            self.send(0, p.Transfer(handle, more=index < len(parts)), part)
        return number

    def settle(
        self, first: int, state: Any, last: int | None = None, *, channel: int = 0, settled: bool = True
    ) -> None:
        self.send(channel, p.Disposition(c.RECEIVER, first, last, settled, state))

    # reading

    def read(self, timeout_s: float = WAIT_S) -> Frame | None:
        """The next frame with a body, or protocol header; None at the end of the stream."""
        deadline = time.monotonic() + timeout_s
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.body is not None or frame.kind < 0:
                    return frame
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self.socket.recv(1 << 20)
            except ConnectionError:
                data = b""
            if not data:
                return None
            self._frames += self._reader.feed(data)

    def expect(self, kind: type[T], timeout_s: float = WAIT_S) -> T:
        """The next performative, which must be one of this kind."""
        frame = self.read(timeout_s)
        assert frame is not None, f"the broker hung up, {kind.__name__} expected"
        assert isinstance(frame.body, kind), f"{frame} instead of {kind.__name__}"
        return frame.body

    def expect_header(self, header: bytes) -> None:
        frame = self.read()
        assert frame is not None
        assert frame.payload == header

    def receive(self, timeout_s: float = WAIT_S) -> Delivered:
        """The next delivery, whole."""
        first: p.Transfer | None = None
        payload = b""
        while True:
            frame = self.read(timeout_s)
            assert frame is not None, "the broker hung up, a transfer expected"
            assert isinstance(frame.body, p.Transfer), f"{frame} instead of a transfer"
            first = first or frame.body
            payload += frame.payload
            if not frame.body.more:
                return Delivered(first, payload)

    def outcomes(self, count: int) -> dict[int, Any]:
        """The outcomes of as many deliveries, by their IDs; flows and settlements between are passed over."""
        told: dict[int, Any] = {}
        while len(told) < count:
            frame = self.read()
            assert frame is not None, "the broker hung up, a disposition expected"
            said = frame.body
            if isinstance(said, p.Flow) or (isinstance(said, p.Disposition) and said.role is c.SENDER):
                continue
            assert isinstance(said, p.Disposition), f"{frame} instead of a disposition"
            assert said.settled
            for number in range(said.first, (said.first if said.last is None else said.last) + 1):
                told[number] = said.state
        return told

    def is_silent(self, timeout_s: float = 0.2) -> bool:
        """Whether nothing comes for a moment."""
        try:
            return self.read(timeout_s) is None
        except TimeoutError:
            return True

    def drop(self) -> None:
        """Close the socket without a word."""
        self.socket.close()


PAIRED = {t.Symbol("paired"): True}


class Answer(NamedTuple):
    status: int
    correlation_id: Any
    body: Any


class Management:
    """A client's link pair, in a session of its own."""

    def __init__(self, client: RawAmqp10, *, channel: int = 0, begin: bool = True) -> None:
        self._client = client
        self._channel = channel
        self._numbers = itertools.count(1)
        if begin:
            client.begin(channel)
        self.attach()

    def attach(self) -> None:
        client, channel = self._client, self._channel
        for handle, role in ((0, c.SENDER), (1, c.RECEIVER)):
            source, target = p.Source("/management"), p.Target("/management")
            count = 0 if role is c.SENDER else None
            attach = p.Attach(
                "pair", handle, role, 1, 0, source, target, initial_delivery_count=count, properties=PAIRED
            )
            assert client.attach(attach, channel).properties == PAIRED
            if role is c.SENDER:
                assert client.expect(p.Flow).link_credit
        client.give_credit(1_000, channel=channel)

    def ask(self, method: str, path: str, body: Any = None, *, reply_to: str | None = "$me") -> Answer:
        number = next(self._numbers)
        properties = p.Properties(message_id=t.ULong(number), to=path, subject=method, reply_to=reply_to)
        self._client.transfer(p.encode(properties) + section(0x77, body), channel=self._channel, settled=True)
        while not isinstance((frame := self._client.read()).body, p.Transfer):  # type: ignore[union-attr]
            assert frame is not None
            assert isinstance(frame.body, p.Flow)
        at, found = 0, {}
        while at < len(frame.payload):
            described, at = t.decode_value(frame.payload, at, len(frame.payload))
            found[int(described.descriptor)] = described.value
        properties = p.compose(t.Described(t.ULong(0x73), found[0x73]))
        assert found[0x74] == {"http:response": "1.1"}
        assert properties.correlation_id == number
        return Answer(int(properties.subject or 0), properties.correlation_id, found[0x77])
