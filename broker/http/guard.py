"""The identity of a caller, and whether it may call at all."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlsplit

import structlog
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from broker.access.access import ANONYMOUS, Access
from broker.access.accounts_of_file import guest
from broker.access.credentials import (
    Anonymous,
    Certificate,
    Credentials,
    LoginRefused,
    Misled,
    Password,
    Peer,
    VhostRefused,
)
from broker.access.login import ADMINISTRATOR, MONITORING, Identity, Login
from broker.http.browser_sessions import COOKIE, BrowserSessions
from broker.http.http_connection import CERTIFICATE
from broker.http.problems import Problem, answer_of
from config import limits

IDENTITY: Final = "identity"
"""Where in a request's state stands who calls; None: nobody who had to say so."""

OPERATORS: Final = frozenset((ADMINISTRATOR, MONITORING))
"""One of these tags is enough to look at everything."""
DEFAULT_VHOST: Final = "/"
IN_VHOSTS: Final = b"/api/v1/vhosts/"
"""The beginning of paths that lead into a virtual host, whose name follows."""
RABBITMQ: Final = b"/api/"
V1: Final = b"/api/v1/"
"""Every other path of RABBITMQ is of RabbitMQ's API: any user has to do with it, and it looks itself where a
path leads.
"""
CHALLENGE: Final = {"www-authenticate": 'Basic realm="SluiceMQ"'}

_MESSAGE_CALLS: Final = ("/messages", "/publish", "/get")
"""Ends of paths by which clients publish and fetch messages: these are no acts of administration."""
_HTTP_ERROR: Final = 400
LOGIN: Final = "/login"
"""The page where people log in."""
LOGOUT: Final = "/logout"

_log: Final = structlog.get_logger("sluicemq.http")

VhostOf = Callable[[Scope], str | None]

_OWN_SITES: Final = frozenset({"same-origin", "none"})
"""The values of `Sec-Fetch-Site` for a page of the same site, and for an address that was typed."""


class Guard:
    """Finds out who calls, by HTTP's basic authentication (RFC 7617), a bearer token (RFC 6750), or, where
    neither is sent, the client's certificate.

    Where there are no accounts, who comes from this machine is its operator. No page of another site that a
    browser there has open is let in: such a page may send requests to a loopback address; its own name stands
    in `Origin` or `Referer`, or, where it had that name changed into a loopback address, in `Host`.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        open_paths: frozenset[str] = frozenset(),
        vhost_of: VhostOf | None = None,
        harmless: frozenset[str] = frozenset({"GET", "HEAD", "OPTIONS"}),
        sessions: BrowserSessions | None = None,
    ) -> None:
        """`open_paths` may be asked for by anybody; `vhost_of` tells where a request leads, None: its path
        does. `harmless` are the methods that change nothing. With `sessions` there are pages for people: a
        browser without a login is led to LOGIN, and what is changed is logged.
        """
        self._app = app
        self._access = access
        self._open_paths = open_paths
        self._vhost_of = vhost_in_path if vhost_of is None else vhost_of
        self._harmless = harmless
        self._sessions = sessions
        self._identities: dict[tuple[Login, str], Identity] = {}
        access.on_reload(self._identities.clear)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope["headers"]
        told = {name: value.decode("latin-1") for name, value in reversed(headers)}  # the first of a name
        shown = [value for name, value in headers if name == b"authorization"]
        try:
            if scope["type"] != "http" or scope["method"] not in self._harmless:
                _check_site(told)
            scope["state"][IDENTITY] = await self._identity(scope, told, shown)
        except Problem as problem:
            if problem.status == 401 and self._sessions and asks_for_page(scope):
                await to_login(scope)(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": problem.reason})
            else:
                await answer_of(problem)(scope, receive, send)
            return
        if self._sessions and scope["type"] == "http" and scope["method"] not in self._harmless:
            send = _logging(scope, send)
        await self._app(scope, self._receiving(scope, receive), send)

    def _receiving(self, scope: Scope, receive: Receive) -> Receive:
        """Receive as `receive`; a part of the body that comes after the user was changed raises Problem, for
        what was looked at before it came may not be so any more.
        """
        access = self._access
        version = access.version
        identity: Identity | None = scope["state"][IDENTITY]
        if identity is None:
            return receive
        login = identity.login

        async def receive_part() -> Message:
            part = await receive()
            has_changed = not version.is_current or login.expires_at_ms is not None
            if has_changed and part["type"] == "http.request":
                try:
                    access.check_same(login)
                except LoginRefused as refused:
                    raise Problem(403, "refused", refused.told) from None
            return part

        return receive_part

    async def _identity(
        self, scope: Scope, told: Mapping[bytes, str], shown: Sequence[bytes]
    ) -> Identity | None:
        peer = peer_of(scope, told.get(b"host", ""))
        credentials = _credentials(scope, shown)
        if scope["path"] in self._open_paths and not isinstance(credentials, Password):
            return None
        try:
            login = await self._login_of_session(told) if isinstance(credentials, Anonymous) else None
            if login is None:
                login = self._access.login_at_once(credentials, peer)
            if login is None:
                login = await self._access.login(credentials, peer)
            if login.source == ANONYMOUS and not self._access.has_users and peer.is_local:
                login = guest()
            return self._known(login, self._vhost_of(scope))
        except LoginRefused as refused:
            if not isinstance(credentials, Anonymous):  # which browsers are, before they ask for a password
                user = credentials.user if isinstance(credentials, Password) else "(certificate)"
                _log.warning("http.login_refused", user=user, reason=refused.reason, **request_of(scope))
            if isinstance(refused, Misled):
                raise Problem(403, "refused", refused.told) from None
            raise Problem(401, "not_authorised", refused.told, headers=CHALLENGE) from None
        except VhostRefused as refused:
            raise Problem(403, "refused", refused.reason) from None

    async def _login_of_session(self, told: Mapping[bytes, str]) -> Login | None:
        """Return the login of a browser that is logged in."""
        cookies = told.get(b"cookie", "")
        if self._sessions is None or COOKIE not in cookies:
            return None
        return await self._sessions.renewed(cookie_parser(cookies).get(COOKIE, ""))

    def _known(self, login: Login, vhost: str | None) -> Identity:
        """Return the identity of the user that logged in so, with what it was allowed before; raises
        VhostRefused.
        """
        if vhost is None:
            return Identity(login, DEFAULT_VHOST, "")
        identity = self._identities.get((login, vhost))
        if identity is None:
            if len(self._identities) >= limits.HTTP_IDENTITIES_KEPT_MAX:
                self._identities.clear()
            identity = self._identities[login, vhost] = login.enter(vhost)
        return identity


def peer_of(scope: Scope, host: str) -> Peer:
    """Return where a request came from, with the `Host` that it names."""
    return Peer(scope["client"][0] if scope.get("client") else "", _host_name(host or "?"))


def asks_for_page(scope: Scope) -> bool:
    """Return whether a person without a login asks for a page."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["raw_path"].startswith(RABBITMQ):
        return False
    told = dict(scope["headers"])
    return b"authorization" not in told and b"text/html" in told.get(b"accept", b"")


def to_login(scope: Scope) -> Response:
    """Lead a browser to the page where people log in, and from there to what it asked for."""
    target = quote(scope["raw_path"] + (b"?" + scope["query_string"]).rstrip(b"?"))
    return RedirectResponse(f"{LOGIN}?next={target}", 303)


def request_of(scope: Scope) -> dict[str, Any]:
    """Return where a request came from and what it asks, for the log."""
    client = scope.get("client")
    path = scope["raw_path"].decode("ascii", "replace")
    return {"peer": client and f"{client[0]}:{client[1]}", "method": scope.get("method"), "path": path}


def _logging(scope: Scope, send: Send) -> Send:
    """Send as `send`, and log what was changed by whom, once it is answered as done."""

    async def send_part(part: Message) -> None:
        if part["type"] == "http.response.start" and part["status"] < _HTTP_ERROR:
            request = request_of(scope)
            if not request["path"].endswith(_MESSAGE_CALLS) and request["path"] not in (LOGIN, LOGOUT):
                identity: Identity | None = scope["state"][IDENTITY]
                user = "" if identity is None else identity.login.user
                _log.info("http.changed", user=user, **request)
        await send(part)

    return send_part


def vhost_in_path(scope: Scope) -> str | None:
    """Return where a request leads: to `/`, or into the virtual host that its path names. None: that is to be
    found out.
    """
    path: bytes = scope["raw_path"]
    if not path.startswith(RABBITMQ):
        return DEFAULT_VHOST
    if not path.startswith(V1):
        return None
    if not path.startswith(IN_VHOSTS):
        return DEFAULT_VHOST
    name, separator, _ = path[len(IN_VHOSTS) :].partition(b"/")
    return unquote_to_bytes(name).decode(errors="replace") if separator else DEFAULT_VHOST


def vhost_in_query(scope: Scope) -> str:
    """Return where a request leads by its `vhost=`; raises Problem where it has several."""
    query: bytes = scope["query_string"]
    if b"vhost" not in query:
        return DEFAULT_VHOST
    named = [
        value for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True) if name == "vhost"
    ]
    if len(named) > 1:
        raise Problem(400, "invalid_argument", "vhost: given twice")
    return named[0] if named else DEFAULT_VHOST


def identity_of(scope: Scope) -> Identity:
    """Return the identity of the caller; raises Problem (401) where none was shown."""
    identity = scope["state"].get(IDENTITY)
    if identity is None:
        raise Problem(401, "not_authorised", "log in first", headers=CHALLENGE)
    assert isinstance(identity, Identity)
    return identity


def check_operator(identity: Identity, *, is_looking: bool) -> None:
    """Raise Problem unless somebody may look at, or change, everything."""
    login = identity.login
    if login.is_administrator or (is_looking and login.is_monitoring):
        return
    if not login.user:
        raise Problem(401, "not_authorised", "log in first", headers=CHALLENGE)
    tag = "monitoring" if is_looking else "administrator"
    raise Problem(403, "refused", f"user {login.user!r} has not the tag {tag}")


def _credentials(scope: Scope, found: Sequence[bytes]) -> Credentials:
    """Return what the request shows, in its headers Authorization, or by a certificate; raises Problem where
    that cannot be read.
    """
    if not found:
        names = scope["state"].get(CERTIFICATE)
        return Certificate(names, is_claim=False) if names else Anonymous()
    kind, _, value = found[0].partition(b" ")
    if len(found) == 1 and kind.lower() == b"bearer":
        return Password("", value.strip())
    if len(found) == 1 and kind.lower() == b"basic":
        try:
            user, colon, password = base64.b64decode(value.strip(), validate=True).partition(b":")
            if colon:
                return Password(user.decode(), password)
        except (binascii.Error, UnicodeDecodeError):
            pass
    raise Problem(401, "not_authorised", "the header Authorization cannot be read", headers=CHALLENGE)


def _check_site(told: Mapping[bytes, str]) -> None:
    """Raise Problem where a page of another site asks for this, as far as the browser tells."""
    host, site = told.get(b"host"), told.get(b"sec-fetch-site")
    origin, referer = told.get(b"origin"), told.get(b"referer")
    if origin is not None:
        is_own = _place_of(origin) == host
    elif site is not None:
        is_own = site in _OWN_SITES
    else:
        is_own = referer is None or _place_of(referer) == host
    if not is_own:
        raise Problem(403, "refused", "pages of other sites may not change anything here")


def _place_of(url: str) -> str | None:
    """Return the host and port of a URL; None where it cannot be read."""
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


@lru_cache(limits.HOSTS_KNOWN_MAX)
def _host_name(host: str) -> str:
    """Return the name in a header `Host`; what cannot be read is nobody's."""
    try:
        return urlsplit(f"//{host}").hostname or host
    except ValueError:
        return host
