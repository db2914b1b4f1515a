"""Logins of browsers: who showed a password on the login page is known by a cookie for some hours."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

from broker.access.access import Access
from broker.access.credentials import LoginRefused
from broker.access.login import Login
from broker.clock import Clock
from config import limits

COOKIE: Final = "sluicemq_session"


@dataclass(slots=True)
class _Session:
    """A login as it was shown (`shown`), as `current` at `version` of the accounts, when it was used, and the
    ID token of one by OpenID Connect.
    """

    shown: Login
    current: Login
    version: int
    used_at_s: float
    id_token: str


class BrowserSessions:
    """The sessions there are, by their secret names; the oldest gives way where they are too many.

    What is kept of a login holds while the accounts are the same (`Access.version`), and until it expires.
    """

    def __init__(self, access: Access, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._sessions: dict[str, _Session] = {}

    def begin(self, login: Login, id_token: str = "") -> str:
        """Return the name of a new session, with the ID token that an issuer gave for it."""
        while len(self._sessions) >= limits.BROWSER_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        name = secrets.token_urlsafe(limits.BROWSER_SESSION_NAME_BYTES)
        self._sessions[name] = _Session(login, login, self._access.version, self._clock.monotonic(), id_token)
        return name

    def find(self, name: str) -> Login | None:
        """Return the login of a session with its present rights; None: it has ended."""
        session = self._sessions.pop(name, None)
        now_s = self._clock.monotonic()
        if session is None or now_s - session.used_at_s > limits.BROWSER_SESSION_IDLE_S:
            return None
        expires_at_ms = session.shown.expires_at_ms
        if expires_at_ms is not None and expires_at_ms <= self._clock.now_ms():
            return None
        if session.version != self._access.version:
            try:
                session.current = self._access.current(session.shown)
            except LoginRefused:
                return None
            session.version = self._access.version
        session.used_at_s = now_s
        self._sessions[name] = session  # behind all that were not used since
        return session.current

    def id_token(self, name: str) -> str:
        """Return the ID token of a session; "": it has none."""
        session = self._sessions.get(name)
        return "" if session is None else session.id_token

    def end(self, name: str) -> None:
        """End a session."""
        self._sessions.pop(name, None)
