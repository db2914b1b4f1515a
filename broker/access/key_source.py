"""Where the keys of tokens come from: a file, or a URL, which the issuer may tell, that is asked again as
keys are changed there.
"""

from __future__ import annotations

import asyncio
from typing import Final

import httpx
import structlog

from broker.access.discovery import discover
from broker.access.token_keys import TokenKey, read_keys, secret_key
from broker.access.web_hook import read_bounded, web_client
from broker.clock import Clock
from config import limits
from config.settings_loader import ConfigError
from config.token_settings import TokenSettings

_log: Final = structlog.get_logger("sluicemq.access")


class KeySource:
    """The keys by now. Those of a URL are asked for when they are first needed, when they have become old,
    and when a token names one that is not among them, though not too often; if that fails, the known ones
    stay.
    """

    def __init__(self, settings: TokenSettings, clock: Clock) -> None:
        """Read the keys. Raises ConfigError for a file that cannot be used."""
        self._settings = settings
        self._clock = clock
        self._keys = _from_files(settings)
        self._fetched: list[TokenKey] = []
        self._fresh_until = 0.0
        self._not_before = 0.0
        self._fetching = asyncio.Lock()
        self._is_asked = bool(settings.jwks_url) or settings.is_discovered

    def known(self) -> list[TokenKey]:
        """Return the keys that are there."""
        return self._keys + self._fetched

    @property
    def is_fresh(self) -> bool:
        """Whether nothing has to be asked for."""
        return not self._is_asked or self._clock.monotonic() < self._fresh_until

    async def refresh(self, *, even_if_fresh: bool = False) -> None:
        """Ask the URL, if there is one and it is time to."""
        if not self._is_asked:
            return
        async with self._fetching:
            now = self._clock.monotonic()
            if now < self._not_before or (self.is_fresh and not even_if_fresh):
                return
            self._not_before = now + limits.TOKEN_KEYS_ASK_INTERVAL_S
            try:
                self._fetched = read_keys(await self._fetch())
            except (httpx.HTTPError, ValueError) as error:
                reason = str(error) or type(error).__name__
                url = self._settings.jwks_url or self._settings.issuer
                _log.warning("token_keys.not_read", url=url, reason=reason)
                return
            self._fresh_until = now + self._settings.jwks_refresh_ms / 1000

    async def _fetch(self) -> bytes:
        async with await web_client(limits.TOKEN_KEYS_TIMEOUT_S) as client:
            url = self._settings.jwks_url or (await discover(client, self._settings.issuer)).jwks_uri
            async with client.stream("GET", url) as answer:
                answer.raise_for_status()
                return await read_bounded(answer, limits.TOKEN_KEYS_BYTES_MAX)


def _from_files(settings: TokenSettings) -> list[TokenKey]:
    keys: list[TokenKey] = []
    for key, path in (("keys_file", settings.keys_file), ("secret_file", settings.secret_file)):
        if not path:
            continue
        try:
            with open(path, "rb") as file:
                data = file.read(limits.TOKEN_KEYS_BYTES_MAX)
            keys += [secret_key(data)] if key == "secret_file" else read_keys(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError([f"access.jwt.{key}: {path}: {reason}"]) from None
    return keys
