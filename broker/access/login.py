"""Logins, and the identities they have in a virtual host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from broker.access.credentials import VhostRefused
from broker.access.rights import Action, Grant, JoinedGrant, JoinedRights, Kind, Rights
from config import limits
from queue_manager.address import VHOST_SEPARATOR
from queue_manager.errors import AccessRefused

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
TAGS: Final = frozenset((ADMINISTRATOR, MONITORING, "management", "policymaker"))
"""The tags that logins may have."""

_ALL_TOPICS: Final = "all topics"
_KEYS_OF: Final = "keys of "


class NotPermitted(AccessRefused):
    """A call needs a permission that the user does not have."""


@dataclass(slots=True, eq=False, repr=False)
class Login:
    """A login: the user's name ("" for the anonymous), tags, and a grant for each virtual host.

    `source` says what vouched for it; `expires_at_ms` when that ends, None: never. `is_borrowed`: the source
    only vouched for the name, the rest is from the users file.
    """

    user: str
    _grants: Mapping[str, Grant]
    _: KW_ONLY
    source: str
    tags: frozenset[str] = frozenset()
    expires_at_ms: int | None = None
    is_borrowed: bool = False

    def until(self, expires_at_ms: int | None, source: str) -> Login:
        """Return the same, vouched for by another source until then."""
        return replace(self, source=source, expires_at_ms=expires_at_ms, is_borrowed=True)

    def allows_as(self, other: Login) -> bool:
        """Return whether the other allows the same, neither less nor more."""
        return self.tags == other.tags and self._grants == other._grants

    @property
    def is_administrator(self) -> bool:
        """Whether everything may be looked at and changed."""
        return ADMINISTRATOR in self.tags

    @property
    def is_monitoring(self) -> bool:
        """Whether everything may be looked at."""
        return MONITORING in self.tags or self.is_administrator

    @property
    def vhosts(self) -> list[str]:
        """The virtual hosts that may be entered, by name; `*` stands for any."""
        return sorted(self._grants)

    def may_enter(self, vhost: str) -> bool:
        """Return whether the user has permissions in the virtual host."""
        return vhost in self._grants or "*" in self._grants

    def grant_of(self, vhost: str) -> Grant:
        """Return what was granted to the user there; nothing, where the user may not enter."""
        return self._grants.get(vhost) or self._grants.get("*") or Grant(groups="")

    def rights(self, vhost: str, client_id: str = "") -> Rights | JoinedRights:
        """Return the grant as it is for the user."""
        grant = self.grant_of(vhost)
        if isinstance(grant, JoinedGrant):
            each = (Rights(one, user=self.user, client_id=client_id, vhost=vhost) for one in grant.grants)
            return JoinedRights(each)
        return Rights(grant, user=self.user, client_id=client_id, vhost=vhost)

    def enter(self, vhost: str, client_id: str = "") -> Identity:
        """Return the identity of a connection; raises VhostRefused."""
        if not self.may_enter(vhost):
            raise VhostRefused(vhost, self.user)
        return Identity(self, vhost, client_id)


class Identity:
    """A user in a virtual host. Decisions are kept, so asking again costs a lookup.

    `is_narrowed_by` tells whether new rights take away something that was allowed before.
    """

    __slots__ = ("_allowed", "_has_forgotten", "_rights", "_tags", "client_id", "login", "vhost")

    def __init__(
        self,
        login: Login,
        vhost: str,
        client_id: str,
        *,
        before: Identity | None = None,
        tags: frozenset[str] = frozenset(),
    ) -> None:
        self.login = login
        self.vhost = vhost
        self.client_id = client_id
        self._rights: Rights | JoinedRights = login.rights(vhost, client_id)
        self._allowed: set[tuple[Action, Kind | str, str]] = set() if before is None else {*before._allowed}
        self._has_forgotten: bool = before is not None and before._has_forgotten
        self._tags = tags

    def alone(self, tags: frozenset[str]) -> Identity:
        """Return the same, with what was allowed so far, for something that ends by itself.

        It is narrowed, too, when the user has none of `tags` any more.
        """
        return Identity(self.login, self.vhost, self.client_id, before=self, tags=tags)

    @property
    def user(self) -> str:
        """The user's name, "" for the anonymous."""
        return self.login.user

    def may(self, action: Action, kind: Kind, name: str) -> bool:
        """Return whether that may be done to what is called so."""
        return self._decided((action, kind, name))

    def may_use_keys(self, action: Action, exchange: str, key: str) -> bool:
        """Return whether a routing key (reading: a topic binding's) may be used with an exchange that
        may be.
        """
        if not self._rights.has_keys(exchange):  # it may become one that has, so nothing is kept
            return True
        return self._decided((action, _KEYS_OF + exchange, key))

    def may_all_topics(self, action: Action) -> bool:
        """Return whether there is no plain topic that this could not be done to."""
        return self._decided((action, _ALL_TOPICS, ""))

    def _decided(self, asked: tuple[Action, Kind | str, str]) -> bool:
        """Return whether that is allowed; it is kept where it is."""
        if asked in self._allowed:
            return True
        allowed = _cover(self._rights, *asked)
        if allowed:
            if len(self._allowed) >= limits.ACCESS_DECISIONS_KEPT_MAX:
                self._allowed.clear()
                self._has_forgotten = True
            self._allowed.add(asked)
        return allowed

    def check(self, action: Action, kind: Kind, name: str) -> None:
        """Check `may`; raises NotPermitted."""
        if not self.may(action, kind, name):
            told = "amq.default" if kind is Kind.EXCHANGE and not name else name
            raise NotPermitted(
                f"access to {kind.value} '{told}' in vhost '{self.vhost}' refused for user '{self.user}'"
            )

    def check_keys(self, action: Action, exchange: str, key: str) -> None:
        """Check `may_use_keys`; raises NotPermitted."""
        if not self.may_use_keys(action, exchange, key):
            raise NotPermitted(
                f"access to topic '{key}' in exchange '{exchange}' in vhost '{self.vhost}' refused for user "
                f"'{self.user}'"
            )

    def is_narrowed_by(self, login: Login) -> bool:
        """Return whether `login`, the user's present one, would refuse what was allowed; if not, it holds
        now.
        """
        if not login.may_enter(self.vhost) or (self._tags and not self._tags & login.tags):
            return True
        rights = login.rights(self.vhost, self.client_id)
        if self._has_forgotten:
            if login.grant_of(self.vhost) != self.login.grant_of(self.vhost):
                return True
        elif not all(_cover(rights, *asked) for asked in self._allowed):
            return True
        self.login = login
        self._rights = rights
        return False

    def revoke(self) -> None:
        """Allow nothing any more, whatever is still to be done for the connection."""
        self._rights = Rights(Grant(groups=""), user="", client_id="", vhost="")
        self._allowed.clear()


def _cover(rights: Rights | JoinedRights, action: Action, kind: Kind | str, name: str) -> bool:
    if isinstance(kind, Kind):
        return VHOST_SEPARATOR not in name and rights.cover(action, kind, name)
    if kind == _ALL_TOPICS:
        return rights.cover_all_topics(action)
    return rights.cover_keys(action, kind.removeprefix(_KEYS_OF), name)
