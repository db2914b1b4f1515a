"""What an issuer tells of itself: OpenID Connect Discovery 1.0."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import httpx

from broker.access.web_hook import read_bounded
from config import limits
from config.safe_urls import check_url

_PATH: Final = "/.well-known/openid-configuration"


class Provider(NamedTuple):
    """The addresses of an issuer; "": it has no such."""

    jwks_uri: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""


async def discover(client: httpx.AsyncClient, issuer: str) -> Provider:
    """Ask an issuer for its addresses. Raises httpx.HTTPError, and ValueError for an answer that is none, or
    of another issuer, or has an address that no secret may go to.
    """
    async with client.stream("GET", issuer.removesuffix("/") + _PATH) as answer:
        answer.raise_for_status()
        data = await read_bounded(answer, limits.TOKEN_KEYS_BYTES_MAX)
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("the issuer's answer is no JSON") from None
    if not isinstance(told, dict) or str(told.get("issuer")).removesuffix("/") != issuer.removesuffix("/"):
        raise ValueError("the answer is of another issuer")
    provider = Provider(*[_address(told, name) for name in Provider._fields])
    if not provider.jwks_uri:
        raise ValueError("the issuer tells no jwks_uri")
    return provider


def _address(told: dict[str, Any], name: str) -> str:
    said = told.get(name)
    try:
        return check_url(said) if isinstance(said, str) else ""
    except ValueError as error:
        raise ValueError(f"{name} {error}") from None
