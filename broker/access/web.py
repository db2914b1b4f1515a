"""Asking others by HTTP: bounded in time and size, and without holding the event loop up."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import httpx


async def web_client(timeout_s: float, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Make a client that follows no redirect and minds no proxy of the environment."""
    context = await asyncio.to_thread(ssl.create_default_context)  # reads hundreds of certificates
    return httpx.AsyncClient(verify=context, timeout=timeout_s, trust_env=False, headers=headers)


async def read_bounded(answer: httpx.Response, bytes_max: int) -> bytes:
    """Read the body; raises ValueError when it is larger."""
    data = b""
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > bytes_max:
            raise ValueError(f"more than {bytes_max} bytes")
    return data
