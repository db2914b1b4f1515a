"""Logins of people by OpenID Connect: the code flow (Core 1.0, 3.1) with PKCE (RFC 7636), as seen from here.

The signer of `access.jwt` is also who logs people in; what its tokens allow is read there.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx
import structlog

from broker.access.credentials import LoginRefused
from broker.access.discovery import Provider, discover
from broker.access.issuer_login import Begun, Done, IssuerSilent, Vouched
from broker.access.tokens import Tokens
from broker.access.web_hook import read_bounded, web_client
from broker.clock import Clock
from config import limits
from config.token_settings import OpenIdSettings

_log: Final = structlog.get_logger("sluicemq.access")
_OK: Final = 200
_SILENT: Final = "the issuer does not answer, or not as one"


class OpenId:
    """Asks the issuer. Its addresses are kept for a while; other settings make another."""

    def __init__(self, settings: OpenIdSettings, issuer: str, tokens: Tokens, clock: Clock) -> None:
        self.settings = settings
        self._issuer = issuer
        self._tokens = tokens
        self._clock = clock
        self._provider: Provider | None = None
        self._known_until = 0.0
        self._silent_until = 0.0
        self._asking = asyncio.Lock()
        self._slots = asyncio.Semaphore(limits.OPENID_REQUESTS_MAX)

    async def where_to_log_in(self, begun: Begun) -> str:
        """Return the URL of the issuer's page for a login; raises IssuerSilent."""
        endpoint = (await self._known()).authorization_endpoint
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": begun.redirect_uri,
            "scope": " ".join(self.settings.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(endpoint, asked)

    async def where_to_log_out(self, id_token: str, back: str) -> str:
        """Return the URL of the issuer's page for logging out there, too (RP-Initiated Logout 1.0); "": it
        has none, or does not answer.
        """
        try:
            endpoint = (await self._known()).end_session_endpoint
        except IssuerSilent:
            return ""
        asked = {
            "id_token_hint": id_token,
            "client_id": self.settings.client_id,
            "post_logout_redirect_uri": back,
        }
        return endpoint and _with_query(endpoint, asked)

    async def log_in(self, begun: Begun, code: str) -> Done:
        """Log in whom the issuer gave this code; raises LoginRefused."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": begun.redirect_uri,
            "code_verifier": begun.verifier,
        }
        try:
            said = await self._ask(form)
        except IssuerSilent as error:
            raise LoginRefused(str(error)) from None
        claims = await self._tokens.verified(_text(said, "id_token").encode(), self.settings.client_id)
        self._check_id_token(claims)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), begun.nonce.encode()):
            raise LoginRefused("the ID token is of another login, by its nonce")
        return await self._login_of(said, claims)

    async def renew(self, vouched: Vouched) -> Done:
        """Log in the same user anew, without asking them (RFC 6749, 6); raises LoginRefused, IssuerSilent."""
        said = await self._ask({"grant_type": "refresh_token", "refresh_token": vouched.refresh_token})
        claims: dict[str, Any] | None = None
        if self.settings.rights_from == "id_token" or _text(said, "id_token"):
            claims = await self._tokens.verified(_text(said, "id_token").encode(), self.settings.client_id)
            self._check_id_token(claims)
        done = await self._login_of(said, claims or {"sub": vouched.subject}, vouched)
        if done.vouched.subject != vouched.subject:
            raise LoginRefused("the issuer's new token is of another user")
        return done

    async def _login_of(
        self, said: dict[str, Any], claims: dict[str, Any], before: Vouched | None = None
    ) -> Done:
        """Return the login by what the issuer gave: `claims` are those of the ID token. What it did not give
        anew is as `before`. Raises LoginRefused.
        """
        subject = claims.get("sub")
        if not isinstance(subject, str):
            raise LoginRefused("the ID token has no sub")
        vouched = Vouched(
            _text(said, "id_token") or (before.id_token if before else ""),
            subject,
            _text(said, "refresh_token") or (before.refresh_token if before else ""),
        )
        if self.settings.rights_from == "id_token":
            return Done(self._tokens.login_of(claims), vouched)
        access_token = _text(said, "access_token")
        if not access_token:
            raise LoginRefused("the issuer gave no access token")
        may = await self._tokens.verified(access_token.encode())
        if may.get("sub") != subject:
            raise LoginRefused("the issuer's two tokens are of two users")
        return Done(self._tokens.login_of(may, self._tokens.server_of(may)), vouched)

    def _check_id_token(self, claims: dict[str, Any]) -> None:
        """Check for whom it was made (Core 1.0, 3.1.3.7); raises LoginRefused."""
        audience, party = claims.get("aud"), claims.get("azp")
        if party != self.settings.client_id and (
            party is not None or (isinstance(audience, list) and len(audience) > 1)
        ):
            raise LoginRefused("the ID token was made for another program, by its azp")

    async def _ask(self, form: dict[str, str]) -> dict[str, Any]:
        """Return what the issuer gives for a code or a refresh token (RFC 6749, 4.1.3 and 6). Raises
        LoginRefused where it refuses, IssuerSilent.
        """
        endpoint = (await self._known()).token_endpoint
        form = {**form, "client_id": self.settings.client_id}
        try:
            headers = {"accept": "application/json", **self._proof()}
            async with (
                self._slots,
                await web_client(limits.OPENID_TIMEOUT_S, headers) as client,
                client.stream("POST", endpoint, data=form) as answer,
            ):
                data = await read_bounded(answer, limits.OPENID_ANSWER_BYTES_MAX)
            said = json.loads(data)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, RecursionError) as error:
            raise self._silent(error) from None
        if answer.status_code != _OK or not isinstance(said, dict):
            reason = said.get("error") if isinstance(said, dict) else None
            raise LoginRefused(f"the issuer gives no token: {str(reason)[:50]}")
        return said

    def _proof(self) -> dict[str, str]:
        """Return the header that shows the secret of this client, if it has one (RFC 6749, 2.3.1)."""
        if not self.settings.client_secret_file:
            return {}
        with open(self.settings.client_secret_file, encoding="utf-8") as file:
            secret = file.read().strip()
        pair = f"{quote(self.settings.client_id, '')}:{quote(secret, '')}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def _known(self) -> Provider:
        """Return the issuer's addresses; raises IssuerSilent."""
        async with self._asking:
            now = self._clock.monotonic()
            if self._provider is None or now >= self._known_until:
                if now < self._silent_until:  # others wait behind this
                    raise IssuerSilent(_SILENT)
                try:
                    async with await web_client(limits.OPENID_TIMEOUT_S) as client:
                        provider = await discover(client, self._issuer)
                    if not (provider.authorization_endpoint and provider.token_endpoint):
                        raise ValueError("the issuer tells no authorization_endpoint or token_endpoint")
                except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
                    self._silent_until = self._clock.monotonic() + limits.OPENID_PAUSE_S
                    raise self._silent(error) from None
                self._provider = provider
                self._known_until = now + limits.OPENID_PROVIDER_KEPT_S
            return self._provider

    def _silent(self, error: Exception) -> IssuerSilent:
        told = isinstance(error, httpx.HTTPError | ValueError) and not isinstance(error, json.JSONDecodeError)
        reason = (str(error) if told else "") or type(error).__name__
        _log.warning("access.issuer_failed", url=self._issuer, reason=reason)
        return IssuerSilent(_SILENT)


def _with_query(url: str, asked: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}"


def _text(said: dict[str, Any], name: str) -> str:
    found = said.get(name)
    return found if isinstance(found, str) else ""
