"""Users of a directory: who comes in by it, and what their groups may do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from broker.access.accounts_of_file import grants_of
from broker.access.asked_way import AskedWay, NoAnswer
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.directory import Directory, DirectoryError, Unclear, group_name
from broker.access.login import Login
from broker.access.rights import Grant, JoinedGrant
from broker.clock import Clock
from config import limits
from config.access_settings import GroupSettings, LdapSettings, check_user_name

LDAP: Final = "ldap"


@dataclass(slots=True, eq=False, repr=False)
class DirectoryLogin(Login):
    """A login with the rights of groups, which the settings may give others while it lasts."""

    groups: frozenset[str]


class DirectoryUsers(AskedWay):
    """A `broker.access.way.Way`."""

    source = LDAP
    _who = "the directory that knows the users"
    _event = "ldap"

    def __init__(self, settings: LdapSettings, clock: Clock) -> None:
        super().__init__(settings.servers[0], settings.cache_ms, settings.cache_refused_ms, clock)
        self._settings = settings
        self._directory = Directory(settings)
        self._threads = ThreadPoolExecutor(settings.connections, "ldap")
        self._groups = [(group_name(each.group), each) for each in settings.groups]

    def login_now(self, login: Login) -> Login | None:
        """See `Way`: who somebody is, and their groups, hold for the connection, or as long as `expires`."""
        if not isinstance(login, DirectoryLogin):  # of a will, from before the broker started
            return login
        return self._login(login.user, login.groups, login.expires_at_ms)

    async def close(self) -> None:
        """See `Way`."""
        self._directory.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, credentials: Password, peer: Peer) -> Login | None:
        """See `AskedWay`."""
        try:
            password = credentials.password.decode()
            user = check_user_name(credentials.user)
        except ValueError:
            return None
        if len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            return None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                found = await loop.run_in_executor(self._threads, self._directory.find, user, password)
        except Unclear as error:
            raise LoginRefused(str(error)) from None
        except DirectoryError as error:
            raise NoAnswer(str(error)) from None
        except (TimeoutError, RuntimeError) as error:  # the latter: it was closed
            raise NoAnswer(type(error).__name__) from None
        if found is None:
            return None
        try:
            check_user_name(found.name)
        except ValueError:
            raise LoginRefused("the directory has a name that could be no user") from None
        lasts_ms = self._settings.expires_ms
        return self._login(found.name, found.groups, self._clock.now_ms() + lasts_ms if lasts_ms else None)

    def _login(self, user: str, groups: frozenset[str], expires_at_ms: int | None) -> Login:
        own = [each for name, each in self._groups if not each.group or name in groups]
        return DirectoryLogin(
            user,
            _joined(own),
            tags=frozenset(tag for each in own for tag in each.tags),
            source=LDAP,
            expires_at_ms=expires_at_ms,
            groups=groups,
        )


def _joined(groups: Iterable[GroupSettings]) -> Mapping[str, Grant]:
    """Return what somebody may do who is in all of these: what one of them may."""
    each = [grants_of(group.permissions) for group in groups if group.permissions]
    if len(each) == 1:
        return each[0]
    joined: dict[str, Grant] = {}
    for vhost in {vhost for grants in each for vhost in grants}:
        found = (grants.get(vhost) or grants.get("*") for grants in each)
        joined[vhost] = JoinedGrant(grants=tuple(grant for grant in found if grant is not None))
    return joined
