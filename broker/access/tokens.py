"""JSON web tokens (RFC 7519): who signs them says who somebody is, and may say what they may do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt
from pydantic import ValidationError

from broker.access.accounts_of_file import Users, grants_of
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.key_source import KeySource
from broker.access.login import TAGS, Login
from broker.access.rights import ExchangeTypes, Grant
from broker.access.scopes import ScopeGrants, audience_of, scopes_of, tags_of
from broker.access.way import seconds_of
from broker.clock import Clock
from config import limits
from config.access_settings import PermissionSettings, check_user_name
from config.token_settings import TokenSettings

TOKEN: Final = "token"  # noqa: S105 - a name


class Tokens:
    """A `broker.access.way.Way`: the token comes as the password, whatever the user name beside it."""

    source = TOKEN

    def __init__(
        self, settings: TokenSettings, users: Users | None, clock: Clock, types: ExchangeTypes
    ) -> None:
        """Read the keys. A token without permissions has those of the user of its name in `users`, where no
        scopes are taken. Raises ConfigError.
        """
        self._settings = settings
        self._servers = settings.by_resource_server()
        self._users = users
        self._types = types
        self._keys = KeySource(settings, clock)

    def login_at_once(self, credentials: Password) -> Login | None:
        if not looks_like_token(credentials.password) or not self._keys.is_fresh:
            return None
        try:
            return self._login_for_us(self._claims(credentials.password))
        except (LoginRefused, _UnknownKey):
            return None  # to be looked at with the others that fail

    async def login(self, credentials: Password, peer: Peer) -> Login:
        return self._login_for_us(await self.verified(credentials.password))

    async def verified(self, token: bytes, audience: str | None = None) -> dict[str, Any]:
        """Return the claims of a token whose signature and times are right, as are its issuer and its
        audience: the configured one, unless one is given. Raises LoginRefused.
        """
        if not looks_like_token(token):
            raise LoginRefused(LoginRefused.TOLD)
        await self._keys.refresh()
        try:
            return self._claims(token, audience)
        except _UnknownKey:
            await self._keys.refresh(even_if_fresh=True)  # it may be a new one
        try:
            return self._claims(token, audience)
        except _UnknownKey:
            raise LoginRefused("the token is signed by an unknown key") from None

    def server_of(self, claims: Mapping[str, Any]) -> TokenSettings:
        """Return the settings for whom a token was given, as far as scopes are taken. Raises LoginRefused
        where that is not this broker.
        """
        settings = self._settings
        named = [each for each in dict.fromkeys(audience_of(claims)) if each in self._servers]
        if len(named) > 1:
            raise LoginRefused(f"the token is for {' and '.join(named)}, by its aud")
        if named:
            return self._servers[named[0]]
        if settings.resource_server_id and settings.verify_aud and not settings.audience:
            raise LoginRefused(f"the token is not for {' or '.join(self._servers)}, by its aud")
        return settings

    def login_now(self, login: Login) -> Login | None:
        """See `Way`: what was signed holds until it ends; what the user has in the file, or scopes mean, may
        change.
        """
        if isinstance(login, ScopedLogin):
            settings = self._servers.get(login.server)
            if settings is None:
                return None
            try:
                return self._by_scopes(settings, login.claims, login.user, login.expires_at_ms)
            except LoginRefused:
                return None
        if not login.is_borrowed:
            return login
        known = None if self._users is None else self._users.find(login.user)
        return None if known is None else known.until(login.expires_at_ms, TOKEN)

    async def close(self) -> None:
        """See `Way`."""

    def _claims(self, token: bytes, audience: str | None = None) -> dict[str, Any]:
        """Return the token's claims, once they are certain; raises LoginRefused, _UnknownKey."""
        settings = self._settings
        if audience is None:
            audience = settings.audience
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise LoginRefused("no token") from None
        algorithm = header.get("alg")
        if algorithm not in settings.algorithms:  # `none` never is
            raise LoginRefused(f"a token signed with {str(algorithm)[:20]!r} is not taken")
        name = header.get("kid")
        fitting = [
            key
            for key in self._keys.known()
            if algorithm in key.algorithms and (name is None or key.name in (None, name))
        ]
        if not fitting:
            raise _UnknownKey
        refused: jwt.PyJWTError | None = None
        for key in fitting:
            try:
                claims: dict[str, Any] = jwt.decode(
                    token,
                    key.key,
                    algorithms=[str(algorithm)],
                    audience=audience or None,
                    issuer=settings.issuer or None,
                    leeway=settings.leeway_ms / 1000,
                    options={"require": ["exp"], "verify_aud": bool(audience)},
                )
            except jwt.InvalidSignatureError as error:
                refused = error
            except jwt.PyJWTError as error:
                raise LoginRefused(f"token: {error}") from None
            except (ValueError, OverflowError, TypeError, RecursionError):
                raise LoginRefused("the token's claims cannot be read") from None
            else:
                return claims
        raise _UnknownKey from refused

    def login_of(self, claims: Mapping[str, Any], settings: TokenSettings | None = None) -> Login:
        """Return the login of claims, by the settings for whom they were given; raises LoginRefused."""
        if settings is None:
            settings = self._settings
        names = (*settings.preferred_username_claims, settings.user_claim)
        said = [each for name in names if isinstance(each := claims.get(name), str)]
        try:
            user = check_user_name(said[0] if said else "")
        except ValueError:
            raise LoginRefused(f"the token has no {' or '.join(names)} that could be a user") from None
        try:
            expires_at_ms = int(seconds_of(claims["exp"]) * 1000) + settings.leeway_ms
        except ValueError:
            raise LoginRefused("the token's exp is no time") from None
        granted = _find(claims, settings.permissions_claim)
        if granted is not None:
            return Login(
                user,
                _grants(granted),
                tags=_tags(_find(claims, settings.tags_claim)),
                source=TOKEN,
                expires_at_ms=expires_at_ms,
            )
        if settings.resource_server_id:
            return self._by_scopes(settings, claims, user, expires_at_ms)
        known = None if self._users is None else self._users.find(user)
        if known is None:
            raise LoginRefused(f"the token has no {settings.permissions_claim}, and its user is not known")
        return known.until(expires_at_ms, TOKEN)

    def _login_for_us(self, claims: Mapping[str, Any]) -> Login:
        return self.login_of(claims, self.server_of(claims))

    def _by_scopes(
        self, settings: TokenSettings, claims: Mapping[str, Any], user: str, expires_at_ms: int | None
    ) -> Login:
        """Return the login that the scopes of a token give; raises LoginRefused."""
        scopes = scopes_of(claims, settings)
        return ScopedLogin(
            user,
            ScopeGrants(scopes, self._types),
            tags=tags_of(scopes),
            source=TOKEN,
            expires_at_ms=expires_at_ms,
            claims=claims,
            server=settings.resource_server_id,
        )


@dataclass(slots=True, eq=False, repr=False)
class ScopedLogin(Login):
    """A login with the rights of scopes, which the settings may give another meaning while it lasts."""

    claims: Mapping[str, Any]
    server: str


class _UnknownKey(Exception):
    """No key that is known signed it."""


def looks_like_token(password: bytes) -> bool:
    """Return whether a password could be a token at all."""
    is_bounded = len(password) <= limits.PASSWORD_BYTES_MAX
    return is_bounded and password.startswith(b"eyJ") and password.count(b".") == 2


def _find(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim at a dotted path, such as `realm_access.roles`; a whole name comes first."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _grants(granted: Any) -> Mapping[str, Grant]:
    """Return permissions as users have them in their file; raises LoginRefused for anything else."""
    if not isinstance(granted, list) or len(granted) > limits.TOKEN_PERMISSIONS_MAX:
        raise LoginRefused("the token's permissions are no list, or too long")
    try:
        return grants_of([PermissionSettings.model_validate(entry) for entry in granted])
    except ValidationError:
        raise LoginRefused("the token's permissions cannot be read") from None


def _tags(found: Any) -> frozenset[str]:
    names = found.split() if isinstance(found, str) else found if isinstance(found, list) else ()
    return frozenset(name for name in names if isinstance(name, str)) & TAGS
