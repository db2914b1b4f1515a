"""Asking a service by HTTP who somebody is. What it does not say clearly in time lets nobody in."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx

from broker.access.accounts_of_file import grants_of
from broker.access.asked_way import AskedWay, NoAnswer, log
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.login import TAGS, Login
from broker.access.way import seconds_of
from broker.clock import Clock
from config import limits
from config.access_settings import HookSettings, PermissionSettings, check_user_name


async def web_client(timeout_s: float, headers: Mapping[str, str] | None = None) -> httpx.AsyncClient:
    """Make a client that follows no redirect and minds no proxy of the environment."""
    context = await asyncio.to_thread(ssl.create_default_context)  # reads hundreds of certificates
    return httpx.AsyncClient(verify=context, timeout=timeout_s, trust_env=False, headers=headers)


async def read_bounded(answer: httpx.Response, bytes_max: int) -> bytes:
    """Read the body; raises ValueError when it is larger."""
    data = b""
    async for part in answer.aiter_bytes():
        data += part
        if len(data) > bytes_max:
            raise ValueError(f"more than {bytes_max} bytes")
    return data


HOOK: Final = "http hook"


class WebHook(AskedWay):
    """A service that is asked over HTTP."""

    source = HOOK
    _who = "the service that knows the users"
    _event = "hook"

    def __init__(self, settings: HookSettings, clock: Clock) -> None:
        super().__init__(settings.url, settings.cache_ms, settings.cache_refused_ms, clock)
        self._settings = settings
        self._client: asyncio.Task[httpx.AsyncClient] | None = None
        self._slots = asyncio.Semaphore(limits.HOOK_REQUESTS_MAX)
        self._is_closed = False

    def login_now(self, login: Login) -> Login | None:
        """See `Way`: what was said holds for the connection, or as long as it was said to."""
        return login

    async def close(self) -> None:
        self._is_closed = True
        if self._client is not None:
            await asyncio.wait((self._client,))
            if not self._client.exception():
                await self._client.result().aclose()
            self._client = None

    async def _ask(self, credentials: Password, peer: Peer) -> Login | None:
        """See `AskedWay`."""
        asked = {
            "user": credentials.user,
            "password": credentials.password.decode("utf-8", "replace"),
            "address": peer.host,
        }
        try:
            body = json.dumps(asked, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            return None  # nobody is called so, and the service is not to blame
        try:
            async with self._slots, asyncio.timeout(self._settings.timeout_ms / 1000):
                status, data = await self._post(body)
            if status >= 500:
                raise ValueError(f"status {status}")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, OSError, ValueError) as error:
            is_told = isinstance(error, httpx.HTTPError) and str(error)  # others may show what was answered
            raise NoAnswer(str(error) if is_told else type(error).__name__) from None
        try:
            return self._login_of(json.loads(data)) if status == 200 else None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = type(error).__name__  # whatever it says may show what was answered
            log.warning("access.hook_not_understood", url=self._settings.url, reason=reason)
            raise LoginRefused("the service that knows the users said what cannot be meant") from None

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._is_closed:
            raise ValueError("closed")
        if self._client is None or (self._client.done() and self._client.exception()):
            self._client = asyncio.ensure_future(self._make_client())  # one for all who log in meanwhile
        client = await asyncio.shield(self._client)
        async with client.stream("POST", self._settings.url, content=body) as answer:
            return answer.status_code, await read_bounded(answer, limits.HOOK_ANSWER_BYTES_MAX)

    async def _make_client(self) -> httpx.AsyncClient:
        headers = {"content-type": "application/json"}
        if self._settings.token_file:
            headers["authorization"] = f"Bearer {self._token()}"
        return await web_client(self._settings.timeout_ms / 1000, headers)

    def _token(self) -> str:
        with open(self._settings.token_file, encoding="ascii") as file:
            return file.read().strip()

    def _login_of(self, said: Any) -> Login | None:
        """Make a login of the service's answer. Raises ValueError, KeyError or TypeError where it makes no
        sense.
        """
        if said["allow"] is not True:
            return None
        user = said["user"]
        if not isinstance(user, str):
            raise TypeError("no user name")
        check_user_name(user)
        expires_at_ms = None
        if "expires_in" in said:
            expires_at_ms = self._clock.now_ms() + int(seconds_of(said["expires_in"]) * 1000)
        permissions = [PermissionSettings.model_validate(entry) for entry in said.get("permissions", ())]
        return Login(
            user,
            grants_of(permissions),
            tags=frozenset(map(str, said.get("tags", ()))) & TAGS,
            source=HOOK,
            expires_at_ms=expires_at_ms,
        )
