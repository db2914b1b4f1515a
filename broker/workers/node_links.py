"""Connections between nodes: each end shows that it knows the secret, then a link or a client goes over it.

First the asking end says what it wants, with a nonce; the other one answers with its own nonce and its proof,
an HMAC-SHA256 of all of that; then comes the proof of the asking end. Who listens on the way learns nothing
that opens another connection, but sees and may change what follows: where that may be, TLS is to be used.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import structlog

from broker.workers.client_relay import Relayed
from broker.workers.node_side import NodeSide
from broker.workers.socket_passing import Take, Told, told_bytes, told_of
from config import limits
from storage.errors import StorageError

_log: Final = structlog.get_logger("sluicemq.nodes")

LINK: Final = 1
CLIENT: Final = 2

_MAGIC: Final = b"SLQ1"
_NONCE_BYTES: Final = 16
_WANTED: Final = struct.Struct("<4sBII16s")  # magic, LINK or CLIENT, from and to which shard, nonce
_ANSWER: Final = struct.Struct("<16s32s")  # nonce, proof
_PROOF_BYTES: Final = 32
_TAKEN: Final = b"\x01"
_ABOUT: Final = struct.Struct("<II")  # bytes that tell of the client, and of what it has said


class Wanted(NamedTuple):
    """What a connection is for: LINK or CLIENT, from the worker of one shard to that of another."""

    purpose: int
    asking: int
    asked: int


class _Talk(asyncio.Protocol):
    """Reads the first bytes of a connection, whose protocol is another one afterwards."""

    def __init__(self, begun: Callable[[_Talk], None] = lambda talk: None) -> None:
        self._begun = begun
        self._read = bytearray()
        self._wanted_bytes = 0
        self._waiting: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._begun(self)

    def data_received(self, data: bytes) -> None:
        self._read += data
        if len(self._read) > limits.LINK_GREETING_BYTES_MAX:
            self.transport.pause_reading()
        self._look()

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionResetError("the other node ended the connection"))
        self._waiting = None

    def _look(self) -> None:
        if self._waiting is not None and len(self._read) >= self._wanted_bytes and not self._waiting.done():
            self._waiting.set_result(None)

    async def read(self, count: int) -> bytes:
        """Return so many bytes. Raises ConnectionResetError."""
        self._wanted_bytes = count
        self._waiting = asyncio.get_running_loop().create_future()
        self._look()
        if self.transport.is_closing() and not self._waiting.done():
            self._waiting = None
            raise ConnectionResetError("the other node ended the connection")
        await self._waiting
        self._waiting = None
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    def rest(self) -> bytes:
        """Return what was read beyond that."""
        rest = bytes(self._read)
        self._read.clear()
        return rest

    def hand_over(self, protocol: asyncio.Protocol) -> None:
        """Have another protocol go on with the connection."""
        rest = self.rest()
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        if rest:
            protocol.data_received(rest)


def _proof(secret: bytes, who: bytes, wanted: bytes, nonce: bytes) -> bytes:
    return hmac.digest(secret, who + wanted + nonce, "sha256")


async def _connected(side: NodeSide, place: tuple[str, int], wanted: Wanted) -> _Talk:
    """Connect to a worker of another node, which has shown by then that it is one. Raises OSError."""
    host, port = place
    loop = asyncio.get_running_loop()
    _, talk = await loop.create_connection(
        _Talk, host, port, ssl=side.asking, server_hostname=host if side.asking is not None else None
    )
    try:
        said = _WANTED.pack(_MAGIC, *wanted, secrets.token_bytes(_NONCE_BYTES))
        talk.transport.write(said)
        nonce, proof = _ANSWER.unpack(await talk.read(_ANSWER.size))
        if not hmac.compare_digest(proof, _proof(side.secret, b"asked", said, nonce)):
            raise ConnectionRefusedError(f"{host}:{port} does not know the secret of this cluster")
        talk.transport.write(_proof(side.secret, b"asking", said, nonce))
    except BaseException:
        talk.transport.abort()
        raise
    return talk


async def connect_link(
    side: NodeSide, place: tuple[str, int], asking: int, asked: int, link: asyncio.Protocol
) -> None:
    """Have a link go to the worker of a shard at another node. Raises OSError, TimeoutError."""
    async with asyncio.timeout(limits.LINK_GREETING_TIMEOUT_S):
        talk = await _connected(side, place, Wanted(LINK, asking, asked))
    talk.hand_over(link)


async def connect_client(
    side: NodeSide, asking: int, asked: int, told: Told, said: bytes
) -> Callable[[asyncio.Protocol], None]:
    """Have the worker of a shard at another node serve a client; one that is not there has so much time to
    come. Gives what is to be called with the protocol that goes on. Raises OSError, TimeoutError.
    """
    async with asyncio.timeout(limits.CLIENT_PASSING_TIMEOUT_S):
        while True:
            place = side.peers.place_of(asked)
            if place is None:
                raise ConnectionRefusedError(f"shard {asked} is at no other node")
            try:
                return await _client_connected(side, place, Wanted(CLIENT, asking, asked), told, said)
            except ConnectionError:
                await asyncio.sleep(limits.WORKER_CONNECT_INTERVAL_MS / 1000)


async def _client_connected(
    side: NodeSide, place: tuple[str, int], wanted: Wanted, told: Told, said: bytes
) -> Callable[[asyncio.Protocol], None]:
    talk = await _connected(side, place, wanted)
    try:
        about = told_bytes(told)
        talk.transport.write(_ABOUT.pack(len(about), len(said)) + about + said)
        if await talk.read(1) != _TAKEN:
            raise ConnectionResetError("the other worker did not take the client")
    except BaseException:
        talk.transport.abort()
        raise
    return talk.hand_over


class NodeListener:
    """Listens for workers of other nodes. `on_client` takes the clients that they pass on; None: none
    are taken.
    """

    def __init__(self, side: NodeSide, number: int, make: Callable[[], asyncio.Protocol]) -> None:
        """`make` gives the serving end of a link."""
        self._side = side
        self._number = number
        self._make = make
        self.on_client: Take | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Listen from now on. Raises StorageError: without links there is no shard."""
        host, port = self._side.host, self._side.first_port + self._number
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Talk(self._begun), host, port, ssl=self._side.accepting, reuse_address=True
            )
        except OSError as error:
            raise StorageError(f"cluster.listen: cannot listen at {host}:{port}: {error.strerror}") from error

    def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    def _begun(self, talk: _Talk) -> None:
        if len(self._tasks) >= limits.LINK_GREETINGS_MAX:
            talk.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._greet(talk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _greet(self, talk: _Talk) -> None:
        peer = talk.transport.get_extra_info("peername")
        try:
            async with asyncio.timeout(limits.LINK_GREETING_TIMEOUT_S):
                wanted = await self._asked(talk)
                if wanted.purpose == CLIENT:
                    await self._take_client(talk)
                    return
            talk.hand_over(self._make())
        except (OSError, TimeoutError, ValueError) as error:
            talk.transport.abort()
            reason = str(error) or "it says nothing"
            _log.warning("node.refused", peer=str(peer and peer[0]), reason=reason)

    async def _asked(self, talk: _Talk) -> Wanted:
        """Return what is wanted, once it is shown that who wants it may. Raises OSError, ValueError."""
        said = await talk.read(_WANTED.size)
        magic, purpose, asking, asked, _ = _WANTED.unpack(said)
        if magic != _MAGIC or purpose not in (LINK, CLIENT):
            raise ValueError("what is said here is not what nodes say to each other")
        if asked != self._number:
            raise ValueError(f"shard {asked} is wanted, and shard {self._number} is here")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        talk.transport.write(_ANSWER.pack(nonce, _proof(self._side.secret, b"asked", said, nonce)))
        proof = await talk.read(_PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(self._side.secret, b"asking", said, nonce)):
            raise ValueError("it does not know the secret of this cluster")
        return Wanted(purpose, asking, asked)

    async def _take_client(self, talk: _Talk) -> None:
        about_bytes, said_bytes = _ABOUT.unpack(await talk.read(_ABOUT.size))
        if about_bytes + said_bytes > limits.LINK_GREETING_BYTES_MAX:
            raise ValueError("a client that is passed on has said too much")
        told = told_of(await talk.read(about_bytes))
        said = await talk.read(said_bytes)
        own, others = socket.socketpair()
        own.setblocking(False)
        others.setblocking(False)
        way = Relayed(talk.transport, self._side.has_lease)
        await asyncio.get_running_loop().create_connection(lambda: way, sock=own)
        if self.on_client is None:
            others.close()
            raise ConnectionRefusedError("a client is passed on, and none are taken")
        talk.transport.write(_TAKEN)
        talk.hand_over(way.other)
        self.on_client(others, told, said)
