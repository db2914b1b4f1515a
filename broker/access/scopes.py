"""Scopes of OAuth 2.0 tokens, as RabbitMQ has them: `read:VHOST/NAME`, `write:VHOST/NAME/KEY`, `tag:TAG`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from broker.access.credentials import LoginRefused
from broker.access.login import TAGS
from broker.access.rights import Action, ExchangeTypes, Grant, Scope, ScopeGrant
from broker.access.wildcards import wildcards
from config import limits
from config.token_settings import TokenSettings

_SCOPE: Final = "scope"
_OF_REQUESTING_PARTIES: Final = "authorization.permissions.scopes"
"""Where Keycloak has the permissions of its own, in tokens made for them."""
_TAG: Final = "tag:"
_ACTIONS: Final = {action.value: action for action in Action}
_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")
_VHOST: Final = "vhost"


def scopes_of(claims: Mapping[str, Any], settings: TokenSettings) -> tuple[str, ...]:
    """Return what a token says is allowed here: its scopes and those that are called so, as far as they have
    this broker's prefix, which is left out. Raises LoginRefused where they are too many.
    """
    said = _texts(claims.get(_SCOPE), settings)
    for path in (*settings.additional_scopes_key.split(), _OF_REQUESTING_PARTIES):
        for found in _found(claims, path.split(".")):
            said += _texts(found, settings)
    for name in tuple(said):
        said += settings.scope_aliases.get(name, ())
    if len(said) > limits.TOKEN_SCOPES_MAX:
        raise LoginRefused("the token has too many scopes")
    prefix = settings.prefix
    own = (scope.removeprefix(prefix) for scope in said if scope.startswith(prefix))
    filled = (_filled(scope, claims) for scope in dict.fromkeys(own))
    return tuple(scope for scope in filled if scope is not None)


def audience_of(claims: Mapping[str, Any]) -> list[str]:
    """Return whom a token was made for (RFC 7519, 4.1.3; a text may name several)."""
    audience = claims.get("aud")
    named = audience.split() if isinstance(audience, str) else audience if isinstance(audience, list) else []
    return [each for each in named if isinstance(each, str)]


def tags_of(scopes: Iterable[str]) -> frozenset[str]:
    """Return the tags that scopes give."""
    return frozenset(scope.removeprefix(_TAG) for scope in scopes if scope.startswith(_TAG)) & TAGS


class ScopeGrants(Mapping[str, Grant]):
    """The grants of scopes by virtual host, made when they are first asked for."""

    def __init__(self, scopes: Iterable[str], types: ExchangeTypes) -> None:
        read = (_permission(scope) for scope in scopes)
        self._permissions = tuple(each for each in read if each is not None)
        self._types = types
        self._grants: dict[str, Grant] = {}

    def __getitem__(self, vhost: str) -> Grant:
        grant = self._grants.get(vhost)
        if grant is None:
            scopes = tuple(
                Scope(action, _in_vhost(name, vhost), None if key is None else _in_vhost(key, vhost))
                for action, where, name, key in self._permissions
                if wildcards((_in_vhost(where, vhost),)).covers(vhost)
            )
            if not scopes or vhost == "*":  # which stands for any, wherever else grants are asked for
                raise KeyError(vhost)
            if len(self._grants) >= limits.VHOSTS_MAX:
                self._grants.clear()
            grant = self._grants[vhost] = ScopeGrant(vhost=vhost, scopes=scopes, types=self._types)
        return grant

    def __iter__(self) -> Iterator[str]:
        """Name the virtual hosts; what may be several is shown as the pattern it is."""
        return iter(dict.fromkeys(unquote(where) for _, where, _, _ in self._permissions))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScopeGrants) and self._permissions == other._permissions

    def __hash__(self) -> int:
        return hash(self._permissions)


def _texts(said: Any, settings: TokenSettings) -> list[str]:
    """Return the scopes of a claim: a list, a text with spaces in between, or either by resource server."""
    if isinstance(said, Mapping):
        own = said.get(settings.resource_server_id)
        words = own.split() if isinstance(own, str) else own if isinstance(own, list) else []
        return [f"{settings.resource_server_id}.{word}" for word in words if isinstance(word, str)]
    if isinstance(said, str):
        return said.split()
    return [each for each in said if isinstance(each, str)] if isinstance(said, list) else []


def _found(claims: Any, path: list[str]) -> list[Any]:
    """Return what stands at a path, in each entry of the lists on its way."""
    found = [claims]
    for part in path:
        entries = (entry for each in found for entry in (each if isinstance(each, list) else [each]))
        found = [entry[part] for entry in entries if isinstance(entry, Mapping) and part in entry]
    return found


def _filled(scope: str, claims: Mapping[str, Any]) -> str | None:
    """Return a scope with claims for its variables, but for the virtual host's; None: one is no text. No
    value is read as wildcards.
    """
    names = set(_VARIABLE.findall(scope)) - {_VHOST}
    if not all(isinstance(claims.get(name), str) for name in names):
        return None
    return _VARIABLE.sub(lambda found: quote(claims[found[1]], "") if found[1] in names else found[0], scope)


def _in_vhost(pattern: str, vhost: str) -> str:
    return pattern.replace(f"{{{_VHOST}}}", quote(vhost, ""))


def _permission(scope: str) -> tuple[Action, str, str, str | None] | None:
    """Return action, virtual host, name and routing key; None: the scope is none of these."""
    word, colon, rest = scope.partition(":")
    action = _ACTIONS.get(word)
    parts = rest.split("/")
    if action is None or not colon or not 2 <= len(parts) <= 3:
        return None
    return action, parts[0], parts[1], parts[2] if len(parts) > 2 else None
