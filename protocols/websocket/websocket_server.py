"""The server's side of a WebSocket that carries the bytes of another protocol in binary frames."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import RemoteProtocolError

NORMAL: Final = int(CloseReason.NORMAL_CLOSURE)

_ANY_ORIGIN: Final = "*"


@dataclass(eq=False, repr=False, slots=True)
class WebSocketServer:
    """One connection, for requests for `path` that offer one of `subprotocols`, of which the first is best.
    `origins` are those of pages that may connect beside pages of the host they connect to; `*`: of any.

    `output` are bytes to write; `is_open`: the handshake is done; `closed`: nothing more
    is taken, the connection is to be closed once `output` is written. `reason`: why it was refused, or ended
    over what the client sent. `asked_for`: the host that a page asked for which is only let in because it
    stands at that host; it may have had its own name changed into the broker's address.
    """

    _path: str
    _subprotocols: Sequence[str]
    _origins: Sequence[str] = ()
    _connection: WSConnection = field(init=False)
    output: list[bytes] = field(default_factory=list, init=False)
    is_open: bool = field(default=False, init=False)
    closed: bool = field(default=False, init=False)
    reason: str = field(default="", init=False)
    asked_for: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self._connection = WSConnection(ConnectionType.SERVER)

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes from the client; gives what it sent in binary frames. Never raises."""
        found: list[bytes] = []
        try:
            self._connection.receive_data(data)
            for event in self._connection.events():
                self._on_event(event, found)
                if self.closed:
                    break
        except RemoteProtocolError as error:
            self._fail(error)
        return found

    def send(self, data: bytes) -> bytes:
        """Encode the binary frame of some bytes, to be written behind `output`."""
        return self._connection.send(BytesMessage(data))

    def close(self, code: int) -> None:
        """Say goodbye; the client's own word ends the connection."""
        if self.is_open and not self.closed:
            self.is_open = False
            self.output.append(self._connection.send(CloseConnection(code)))
        else:
            self.closed = True

    def _on_event(self, event: Event, found: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            found.append(bytes(event.data))
        elif isinstance(event, Request):
            self._on_request(event)
        elif isinstance(event, Ping):
            self.output.append(self._connection.send(event.response()))
        elif isinstance(event, TextMessage):  # [MQTT-6.0.0-1]
            self._end(CloseReason.UNSUPPORTED_DATA, "text frames are not taken")
        elif isinstance(event, CloseConnection):
            if self.is_open:
                self.output.append(self._connection.send(event.response()))
            self.is_open = False
            self.closed = True

    def _on_request(self, request: Request) -> None:
        if request.target.partition("?")[0] != self._path:
            self._reject(404, f"this port serves {self._path}")
        elif not self._is_welcome(request):
            self._reject(403, "pages of this origin may not connect")
        else:
            offered = [name for name in self._subprotocols if name in request.subprotocols]
            if not offered:  # [MQTT-6.0.0-3]
                self._reject(400, f"subprotocol {self._subprotocols[0]} is wanted")
                return
            self.output.append(self._connection.send(AcceptConnection(subprotocol=offered[0])))
            self.is_open = True

    def _is_welcome(self, request: Request) -> bool:
        """Return whether the page that asks may connect; a client that is no browser says no origin (RFC
        6455, 10.2).
        """
        origin = next((value for name, value in request.extra_headers if name.lower() == b"origin"), None)
        if origin is None or _ANY_ORIGIN in self._origins:
            return True
        text = origin.decode("latin-1")
        if text in self._origins:
            return True
        host = _host_of(text)
        if not host or host != _host_of(f"//{request.host}"):
            return False
        self.asked_for = host
        return True

    def _reject(self, status: int, reason: str) -> None:
        body = f"{reason}\n".encode()
        headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
        send = self._connection.send
        self.output.append(send(RejectConnection(headers=headers, status_code=status, has_body=True)))
        self.output.append(send(RejectData(body)))
        self.reason = reason
        self.closed = True

    def _end(self, code: int, reason: str) -> None:
        self.output.append(self._connection.send(CloseConnection(code, reason)))
        self.is_open = False
        self.reason = reason
        self.closed = True

    def _fail(self, error: RemoteProtocolError) -> None:
        """Refuse a client that broke the rules of WebSocket, or speaks something else."""
        self.reason = str(error)
        if self.is_open or isinstance(error.event_hint, CloseConnection):
            self._end(CloseReason.PROTOCOL_ERROR, "not as RFC 6455 has it")
            self.reason = str(error)
            return
        if isinstance(error.event_hint, RejectConnection):
            self._reject(error.event_hint.status_code, "a WebSocket handshake is wanted")
        self.closed = True


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
