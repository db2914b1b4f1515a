"""The pages of users, virtual hosts and quotas, the login page, and what their forms do."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import structlog
from starlette.responses import RedirectResponse, Response

from broker.access.credentials import LoginRefused, Password
from broker.admin.users import UserNotFound
from broker.http.browser_sessions import COOKIE, BrowserSessions
from broker.http.guard import LOGIN, identity_of, peer_of, request_of
from broker.http.pages.openid_pages import OpenIdEntrance, local
from broker.http.pages.visit import HEADERS, VHOST_COOKIE, Visit
from broker.http.problems import Problem
from broker.http.v1.bans import list_bans, put_ban, remove_ban
from broker.http.v1.users import AccountChange, list_users, put_user, remove_user
from broker.http.v1.vhosts import VhostChange, declare_vhost, delete_vhost, list_vhosts
from config.access_settings import PermissionSettings
from config.quota_settings import QUOTAS, quota_field
from config.units import parse_duration_ms

_log: Final = structlog.get_logger("sluicemq.http")


async def show_quotas(visit: Visit) -> Response:
    """Show what virtual hosts and users have, and may have."""
    return visit.page("quotas.html", quotas=await visit.site.client.quotas.whole_views(), names=QUOTAS)


async def show_bans(visit: Visit) -> Response:
    """Show which clients, users and addresses are kept out."""
    return visit.page("bans.html", bans=await list_bans(visit.site))


async def make_ban(visit: Visit) -> Response:
    """Keep somebody out."""
    form = await visit.form()
    for_time = form.get("for").strip()
    await put_ban(
        visit.site,
        form["kind"],
        form["value"],
        reason=form.get("reason"),
        for_time=_duration_ms(for_time) if for_time else None,
        caller=identity_of(visit.request.scope),
        request=visit.request,
    )
    return visit.done("/bans", "made")


def _duration_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise Problem(400, "invalid_argument", f"for: {error}") from None


async def end_ban(visit: Visit) -> Response:
    """End a ban."""
    caller = identity_of(visit.request.scope)
    await remove_ban(visit.site, visit.part("kind"), visit.part("value"), caller=caller)
    return visit.done("/bans", "deleted")


async def set_quota(visit: Visit) -> Response:
    """Set one quota of a virtual host or a user that is there."""
    form = await visit.form()
    name, quota = form["name"], form["quota"]
    most = form["most"].strip()
    wanted = {quota_field(quota): int(most) if most.isdecimal() else most}
    if form.get("scope") == "user":
        if visit.site.access.users is None or name not in visit.site.access.users.names:
            raise UserNotFound(name)
        change = AccountChange.model_validate(wanted)
        await put_user(visit.site, name, change, caller=identity_of(visit.request.scope))
    else:
        visit.site.hub.of_vhost(name)
        await declare_vhost(visit.site, name, VhostChange.model_validate(wanted))
    return visit.done("/quotas", "changed")


async def show_users(visit: Visit) -> Response:
    """Show accounts with their permissions."""
    found = await list_users(visit.site, after=visit.query.get("after", ""))
    return visit.page("users.html", users=found)


async def make_user(visit: Visit) -> Response:
    """Make an account, or change its password, tags and permissions in one virtual host."""
    form = await visit.form()
    name = form["user"]
    accounts = visit.site.access.users
    known = accounts.view(name).permissions if accounts is not None and name in accounts.names else ()
    wanted: dict[str, Any] = {}
    if form.get("password"):
        wanted["password"] = form["password"]
    if form.get("tags", "keep") != "keep":
        wanted["tags"] = tuple(filter(None, [form["tags"]]))
    if form.get("vhost"):
        vhost = form["vhost"]
        fields = {action: form.get(action) for action in ("configure", "write", "read")}
        others = [each for each in known if each.vhost != vhost]
        wanted["permissions"] = (*others, PermissionSettings.model_validate({"vhost": vhost, **fields}))
    await put_user(
        visit.site, name, AccountChange.model_validate(wanted), caller=identity_of(visit.request.scope)
    )
    return visit.done("/users", "changed")


async def drop_user(visit: Visit) -> Response:
    """Remove an account; its connections end."""
    await remove_user(visit.site, visit.part("user"), caller=identity_of(visit.request.scope))
    return visit.done("/users", "deleted")


async def show_vhosts(visit: Visit) -> Response:
    """Show virtual hosts."""
    return visit.page("vhosts.html", found=await list_vhosts(visit.site))


async def make_vhost(visit: Visit) -> Response:
    """Make a virtual host."""
    form = await visit.form()
    await visit.site.admin.vhosts.declare(form["vhost"], description=form.get("description"))
    return visit.done("/vhosts", "made")


async def drop_vhost(visit: Visit) -> Response:
    """Delete a virtual host with all that is in it."""
    await delete_vhost(visit.site, visit.part("vhost"))
    return visit.done("/vhosts", "deleted")


async def pick_vhost(visit: Visit) -> Response:
    """Show another virtual host from now on."""
    answer = RedirectResponse("/", 303, headers=HEADERS)
    answer.set_cookie(VHOST_COOKIE, quote(visit.query.get("name", "/")), httponly=True, samesite="strict")
    return answer


class Entrance:
    """Logs browsers in and out: a cookie names the session that `sessions` keeps."""

    def __init__(self, sessions: BrowserSessions, at_issuer: OpenIdEntrance) -> None:
        self._sessions = sessions
        self._at_issuer = at_issuer

    async def show(self, visit: Visit) -> Response:
        """Show the form that asks for user and password."""
        return visit.page("login.html", next=local(visit.query.get("next", "/")), problem="")

    async def log_in(self, visit: Visit) -> Response:
        """Log in, and go on to where the browser wanted to."""
        form = await visit.form()
        user, target = form["user"], local(form.get("next", "/"))
        peer = peer_of(visit.request.scope, visit.request.headers.get("host", ""))
        try:
            login = await visit.site.access.login(Password(user, form["password"].encode()), peer)
        except LoginRefused as refused:
            _log.warning(
                "http.login_refused", user=user, reason=refused.reason, **request_of(visit.request.scope)
            )
            return visit.page("login.html", 401, next=target, problem=refused.told)
        answer = RedirectResponse(target, 303, headers=HEADERS)
        answer.set_cookie(
            COOKIE,
            self._sessions.begin(login),
            httponly=True,
            samesite="strict",
            secure=visit.request.url.scheme == "https",
        )
        return answer

    async def log_out(self, visit: Visit) -> Response:
        """End the session of the browser, and that at the issuer, if one vouched for it."""
        url = await self._at_issuer.where_to_log_out(visit)
        self._sessions.end(visit.request.cookies.get(COOKIE, ""))
        # a form may lead to no other site at once
        answer = visit.page("onward.html", url=url) if url else RedirectResponse(LOGIN, 303, headers=HEADERS)
        answer.delete_cookie(COOKIE)
        return answer
