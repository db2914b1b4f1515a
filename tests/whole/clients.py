"""Small clients over bare sockets, all pumped by one thread: AMQP 0.9.1, MQTT 3.1.1 and 5, HTTP.

A client keeps what the broker sent of its own accord in `events`, in order, each with the time it was read;
a call waits for its own answer and nothing else. Nobody sleeps: `pump` waits for bytes.
"""

from __future__ import annotations

import base64
import http.client
import json
import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pamqp import base, commands, header
from pamqp import frame as pamqp_frame

from protocols.amqp091.client import FrameReader
from protocols.mqtt.client import PacketReader
from tests.e2e import raw_mqtt as mqtt
from tests.e2e.raw_amqp import BODY, CAPABILITIES, HEADER, METHOD, PROTOCOL_HEADER, frame, method_frame

ANSWER_TIMEOUT_S = 4.0
DROPPED, DISCONNECTED = "dropped", "disconnected"  # how clients end their connections


class Silent(Exception):
    """No answer within the time."""


class Gone(Exception):
    """The broker closed the connection, or the AMQP channel; the text says how."""


class Event(NamedTuple):
    """Something the broker sent of its own accord: `kind` is `deliver`, `return`, `cancel` or `released`."""

    kind: str
    at: float
    fields: dict[str, Any]


class Client(ABC):
    """One socket; subclasses work off what is whole in `_parse`."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.events: list[Event] = []
        self.gone: str | None = None

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            self._end(f"write: {error}")

    def take(self) -> None:
        """Read once and work off what is whole; only when the socket is readable."""
        try:
            data = self.socket.recv(262_144)
        except OSError:
            data = b""
        self._parse(data)
        if not data:
            self._end("closed by the broker")

    def wait(self, done: Callable[[], Any], what: str) -> None:
        """Pump this client until `done`. Raises Gone or Silent."""
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while not done():
            if self.gone is not None:
                raise Gone(self.gone)
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silent(f"{self.name}: no {what} within {ANSWER_TIMEOUT_S:g} s")
            if select.select([self], [], [], left)[0]:
                self.take()

    def drop(self) -> None:
        """Close the socket with no farewell, and with a reset, so that the broker sees it at once."""
        linger = struct.pack("ii", 1, 0)
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        except OSError:
            pass
        self.socket.close()
        self._end(DROPPED)

    def _end(self, how: str) -> None:
        if self.gone is None:
            self.gone = how

    def is_sent_away(self) -> bool:
        """Whether the broker ended the connection."""
        return self.gone not in (None, DROPPED, DISCONNECTED)

    @abstractmethod
    def _parse(self, data: bytes) -> None:
        """Make events of what was received in full."""


def pump(clients: Iterable[Client], timeout_s: float) -> bool:
    """Wait until one of them has something to read, and read it; whether there was anything."""
    alive = [client for client in clients if client.gone is None]
    if not alive:
        if timeout_s:
            time.sleep(min(timeout_s, 0.01))
        return False
    readable = select.select(alive, [], [], timeout_s)[0]
    for client in readable:
        client.take()
    return bool(readable)


class Amqp(Client):
    """A connection with one channel, 1, in mode `confirm`, `tx` or `plain`."""

    def __init__(self, name: str, port: int, mode: str, vhost: str = "/") -> None:
        super().__init__(name, port)
        self.mode = mode
        self.answers: list[Any] = []
        self.confirmed: dict[int, bool] = {}
        self.sequence = 0
        self.closed: tuple[int, str] | None = None
        self._content: Any = None
        self._frames = FrameReader()
        self.send(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        start_ok = commands.Connection.StartOk(
            {"capabilities": CAPABILITIES}, "PLAIN", "\0guest\0guest", "en_US"
        )
        self.send(method_frame(0, start_ok))
        self.expect(commands.Connection.Tune)
        self.send(method_frame(0, commands.Connection.TuneOk(2_047, 131_072, 0)))
        self.send(method_frame(0, commands.Connection.Open(vhost)))
        self.expect(commands.Connection.OpenOk)
        self.open_channel(mode)

    def open_channel(self, mode: str) -> None:
        """Open channel 1, again after the broker closed it."""
        self.closed = None
        self.answers.clear()
        self.confirmed.clear()
        self.sequence = 0
        self.mode = mode
        self.call(commands.Channel.Open(), commands.Channel.OpenOk)
        if mode == "confirm":
            self.call(commands.Confirm.Select(), commands.Confirm.SelectOk)
        elif mode == "tx":
            self.call(commands.Tx.Select(), commands.Tx.SelectOk)

    def expect(self, *kinds: type) -> Any:
        """The next answer, which must be one of `kinds`. Raises Gone where the channel was closed instead."""
        self.wait(lambda: self.answers or self.closed, "/".join(kind.__name__ for kind in kinds))
        if not self.answers:
            raise Gone(str(self.closed))
        answer = self.answers.pop(0)
        assert isinstance(answer, kinds), f"{self.name}: {answer} instead of {kinds}"
        return answer

    def call(self, method: base.Frame, *kinds: type) -> Any:
        self.send(method_frame(1, method))
        return self.expect(*kinds)

    def tell(self, method: base.Frame) -> None:
        """Send a method that has no answer."""
        self.send(method_frame(1, method))

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes,
        properties: commands.Basic.Properties,
        *,
        mandatory: bool = False,
    ) -> int:
        """Send one message; its number among the channel's publishes, from 1."""
        content = header.ContentHeader(0, len(body), properties)
        data = method_frame(1, commands.Basic.Publish(0, exchange, routing_key, mandatory))
        data += frame(HEADER, 1, content.marshal())
        if body:
            data += frame(BODY, 1, body)
        self.sequence += 1
        self.send(data)
        return self.sequence

    def send_recover(self) -> None:
        self.send(method_frame(1, commands.Basic.Recover(True)))

    def confirm_of(self, sequence: int) -> bool:
        """Whether the publish was acknowledged, else it was refused. Raises Gone where the channel closed."""
        self.wait(lambda: sequence in self.confirmed or self.closed, f"confirm {sequence}")
        if sequence not in self.confirmed:
            raise Gone(str(self.closed))
        return self.confirmed[sequence]

    def barrier(self) -> Callable[[], bool]:
        """Ask something without effect; the function given tells whether the answer is there."""
        if self.closed is not None or self.gone is not None:
            return lambda: True
        self.send(method_frame(1, commands.Channel.Flow(True)))

        def answered() -> bool:
            for position, answer in enumerate(self.answers):
                if isinstance(answer, commands.Channel.FlowOk):
                    del self.answers[position]
                    return True
            return self.closed is not None or self.gone is not None

        return answered

    def close(self) -> None:
        """connection.close, and its answer."""
        if self.gone is None:
            self.send(method_frame(0, commands.Connection.Close(200, "", 0, 0)))
            try:
                self.closed = None
                self.expect(commands.Connection.CloseOk)
            except Gone:
                pass
        self.socket.close()
        self._end("closed")

    def _parse(self, data: bytes) -> None:
        self._frames.feed(data)
        while (received := self._frames.next()) is not None:
            if received.kind == METHOD:
                self._method(received.channel, received.method)
            elif received.kind == HEADER:
                content = pamqp_frame.unmarshal(frame(HEADER, received.channel, received.payload))[2]
                self._content[1:] = [content.properties, content.body_size, b""]
                self._content_read()
            elif received.kind == BODY:
                self._content[3] += received.payload
                self._content_read()

    def _method(self, channel: int, method: Any) -> None:
        match method:
            case commands.Basic.Deliver() | commands.Basic.Return() | commands.Basic.GetOk():
                self._content = [method, None, 0, b""]
            case commands.Basic.Ack() | commands.Basic.Nack():
                taken = isinstance(method, commands.Basic.Ack)
                tag = method.delivery_tag
                for number in range(1, tag + 1) if method.multiple else (tag,):
                    self.confirmed.setdefault(number, taken)
            case commands.Basic.Cancel():
                self.events.append(Event("cancel", time.time(), {"consumer": method.consumer_tag}))
            case commands.Channel.Close():
                self.closed = (method.reply_code, method.reply_text)
                self.send(method_frame(channel, commands.Channel.CloseOk()))
            case commands.Connection.Close():
                self.closed = (method.reply_code, method.reply_text)
                self.send(method_frame(0, commands.Connection.CloseOk()))
                self._end(f"connection.close {self.closed}")
            case _:
                self.answers.append(method)

    def _content_read(self) -> None:
        method, properties, size, body = self._content
        if len(body) < size:
            return
        self._content = None
        fields = {
            "body": body.decode("latin1"),
            "routing_key": method.routing_key,
            "exchange": method.exchange,
            "headers": dict(properties.headers or {}),
            "properties": properties,
        }
        if isinstance(method, commands.Basic.Return):
            self.events.append(Event("return", time.time(), {**fields, "code": method.reply_code}))
            return
        fields |= {"tag": method.delivery_tag, "redelivered": method.redelivered}
        if isinstance(method, commands.Basic.GetOk):
            self.answers.append(method)
            method.content = Event("deliver", time.time(), fields | {"count": method.message_count})
        else:
            self.events.append(Event("deliver", time.time(), fields | {"consumer": method.consumer_tag}))


class Mqtt(Client):
    """A connected client. It acknowledges at once, unless `hold`: then `unacked` has what waits, in order.

    With `hold_release` PUBREL is not answered either: `unreleased` has the packet identifiers. The broker may
    use `alias_maximum` topic aliases; `packet_maximum`: the largest packet it takes.
    `reason`: of CONNACK; `present`: whether it said "session present". `read_until`: the broker has read what
    was sent before this time.
    """

    def __init__(
        self,
        name: str,
        port: int,
        version: int,
        *,
        clean: bool,
        expiry_s: int = 0,
        receive_maximum: int = 0,
        hold: bool = False,
        hold_release: bool = False,
        alias_maximum: int = 0,
        packet_maximum: int = 0,
        will: dict[str, Any] | None = None,
        user: str = "",
    ) -> None:
        super().__init__(name, port)
        self.version = version
        self.hold = hold
        self.hold_release = hold_release
        self.unreleased: list[int] = []
        self._aliases: dict[int, str] = {}  # those of this client
        self._told_aliases: dict[int, str] = {}  # those of the broker
        self.unacked: list[Event] = []
        self.answers: dict[tuple[int, int], bytes] = {}
        self._packets = PacketReader()
        self.pongs = 0
        self.read_until = self._pinged_at = time.time()
        self.next_id = 0
        self.connack: bytes | None = None
        flags = 2 if clean else 0
        props = b""
        if version == mqtt.V5:
            if expiry_s:
                props += b"\x11" + struct.pack(">I", expiry_s)
            if receive_maximum:
                props += b"\x21" + struct.pack(">H", receive_maximum)
            if alias_maximum:
                props += b"\x22" + struct.pack(">H", alias_maximum)
            if packet_maximum:
                props += b"\x27" + struct.pack(">I", packet_maximum)
        after = b""
        if will is not None:
            flags |= 4 | will["qos"] << 3 | (0x20 if will.get("retain") else 0)
            will_props = b""
            if will.get("delay_s") and version == mqtt.V5:
                will_props = b"\x18" + struct.pack(">I", will["delay_s"])
            after += mqtt.properties(version, will_props) + mqtt.string(will["topic"])
            after += mqtt.string(will["body"])
        if user:
            flags |= 0xC0
            after += mqtt.string(user) + mqtt.string("guest")
        self.send(mqtt.connect(version, name, flags=flags, props=props, after=after))
        self.wait(lambda: self.connack is not None, "CONNACK")
        assert self.connack is not None
        self.present = bool(self.connack[0] & 1)
        self.reason = self.connack[1]

    def packet_id(self) -> int:
        self.next_id = self.next_id % 65_535 + 1
        return self.next_id

    def subscribe(
        self, topic_filter: str, options: int, *, identifier: int = 0, user: dict[str, str] | None = None
    ) -> int:
        """The code of SUBACK."""
        props = b""
        if self.version == mqtt.V5:
            if identifier:
                props += b"\x0b" + mqtt.variable_int(identifier)
            for key, value in (user or {}).items():
                props += mqtt.user_property(key, value)
        number = self.packet_id()
        self.send(mqtt.subscribe(topic_filter, options, version=self.version, packet_id=number, props=props))
        return self._answer(mqtt.SUBACK, number)[-1]

    def begin_subscribe(self, topic_filter: str, options: int) -> None:
        """Send SUBSCRIBE without waiting for its answer."""
        number = self.packet_id()
        self.send(mqtt.subscribe(topic_filter, options, version=self.version, packet_id=number))

    def unsubscribe(self, topic_filter: str) -> int:
        number = self.packet_id()
        body = struct.pack(">H", number) + mqtt.properties(self.version) + mqtt.string(topic_filter)
        self.send(mqtt.packet(mqtt.UNSUBSCRIBE, 2, body))
        answer = self._answer(mqtt.UNSUBACK, number)
        return answer[-1] if self.version == mqtt.V5 else 0

    def publish(
        self,
        topic: str,
        body: bytes,
        qos: int,
        *,
        retain: bool = False,
        expiry_s: int | None = None,
        response: str = "",
        alias: int = 0,
        user: dict[str, str] | None = None,
        again: int = 0,
    ) -> int:
        """Send one message; its packet identifier, 0 at QoS 0. `alias`: a topic alias, sent with the
        topic where that is new for it. `again`: the packet identifier of an earlier try.
        """
        props = b""
        if self.version == mqtt.V5:
            if expiry_s is not None:
                props += b"\x02" + struct.pack(">I", expiry_s)
            if response:
                props += b"\x08" + mqtt.string(response) + b"\x09" + mqtt.string(body)
            if alias:
                props += b"\x23" + struct.pack(">H", alias)
                known = self._aliases.get(alias) == topic
                self._aliases[alias] = topic
                topic = "" if known else topic
            for key, value in (user or {}).items():
                props += mqtt.user_property(key, value)
        number = again or (self.packet_id() if qos else 0)
        self.send(
            mqtt.publish(
                topic,
                body,
                version=self.version,
                qos=qos,
                packet_id=number,
                retain=retain,
                dup=again > 0,
                props=props,
            )
        )
        return number

    def received(self, number: int) -> int:
        """Wait for PUBREC, whose reason code it is."""
        answer = self._answer(mqtt.PUBREC, number)
        return answer[0] if answer else 0

    def release(self, number: int, *, wait: bool = True) -> None:
        """Send PUBREL, and wait for PUBCOMP."""
        self.send(mqtt.acknowledgement(mqtt.PUBREL, number))
        if wait:
            self._answer(mqtt.PUBCOMP, number)

    def complete(self, number: int) -> None:
        """Send PUBCOMP, that `hold_release` has held back."""
        self.unreleased.remove(number)
        self.send(mqtt.acknowledgement(mqtt.PUBCOMP, number))

    def reason_of(self, number: int, qos: int) -> int:
        """The reason code of PUBACK or PUBREC; completes QoS 2."""
        answer = self._answer(mqtt.PUBACK if qos == 1 else mqtt.PUBREC, number)
        reason = answer[0] if answer else 0
        if qos == 2 and reason < 0x80:
            self.send(mqtt.acknowledgement(mqtt.PUBREL, number))
            self._answer(mqtt.PUBCOMP, number)
        return reason

    def settle(self, event: Event, reason: int = 0) -> None:
        """PUBACK or PUBREC of a delivery that was held."""
        kind = mqtt.PUBACK if event.fields["qos"] == 1 else mqtt.PUBREC
        body = struct.pack(">H", event.fields["packet_id"]) + (bytes([reason]) if reason else b"")
        self.send(mqtt.packet(kind, 0, body))

    def ping(self) -> Callable[[], bool]:
        """Send PINGREQ; the function given tells whether the answer is there."""
        self._pinged_at = time.time()
        self.send(mqtt.packet(mqtt.PINGREQ, 0))
        wanted = self.pongs + 1
        return lambda: self.pongs >= wanted or self.gone is not None

    barrier = ping

    def disconnect(self, *, with_will: bool = False, expiry_s: int | None = None) -> None:
        body = b""
        if self.version == mqtt.V5 and (with_will or expiry_s is not None):
            props = b"" if expiry_s is None else b"\x11" + struct.pack(">I", expiry_s)
            body = bytes([4 if with_will else 0]) + mqtt.properties(self.version, props)
        self.send(mqtt.packet(mqtt.DISCONNECT, 0, body))
        self.socket.close()
        self._end(DISCONNECTED)

    def _answer(self, kind: int, number: int) -> bytes:
        self.wait(lambda: (kind, number) in self.answers, f"answer {kind} to {number}")
        return self.answers.pop((kind, number))

    def _parse(self, data: bytes) -> None:
        for first, body in self._packets.feed(data):
            self._packet(first >> 4, first & 15, body)

    def _packet(self, kind: int, flags: int, body: bytes) -> None:
        if kind == mqtt.PUBLISH:
            event = Event("deliver", time.time(), _publish_fields(self.version, flags, body))
            alias = event.fields.get("alias")
            if alias:
                topic = event.fields["topic"] or self._told_aliases[alias]
                event.fields["topic"] = self._told_aliases[alias] = topic
            self.events.append(event)
            if event.fields["qos"]:
                if self.hold:
                    self.unacked.append(event)
                else:
                    self.settle(event)
        elif kind == mqtt.PUBREL:
            (number,) = struct.unpack_from(">H", body)
            self.events.append(Event("released", time.time(), {"packet_id": number}))
            if self.hold_release:
                self.unreleased.append(number)
            else:
                self.send(mqtt.acknowledgement(mqtt.PUBCOMP, number))
        elif kind == mqtt.CONNACK:
            self.connack = body
        elif kind == mqtt.PINGRESP:
            self.pongs += 1
            self.read_until = self._pinged_at
        elif kind == mqtt.DISCONNECT:
            self._end(f"DISCONNECT {body[0] if body else 0:#x}")
        else:
            self.answers[kind, struct.unpack_from(">H", body)[0]] = body[2:]


_SIZES = {0x01: 1, 0x02: 4, 0x23: 2}


def _publish_fields(version: int, flags: int, body: bytes) -> dict[str, Any]:
    (size,) = struct.unpack_from(">H", body)
    position = 2 + size
    fields: dict[str, Any] = {
        "topic": body[2:position].decode(),
        "qos": flags >> 1 & 3,
        "retain": bool(flags & 1),
        "dup": bool(flags & 8),
        "packet_id": 0,
        "identifiers": [],
        "user": {},
    }
    if fields["qos"]:
        (fields["packet_id"],) = struct.unpack_from(">H", body, position)
        position += 2
    if version == mqtt.V5:
        size, position = _variable_int(body, position)
        end = position + size
        while position < end:
            kind = body[position]
            position += 1
            if kind == 0x0B:
                value, position = _variable_int(body, position)
                fields["identifiers"].append(value)
            elif kind == 0x26:
                key, position = _string(body, position)
                text, position = _string(body, position)
                fields["user"][key] = text
            elif kind in _SIZES:
                if kind == 0x02:
                    (fields["expiry_s"],) = struct.unpack_from(">I", body, position)
                elif kind == 0x23:
                    (fields["alias"],) = struct.unpack_from(">H", body, position)
                position += _SIZES[kind]
            else:
                text, position = _string(body, position)
                if kind == 0x08:
                    fields["response"] = text
                elif kind == 0x09:
                    fields["correlation"] = text
    fields["body"] = body[position:].decode("latin1")
    return fields


def _variable_int(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        digit = data[position]
        position += 1
        value |= (digit & 0x7F) << shift
        shift += 7
        if not digit & 0x80:
            return value, position


def _string(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">H", data, position)
    end = position + 2 + size
    return data[position + 2 : end].decode("utf-8", "replace"), end


BASIC = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


_PLACES = ("queues", "exchanges", "bindings", "sessions", "retained")


def within(vhost: str, path: str) -> str:
    """The path of the same in another virtual host than `/`."""
    if vhost == "/" or path.startswith("/api/v1/vhosts"):
        return path
    if path.startswith("/api/v1/"):
        place = path.split("/")[3].partition("?")[0]
        return path.replace("/api/v1/", f"/api/v1/vhosts/{vhost}/", 1) if place in _PLACES else path
    if path.startswith("/api/"):
        return path.replace("%2F", vhost)
    return f"{path}{'&' if '?' in path else '?'}vhost={vhost}"


class Http:
    """Calls about a virtual host, over one connection that is kept; `trace` is told each."""

    def __init__(self, port: int, vhost: str, trace: deque[str]) -> None:
        self._port = port
        self._vhost = vhost
        self._trace = trace
        self._connection: http.client.HTTPConnection | None = None

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, the JSON of the answer, or None); `body` bytes are sent as they are, all else as JSON."""
        status, data, _ = self.raw(method, path, body)
        return status, json.loads(data) if data else None

    def ask_workers(self) -> None:
        """Ask the first worker something that it asks all others."""
        trace, self._trace = self._trace, deque()
        try:
            self.raw("GET", "/api/v1/connections?limit=1")
        finally:
            self._trace = trace

    def raw(self, method: str, path: str, body: Any = None) -> tuple[int, bytes, dict[str, str]]:
        headers = dict(BASIC)
        path = within(self._vhost, path)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body)
            headers["Content-Type"] = "application/json"
        connection = self._connection
        if connection is not None and (
            connection.sock is None or select.select([connection.sock], [], [], 0)[0]
        ):
            self.close()  # the broker closed it meanwhile
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            data = answer.read()
            self._trace.append(f"{time.time():.4f}   {method} {path} {body!r}: {answer.status} {data!r:.500}")
            return answer.status, data, dict(answer.getheaders())
        except (OSError, http.client.HTTPException):
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
