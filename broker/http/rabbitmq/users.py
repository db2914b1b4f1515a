"""Accounts of the users file, their permissions and limits in RabbitMQ's API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from starlette.responses import Response

from broker.access import passwords
from broker.access.accounts_of_file import GUEST
from broker.access.login import ADMINISTRATOR
from broker.admin.users import UserChange
from broker.http.problems import Problem
from broker.http.rabbitmq.account_entries import (
    ALGORITHM,
    RIGHTS,
    TAGS,
    password_hash_of,
    permission_in,
    tags_of,
    topic_permissions_in,
    with_permission,
    with_topic,
    without_permission,
    without_topics,
)
from broker.http.rabbitmq.asking import Asking, Calls, answer, nothing
from broker.http.rabbitmq.limit_names import limit_asked, limit_field, limits_of
from broker.http.site import Site
from config import limits
from config.access_settings import PermissionSettings, UserSettings

_ALL: Final = ".*"


calls: Final = Calls()


@calls.add("GET", "/users")
async def users(asking: Asking) -> Response:
    """Return all accounts, without what helps to log in."""
    asking.check_administrator()
    return answer([_user(asking, name, tags) for name, (tags, _) in _accounts(asking.site).items()])


@calls.add("GET", "/users/without-permissions")
async def users_without(asking: Asking) -> Response:
    """List the accounts that may enter no virtual host."""
    asking.check_administrator()
    found = _accounts(asking.site).items()
    return answer([_user(asking, name, tags) for name, (tags, granted) in found if not granted])


@calls.add("GET", "/users/{user}")
async def user(asking: Asking) -> Response:
    """Show one account."""
    asking.check_administrator()
    name = asking.part("user")
    return answer(_user(asking, name, _account(asking, name)[0]))


@calls.add("PUT", "/users/{user}")
async def put_user(asking: Asking) -> Response:
    """Make an account, or set its tags and its password; without one nobody comes in by a password."""
    asking.check_administrator()
    name = asking.part("user")
    body = await asking.body()
    if "tags" not in body:
        raise Problem(400, "bad_request", "tags_not_present")
    tags, others = tags_of(body)
    if others:
        raise Problem(400, "bad_request", f"tags are {', '.join(TAGS)}, not {', '.join(map(str, others))}")
    password = body.get("password")
    if password is not None and not 1 <= len(str(password).encode()) <= limits.PASSWORD_BYTES_MAX:
        raise Problem(400, "bad_request", f"a password has 1 to {limits.PASSWORD_BYTES_MAX} bytes")
    change = UserChange(
        tags=tuple(tags),
        password=None if password is None else str(password).encode(),
        password_hash=password_hash_of(body) if password is None else None,
    )
    is_new = name not in _accounts(asking.site)
    await asking.site.admin.users.put(name, change, asking.login.user)
    return nothing(201 if is_new else 204)


@calls.add("DELETE", "/users/{user}")
async def delete_user(asking: Asking) -> Response:
    """Remove an account; its connections end."""
    asking.check_administrator()
    await asking.site.admin.users.remove(asking.part("user"), asking.login.user)
    return nothing()


@calls.add("POST", "/users/bulk-delete")
async def delete_users(asking: Asking) -> Response:
    """Remove several accounts; those that are not there are passed over."""
    asking.check_administrator()
    names = (await asking.body("users"))["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Problem(400, "bad_request", "users: a list of names")
    found = [name for name in names if name in _accounts(asking.site)]
    await asking.site.admin.users.remove_all(found, asking.login.user)
    return nothing()


@calls.add("GET", "/auth/hash_password/{password}")
async def hash_password(asking: Asking) -> Response:
    """Return the hash of a password as `password_hash` of a user takes it."""
    asking.check_administrator()
    return answer({"ok": passwords.hashed_for_rabbitmq(asking.part("password").encode())})


@calls.add(
    "GET",
    "/users/{user}/permissions",
    "/permissions",
    "/permissions/{vhost}/{user}",
    "/vhosts/{vhost}/permissions",
)
async def permissions(asking: Asking) -> Response:
    """Return all permissions, or those in the virtual host or of the user that the path names."""
    found = [
        permission
        for user, vhost, granted in _granted(asking)
        if (permission := permission_in(user, vhost, granted)) is not None
    ]
    if not (asking.part("vhost") and asking.part("user")):
        return answer(found)
    if not found:
        raise Problem(404, "not_found", "Not Found")
    return answer(found[0])


@calls.add(
    "GET",
    "/users/{user}/topic-permissions",
    "/topic-permissions",
    "/topic-permissions/{vhost}/{user}",
    "/vhosts/{vhost}/topic-permissions",
)
async def topic_permissions(asking: Asking) -> Response:
    """Return which routing keys users may use, as `permissions` does."""
    found = [
        entry
        for user, vhost, granted in _granted(asking)
        for entry in topic_permissions_in(user, vhost, granted)
    ]
    if asking.part("vhost") and asking.part("user") and not found:
        raise Problem(404, "not_found", "Not Found")
    return answer(found)


def _granted(asking: Asking) -> Iterator[tuple[str, str, tuple[PermissionSettings, ...]]]:
    """Yield users and virtual hosts that the path is about, with what the users may do; raises Problem."""
    asking.check_administrator()
    user, vhost = asking.part("user"), asking.part("vhost")
    accounts = _accounts(asking.site)
    if user:
        _account(asking, user)
    vhosts = asking.site.hub.vhosts()
    if vhost and vhost not in vhosts:
        raise Problem(404, "not_found", "Not Found")
    for name, (_, granted) in accounts.items():
        if user in ("", name):
            for each in [vhost] if vhost else vhosts:
                yield name, each, granted


@calls.add("PUT", "/permissions/{vhost}/{user}")
async def put_permission(asking: Asking) -> Response:
    """Say what a user may do in a virtual host."""
    asking.check_administrator()
    body = await asking.body(*RIGHTS)
    rights = {right: body[right] for right in RIGHTS}
    return await _edit(asking, lambda user, vhost: with_permission(user, vhost, **rights))


@calls.add("DELETE", "/permissions/{vhost}/{user}")
async def delete_permission(asking: Asking) -> Response:
    """Have a user enter a virtual host no more."""
    asking.check_administrator()
    _check_has(asking, lambda granted: any(each.vhost == asking.part("vhost") for each in granted))
    return await _edit(asking, without_permission)


@calls.add("PUT", "/topic-permissions/{vhost}/{user}")
async def put_topic_permission(asking: Asking) -> Response:
    """Say which routing keys of an exchange a user may use."""
    asking.check_administrator()
    body = await asking.body("exchange", "write", "read")
    return await _edit(asking, lambda user, vhost: with_topic(user, vhost, body))


@calls.add("DELETE", "/topic-permissions/{vhost}/{user}", "/topic-permissions/{vhost}/{user}/{exchange}")
async def delete_topic_permissions(asking: Asking) -> Response:
    """Have a user use any routing keys, of the exchange that the path names or of all."""
    asking.check_administrator()
    exchange = asking.part("exchange") or None
    vhost = asking.part("vhost")
    _check_has(asking, lambda granted: bool(topic_permissions_in("", vhost, granted)))
    return await _edit(asking, lambda user, vhost: without_topics(user, vhost, exchange))


def _check_has(asking: Asking, has: Callable[[tuple[PermissionSettings, ...]], bool]) -> None:
    if not has(_account(asking, asking.part("user"))[1]):
        raise Problem(404, "not_found", "Not Found")


async def _edit(asking: Asking, change: Callable[[UserSettings, str], UserSettings]) -> Response:
    """Change the account that the path names, in a virtual host; raises Problem. For administrators."""
    name, vhost = asking.part("user"), asking.part("vhost")
    granted = _accounts(asking.site).get(name)
    if granted is None or vhost not in asking.site.hub.vhosts():
        raise Problem(400, "bad_request", "vhost_or_user_not_found")
    is_new = all(each.vhost != vhost for each in granted[1])
    await asking.site.admin.users.edit(name, lambda user: change(user, vhost), asking.login.user)
    is_put = asking.request.method == "PUT"
    return nothing(201 if is_put and is_new else 204)


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
    hidden = {"password_hash": "", "hashing_algorithm": ALGORITHM}  # tools want to find them
    return {"name": name, **hidden, "tags": list(tags), "limits": _limits(asking, name)}


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
