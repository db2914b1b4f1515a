"""Ways to log in that ask somebody else: answers are kept for a while, and who fails is left alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import structlog

from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.login import Login
from broker.access.way import KnownSecrets
from broker.clock import Clock
from config import limits

log: Final = structlog.get_logger("sluicemq.access")


class NoAnswer(Exception):
    """Who was asked failed to answer. The text is for the log."""


class AskedWay(ABC):
    """A `broker.access.way.Way`. Answers hold until they are `cache_ms` old (refusals `cache_refused_ms`), or
    a login ends; other settings make another way, which knows none.
    """

    source: str
    _who: str
    """Who is asked, for the refusal of a client."""
    _event: str
    """The beginning of the log's events."""

    def __init__(self, url: str, cache_ms: int, cache_refused_ms: int, clock: Clock) -> None:
        self._url = url
        self._cache_ms = cache_ms
        self._cache_refused_ms = cache_refused_ms
        self._clock = clock
        self._known = KnownSecrets()
        self._failures = 0
        self._closed_until = 0.0

    def login_at_once(self, credentials: Password) -> Login | None:
        """See `Way`."""
        known = self._known.find(credentials, "", self._clock.monotonic())
        return None if known is None else known.login

    async def login(self, credentials: Password, peer: Peer) -> Login:
        """See `Way`."""
        now = self._clock.monotonic()
        known = self._known.find(credentials, "", now)
        if known is not None:
            login = known.login
        else:
            if now < self._closed_until:
                raise LoginRefused(f"{self._who} does not answer")
            login = await self._answer(credentials, peer)
            kept_ms = self._cache_ms if login is not None else self._cache_refused_ms
            if login is not None and login.expires_at_ms is not None:
                kept_ms = min(kept_ms, login.expires_at_ms - self._clock.now_ms())
            self._known.keep(credentials, "", login, self._clock.monotonic() + kept_ms / 1000)
        if login is None:
            raise LoginRefused(LoginRefused.TOLD)
        return login

    @abstractmethod
    async def _ask(self, credentials: Password, peer: Peer) -> Login | None:
        """Return the answer, None: nobody is known so. Raises NoAnswer, and LoginRefused with a reason."""

    async def _answer(self, credentials: Password, peer: Peer) -> Login | None:
        try:
            login = await self._ask(credentials, peer)
        except NoAnswer as failure:
            self._failures += 1
            log.warning(
                f"access.{self._event}_failed", url=self._url, reason=str(failure), in_a_row=self._failures
            )
            if self._failures >= limits.HOOK_FAILURES_MAX:
                self._closed_until = self._clock.monotonic() + limits.HOOK_PAUSE_S
            raise LoginRefused(f"{self._who} failed") from None
        self._failures = 0
        return login
