"""Logging browsers in by OpenID Connect: off to the issuer, and back with what it gave."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.access.credentials import LoginRefused
from broker.access.issuer_login import Begun, IssuerSilent
from broker.clock import Clock
from broker.http.browser_sessions import COOKIE, BrowserSessions
from broker.http.guard import LOGIN, peer_of, request_of
from broker.http.pages.visit import HEADERS, Visit
from broker.http.problems import Problem
from config import limits

if TYPE_CHECKING:
    from broker.access.openid import OpenId  # with libraries that most brokers do without

OPENID: Final = f"{LOGIN}/openid"
CALLBACK: Final = f"{OPENID}/callback"
_BEGUN: Final = "sluicemq_login"
"""The cookie of a login that was begun: what comes back from the issuer has to belong to this browser."""
_SECRET_BYTES: Final = 32  # as long as a signature
_SILENT: Final = "The provider of logins does not answer."
_REFUSED: Final = {
    "access_denied": "The provider of logins refused access.",
    "login_required": "The provider of logins knows no such login.",
    "temporarily_unavailable": _SILENT,
    "server_error": "The provider of logins failed.",
}
"""What an issuer that sends a browser back may say (RFC 6749, 4.1.2.1): no text of a link is ever shown."""
_OTHER: Final = "The provider of logins refused."
_NOT_BEGUN: Final = "This login was not begun in this browser, or too long ago. Begin again."

_log: Final = structlog.get_logger("sluicemq.http")


class OpenIdEntrance:
    """Logs browsers in whom the issuer vouches for. A login that was begun is kept in a cookie, signed with a
    key that ends with the broker.
    """

    def __init__(self, sessions: BrowserSessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock
        self._key = secrets.token_bytes(_SECRET_BYTES)

    async def begin(self, visit: Visit) -> Response:
        """Send the browser to the issuer."""
        openid = _openid(visit)
        target = local(visit.query.get("next", "/"))
        state, nonce, verifier = (secrets.token_urlsafe(_SECRET_BYTES) for _ in range(3))
        begun = Begun(state, nonce, verifier, _page(openid, visit.request) + CALLBACK)
        try:
            url = await openid.where_to_log_in(begun)
        except IssuerSilent:
            return visit.page("login.html", 502, next=target, problem=_SILENT)
        answer = RedirectResponse(url, 303, headers=HEADERS)
        answer.set_cookie(
            _BEGUN,
            self._signed(begun, target),
            max_age=limits.OPENID_LOGIN_S,
            path=OPENID,
            httponly=True,
            samesite="lax",  # the issuer's page leads back
            secure=begun.redirect_uri.startswith("https:"),
        )
        return answer

    async def come_back(self, visit: Visit) -> Response:
        """Log in who comes back from the issuer, and go on to where the browser wanted to."""
        answer = await self._come_back(visit)
        answer.delete_cookie(_BEGUN, path=OPENID)
        return answer

    async def _come_back(self, visit: Visit) -> Response:
        openid = _openid(visit)
        known = self._read(visit.request.cookies.get(_BEGUN, ""))
        state = visit.query.get("state", "")
        if known is None or not hmac.compare_digest(known[0].state.encode(), state.encode()):
            return _refuse(visit, "/", "not begun in this browser", _NOT_BEGUN)
        begun, target = known
        if "code" not in visit.query:
            said = visit.query.get("error", "")
            return _refuse(visit, target, f"the issuer says {said[:50]!r}", _REFUSED.get(said, _OTHER))
        peer = peer_of(visit.request.scope, visit.request.headers.get("host", ""))
        try:
            done = await visit.site.access.login_by_issuer(openid, begun, visit.query["code"], peer)
        except LoginRefused as refused:
            return _refuse(visit, target, refused.reason, _OTHER)
        # led here from another site, a browser would not show its session at a redirect
        answer = visit.page("onward.html", url=target)
        answer.set_cookie(
            COOKIE,
            self._sessions.begin(done.login, done.vouched),
            httponly=True,
            samesite="strict",
            secure=begun.redirect_uri.startswith("https:"),
        )
        return answer

    async def where_to_log_out(self, visit: Visit) -> str:
        """Return the URL where the user of a browser logs out of the issuer, too; "": nowhere."""
        openid = visit.site.access.openid
        id_token = self._sessions.id_token(visit.request.cookies.get(COOKIE, ""))
        if openid is None or not id_token:
            return ""
        return await openid.where_to_log_out(id_token, _page(openid, visit.request) + LOGIN)

    def _signed(self, begun: Begun, target: str) -> str:
        ends_at = self._clock.monotonic() + limits.OPENID_LOGIN_S
        data = json.dumps([*begun, target[: limits.OPENID_TARGET_CHARACTERS_MAX], ends_at]).encode()
        return base64.urlsafe_b64encode(self._signature(data) + data).decode()

    def _read(self, cookie: str) -> tuple[Begun, str] | None:
        """Return the login that was begun, and where to go on to; None: this browser has begun none."""
        try:
            data = base64.urlsafe_b64decode(cookie)
        except ValueError:
            return None
        signature, data = data[:_SECRET_BYTES], data[_SECRET_BYTES:]
        if not hmac.compare_digest(signature, self._signature(data)):
            return None
        *parts, target, ends_at = json.loads(data)
        return (Begun(*parts), target) if self._clock.monotonic() < ends_at else None

    def _signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, hashlib.sha256)


def _openid(visit: Visit) -> OpenId:
    openid = visit.site.access.openid
    if openid is None:
        raise Problem(404, "not_found", "logins by OpenID Connect are not configured (access.openid)")
    return openid


def _page(openid: OpenId, request: Request) -> str:
    """Return where browsers find the pages: as configured, or as this one found them."""
    return openid.settings.url or f"{request.url.scheme}://{request.url.netloc}"


def _refuse(visit: Visit, target: str, reason: str, told: str) -> Response:
    _log.warning("http.login_refused", user="(openid)", reason=reason, **request_of(visit.request.scope))
    return visit.page("login.html", 401, next=target, problem=told)


def local(path: str) -> str:
    """Return the path of a page here, as URLs have it; `/` for what leads elsewhere."""
    is_local = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return quote(path, safe="/%?&=+:@!$'()*,;~-._") if is_local else "/"
