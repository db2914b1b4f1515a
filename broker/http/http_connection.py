"""One HTTP/1.1 connection: uvicorn's, with bounds on what it may send before anybody looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from uvicorn.server import ServerState

from broker.network.tls.gate import certificate_names
from config import limits

CERTIFICATE: Final = "certificate"
"""Where in a request's state stand the names of the client's certificate, if one was verified."""

_UPGRADE_HEADERS: Final = frozenset((b"connection", b"upgrade", b"http2-settings"))


class HttpConnection(HttpToolsProtocol):
    """Calls `lost` once the connection is gone, also after it became a WebSocket.

    Who sends more header than `limits.HTTP_HEAD_BYTES_MAX`, or takes longer over it than
    `limits.HTTP_HEAD_TIMEOUT_S`, is sent away.
    """

    def __init__(
        self,
        config: Config,
        state: ServerState,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, state, {}, loop)
        self._lost = lost
        self._head_bytes = 0
        self._chunk_bytes = 0
        self._pending_bytes = 0  # of a header line that has come in part, since the chunk it began in
        self._head_deadline: asyncio.TimerHandle | None = None
        self.parser = cast(httptools.HttpRequestParser, _Parser(self))
        made = partial(WebSocketConnection, lost=lost)
        self.ws_protocol_class = cast(type[asyncio.Protocol], made)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        names = certificate_names(transport.get_extra_info("ssl_object"))
        if names:
            self.app_state[CERTIFICATE] = names
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)
        self._lost()

    def data_received(self, data: bytes) -> None:
        self._chunk_bytes = len(data)
        super().data_received(data)
        self._pending_bytes += self._chunk_bytes
        awaits_head = self._head_deadline is not None
        is_too_long = self._head_bytes > limits.HTTP_HEAD_BYTES_MAX or (
            awaits_head and self._pending_bytes > limits.HTTP_HEAD_BYTES_MAX
        )
        if is_too_long and not self.transport.is_closing():
            self.send_400_response("The header of the request is too long.")

    def on_message_begin(self) -> None:
        """Take the beginning of a request."""
        self._head_bytes = self._chunk_bytes = self._pending_bytes = 0
        super().on_message_begin()
        if self._head_deadline is None:
            self._await_head()

    def on_url(self, url: bytes) -> None:
        """Take some of the target."""
        if self._takes(len(url)):
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line of the header."""
        if self._takes(len(name) + len(value)):
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin what is asked for: the header is there."""
        self._head_is_there()
        if self._head_bytes <= limits.HTTP_HEAD_BYTES_MAX and not self.wants_another_protocol:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take some of the body."""
        if self._head_bytes <= limits.HTTP_HEAD_BYTES_MAX:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """Take the end of the request."""
        if self._head_bytes <= limits.HTTP_HEAD_BYTES_MAX and not self.wants_another_protocol:
            super().on_message_complete()

    @property
    def wants_another_protocol(self) -> bool:
        """Whether the request offers to go on in a protocol not spoken here, as HTTP/2 without TLS."""
        return bool(self.parser.should_upgrade() and self._get_upgrade() and not self._should_upgrade())

    def head_without_upgrade(self) -> bytes:
        """Return the head of the request without that offer, which a server may ignore (RFC 9110 7.8)."""
        lines = [
            self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()
        ]
        lines += [name + b": " + value for name, value in self.headers if name not in _UPGRADE_HEADERS]
        if not self.parser.should_keep_alive():
            lines.append(b"connection: close")
        return b"\r\n".join([*lines, b"", b""])

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        self.transport.abort()

    def _takes(self, byte_count: int) -> bool:
        self._head_bytes += byte_count
        return self._head_bytes <= limits.HTTP_HEAD_BYTES_MAX

    def _await_head(self) -> None:
        self._head_deadline = self.loop.call_later(limits.HTTP_HEAD_TIMEOUT_S, self._give_up)

    def _head_is_there(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        if not self.transport.is_closing():
            self.transport.close()


class _Parser:
    """The parser of a connection's requests. What follows a head that offers another protocol is no request
    to `httptools`; it begins anew with a head that does not, where the offer is not taken.
    """

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._parser = httptools.HttpRequestParser(connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse the next octets; raises `HttpParserUpgrade` for a WebSocket."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                connection = self._connection
                if not connection.wants_another_protocol:
                    raise
                data = connection.head_without_upgrade() + data[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(connection)
            else:
                return


class WebSocketConnection(WSProtocol):
    """A connection that became a WebSocket; calls `lost` once it is gone."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        lost: Callable[[], None],
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._lost()

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        self.transport.abort()
