"""Requests to the addresses of others: to public ones, and to those networks that the configuration allows.

What a name leads to is looked at, and then connected to, so that a name cannot lead elsewhere in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpcore

from config import limits


class AddressRefused(Exception):
    """Nothing is sent to such an address."""


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to what may be connected to."""

    def __init__(self, networks: Callable[[], Sequence[str]]) -> None:
        self._networks = networks
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error.strerror or error}") from None
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host}: its address was not found in time") from None
        addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
        for address in addresses:
            check_address(address, self._networks())
        last: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                last = error
        raise last

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


def check_address(text: str, networks: Sequence[str]) -> None:
    """Raise AddressRefused for an address that is neither public nor in one of these networks."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if any(address in ipaddress.ip_network(each) for each in networks):
        return
    if not address.is_global or address.is_multicast:
        raise AddressRefused(f"{address} is no public address, and in no network of access.webhook_networks")


async def open_pool(
    ca_file: str | None, networks: Callable[[], Sequence[str]], connections_max: int
) -> httpcore.AsyncConnectionPool:
    """Return what keeps connections to one receiver. Raises OSError for certificates it cannot read."""
    context: ssl.SSLContext = await asyncio.to_thread(ssl.create_default_context, cafile=ca_file)
    return httpcore.AsyncConnectionPool(
        context, max_connections=connections_max, network_backend=_Backend(networks)
    )


async def post(
    pool: httpcore.AsyncConnectionPool,
    url: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    timeout_s: float,
) -> tuple[int, str]:
    """Return the status of a POST, and its `Retry-After`. No redirect is followed. Raises AddressRefused,
    httpcore's errors, TimeoutError.
    """
    phases = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
    async with (
        asyncio.timeout(timeout_s),
        pool.stream(
            "POST", url, headers=list(headers), content=body, extensions={"timeout": phases}
        ) as answer,
    ):
        size = 0
        async for part in answer.aiter_stream():
            size += len(part)
            if size > limits.WEBHOOK_ANSWER_BYTES_MAX:
                break  # what it says does not matter
        retry_after = dict(answer.headers).get(b"retry-after", b"")
        return int(answer.status), retry_after.decode("latin-1")
