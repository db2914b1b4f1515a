"""The addresses of all listeners, taken once for several processes that will listen there."""

from __future__ import annotations

import errno
import socket
from typing import Final

import structlog

from broker.network.listening import AddressInUse, bound_unix, listen_error
from broker.network.tcp_ports import unlink_unix
from config.settings import HttpListenerSettings, ListenerSettings, ListenersSettings

_log: Final = structlog.get_logger("sluicemq.listening")


class ReservedPorts:
    """Sockets that are bound, and not listened at: others of this user may bind to the same ports, with
    SO_REUSEPORT, and get the connections. Unix sockets are `unix_sockets`, by listener, to be listened at.
    """

    def __init__(self, listeners: ListenersSettings) -> None:
        """Take the addresses. Raises ListenError; then none is taken."""
        self.unix_sockets: dict[str, socket.socket] = {}
        self._wanted = listeners
        self._sockets: list[socket.socket] = []
        self._ports: dict[str, int] = {}
        try:
            for name, listener in listeners.opened().items():
                self._take(name, listener)
        except BaseException:
            self.give_back()
            raise

    def _take(self, name: str, listener: ListenerSettings) -> None:
        try:
            port = _reserve(name, listener, self._sockets)
        except AddressInUse as error:
            if not isinstance(listener, HttpListenerSettings) or listener.is_port_wanted:
                raise
            _log.warning("listener.left_out", listener=name, reason=error.reason)
            return
        self._ports[name] = port
        if listener.unix_path:
            self.unix_sockets[name] = bound_unix(name, listener.unix_path)

    def in_settings(self, listeners: ListenersSettings) -> ListenersSettings:
        """Return the settings with the ports that were taken, as far as they name the same ones."""
        update: dict[str, ListenerSettings | None] = {}
        wanted = self._wanted.opened()
        for name, listener in listeners.opened().items():
            if name not in wanted or listener.port != wanted[name].port:
                continue  # needs a restart
            port = self._ports.get(name)
            update[name] = None if port is None else listener.model_copy(update={"port": port})
        return listeners.model_copy(update=update)

    def leave_ports(self) -> None:
        """Close the sockets of ports in a process that was forked, which binds its own."""
        for bound in self._sockets:
            bound.close()

    def give_back(self) -> None:
        """Give the addresses back."""
        self.leave_ports()
        for bound in self.unix_sockets.values():
            unlink_unix(bound)
            bound.close()


def _reserve(name: str, listener: ListenerSettings, taken: list[socket.socket]) -> int:
    """Bind a socket for each address that the listener's `bind` stands for; give the port."""
    try:
        found = socket.getaddrinfo(
            listener.bind, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise listen_error(name, (listener.bind, listener.port), error) from error
    port = listener.port
    for family, kind, protocol, _, address in dict.fromkeys(found):
        bound = socket.socket(family, kind, protocol)
        taken.append(bound)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        _bind(bound, name, (address[0], port, *address[2:]))
        port = bound.getsockname()[1]
    return port


def _bind(bound: socket.socket, name: str, address: tuple[object, ...]) -> None:
    """Bind where nobody is, and let others of this broker bind there from now on."""
    try:
        try:
            bound.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # connections of an earlier broker may linger there; with this, another broker that is just
            # starting could bind there, too
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
    except OSError as error:
        raise listen_error(name, address, error) from error
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
