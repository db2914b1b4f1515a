"""Accounts of the users file over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, SecretStr

from broker.access.accounts_of_file import UserView
from broker.access.login import Identity
from broker.admin.admin_views import Listing
from broker.admin.users import UserChange
from broker.engine.client.listings import page_of
from broker.http.endpoints import Endpoints, PageLimit
from broker.http.site import Site
from config import limits
from config.access_settings import CertificateName, PermissionSettings, Tag
from config.quota_settings import QuotaSettings

users: Final = Endpoints("users")


@users.endpoint("GET", "/users", is_private=True)
async def list_users(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT
) -> Listing[UserView, str]:
    """List the accounts of the users file with their tags and permissions; no passwords, not even as
    hashes.
    """
    accounts = site.hub.access.users
    if accounts is None:
        return Listing(items=[], total=0, next=None)
    names, following = await page_of(accounts.names, str, after, limit)
    return Listing(items=[accounts.view(name) for name in names], total=len(accounts), next=following)


@users.endpoint("GET", "/users/{user}", is_private=True)
async def show_user(site: Site, user: str) -> UserView:
    """Show one account."""
    return site.admin.users.view(user)


class AccountChange(QuotaSettings):
    """The wanted state of an account; what is left out stays."""

    password: Annotated[SecretStr | None, Field(min_length=1, max_length=limits.PASSWORD_BYTES_MAX)] = None
    scram: bool | None = None
    tags: tuple[Tag, ...] | None = None
    permissions: tuple[PermissionSettings, ...] | None = None
    certificates: tuple[CertificateName, ...] | None = None


@users.endpoint("PUT", "/users/{user}")
async def put_user(
    site: Site,
    user: str,
    body: AccountChange,
    *,
    caller: Identity | None,
) -> UserView:
    """Make an account, or change it: in the users file, and in force at once. 409 when nobody would be left
    who administers.

    What is left out stays as it is, or is empty for a new one; `scram`: keep what MQTT 5's SCRAM-SHA-256
    needs, too.
    """
    password = body.password
    change = UserChange(
        password=None if password is None else password.get_secret_value().encode(),
        scram=body.scram,
        tags=body.tags,
        permissions=body.permissions,
        certificates=body.certificates,
        quotas=body.model_dump(include=set(QuotaSettings.model_fields), exclude_unset=True),
    )
    return await site.admin.users.put(user, change, _name(caller))


@users.endpoint("DELETE", "/users/{user}")
async def remove_user(site: Site, user: str, *, caller: Identity | None) -> None:
    """Remove an account; its connections end."""
    await site.admin.users.remove(user, _name(caller))


def _name(caller: Identity | None) -> str:
    return "" if caller is None else caller.user
