"""The header by which a proxy says where a connection comes from, read before anything else of it."""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol, runtime_checkable

from broker.engine.shard_ending import resolve
from config import limits
from protocols.proxy import HEADER_BYTES_MAX, ProxyError, decode_header


@runtime_checkable
class Proxied(Protocol):
    """The driver of a connection that can be told that it comes from elsewhere than the socket says."""

    def come_from(self, peer: str) -> None:
        """Take the peer as `host:port`, before `connection_made`."""


async def read_header(connection: socket.socket) -> str:
    """Return the peer that a proxy names, "" if it names none; what follows the header stays in the socket.

    Raises ConnectionError for anything else than a header, TimeoutError.
    """
    return await asyncio.wait_for(_read_header(connection), limits.PROXY_HEADER_TIMEOUT_S)


async def _read_header(connection: socket.socket) -> str:
    loop = asyncio.get_running_loop()
    taken = b""
    while True:
        # looked at first: bytes behind the header are not for us
        size = await _readable_bytes(loop, connection)
        seen = taken + connection.recv(size, socket.MSG_PEEK)
        if len(seen) == len(taken):
            raise ConnectionAbortedError("the proxy hung up")
        try:
            found = decode_header(seen)
        except ProxyError as error:
            raise ConnectionAbortedError(str(error)) from None
        end = len(seen) if found is None else found[0]
        taken += connection.recv(end - len(taken))
        if found is not None:
            return found[1]


async def _readable_bytes(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> int:
    """Wait for bytes; how many to look at."""
    readable = loop.create_future()
    loop.add_reader(connection, resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    return HEADER_BYTES_MAX
