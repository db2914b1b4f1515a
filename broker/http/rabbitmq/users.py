"""Accounts and their permissions in RabbitMQ's API, to be looked at, and limits, to be set."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from broker.access.accounts_of_file import GUEST
from broker.access.login import ADMINISTRATOR
from broker.admin.users import UserChange
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, Calls, answer, nothing
from broker.http.rabbitmq.limit_names import limit_asked, limit_field, limits_of
from broker.http.site import Site
from config.access_settings import PermissionSettings

_ALL: Final = ".*"


calls: Final = Calls()


@calls.add("GET", "/users")
async def users(asking: Asking) -> Response:
    """Return all accounts, without what helps to log in."""
    asking.check_administrator()
    return answer([_user(asking, name, tags) for name, (tags, _) in _accounts(asking.site).items()])


@calls.add("GET", "/users/{user}")
async def user(asking: Asking) -> Response:
    """Show one account."""
    asking.check_administrator()
    name = asking.part("user")
    return answer(_user(asking, name, _account(asking, name)[0]))


@calls.add(
    "GET",
    "/users/{user}/permissions",
    "/permissions",
    "/permissions/{vhost}/{user}",
    "/vhosts/{vhost}/permissions",
)
async def permissions(asking: Asking) -> Response:
    """Return all permissions, or those in the virtual host or of the user that the path names."""
    asking.check_administrator()
    user = asking.part("user")
    if user:
        _account(asking, user)
    vhosts = [asking.place().vhost] if asking.part("vhost") else asking.site.hub.vhosts()
    found = [
        permission
        for name, (_, granted) in _accounts(asking.site).items()
        for vhost in vhosts
        if user in ("", name) and (permission := _permission(name, vhost, granted)) is not None
    ]
    if not (asking.part("vhost") and user):
        return answer(found)
    if not found:
        raise Problem(404, "not_found", "Not Found")
    return answer(found[0])


@calls.add("PUT", "/users/{user}", "/permissions/{vhost}/{user}", "/topic-permissions/{vhost}/{user}")
@calls.add("DELETE", "/users/{user}", "/permissions/{vhost}/{user}", "/topic-permissions/{vhost}/{user}")
async def refuse_change(asking: Asking) -> Response:
    """Refuse: accounts are not changed by this API."""
    asking.check_administrator()
    raise Problem(400, "bad_request", "accounts are changed by PUT and DELETE of /api/v1/users/NAME")


def _account(asking: Asking, name: str) -> tuple[tuple[str, ...], tuple[PermissionSettings, ...]]:
    account = _accounts(asking.site).get(name)
    if account is None:
        raise Problem(404, "not_found", "Not Found")
    return account


def _accounts(site: Site) -> dict[str, tuple[tuple[str, ...], tuple[PermissionSettings, ...]]]:
    """Return tags and permissions by name; without a users file there is `guest` alone."""
    users = site.hub.access.users
    if users is None:
        every = PermissionSettings(vhost="*", configure=_ALL, write=_ALL, read=_ALL)
        return {GUEST: ((ADMINISTRATOR,), (every,))}
    views = [users.view(name) for name in users.names]
    return {view.name: (view.tags, view.permissions) for view in views}


def _user(asking: Asking, name: str, tags: tuple[str, ...]) -> dict[str, Any]:
    return {"name": name, "tags": list(tags), "limits": _limits(asking, name)}


def _limits(asking: Asking, name: str) -> dict[str, int]:
    hub = asking.site.hub
    users = hub.access.users
    return {} if users is None else limits_of(users.view(name))


@calls.add("GET", "/user-limits", "/user-limits/{user}")
async def user_limits(asking: Asking) -> Response:
    """List the limits of all users that have some, or of one."""
    asking.check_administrator()
    user = asking.part("user")
    if user:
        _account(asking, user)
    names = [user] if user else list(_accounts(asking.site))
    told = [{"user": name, "value": value} for name in names if (value := _limits(asking, name))]
    return answer(told)


@calls.add("PUT", "/user-limits/{user}/{limit}")
async def set_user_limit(asking: Asking) -> Response:
    """Set one of the limits; below 0 is none."""
    asking.check_administrator()
    return await _set_limit(asking, await limit_asked(asking))


@calls.add("DELETE", "/user-limits/{user}/{limit}")
async def clear_user_limit(asking: Asking) -> Response:
    """Have no such limit."""
    asking.check_administrator()
    return await _set_limit(asking, 0)


async def _set_limit(asking: Asking, most: int) -> Response:
    user = asking.part("user")
    field = limit_field(asking.part("limit"))
    _account(asking, user)
    change = UserChange(quotas={field: most})
    await asking.site.admin.users.put(user, change, asking.login.user)
    return nothing()


def _permission(user: str, vhost: str, granted: tuple[PermissionSettings, ...]) -> dict[str, str] | None:
    by_vhost = {each.vhost: each for each in granted}
    found = by_vhost.get(vhost) or by_vhost.get("*")
    if found is None:
        return None
    rights = {"configure": found.configure, "write": found.write, "read": found.read}
    return {"user": user, "vhost": vhost, **rights}
