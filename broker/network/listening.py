"""The listening sockets: taking the ports before anything else, letting in as many as there is room for."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from broker.access.address_limits import Addresses
from broker.clock import Clock
from broker.logs.log_pace import LogPace
from broker.network.proxy_protocol import Proxied, read_header
from broker.network.tcp_ports import bind_unix, unlink_unix
from broker.network.tls.contexts import TlsContexts
from broker.network.tls.gate import drive
from broker.network.transport import peer_text
from broker.process.descriptors import ConnectionRoom
from config import limits
from config.access_settings import AccessSettings
from config.settings import HttpListenerSettings, ListenerSettings

_log: Final = structlog.get_logger("sluicemq.listening")

MakeProtocol = Callable[[Callable[[], None]], asyncio.Protocol]
"""Makes what drives a connection; it has to call what it is given once the connection is lost."""

_KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, limits.TCP_KEEPALIVE_IDLE_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, limits.TCP_KEEPALIVE_INTERVAL_S),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, limits.TCP_KEEPALIVE_PROBES),
)
_NOTHING_TO_ACCEPT: Final = (errno.EAGAIN, errno.EINTR, errno.ECONNABORTED, errno.EPROTO)


class ListenError(OSError):
    """A listener cannot have its address; `reason` says why in words for an operator."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AddressInUse(ListenError):
    """Another process (or listener) has the address, with this port; 0: that of a Unix socket."""

    def __init__(self, reason: str, port: int) -> None:
        super().__init__(reason)
        self.port = port


class Listeners:
    """The listeners of one broker, by name.

    `bind` takes the ports, `open` lets clients in, `close` gives the ports back; then they can be bound anew.
    As many connections are let in at a time as `open` is given room for; any other is closed at once, which
    `refused_count` and one line a second in the log tell.
    """

    def __init__(
        self,
        settings: Mapping[str, ListenerSettings],
        clock: Clock,
        *,
        shares_ports: bool = False,
        unix_sockets: Mapping[str, socket.socket] | None = None,
    ) -> None:
        """`shares_ports`: other processes of this broker have the same ports. `unix_sockets`, by listener,
        are bound already, and lent.
        """
        self.refused_count = 0
        self._settings = settings
        self._clock = clock
        self._shares_ports = shares_ports
        self._unix_sockets = unix_sockets or {}
        self._sockets: dict[str, list[socket.socket]] = {}
        self._open_to: dict[socket.socket, tuple[str, MakeProtocol]] = {}
        self._let_in: dict[socket.socket, str] = {}  # with the address
        self._handing_over: set[asyncio.Task[None]] = set()
        self._room = ConnectionRoom(0, "")
        self._tls = TlsContexts({})
        self._addresses = Addresses(AccessSettings())
        self._refusals = LogPace(limits.REFUSAL_LOG_INTERVAL_MS)
        self._failures = LogPace(limits.REFUSAL_LOG_INTERVAL_MS)
        self._shortages = LogPace(limits.REFUSAL_LOG_INTERVAL_MS)

    @property
    def ports(self) -> dict[str, int]:
        """The ports that `bind` took."""
        return {name: sockets[0].getsockname()[1] for name, sockets in self._sockets.items()}

    async def bind(self) -> None:
        """Take the addresses of all listeners. Raises ListenError; then none is taken.

        A listener whose port nobody chose, and somebody else has, stays closed.
        """
        try:
            for name, listener in self._settings.items():
                try:
                    self._sockets[name] = await _bound(name, listener, shares_port=self._shares_ports)
                except AddressInUse as error:
                    if not isinstance(listener, HttpListenerSettings) or listener.is_port_wanted:
                        raise
                    _log.warning("listener.left_out", listener=name, reason=error.reason)
                    continue
                if name in self._unix_sockets:
                    self._sockets[name].append(self._unix_sockets[name].dup())
        except BaseException:
            self.close()
            raise

    async def in_use(self) -> list[AddressInUse]:
        """Return the addresses that another program has, of all listeners; takes none. Raises ListenError."""
        found: list[AddressInUse] = []
        for name, listener in self._settings.items():
            try:
                for bound in await _bound(name, listener):
                    bound.close()
            except AddressInUse as error:
                if not isinstance(listener, HttpListenerSettings) or listener.is_port_wanted:
                    found.append(error)
        return found

    async def bind_within(self, timeout_s: float) -> None:
        """Bind as `bind`, waiting for addresses that are in use to become free."""
        deadline = self._clock.monotonic() + timeout_s
        while True:
            try:
                await self.bind()
                return
            except AddressInUse:
                if self._clock.monotonic() >= deadline:
                    raise
            await asyncio.sleep(limits.LISTEN_RETRY_MS / 1000)

    def open(
        self,
        makers: Mapping[str, MakeProtocol],
        room: ConnectionRoom,
        tls: TlsContexts | None = None,
        addresses: Addresses | None = None,
        besides: Collection[str] = (),
    ) -> None:
        """Let clients in, as many as there is room for, and as `addresses` may have. Who comes to a listener
        that is not among the `makers` waits for `let_wait_in`; of those `besides` another process has the
        clients until then. Raises ListenError.
        """
        self._room = room
        self._addresses = addresses or self._addresses
        self._tls = tls or TlsContexts({})
        self._listen(self._sockets.keys() - set(besides))
        self.let_wait_in(makers)

    def _listen(self, names: Iterable[str]) -> None:
        for name in names:
            for listening in self._sockets.get(name, ()):
                try:
                    listening.listen(limits.LISTEN_BACKLOG)
                except OSError as error:
                    raise listen_error(name, listening.getsockname(), error) from error

    def let_wait(self, names: Iterable[str]) -> None:
        """Have who comes to these listeners, which were none of this process, wait for `let_wait_in`."""
        self._listen(names)

    def let_wait_in(self, makers: Mapping[str, MakeProtocol]) -> None:
        """Let in who comes to these listeners, and who came since `open`; the kernel had them wait."""
        self._listen(makers)
        for name, maker in makers.items():
            for listening in self._sockets.get(name, ()):
                self._open_to[listening] = (name, maker)
                self._watch(listening)

    def close(self) -> None:
        """Give the ports back. Who was let in stays; `let_in` tells when nobody comes any more."""
        self.leave_out(list(self._sockets))

    def leave_out(self, names: Iterable[str]) -> None:
        """Give the ports of these back."""
        loop = asyncio.get_running_loop()
        for name in names:
            for listening in self._sockets.pop(name, ()):
                if self._open_to.pop(listening, None) is not None:
                    loop.remove_reader(listening)
                if name not in self._unix_sockets:
                    unlink_unix(listening)
                listening.close()

    async def let_in(self) -> None:
        """Return once all who were accepted are driven by what was made for them."""
        if self._handing_over:
            await asyncio.wait(self._handing_over)

    def _watch(self, listening: socket.socket) -> None:
        if listening in self._open_to:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        """Let in who waits, a bounded number, so that who is in has its turn."""
        for _ in range(limits.ACCEPTS_PER_TURN_MAX):
            try:
                connection, peer = listening.accept()
            except OSError as error:
                if error.errno not in _NOTHING_TO_ACCEPT:
                    self._pause(listening, error)
                return
            if len(self._let_in) >= self._room.connections_max:
                self._refuse(connection, peer, self._room.reason)
                continue
            host = str(peer[0]) if isinstance(peer, tuple) else ""
            refusal = self._addresses.enter(host, self._clock.monotonic())
            if refusal:
                self._refuse(connection, peer, refusal)
                continue
            connection.setblocking(False)
            _watch_for_silence(connection)
            self._let_in[connection] = host
            loop = asyncio.get_running_loop()
            lost = partial(self._lost, connection)
            name, maker = self._open_to[listening]
            context = self._tls.get(name)
            takes_plain = self._tls.takes_plain(name)
            make = partial(maker, lost)
            proxied = self._settings[name].is_proxied
            begins_with = (
                "tls.handshake_failed" if context is not None else "proxy.refused" if proxied else ""
            )
            task = loop.create_task(
                _drive(make, connection, context, takes_plain=takes_plain, is_proxied=proxied)
            )
            self._handing_over.add(task)
            task.add_done_callback(partial(self._handed_over, connection, peer, begins_with))

    def adopt(self, connection: socket.socket, peer: str, maker: MakeProtocol) -> None:
        """Let in a client that another worker accepted, as if it had come here."""
        host = peer.rpartition(":")[0]
        refusal = self._addresses.enter(host, self._clock.monotonic())
        if refusal or len(self._let_in) >= self._room.connections_max:
            if not refusal:
                self._addresses.leave(host)
            self._refuse(connection, peer, refusal or self._room.reason)
            return
        self._let_in[connection] = host
        make = partial(maker, partial(self._lost, connection))
        task = asyncio.get_running_loop().create_task(drive(make, connection))
        self._handing_over.add(task)
        task.add_done_callback(partial(self._handed_over, connection, peer, ""))

    def _handed_over(
        self, connection: socket.socket, peer: object, failure: str, task: asyncio.Task[None]
    ) -> None:
        """Note that the connection is driven, or could not be: `failure` names that where there is more to a
        connection than the socket.
        """
        self._handing_over.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        if failure and isinstance(error, OSError):
            self._note_failure(failure, peer, error)
        elif error is not None and not isinstance(error, OSError):  # that is a client who is gone already
            _log.error("connection.internal_error", exc_info=error)
        self._lost(connection)
        connection.close()

    def _note_failure(self, event: str, peer: object, error: OSError) -> None:
        count = self._failures.turn(self._clock.now_ms())
        if count:
            reason = getattr(error, "reason", "") or error.strerror or str(error) or type(error).__name__
            _log.warning(event, peer=peer_text(peer), reason=reason, count=count)

    def _lost(self, connection: socket.socket) -> None:
        host = self._let_in.pop(connection, None)
        if host is not None:
            self._addresses.leave(host)

    def _refuse(self, connection: socket.socket, peer: object, reason: str) -> None:
        connection.close()
        self.refused_count += 1
        count = self._refusals.turn(self._clock.now_ms())
        if count:
            _log.warning(
                "connection.refused",
                peer=peer_text(peer),
                count=count,
                reason=reason,
            )

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Leave waiting connections waiting, out of descriptors or memory, and look again a little later."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        loop.call_later(limits.ACCEPT_PAUSE_MS / 1000, self._watch, listening)
        count = self._shortages.turn(self._clock.now_ms())
        if count:
            _log.error("connection.not_accepted", reason=os.strerror(error.errno or 0), count=count)


async def _drive(
    make: Callable[[], asyncio.Protocol],
    connection: socket.socket,
    context: ssl.SSLContext | None,
    *,
    takes_plain: bool,
    is_proxied: bool,
) -> None:
    if is_proxied:
        make = partial(_proxied, make, await read_header(connection))
    await drive(make, connection, context, takes_plain=takes_plain)


def _proxied(make: Callable[[], asyncio.Protocol], peer: str) -> asyncio.Protocol:
    protocol = make()
    if peer and isinstance(protocol, Proxied):
        protocol.come_from(peer)
    return protocol


def _watch_for_silence(connection: socket.socket) -> None:
    """Have the kernel end a connection whose other end is gone without a word, whatever its keep alive."""
    with suppress(OSError):  # it is gone already
        for level, option, value in _KEEPALIVE:
            connection.setsockopt(level, option, value)


async def _bound(name: str, listener: ListenerSettings, *, shares_port: bool = False) -> list[socket.socket]:
    """Bind a socket for each address that the listener's `bind` stands for."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            listener.bind, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise listen_error(name, (listener.bind, listener.port), error) from error
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            bound = socket.socket(family, kind, protocol)
            sockets.append(bound)
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                bound.bind(address)
            except OSError as error:
                raise listen_error(name, address, error) from error
        if listener.unix_path:
            sockets.append(bound_unix(name, listener.unix_path))
    except BaseException:
        for bound in sockets:
            bound.close()
        raise
    return sockets


def bound_unix(name: str, path: str) -> socket.socket:
    """Bind the Unix socket of a listener. Raises ListenError."""
    try:
        return bind_unix(path)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(f"{name}: another process listens at {path}", 0) from error
        raise ListenError(f"{name}: {path}: {error.strerror or error}") from error


def listen_error(name: str, address: tuple[object, ...], error: OSError) -> ListenError:
    """Return the error that tells why a listener cannot have its address."""
    if error.errno == errno.EADDRINUSE:
        return AddressInUse(f"{name}: port {address[1]} of {address[0]} is in use", int(str(address[1])))
    return ListenError(f"{name}: port {address[1]} of {address[0]}: {error.strerror}")
