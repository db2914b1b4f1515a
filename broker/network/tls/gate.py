"""The beginning of a connection: TLS or not, by its first byte where both may be; names in certificates."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from broker.engine.shard_ending import resolve
from config import limits

_SUBJECT_NAMES: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}
_ALTERNATIVES: Final = {"DNS": "dns", "URI": "uri", "email": "email"}


def certificate_names(connection: ssl.SSLObject | None) -> tuple[str, ...]:
    """Return the names of a client's certificate that was verified, as users have them: `cn:`, `dns:`,
    `uri:`, `email:`, `dn:` (as RFC 4514 writes it) and `sha256:`. None where there is no such certificate.
    """
    found: Any = None if connection is None else connection.getpeercert()
    if connection is None or not found:
        return ()
    names: list[str] = []
    parts: list[str] = []
    for relative in found.get("subject", ()):
        for kind, value in relative:
            if kind == "commonName":
                names.append(f"cn:{value}")
            parts.append(f"{_SUBJECT_NAMES.get(kind, kind)}={_escaped(value)}")
    names.append("dn:" + ",".join(reversed(parts)))
    for kind, value in found.get("subjectAltName", ()):
        if kind in _ALTERNATIVES:
            names.append(f"{_ALTERNATIVES[kind]}:{value}")
    whole = connection.getpeercert(binary_form=True)
    if whole is not None:
        names.append("sha256:" + hashlib.sha256(whole).hexdigest())
    return tuple(names)


def _escaped(value: str) -> str:
    return "".join("\\" + character if character in ',+"\\<>;=' else character for character in value)


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
