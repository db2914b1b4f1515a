"""Asking a service by HTTP who somebody is. What it does not say clearly in time lets nobody in."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx
import structlog

from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.login import ADMINISTRATOR, MONITORING, Login
from broker.access.users import grants_of
from broker.access.way import KnownSecrets
from broker.access.web import read_bounded, web_client
from broker.clock import Clock
from config import limits
from config.access import HookSettings, PermissionSettings

HOOK: Final = "http hook"
_TAGS: Final = frozenset((ADMINISTRATOR, MONITORING, "management", "policymaker"))
_log: Final = structlog.get_logger("sluicemq.access")


class WebHook:
    """A `broker.access.way.Way`. Answers are kept for a while; a service that fails again and again is left
    alone for a while.
    """

    source = HOOK

    def __init__(self, settings: HookSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._known = KnownSecrets()
        self._client: httpx.AsyncClient | None = None
        self._slots = asyncio.Semaphore(limits.HOOK_REQUESTS_MAX)
        self._failures = 0
        self._closed_until = 0.0

    def login_at_once(self, credentials: Password) -> Login | None:
        """See `Way`."""
        return self._known.find(credentials, "", self._clock.monotonic())[1]

    async def login(self, credentials: Password, peer: Peer) -> Login:
        """See `Way`."""
        now = self._clock.monotonic()
        is_known, login = self._known.find(credentials, "", now)
        if not is_known:
            if now < self._closed_until:
                raise LoginRefused("the service that knows the users does not answer")
            login = await self._ask(credentials, peer)
            kept_ms = self._settings.cache_ms if login is not None else self._settings.cache_refused_ms
            if login is not None and login.expires_at_ms is not None:
                kept_ms = min(kept_ms, login.expires_at_ms - self._clock.now_ms())
            self._known.keep(credentials, "", login, self._clock.monotonic() + kept_ms / 1000)
        if login is None:
            raise LoginRefused(LoginRefused.TOLD)
        return login

    def login_now(self, login: Login) -> Login | None:
        """See `Way`: what was said holds for the connection, or as long as it was said to."""
        return login

    async def close(self) -> None:
        """See `Way`."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _ask(self, credentials: Password, peer: Peer) -> Login | None:
        """What the service says; raises LoginRefused where it fails to."""
        asked = {
            "user": credentials.user,
            "password": credentials.password.decode("utf-8", "replace"),
            "address": peer.host,
        }
        try:
            async with self._slots, asyncio.timeout(self._settings.timeout_ms / 1000):
                status, data = await self._post(asked)
            if status >= 500:
                raise ValueError(f"status {status}")
            login = self._login_of(json.loads(data)) if status == 200 else None
        except (httpx.HTTPError, TimeoutError, ValueError, KeyError, TypeError) as error:
            is_told = isinstance(error, httpx.HTTPError) and str(error)  # others may show what was answered
            self._failed(str(error) if is_told else type(error).__name__)
            raise LoginRefused("the service that knows the users failed") from None
        self._failures = 0
        return login

    async def _post(self, asked: dict[str, str]) -> tuple[int, bytes]:
        if self._client is None:
            headers = {"authorization": f"Bearer {self._token()}"} if self._settings.token_file else {}
            self._client = await web_client(self._settings.timeout_ms / 1000, headers)
        async with self._client.stream("POST", self._settings.url, json=asked) as answer:
            return answer.status_code, await read_bounded(answer, limits.HOOK_ANSWER_BYTES_MAX)

    def _token(self) -> str:
        with open(self._settings.token_file, encoding="ascii") as file:
            return file.read().strip()

    def _login_of(self, said: Any) -> Login | None:
        """Raises ValueError, KeyError or TypeError for what cannot be meant."""
        if said["allow"] is not True:
            return None
        user = said["user"]
        if not isinstance(user, str) or not 1 <= len(user) <= limits.USER_NAME_BYTES_MAX:
            raise ValueError("no user name")
        expires_at_ms = None
        if "expires_in" in said:
            expires_at_ms = self._clock.now_ms() + int(said["expires_in"] * 1000)
        permissions = [PermissionSettings.model_validate(entry) for entry in said.get("permissions", ())]
        return Login(
            user,
            grants_of(permissions),
            tags=frozenset(map(str, said.get("tags", ()))) & _TAGS,
            source=HOOK,
            expires_at_ms=expires_at_ms,
        )

    def _failed(self, reason: str) -> None:
        self._failures += 1
        _log.warning("access.hook_failed", url=self._settings.url, reason=reason, in_a_row=self._failures)
        if self._failures >= limits.HOOK_FAILURES_MAX:
            self._closed_until = self._clock.monotonic() + limits.HOOK_PAUSE_S
