"""Logins of browsers: who showed a password on the login page is known by a cookie for some hours."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Final

import structlog

from broker.access.access import Access
from broker.access.credentials import LoginRefused
from broker.access.issuer_login import Vouched
from broker.access.login import Login
from broker.clock import Clock
from config import limits
from queue_manager.validity import Version

COOKIE: Final = "sluicemq_session"
_log: Final = structlog.get_logger("sluicemq.http")


@dataclass(slots=True)
class _Session:
    """A login as it was shown (`shown`), as `current` at `version` of the accounts, and when it was used; of
    one by OpenID Connect what the issuer gave, and the task that asks it for another.
    """

    shown: Login
    current: Login
    version: Version
    used_at_s: float
    vouched: Vouched | None
    renewing: asyncio.Task[None] | None = None


class BrowserSessions:
    """The sessions there are, by their secret names; the oldest gives way where they are too many.

    What is kept of a login holds for one version of the accounts (`Access.version`), and until it expires.
    """

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def begin(self, login: Login, vouched: Vouched | None = None) -> str:
        """Return the name of a new session, with what an issuer gave for it."""
        while len(self._sessions) >= limits.BROWSER_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        name = secrets.token_urlsafe(limits.BROWSER_SESSION_NAME_BYTES)
        self._sessions[name] = _Session(login, login, self._access.version, self._clock.monotonic(), vouched)
        return name

    async def renewed(self, name: str) -> Login | None:
        """Return the login of a session as `find`; one that expired is renewed by the issuer that vouched for
        it, if that lets it.
        """
        login = self.find(name)
        session = self._sessions.get(name)
        if login is not None or session is None:
            return login
        if session.renewing is None:  # one for all who ask meanwhile: a refresh token may be good for once
            session.renewing = asyncio.ensure_future(self._renew(name, session))
        await asyncio.shield(session.renewing)
        return self.find(name)

    async def _renew(self, name: str, session: _Session) -> None:
        assert session.vouched is not None
        try:
            done = await self._access.renew_by_issuer(session.vouched)
        except LoginRefused as refused:
            _log.info("http.session_ended", user=session.shown.user, reason=refused.reason)
            self.end(name)
            return
        finally:
            session.renewing = None
        if done is not None:
            session.shown = session.current = done.login
            session.version = self._access.version
            session.vouched = done.vouched

    def find(self, name: str) -> Login | None:
        """Return the login of a session with its present rights; None: it has ended, or would have to be
        renewed.
        """
        session = self._sessions.pop(name, None)
        now_s = self._clock.monotonic()
        if session is None or now_s - session.used_at_s > limits.BROWSER_SESSION_IDLE_S:
            return None
        if not session.version.is_current:
            try:
                session.current = self._access.current(session.shown)
            except LoginRefused:
                return None
            session.version = self._access.version
        expires_at_ms = session.shown.expires_at_ms
        has_expired = expires_at_ms is not None and expires_at_ms <= self._clock.now_ms()
        if has_expired and (session.vouched is None or not session.vouched.refresh_token):
            return None
        session.used_at_s = now_s
        self._sessions[name] = session  # behind all that were not used since
        return None if has_expired else session.current

    def id_token(self, name: str) -> str:
        """Return the ID token of a session; "": it has none."""
        session = self._sessions.get(name)
        return "" if session is None or session.vouched is None else session.vouched.id_token

    def end(self, name: str) -> None:
        """End a session."""
        self._sessions.pop(name, None)
