"""Clients that belong to one of several workers: they are served there, whichever accepted them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast

import structlog

from broker.network.listening import Listeners
from broker.network.tls.gate import certificate_names
from broker.network.transport import Transport, peer_text
from broker.workers.client_relay import Relayed
from broker.workers.node_links import NodeListener, connect_client
from broker.workers.socket_passing import Arrivals, Told, pass_on
from broker.workers.worker_place import WorkerPlace
from config import limits

_log: Final = structlog.get_logger("sluicemq.workers")

FindHome = Callable[[bytes], int | None]
"""Finds the worker that a client belongs to by what it has said; None: it has to say more."""


class Answers(NamedTuple):
    """What a client is answered that is not led to its worker, by what it has said.

    `unavailable`: that this one is not there. `redirection`: where else it is to go; nothing if it is a
    client that cannot be told so.
    """

    unavailable: Callable[[bytes], bytes]
    redirection: Callable[[bytes, str], bytes]


class ClientHomes:
    """The way of clients to the worker that they belong to, and from other workers to this one.

    `gates` are those of clients that are not served here, or not yet; `is_stopped`: nobody is any more.
    """

    def __init__(
        self, place: WorkerPlace, listeners: Listeners, node_listener: NodeListener | None = None
    ) -> None:
        """`node_listener` takes the clients that other nodes pass on."""
        self.place = place
        self.gates: set[HomeGate] = set()
        self.is_stopped = False
        self._listeners = listeners
        self._makers: dict[str, Callable[[Callable[[], None]], Transport]] = {}
        self._arrivals = Arrivals(place.run_directory, place.number, self.take)
        self._node_listener = node_listener

    def leading(
        self,
        listener: str,
        make: Callable[[Callable[[], None]], Transport],
        find_home: FindHome,
        unavailable: Callable[[bytes], bytes],
        redirection: Callable[[bytes, str], bytes],
        *,
        is_framed: bool,
    ) -> Callable[[Callable[[], None]], HomeGate]:
        """Return what leads the clients of a listener home; `make` is for those that are at home here.
        `is_framed`: what comes by the socket is more than what they say. `unavailable` and `redirection` are
        those of `Answers`.
        """
        answers = Answers(unavailable, redirection)
        self._makers[listener] = make
        return partial(HomeGate, self, listener, make, find_home, answers, is_framed)

    def begin(self) -> None:
        """Take clients that other workers accepted."""
        self._arrivals.begin()
        if self._node_listener is not None:
            self._node_listener.on_client = self.take
        if self.place.node is not None:
            self.place.node.peers.on_moved.append(self._moved)

    def stop(self) -> None:
        """Take no more; who is on the way to another worker, or comes from now on, is refused."""
        self.is_stopped = True
        self._arrivals.stop()
        if self._node_listener is not None:
            self._node_listener.on_client = None
        for gate in list(self.gates):
            gate.stop()

    def _moved(self, number: int) -> None:
        """End the ways of clients to where a shard was."""
        for gate in list(self.gates):
            gate.moved(number)

    def take(self, connection: socket.socket, told: Told, said: bytes) -> None:
        """Serve a client that another worker accepted."""
        make = self._makers.get(told.listener)
        if make is None:
            connection.close()
            return
        self._listeners.adopt(connection, told.peer, lambda lost: _Arrived(make(lost), told, said))


class _Arrived(asyncio.Protocol):
    """Gives the transport of a client what it said at another worker, before anything else."""

    def __init__(self, inner: Transport, told: Told, said: bytes) -> None:
        self._inner = inner
        self._told = told
        self._said = said

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        inner, told = self._inner, self._told
        inner.come_from(told.peer)
        inner.ask_for(told.asked_for)
        inner.certified_by(told.certificate_names)
        cast(asyncio.Transport, transport).set_protocol(inner)
        inner.connection_made(transport)
        inner.data_received(self._said)


class HomeGate(asyncio.Protocol):
    """Listens to the first words of a client, then has it served: here, or where it belongs.

    A plain connection leaves this worker. What comes through TLS or in frames is decoded here, and relayed.
    Implements `broker.network.proxy_protocol.Proxied`.
    """

    def __init__(
        self,
        homes: ClientHomes,
        listener: str,
        make: Callable[[Callable[[], None]], Transport],
        find_home: FindHome,
        answers: Answers,
        is_framed: bool,
        lost: Callable[[], None],
    ) -> None:
        self._homes = homes
        self._place = homes.place
        self._listener = listener
        self._find_home = find_home
        self._answers = answers
        self._is_framed = is_framed
        self._inner = make(lost)
        self._lost = lost
        self._peer = ""
        self._asked_for = ""
        self._said = b""
        self._is_begun = False
        self._patience: asyncio.TimerHandle | None = None
        self._passing: asyncio.Task[None] | None = None
        self._relay: Relayed | None = None
        self._home = -1
        self._transport: asyncio.Transport

    def come_from(self, peer: str) -> None:
        self._peer = peer
        self._inner.come_from(peer)

    def ask_for(self, host: str) -> None:
        """Note that the peer is a page of a browser, which asked for that host."""
        self._asked_for = host
        self._inner.ask_for(host)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a peer that connected; its first words have so much time."""
        self._homes.gates.add(self)
        self._transport = cast(asyncio.Transport, transport)
        self._peer = self._peer or peer_text(transport.get_extra_info("peername"))
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(limits.MQTT_HANDSHAKE_TIMEOUT_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Take what the client says."""
        if self._is_begun:
            self._inner.data_received(data)
        elif self._relay is not None:
            self._relay.other.data_received(data)
        elif self._passing is not None:
            self._said += data
        else:
            self._said += data
            home = self._find_home(self._said)
            if home is None:
                return
            self._home = home
            self._wait_no_more()
            if self._homes.is_stopped:
                self._refuse("it is ending")
            elif home == self._place.number:
                self._begin()
            else:
                self._transport.pause_reading()
                self._passing = asyncio.get_running_loop().create_task(self._pass_on(home))

    def eof_received(self) -> bool:
        """Take the end of what the peer sends."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the transport, whatever the cause."""
        self._homes.gates.discard(self)
        self._wait_no_more()
        if self._is_begun:
            self._inner.connection_lost(exc)
            return
        if self._relay is not None:
            self._relay.other.connection_lost(exc)
        self._lost()

    def pause_writing(self) -> None:
        """Note that the client reads too slowly."""
        if self._is_begun:
            self._inner.pause_writing()
        elif self._relay is not None:
            self._relay.other.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client caught up."""
        if self._is_begun:
            self._inner.resume_writing()
        elif self._relay is not None:
            self._relay.other.resume_writing()

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _begin(self) -> None:
        """Have the client served here."""
        self._homes.gates.discard(self)
        self._is_begun = True
        if not self._is_framed:  # nothing comes by this gate any more
            self._transport.set_protocol(self._inner)
        self._inner.connection_made(self._transport)
        said, self._said = self._said, b""
        self._inner.data_received(said)

    def stop(self) -> None:
        """Refuse the client if it is on its way to another worker: it would not arrive."""
        if self._passing is not None and not self._passing.done():
            self._passing.cancel()
            self._refuse("this one is ending")

    def moved(self, number: int) -> None:
        """End the way to where a shard was."""
        if self._home == number and self._relay is not None and self._relay.near is not None:
            self._relay.near.abort()

    async def _pass_on(self, home: int) -> None:
        """Pass the client on to its worker, or the end of a relay."""
        transport, directory, node = self._transport, self._place.run_directory, self._place.node
        redirection = self._redirection(self._said)
        if redirection:
            transport.write(redirection)
            transport.close()
            return
        secured = transport.get_extra_info("ssl_object")
        told = Told(self._listener, self._peer, certificate_names(secured), self._asked_for)
        has_lease = None if node is None else node.has_lease
        relay = Relayed(transport, has_lease, partial(self._answer_to, self._said))
        try:
            if node is not None and node.peers.place_of(home) is not None:
                (await connect_client(node, self._place.number, home, told, self._said))(relay)
                self._relay_by(relay)
                return
            if secured is None and not self._is_framed:
                await pass_on(directory, home, transport.get_extra_info("socket"), told, self._said)
                transport.abort()  # the other worker has the connection
                return
            own, others = socket.socketpair()
            with others:
                try:
                    await pass_on(directory, home, others, told, self._said)
                except BaseException:
                    own.close()
                    raise
            await asyncio.get_running_loop().create_connection(lambda: relay, sock=own)
        except (OSError, TimeoutError) as error:
            self._refuse(str(error) or "it does not answer")
            return
        self._relay_by(relay)

    def _refuse(self, reason: str) -> None:
        """Tell the client that its worker is not there."""
        _log.warning("client.not_passed", peer=self._peer, worker=self._home, reason=reason)
        self._transport.write(self._answer_to(self._said))
        self._transport.close()

    def _answer_to(self, said: bytes) -> bytes:
        """Return what the client is told whose worker is not there, or moves."""
        return self._redirection(said) or self._answers.unavailable(said)

    def _redirection(self, said: bytes) -> bytes:
        """Return what sends the client to the node that has its worker; nothing if it is to be served by way
        of this one.
        """
        node = self._place.node
        reference = "" if node is None else node.peers.reference_of(self._home)
        return self._answers.redirection(said, reference) if reference else b""

    def _relay_by(self, relay: Relayed) -> None:
        """Have what the client says from now on go to the worker that serves it."""
        if self._transport.is_closing():
            relay.other.connection_lost(None)
            return
        self._said = b""
        self._relay = relay
        self._transport.resume_reading()
