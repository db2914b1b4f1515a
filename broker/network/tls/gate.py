"""The beginning of a connection: TLS, or on a port for both what the client's first byte says."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from broker.engine.shard_ending import resolve
from config import limits

_HANDSHAKE: Final = 0x16
"""First byte of a TLS record that begins a handshake; no protocol of ours begins so."""


async def drive(
    make: Callable[[], asyncio.Protocol],
    connection: socket.socket,
    context: ssl.SSLContext | None = None,
    *,
    takes_plain: bool = False,
) -> None:
    """Have what `make` makes drive a connection. Raises OSError (also for TLS that fails), TimeoutError."""
    loop = asyncio.get_running_loop()
    if context is not None and takes_plain and not await _begins_tls(connection):
        context = None
    if context is None:
        await loop.connect_accepted_socket(make, connection)
        return
    await loop.connect_accepted_socket(
        make,
        connection,
        ssl=context,
        ssl_handshake_timeout=limits.TLS_HANDSHAKE_TIMEOUT_S,
        ssl_shutdown_timeout=limits.TLS_SHUTDOWN_TIMEOUT_S,
    )


async def _begins_tls(connection: socket.socket) -> bool:
    """Look at the first byte and leave it there."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(connection, resolve, readable)
    try:
        await asyncio.wait_for(readable, limits.TLS_HANDSHAKE_TIMEOUT_S)
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    return first[:1] == bytes((_HANDSHAKE,))
