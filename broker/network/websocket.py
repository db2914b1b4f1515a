"""Between a socket and a `Transport`: what is framed on the one side is plain bytes on the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import structlog

from broker.network.transport import Transport, peer_text
from broker.vhosts.hub import Hub
from config import limits
from protocols.websocket.websocket_server import NORMAL, WebSocketServer

_log: Final = structlog.get_logger("sluicemq.websocket")


class WebSocketGate(asyncio.Protocol):
    """Does the handshake, then has a `Transport` drive what the frames carry.

    Implements `broker.network.proxy_protocol.Proxied`.
    """

    def __init__(
        self,
        hub: Hub,
        make: Callable[[Callable[[], None]], Transport],
        make_server: Callable[[], WebSocketServer],
        lost: Callable[[], None],
    ) -> None:
        """`make` makes the transport, to be given `lost`, which is called once the connection is lost."""
        self._hub = hub
        self._inner = make(lost)
        self._lost = lost
        self._server = make_server()
        self._is_begun = False
        self._peer = ""
        self._patience: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def come_from(self, peer: str) -> None:
        self._peer = peer
        self._inner.come_from(peer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a peer that connected; its handshake has so much time."""
        self._transport = cast(asyncio.Transport, transport)
        self._peer = self._peer or peer_text(transport.get_extra_info("peername"))
        self._patience = self._hub.loop.call_later(limits.MQTT_HANDSHAKE_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the peer: a handshake, or frames."""
        server = self._server
        payloads = server.receive(data)
        if server.reason:
            _log.warning("websocket.closed", peer=self._peer, reason=server.reason)
        if server.output:
            self._transport.write(b"".join(server.output))
            server.output.clear()
        if server.is_open and not self._is_begun:
            self._begin()
        if payloads and self._is_begun:
            self._inner.data_received(payloads[0] if len(payloads) == 1 else b"".join(payloads))
        if server.closed:
            self._transport.close()

    def eof_received(self) -> bool:
        """Take the end of what the peer sends."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the transport, whatever the cause."""
        if self._patience is not None:
            self._patience.cancel()
        if self._is_begun:
            self._inner.connection_lost(exc)
        else:
            self._lost()

    def pause_writing(self) -> None:
        """Tell the protocol that the peer reads too slowly."""
        if self._is_begun:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Tell the protocol that the peer caught up."""
        if self._is_begun:
            self._inner.resume_writing()

    def _begin(self) -> None:
        self._is_begun = True
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._inner.ask_for(self._server.asked_for)
        self._inner.connection_made(FramedTransport(self._transport, self._server, self._hub.loop))


class FramedTransport(asyncio.Transport):
    """A transport whose bytes travel in frames. Closing says goodbye first."""

    def __init__(
        self, transport: asyncio.Transport, server: WebSocketServer, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__()
        self._transport = transport
        self._server = server
        self._loop = loop
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Frame and send some bytes."""
        if self._server.is_open:
            self._transport.write(self._server.send(bytes(data)))

    def close(self) -> None:
        """Close once the peer has said goodbye too, or had its time."""
        if self._is_closing:
            return
        self._is_closing = True
        server = self._server
        server.close(NORMAL)
        if server.output:
            self._transport.write(b"".join(server.output))
            server.output.clear()
        if server.closed:
            self._transport.close()
        else:
            self._loop.call_later(limits.GOODBYE_TIMEOUT_S, self._transport.abort)

    def abort(self) -> None:
        """Close without waiting for anything."""
        self._is_closing = True
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether the end was asked for, or came."""
        return self._is_closing or self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the socket."""
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set when the protocol is told that the peer reads too slowly."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how much the peer has not taken yet."""
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Take nothing more from the peer."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take something from the peer again."""
        self._transport.resume_reading()


def gate_maker(
    hub: Hub,
    make: Callable[[Callable[[], None]], Transport],
    subprotocols: Sequence[str],
    path: str,
    origins: Sequence[str],
) -> Callable[[Callable[[], None]], WebSocketGate]:
    """Return what lets in clients that speak one of `subprotocols` over WebSocket at `path`, from pages of
    these origins and the own one.
    """
    server = partial(WebSocketServer, path, subprotocols, origins)
    return partial(WebSocketGate, hub, make, server)
