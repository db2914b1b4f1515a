"""Accounts of the users file over HTTP."""

from __future__ import annotations

from typing import Final

from pydantic import Field, SecretStr

from broker.access.users import UserView
from broker.admin.users import UserChange
from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery
from broker.http.listings import UserPage, user_page
from broker.http.site import Site
from broker.http.v1.listings import NameListing
from config import limits
from config.access import CertificateName, PermissionSettings, Tag

users: Final = Endpoints("users")


class User(Body):
    """An account. What is left out stays as it is, or is empty for a new one; `scram`: keep what MQTT 5's
    SCRAM-SHA-256 needs, too.
    """

    password: SecretStr | None = Field(default=None, min_length=1, max_length=limits.PASSWORD_BYTES_MAX)
    scram: bool | None = None
    tags: tuple[Tag, ...] | None = None
    permissions: tuple[PermissionSettings, ...] | None = None
    certificates: tuple[CertificateName, ...] | None = None
    connections_max: int | None = Field(default=None, ge=0, le=limits.CONNECTIONS_MAX)


@users.get("/users", UserPage, NameListing, is_private=True)
async def list_users(site: Site, ask: Ask[NameListing, NoBody]) -> UserPage:
    """The accounts of the users file with their tags and permissions; no passwords, not even as hashes."""
    return await user_page(site, after=ask.query.after, limit=ask.query.limit)


@users.get("/users/{user}", UserView, is_private=True)
async def show_user(site: Site, ask: Ask[NoQuery, NoBody]) -> UserView:
    """One account."""
    return site.admin.users.view(ask.path["user"])


@users.put("/users/{user}", UserView, User)
async def put_user(site: Site, ask: Ask[NoQuery, User]) -> UserView:
    """Make an account, or change it: in the users file, and in force at once. 409 when nobody would be left
    who administers.
    """
    body = ask.body
    change = UserChange(
        password=None if body.password is None else body.password.get_secret_value().encode(),
        scram=body.scram,
        tags=body.tags,
        permissions=body.permissions,
        certificates=body.certificates,
        connections_max=body.connections_max,
    )
    return await site.admin.users.put(ask.path["user"], change, _caller(ask))


@users.delete("/users/{user}", None)
async def remove_user(site: Site, ask: Ask[NoQuery, NoBody]) -> None:
    """Remove an account; its connections end."""
    await site.admin.users.remove(ask.path["user"], _caller(ask))


def _caller(ask: Ask[NoQuery, User] | Ask[NoQuery, NoBody]) -> str:
    return "" if ask.caller is None else ask.caller.user
