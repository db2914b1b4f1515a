"""Accounts: the users file as it was read, and who comes in by a password of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from broker.access import passwords
from broker.access.credentials import LoginRefused
from broker.access.login import ADMINISTRATOR, Login
from broker.access.rights import EVERYTHING, Action, Grant, TopicGrant
from broker.access.scram import Verifier, read_verifier
from config.access_settings import PermissionSettings, UserSettings, UsersSettings
from config.quota_settings import QuotaSettings, quota_field

GUEST: Final = "guest"
ITSELF: Final = "broker"
USERS_FILE: Final = "users file"

_RULES: Final = {
    "read": (Action.READ,),
    "write": (Action.WRITE,),
    "readwrite": (Action.READ, Action.WRITE),
}


class UserView(QuotaSettings):
    """The part of an account that may be shown: nothing that helps to log in."""

    name: str
    tags: tuple[str, ...]
    permissions: tuple[PermissionSettings, ...]
    certificates: tuple[str, ...]


class Users:
    """The users of one reading of the file; a reload makes another."""

    __slots__ = ("_by_certificate", "_by_name", "_logins")

    def __init__(self, settings: UsersSettings) -> None:
        self._logins: dict[str, Login] = {}
        self._by_name = {user.name: user for user in settings.users}
        self._by_certificate = {name: user for user in settings.users for name in user.certificates}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def names(self) -> list[str]:
        """Of all users."""
        return list(self._by_name)

    def kept(self) -> list[UserSettings]:
        """Return the accounts as the file has them, with their hashes."""
        return list(self._by_name.values())

    def view(self, name: str) -> UserView:
        """Return what may be shown of the user, which is there."""
        user = self._by_name[name]
        return UserView(
            name=user.name,
            tags=user.tags,
            permissions=user.permissions,
            certificates=user.certificates,
            **{quota_field(name): most for name, most in user.quotas().items()},
        )

    def quotas(self) -> dict[str, Mapping[str, int]]:
        """Return those of the users who have some."""
        found = {name: user.quotas() for name, user in self._by_name.items()}
        return {name: quotas for name, quotas in found.items() if quotas}

    def find(self, name: str) -> Login | None:
        """Return the login of the user, None if there is no such user."""
        login = self._logins.get(name)
        if login is None and name in self._by_name:
            login = self._logins[name] = login_of(self._by_name[name])
        return login

    def find_by_certificate(self, names: Iterable[str], kind: str) -> Login | None:
        """Return the login of the certificate's user: one that names it, or whose name is its first of that
        kind.
        """
        for name in names:
            user = self._by_certificate.get(name)
            if user is None and name.startswith(f"{kind}:"):
                user = self._by_name.get(name.partition(":")[2])
            if user is not None:
                return self.find(user.name)
        return None

    @property
    def has_verifiers(self) -> bool:
        """Whether some user has a SCRAM verifier."""
        return any(user.scram is not None for user in self._by_name.values())

    def verifier(self, name: str) -> Verifier | None:
        """Return the SCRAM verifier of a user, None: there is no such user, or the user has none."""
        user = self._by_name.get(name)
        return None if user is None or user.scram is None else read_verifier(user.scram)

    def password_hash(self, name: str) -> str | None:
        """Return that of the user, None: there is no such user, or no password."""
        user = self._by_name.get(name)
        return None if user is None else user.password

    def login(self, name: str, password: bytes) -> Login:
        """Return the user of this name and password; raises LoginRefused.

        Takes tens of ms of a processor, as long for users who are not there: to be called in a thread.
        """
        user = self._by_name.get(name)
        kept = None if user is None else user.password
        is_right = passwords.is_password(kept or passwords.nobodys_hash(), password)
        if user is None or kept is None or not is_right:
            raise LoginRefused(LoginRefused.TOLD)
        return login_of(user)


@cache
def guest() -> Login:
    """Return the login there is without a users file."""
    return Login(GUEST, {"*": EVERYTHING}, tags=frozenset((ADMINISTRATOR,)), source=GUEST)


def itself() -> Login:
    """Return the login of the broker, which passes on what somebody was permitted to publish."""
    return Login("", {"*": EVERYTHING}, source=ITSELF)


def administrator(user: str) -> Login:
    """Return the login of an administrator, who may do everything under the own name."""
    return Login(user, {"*": EVERYTHING}, source=USERS_FILE)


def login_of(user: UserSettings) -> Login:
    """Return the login of a user of the file."""
    return Login(
        user.name,
        grants_of(user.permissions),
        tags=frozenset(user.tags),
        source=USERS_FILE,
    )


def grants_of(permissions: Iterable[PermissionSettings]) -> Mapping[str, Grant]:
    """Return permissions as they were configured, by virtual host."""
    return {permission.vhost: _grant(permission) for permission in permissions}


def _grant(permission: PermissionSettings) -> Grant:
    rules: list[tuple[Action, str]] = []
    for rule in permission.acl:
        access, _, topic_filter = rule.partition(" ")
        rules += [(action, topic_filter) for action in _RULES[access]]
    return Grant(
        configure=permission.configure,
        write=permission.write,
        read=permission.read,
        groups=permission.groups,
        topics=tuple(TopicGrant(topic.exchange, topic.write, topic.read) for topic in permission.topics),
        rules=tuple(rules),
    )
