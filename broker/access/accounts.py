"""The accounts of all the places that know users, in the configured order."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from broker.access import passwords
from broker.access.accounts_of_file import USERS_FILE, Users
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.login import Login
from broker.access.rights import ExchangeTypes
from broker.access.way import KnownSecrets, Way
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings, LdapSettings
from config.settings_loader import ConfigError
from config.users_file import load_users

if TYPE_CHECKING:
    from broker.access.openid import OpenId


class UserPasswords:
    """A `broker.access.way.Way`; hashing is done in threads, so that the loop goes on."""

    source = USERS_FILE

    def __init__(self, users: Users, clock: Clock, known: KnownSecrets) -> None:
        passwords.nobodys_hash()  # made now, that the first stranger does not wait longer
        self.users = users
        self._clock = clock
        self._known = known
        self._threads: ThreadPoolExecutor | None = None

    def login_at_once(self, credentials: Password) -> Login | None:
        kept = self.users.password_hash(credentials.user)
        if kept is None:
            return None
        if self._known.find(credentials, kept, self._clock.monotonic()) is None:
            return None
        return self.users.find(credentials.user)

    async def login(self, credentials: Password, peer: Peer) -> Login:
        if len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            raise LoginRefused(LoginRefused.TOLD)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(limits.PASSWORD_THREADS_MAX, "passwords")
        users = self.users
        call = partial(users.login, credentials.user, credentials.password)
        login = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        kept = users.password_hash(credentials.user)
        if kept is not None:
            self._known.keep(credentials, kept, None, self._clock.monotonic() + limits.LOGINS_KEPT_S)
        return login

    def login_now(self, login: Login) -> Login | None:
        return self.users.find(login.user)

    async def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


class Accounts:
    """As the settings have them; other settings make another. `users` are those of the users file."""

    def __init__(
        self, settings: AccessSettings, clock: Clock, known: KnownSecrets, types: ExchangeTypes
    ) -> None:
        """Take the ways to log in. `known` are passwords that were found right, each with the hash it is for:
        they hold for accounts that are read anew, too. Raises ConfigError for a file that cannot be used.
        """
        self.settings = settings
        self.users = Users(load_users(settings.users_file)) if settings.users_file else None
        self.openid: OpenId | None = None
        ways: dict[str, Way] = {}
        if self.users is not None:
            ways["users"] = UserPasswords(self.users, clock, known)
        # tokens and hooks bring libraries along that most brokers do without
        if settings.jwt is not None:
            from broker.access.tokens import Tokens

            ways["jwt"] = tokens = Tokens(settings.jwt, self.users, clock, types)
            if settings.openid is not None:
                from broker.access.openid import OpenId

                self.openid = OpenId(settings.openid, settings.jwt.issuer, tokens, clock)
        if settings.ldap is not None:
            ways["ldap"] = _directory_users(settings.ldap, clock)
        if settings.http is not None:
            from broker.access.web_hook import WebHook

            ways["http"] = WebHook(settings.http, clock)
        self.ways = [ways[name] for name in settings.order if name in ways]
        self._login_count = 0
        self._is_retired = False

    def login_at_once(self, credentials: Password) -> Login | None:
        """Log in where nothing has to be waited for."""
        for way in self.ways:
            login = way.login_at_once(credentials)
            if login is not None:
                return login
        return None

    async def login(self, credentials: Password, peer: Peer) -> Login:
        """Log in by the sources, asked one after the other; raises LoginRefused with the last one's
        reason.
        """
        refused = LoginRefused(LoginRefused.TOLD)
        self._login_count += 1
        try:
            for way in self.ways:
                try:
                    return await way.login(credentials, peer)
                except LoginRefused as error:
                    refused = error
        finally:
            self._login_count -= 1
            await self._close_if_left()
        raise refused

    def login_now(self, login: Login) -> Login | None:
        """Return the present rights of a user that came in before; None: not to be in."""
        if login.source == USERS_FILE:  # also by a certificate
            return None if self.users is None else self.users.find(login.user)
        for way in self.ways:
            if way.source == login.source:
                return way.login_now(login)
        return None

    def find_by_certificate(self, names: tuple[str, ...]) -> Login | None:
        """Return the login of the certificate's user."""
        if self.users is None:
            return None
        return self.users.find_by_certificate(names, self.settings.certificate_user)

    async def retire(self) -> None:
        """Make place for others: logins under way get an answer, then the sources are closed."""
        self._is_retired = True
        await self._close_if_left()

    async def _close_if_left(self) -> None:
        if self._is_retired and not self._login_count:
            await self.close()

    async def close(self) -> None:
        """Ask no source any more."""
        for way in self.ways:
            await way.close()


def _directory_users(settings: LdapSettings, clock: Clock) -> Way:
    """Return the way through a directory; raises ConfigError where the library is missing."""
    try:
        from broker.access.directory_users import DirectoryUsers
    except ImportError as error:
        raise ConfigError([f"access.ldap needs ldap3: pip install 'sluicemq[ldap]' ({error})"]) from None
    return DirectoryUsers(settings, clock)
