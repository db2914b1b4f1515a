"""A blocking AMQP 0.9.1 connection with one channel: publishing with windowed confirms, calls, consuming.

Made inside tasks and commits, never pickled. Whatever the broker refuses is raised as `Refused` with the
broker's own words, whatever the network does as `BrokerUnreachable`.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import struct
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spark_bridge import wire
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.settings import ConnectionSettings

CHANNEL: Final = 1
FRAME_BYTES_MAX: Final = 131_072
READ_BYTES: Final = 262_144
WRITE_BYTES: Final = 65_536
CONNECT_DELAY_S_MIN: Final = 0.2
CONNECT_DELAY_S_MAX: Final = 5.0

_ACK: Final = (60, 80)
_NACK: Final = (60, 120)
_RETURN: Final = (60, 50)
_DELIVER: Final = (60, 60)
_CONNECTION_CLOSE: Final = (10, 50)
_CHANNEL_CLOSE: Final = (20, 40)
_CONSUMER_CANCEL: Final = (60, 30)


class Message(NamedTuple):
    """A delivery."""

    delivery_tag: int
    exchange: str
    routing_key: str
    properties: dict[str, Any]
    body: bytes


class Connection:
    """`unconfirmed` publishes are out when `published` is ahead of what the broker has confirmed."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.deliveries: deque[Message] = deque()
        self.cancelled = ""
        self.published = 0
        self._confirmed = 0
        self._out_of_order: set[int] = set()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._in = bytearray()
        self._content: tuple[tuple[int, int], bytes, int, dict[str, Any], list[bytes]] | None = None
        self._address = (b"", "", "")
        self._answers: deque[tuple[tuple[int, int], bytes]] = deque()
        self._connect()

    # life

    def _connect(self) -> None:
        settings = self.settings
        deadline = time.monotonic() + settings.connect_timeout_s
        delay_s = CONNECT_DELAY_S_MIN
        while True:
            try:
                self._socket = self._connect_once()
                try:
                    return self._open()
                except BaseException:
                    self._socket.close()
                    raise
            except (OSError, BrokerUnreachable) as error:
                if time.monotonic() + delay_s >= deadline:
                    raise BrokerUnreachable(
                        f"no connection to {settings.host}:{settings.port} within"
                        f" {settings.connect_timeout_s:g} s (options host, port, connectTimeout): {error}"
                    ) from error
            self._in.clear()
            self._answers.clear()
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, CONNECT_DELAY_S_MAX)

    def _connect_once(self) -> socket.socket:
        settings = self.settings
        raw = socket.create_connection((settings.host, settings.port), timeout=10)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
            raw = context.wrap_socket(raw, server_hostname=settings.host)
        raw.settimeout(settings.confirm_timeout_s)
        return raw

    def _open(self) -> None:
        settings = self.settings
        self._send_now(b"AMQP\x00\x00\x09\x01")
        self._wait_for((10, 10))
        # what the broker cannot do without: it says so by basic.cancel when a queue is deleted
        properties = {"product": "sluicemq-spark", "capabilities": {"consumer_cancel_notify": True}}
        login = f"\0{settings.username}\0{settings.password}"
        self._send_now(
            wire.method(
                0,
                10,
                11,
                wire.table(properties) + wire.short("PLAIN") + wire.long(login) + wire.short("en_US"),
            )
        )
        try:
            tune = wire.Reader(self._wait_for((10, 30)))
        except Refused as error:
            raise Refused(
                f"the broker at {settings.host}:{settings.port} does not let user {settings.username!r} in"
                f" (options username, password): {error}"
            ) from None
        tune.unpack("H")
        frame_max = tune.unpack("I") or FRAME_BYTES_MAX
        self.body_bytes_max = min(frame_max, FRAME_BYTES_MAX) - wire.FRAME_OVERHEAD_BYTES
        self._send_now(
            wire.method(0, 10, 31, struct.pack(">HIH", 1, self.body_bytes_max + wire.FRAME_OVERHEAD_BYTES, 0))
            + wire.method(0, 10, 40, wire.short(settings.vhost) + b"\0\0")
        )
        try:
            self._wait_for((10, 41))
        except Refused as error:
            raise Refused(f"{error} (option vhost)") from None
        self.call(20, 10, b"\0", answer=(20, 11))

    def close(self) -> None:
        """Say goodbye if that works."""
        try:
            self._out.clear()
            self._send_now(wire.method(0, 10, 50, struct.pack(">H", 200) + wire.short("done") + bytes(4)))
            self._socket.settimeout(2)
            self._wait_for((10, 51))
        except (OSError, Refused, BrokerUnreachable, wire.WireError):
            pass
        finally:
            self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # calls

    def call(self, class_id: int, method_id: int, arguments: bytes, *, answer: tuple[int, int]) -> bytes:
        """A synchronous method on the channel; gives the arguments of its answer."""
        self.flush()
        self._send_now(wire.method(CHANNEL, class_id, method_id, arguments))
        return self._wait_for(answer)

    def confirm_select(self) -> None:
        """Have publishes confirmed from now on."""
        self.call(85, 10, b"\0", answer=(85, 11))

    def declare(self, queue: str, *, passive: bool = False, exclusive: bool = False) -> tuple[str, int]:
        """Declare a queue in memory, or look at one (`passive`); gives name and message count."""
        flags = (1 if passive else 0) | (4 if exclusive else 0)
        answer = wire.Reader(
            self.call(50, 10, b"\0\0" + wire.short(queue) + bytes((flags,)) + wire.table({}), answer=(50, 11))
        )
        return answer.short(), answer.unpack("I")

    def consume(self, queue: str, *, no_ack: bool, arguments: Mapping[str, Any], prefetch: int = 0) -> None:
        """Begin to take deliveries of a queue into `deliveries`."""
        if prefetch:
            self.call(60, 10, struct.pack(">IHB", 0, prefetch, 0), answer=(60, 11))
        flags = 2 if no_ack else 0
        self.call(
            60,
            20,
            b"\0\0" + wire.short(queue) + wire.short("") + bytes((flags,)) + wire.table(arguments),
            answer=(60, 21),
        )

    def ack(self, delivery_tag: int, *, multiple: bool = True) -> None:
        """Acknowledge deliveries up to a tag."""
        self._send_now(wire.method(CHANNEL, 60, 80, struct.pack(">QB", delivery_tag, multiple)))

    def ask(self, address: str, headers: Mapping[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Publish to a control address and give the answer that comes back, as JSON."""
        reply_to, _ = self.declare("", exclusive=True)
        self.consume(reply_to, no_ack=True, arguments={})
        mark = uuid.uuid4().hex
        properties = {"headers": headers, "reply_to": reply_to, "correlation_id": mark}
        self.publish("", address, body, wire.encode_properties(properties))
        self.flush()
        deadline = time.monotonic() + self.settings.confirm_timeout_s
        while True:
            while self.deliveries:
                message = self.deliveries.popleft()
                if message.properties.get("correlation_id") == mark:
                    answer: dict[str, Any] = json.loads(message.body)
                    return answer
            if not self.poll(deadline - time.monotonic()):
                raise BrokerUnreachable(
                    f"no answer from {address} within {self.settings.confirm_timeout_s:g} s"
                    " (option confirmTimeout)"
                )

    def commit_offset(self, queue: str, group: str, offset: int) -> None:
        """Say that a group of a stream is done with everything up to an offset."""
        headers = {"x-group-id": group, "x-offset": offset}
        self.publish("", f"$queue/{queue}/$commit", b"", wire.encode_properties({"headers": headers}))

    # publishing

    def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: bytes, *, mandatory: bool = False
    ) -> None:
        """One message; it leaves with the next `flush` or when enough has come together."""
        head = wire.method(
            CHANNEL, 60, 40, b"\0\0" + wire.short(exchange) + wire.short(routing_key) + bytes((mandatory,))
        )
        parts = [head, wire.content_header(CHANNEL, len(body), properties)]
        for start in range(0, len(body), self.body_bytes_max):
            parts.append(wire.frame(wire.BODY, CHANNEL, body[start : start + self.body_bytes_max]))
        self.send(parts, 1)

    def send(self, parts: list[bytes], message_count: int) -> None:
        """Frames of whole messages, ready made; read confirms while too many are out."""
        self.published += message_count
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what has come together, reading whatever the broker says meanwhile."""
        if not self._out:
            return
        data = memoryview(b"".join(self._out))
        self._out = []
        self._out_bytes = 0
        self._socket.setblocking(False)
        try:
            while data:
                self._take(0)
                try:
                    data = data[self._socket.send(data) :]
                except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    self._wait_io(write=True)
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._socket.settimeout(self.settings.confirm_timeout_s)

    @property
    def unconfirmed(self) -> int:
        """Publishes that are not confirmed yet."""
        return self.published - self._confirmed - len(self._out_of_order)

    def wait_confirmed(self, unconfirmed_max: int = 0) -> None:
        """Wait until at most so many publishes are unconfirmed."""
        if self.unconfirmed <= unconfirmed_max:
            return
        self.flush()
        timeout_s = self.settings.confirm_timeout_s
        while self.unconfirmed > unconfirmed_max:
            before = self.unconfirmed
            if not self.poll(timeout_s) and self.unconfirmed == before:
                raise BrokerUnreachable(
                    f"{self.unconfirmed} publishes were not confirmed within {timeout_s:g} s"
                    " (option confirmTimeout)"
                )

    # reading

    def poll(self, timeout_s: float) -> bool:
        """Take in what the broker says within the time; whether it said anything."""
        try:
            return self._take(timeout_s)
        except OSError as error:
            raise self._lost(error) from error

    def _take(self, timeout_s: float) -> bool:
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0
        if not pending and not select.select([self._socket], [], [], max(0, timeout_s))[0]:
            return False
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        if not data:
            raise BrokerUnreachable("the broker closed the connection")
        self._in += data
        self._digest()
        return True

    def _wait_io(self, *, write: bool) -> None:
        timeout_s = self.settings.confirm_timeout_s
        if not any(select.select([self._socket], [self._socket] if write else [], [], timeout_s)):
            raise BrokerUnreachable(
                f"the broker took nothing for {timeout_s:g} s: it may be out of room (option confirmTimeout)"
            )

    def _wait_for(self, answer: tuple[int, int]) -> bytes:
        deadline = time.monotonic() + self.settings.confirm_timeout_s
        while True:
            while self._answers:
                found, arguments = self._answers.popleft()
                if found == answer:
                    return arguments
            if not self.poll(deadline - time.monotonic()):
                raise BrokerUnreachable(
                    f"the broker does not answer within {self.settings.confirm_timeout_s:g} s"
                )

    def _send_now(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable(
            f"the connection to {self.settings.host}:{self.settings.port} was lost: {error}"
        )

    def _digest(self) -> None:
        data = bytes(self._in)
        position = 0
        size = len(data)
        while size - position >= 7:
            kind, _, length = struct.unpack_from(">BHI", data, position)
            end = position + 7 + length
            if end >= size:
                break
            if data[end : end + 1] != wire.FRAME_END:
                raise wire.WireError("a frame of the broker does not end where it should")
            self._frame(kind, data[position + 7 : end])
            position = end + 1
        del self._in[:position]

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.METHOD:
            found = struct.unpack_from(">HH", payload)
            if found in (_ACK, _NACK):
                self._settled(found, *struct.unpack_from(">QB", payload, 4))
            elif found in (_DELIVER, _RETURN):
                self._content = (found, payload, -1, {}, [])
            elif found in (_CHANNEL_CLOSE, _CONNECTION_CLOSE):
                self._closed(found, payload)
            elif found == _CONSUMER_CANCEL:
                self.cancelled = wire.Reader(payload, 4).short()
            else:
                self._answers.append((found, payload[4:]))
        elif kind == wire.HEADER and self._content is not None:
            found, head, _, _, parts = self._content
            (body_bytes,) = struct.unpack_from(">Q", payload, 4)
            self._content = (found, head, body_bytes, wire.decode_properties(payload, 12), parts)
            if not body_bytes:
                self._delivered()
        elif kind == wire.BODY and self._content is not None:
            self._content[4].append(payload)
            if sum(map(len, self._content[4])) >= self._content[2]:
                self._delivered()

    def _delivered(self) -> None:
        assert self._content is not None
        found, head, _, properties, parts = self._content
        self._content = None
        reader = wire.Reader(head, 4)
        if found == _RETURN:
            code, text = reader.unpack("H"), reader.short()
            reader.short()
            raise Refused(
                f"nobody takes messages with routing key {reader.short()!r}: {code} {text} (options queue,"
                " routingKey, mandatory)"
            )
        reader.position += 1 + head[4]  # the consumer's tag
        tag = reader.unpack("Q")
        reader.position += 1
        address = head[reader.position :]
        if address != self._address[0]:  # of one stream most often the same
            self._address = (address, reader.short(), reader.short())
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        self.deliveries.append(Message(tag, self._address[1], self._address[2], properties, body))

    def _settled(self, found: tuple[int, int], tag: int, multiple: int) -> None:
        if found == _NACK:
            raise Refused(
                "the broker refused a message (basic.nack): the queue is full, or a message_id came again"
                " with another body (delivery idempotent)"
            )
        if multiple:
            self._confirmed = max(self._confirmed, tag)
            self._out_of_order = {other for other in self._out_of_order if other > tag}
        elif tag == self._confirmed + 1:
            self._confirmed = tag
        else:
            self._out_of_order.add(tag)
        while self._confirmed + 1 in self._out_of_order:
            self._confirmed += 1
            self._out_of_order.discard(self._confirmed)

    def _closed(self, found: tuple[int, int], payload: bytes) -> None:
        reader = wire.Reader(payload, 4)
        code, text = reader.unpack("H"), reader.short()
        answer = wire.method(CHANNEL, 20, 41) if found == _CHANNEL_CLOSE else wire.method(0, 10, 51)
        try:
            self._socket.sendall(answer)
        except OSError:
            pass
        if code == 320:
            raise BrokerUnreachable(f"the broker is stopping: {text}")
        raise Refused(f"{code} {text}")
