"""Logins of browsers end with the account, with time, and with what vouched for them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker.access.access import Access
from broker.access.credentials import LoginRefused
from broker.access.login import Login
from broker.clock import Clock
from broker.http.browser_sessions import BrowserSessions
from config import limits
from queue_manager.validity import Version


class FakeAccess:
    known: Login | None = None

    def __init__(self) -> None:
        self.version = Version()

    def change(self, known: Login | None) -> None:
        self.version.expire()
        self.version, self.known = Version(), known

    def current(self, login: Login) -> Login:
        if self.known is None:
            raise LoginRefused("gone")
        return self.known


class FakeClock:
    now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return int(self.now_s * 1_000)


LOGIN = Login("ann", {}, source="users")


@pytest.fixture
def parts() -> tuple[BrowserSessions, Any, Any]:
    access, clock = FakeAccess(), FakeClock()
    return BrowserSessions(cast(Access, access), cast(Clock, clock)), access, clock


def test_session_has_present_rights_after_a_change_of_accounts_and_ends_with_its_account(parts: Any) -> None:
    sessions, access, _ = parts
    name = sessions.begin(LOGIN)
    assert sessions.find(name) is LOGIN
    access.change(Login("ann", {}, source="users", tags=frozenset({"monitoring"})))
    assert sessions.find(name) is access.known
    access.change(None)
    assert sessions.find(name) is None
    access.change(LOGIN)
    assert sessions.find(name) is None, "it has ended"


def test_session_ends_when_it_is_not_used_or_its_token_ends(parts: Any) -> None:
    sessions, _, clock = parts
    name = sessions.begin(LOGIN)
    short = sessions.begin(Login("ann", {}, source="jwt", expires_at_ms=clock.now_ms() + 5_000))
    clock.now_s += limits.BROWSER_SESSION_IDLE_S - 1
    assert sessions.find(short) is None
    assert sessions.find(name) is LOGIN
    clock.now_s += limits.BROWSER_SESSION_IDLE_S + 1
    assert sessions.find(name) is None


def test_oldest_session_gives_way_to_one_too_many(parts: Any) -> None:
    sessions, _, _ = parts
    first, second = sessions.begin(LOGIN), sessions.begin(LOGIN)
    assert sessions.find(first) is LOGIN  # used since
    for _ in range(limits.BROWSER_SESSIONS_MAX - 1):
        sessions.begin(LOGIN)
    assert (sessions.find(first), sessions.find(second)) == (LOGIN, None)
