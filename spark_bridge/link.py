"""An AMQP 0.9.1 connection as bytes: the handshake, frames out and in, and how it ends.

Whatever the broker refuses is raised as `Refused` with the broker's own words, whatever the network does as
`BrokerUnreachable`.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections import deque
from typing import Final, Self

from spark_bridge import wire
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.settings import ConnectionSettings

CHANNEL: Final = 1
FRAME_BYTES_MAX: Final = 131_072
READ_BYTES: Final = 262_144
CONNECT_DELAY_S_MIN: Final = 0.2
CONNECT_DELAY_S_MAX: Final = 5.0
CONNECT_TRY_S_MAX: Final = 10.0
CONNECT_TRY_S_MIN: Final = 0.1
CONNECT_TRY_OF_SEVERAL_S_MAX: Final = 3.0
ANSWERED_LAST_MAX: Final = 64
CLOSE_TIMEOUT_S: Final = 2.0

NOT_PERMITTED: Final = 403
RIGHTS: Final = " (writing needs the permission write on the queue; reading needs read on it, and its group)"

ACK: Final = (60, 80)
NACK: Final = (60, 120)
RETURN: Final = (60, 50)
DELIVER: Final = (60, 60)
_CONNECTION_CLOSE: Final = (10, 50)
_CHANNEL_CLOSE: Final = (20, 40)
_CONSUMER_CANCEL: Final = (60, 30)


# which of several addresses answered last in this process: the next connection tries it first
_answered_last: dict[tuple[tuple[str, int], ...], tuple[str, int]] = {}


def _in_turn(addresses: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    last = _answered_last.get(addresses, addresses[0])
    return [last, *(address for address in addresses if address != last)]


class Content:
    """A message coming in: the method that announced it, its header, and the body as far as it came."""

    __slots__ = ("head", "header", "method", "missing_bytes", "parts")

    def __init__(self, method: tuple[int, int], head: bytes) -> None:
        self.method = method
        self.head = head
        self.header = b""
        self.missing_bytes = 0
        self.parts: list[bytes] = []

    def begin(self, header: bytes) -> bool:
        """Take the header; give whether the message is whole, for it has no body."""
        self.header = header
        (self.missing_bytes,) = struct.unpack_from(">Q", header, 4)
        return not self.missing_bytes

    def add(self, part: bytes) -> bool:
        """Take a part of the body; give whether it was the last."""
        self.parts.append(part)
        self.missing_bytes -= len(part)
        return self.missing_bytes <= 0


class Link:
    """One connection with one channel. What confirms and messages mean is for `settled` and `delivered`."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self.cancelled = ""
        self.body_bytes_max = FRAME_BYTES_MAX
        self._out: list[bytes] = []
        self._out_bytes = 0
        self.at = ""  # the address of the moment
        self._is_cut_off = False  # whether the last thing sent may be half a frame
        self._in = bytearray()
        self._content: Content | None = None
        self._answers: deque[tuple[tuple[int, int], bytes]] = deque()
        self._connect()

    def settled(self, method: tuple[int, int], tag: int, multiple: int) -> None:
        """Take the broker's confirm or refusal of publishes up to a tag."""

    def delivered(self, content: Content) -> None:
        """Take a whole message."""

    def taken(self, data: bytes, position: int) -> int:
        """Take several whole messages at once, if wanted; returns where the rest begins."""
        return position

    # life

    def _connect(self) -> None:
        """Try every address in turn, again and again, as long as the time allows."""
        settings = self.settings
        addresses = settings.addresses
        deadline = time.monotonic() + settings.connect_timeout_s
        delay_s = CONNECT_DELAY_S_MIN
        try_s_max = CONNECT_TRY_OF_SEVERAL_S_MAX if settings.others else CONNECT_TRY_S_MAX
        while True:
            for host, port in _in_turn(addresses):
                self.at = f"{host}:{port}"
                try_s = max(CONNECT_TRY_S_MIN, min(try_s_max, deadline - time.monotonic()))
                failed = self._try(host, port, try_s)
                if failed is None:
                    if settings.others:
                        if len(_answered_last) >= ANSWERED_LAST_MAX:
                            _answered_last.clear()
                        _answered_last[addresses] = host, port
                    return
            if time.monotonic() + delay_s >= deadline:
                tried = ", ".join(f"{host}:{port}" for host, port in addresses)
                raise BrokerUnreachable(
                    f"no connection to {tried} within {settings.connect_timeout_s:g} s"
                    f" (options host, port, connectTimeout): {failed}"
                ) from failed
            time.sleep(delay_s)
            delay_s = min(2 * delay_s, CONNECT_DELAY_S_MAX)

    def _try(self, host: str, port: int, try_s: float) -> Exception | None:
        """Open a connection to one address; gives why there is none. Raises Refused."""
        self._in.clear()
        self._answers.clear()
        try:
            self._socket = self._connect_once(host, port, try_s)
            try:
                self._open(try_s)
            except BaseException:
                self._socket.close()
                raise
        except (OSError, BrokerUnreachable) as error:
            return error
        return None

    def _connect_once(self, host: str, port: int, try_s: float) -> socket.socket:
        settings = self.settings
        raw = socket.create_connection((host, port), timeout=try_s)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.tls:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
            raw = context.wrap_socket(raw, server_hostname=host)
        raw.settimeout(settings.confirm_timeout_s)
        return raw

    def _open(self, try_s: float) -> None:
        settings = self.settings
        self._send_now(b"AMQP\x00\x00\x09\x01")
        self._wait_for((10, 10), try_s)
        # so that it says by basic.cancel when a queue is deleted
        # and why a login is refused
        capabilities = {"consumer_cancel_notify": True, "authentication_failure_close": True}
        properties = {"product": "sluicemq-spark", "capabilities": capabilities}
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
                f"the broker at {self.at} does not let user {settings.username!r} in"
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
        """Say goodbye if that works; never wait long for it."""
        if self._is_cut_off:
            return self._socket.close()
        try:
            self._out.clear()
            self._send_now(wire.method(0, 10, 50, struct.pack(">H", 200) + wire.short("done") + bytes(4)))
            self._wait_for((10, 51), CLOSE_TIMEOUT_S)
        except (OSError, Refused, BrokerUnreachable, wire.WireError):
            pass
        finally:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # frames

    def call(self, class_id: int, method_id: int, arguments: bytes, *, answer: tuple[int, int]) -> bytes:
        """Call a synchronous method on the channel; gives the arguments of its answer."""
        self.flush()
        self._send_now(wire.method(CHANNEL, class_id, method_id, arguments))
        return self._wait_for(answer)

    def flush(self) -> None:
        """Write what has come together, reading whatever the broker says meanwhile."""
        if not self._out:
            return
        data = memoryview(b"".join(self._out))
        self._out = []
        self._out_bytes = 0
        self._socket.setblocking(False)
        self._is_cut_off = True
        try:
            while data:
                self._take(0)
                try:
                    data = data[self._socket.send(data) :]
                except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    self._wait_io()
            self._is_cut_off = False
        except OSError as error:
            raise self._lost(error) from error
        finally:
            self._socket.settimeout(self.settings.confirm_timeout_s)

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

    def _wait_io(self) -> None:
        timeout_s = self.settings.confirm_timeout_s
        if not any(select.select([self._socket], [self._socket], [], timeout_s)):
            raise BrokerUnreachable(
                f"the broker took nothing for {timeout_s:g} s: it may be out of room (option confirmTimeout)"
            )

    def _wait_for(self, answer: tuple[int, int], timeout_s: float = 0) -> bytes:
        timeout_s = timeout_s or self.settings.confirm_timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            while self._answers:
                found, arguments = self._answers.popleft()
                if found == answer:
                    return arguments
            if not self.poll(deadline - time.monotonic()):
                raise BrokerUnreachable(f"the broker does not answer within {timeout_s:g} s")

    def _send_now(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def _lost(self, error: OSError) -> BrokerUnreachable:
        return BrokerUnreachable(f"the connection to {self.at} was lost: {error}")

    def _digest(self) -> None:
        data = bytes(self._in)
        position = 0
        size = len(data)
        while size - position >= 7:
            if self._content is None:
                position = self.taken(data, position)
                if size - position < 7:
                    break
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
            if found in (ACK, NACK):
                self.settled(found, *struct.unpack_from(">QB", payload, 4))
            elif found in (DELIVER, RETURN):
                self._content = Content(found, payload)
            elif found in (_CHANNEL_CLOSE, _CONNECTION_CLOSE):
                self._closed(found, payload)
            elif found == _CONSUMER_CANCEL:
                self.cancelled = wire.Reader(payload, 4).short()
            else:
                self._answers.append((found, payload[4:]))
        elif kind == wire.HEADER and self._content is not None:
            if self._content.begin(payload):
                self._end_content()
        elif kind == wire.BODY and self._content is not None and self._content.add(payload):
            self._end_content()

    def _end_content(self) -> None:
        content, self._content = self._content, None
        assert content is not None
        self.delivered(content)

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
        raise Refused(f"{code} {text}{RIGHTS if code == NOT_PERMITTED else ''}")
