"""Accounts and their permissions in RabbitMQ's API, to be looked at; and what this broker has none of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.responses import Response

from broker.access.login import ADMINISTRATOR
from broker.access.users import GUEST
from broker.http.problems import Problem
from broker.http.rabbitmq.asking import Asking, answer
from broker.http.rabbitmq.places import Places
from broker.http.site import Site
from config.access import PermissionSettings

_ALL: Final = ".*"
_NOT_KEPT: Final = "this broker keeps no {kind}: {instead}"


class Users:
    """What is asked about accounts. They are changed elsewhere: `/api/v1/users`, the users file."""

    def __init__(self, site: Site, places: Places) -> None:
        self._site = site
        self._places = places

    async def users(self, asking: Asking) -> Response:
        """All accounts, without what helps to log in."""
        asking.check_administrator()
        return answer([_user(name, tags) for name, (tags, _) in self._accounts().items()])

    async def user(self, asking: Asking) -> Response:
        """One account."""
        asking.check_administrator()
        name = asking.part("user")
        return answer(_user(name, self._account(name)[0]))

    async def permissions(self, asking: Asking) -> Response:
        """All permissions, or those in the virtual host or of the user that the path names."""
        asking.check_administrator()
        user = asking.part("user")
        if user:
            self._account(user)
        vhosts = [self._places.of(asking).vhost] if asking.part("vhost") else self._site.hub.vhosts()
        found = [
            permission
            for name, (_, granted) in self._accounts().items()
            for vhost in vhosts
            if user in ("", name) and (permission := _permission(name, vhost, granted)) is not None
        ]
        if not (asking.part("vhost") and user):
            return answer(found)
        if not found:
            raise Problem(404, "not_found", "Not Found")
        return answer(found[0])

    async def refuse_change(self, asking: Asking) -> Response:
        """Accounts are not changed by this API."""
        asking.check_administrator()
        raise Problem(400, "bad_request", "accounts are changed by PUT and DELETE of /api/v1/users/NAME")

    def _account(self, name: str) -> tuple[tuple[str, ...], tuple[PermissionSettings, ...]]:
        account = self._accounts().get(name)
        if account is None:
            raise Problem(404, "not_found", "Not Found")
        return account

    def _accounts(self) -> dict[str, tuple[tuple[str, ...], tuple[PermissionSettings, ...]]]:
        """Tags and permissions by name; without a users file there is `guest` alone."""
        users = self._site.hub.access.users
        if users is None:
            every = PermissionSettings(vhost="*", configure=_ALL, write=_ALL, read=_ALL)
            return {GUEST: ((ADMINISTRATOR,), (every,))}
        views = [users.view(name) for name in users.names]
        return {view.name: (view.tags, view.permissions) for view in views}


def none_of(kind: str, instead: str, places: Places) -> dict[str, Callable[[Asking], Awaitable[Response]]]:
    """The calls for what RabbitMQ keeps and this broker does not: nothing is listed, nothing is made."""

    async def listed(asking: Asking) -> Response:
        if asking.part("vhost"):
            places.of(asking)
        return answer([])

    async def show(asking: Asking) -> Response:
        raise Problem(404, "not_found", "Not Found")

    async def refuse(asking: Asking) -> Response:
        if asking.part("vhost"):
            places.of(asking)
        raise Problem(400, "bad_request", _NOT_KEPT.format(kind=kind, instead=instead))

    return {"list": listed, "show": show, "refuse": refuse}


def _user(name: str, tags: tuple[str, ...]) -> dict[str, Any]:
    return {"name": name, "tags": list(tags), "limits": {}}


def _permission(user: str, vhost: str, granted: tuple[PermissionSettings, ...]) -> dict[str, str] | None:
    by_vhost = {each.vhost: each for each in granted}
    found = by_vhost.get(vhost) or by_vhost.get("*")
    if found is None:
        return None
    rights = {"configure": found.configure, "write": found.write, "read": found.read}
    return {"user": user, "vhost": vhost, **rights}
