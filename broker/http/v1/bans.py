"""Bans over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request

from broker.access.ban_table import Ban, BanKind
from broker.access.login import Identity
from broker.http.endpoints import Endpoints
from broker.http.site import Site
from config.field_types import PositiveDurationMs
from queue_manager.errors import InvalidArgument

bans: Final = Endpoints("bans")


@bans.endpoint("GET", "/bans")
async def list_bans(site: Site) -> list[Ban]:
    """List who is kept out, by kind and value; bans that have ended are not shown."""
    return site.hub.banning.all()


@bans.endpoint("PUT", "/bans/{kind}/{value}")
async def put_ban(
    site: Site,
    kind: str,
    value: str,
    *,
    reason: str = "",
    for_time: Annotated[PositiveDurationMs | None, Field(alias="for")] = None,
    caller: Identity | None,
    request: Request,
) -> Ban:
    """Keep out a `client_id`, a `user` or an `address` (also a network), in all virtual hosts, `for` a time
    (`1h`) or for good; connections there are end.
    """
    return await site.hub.banning.add(
        _kind(kind),
        value,
        reason=reason,
        for_ms=for_time,
        by="" if caller is None else caller.user,
        by_host=request.client.host if request.client else "",
    )


@bans.endpoint("DELETE", "/bans/{kind}/{value}")
async def remove_ban(site: Site, kind: str, value: str, *, caller: Identity | None) -> None:
    """End a ban."""
    await site.hub.banning.remove(_kind(kind), value, "" if caller is None else caller.user)


def _kind(text: str) -> BanKind:
    try:
        return BanKind(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is none of {', '.join(kind.value for kind in BanKind)}") from None
