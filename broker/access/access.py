"""What a running broker asks: who is that, and who is there."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Final

from broker.access.accounts import Accounts
from broker.access.addresses import Addresses
from broker.access.credentials import Anonymous, Certificate, Credentials, LoginRefused, Password, Peer
from broker.access.login import Login
from broker.access.present import REMOVED, Present
from broker.access.rights import EVERYTHING
from broker.access.scram import Decoys, ScramExchange
from broker.access.throttle import Throttle
from broker.access.users import GUEST, USERS_FILE, Users, grants_of, guest
from broker.clock import Clock
from config import limits
from config.access import AccessSettings

GUEST_FROM_ELSEWHERE: Final = "without a users file clients may only connect from the broker's own machine"
ANONYMOUS: Final = "anonymous"
NO_STRANGERS: Final = "clients have to say who they are"


class Access:
    """Decides who comes in, and knows the identities of who is in.

    `login` finds out who somebody is; `Login.enter` gives the identity for a virtual host, which a connection
    that stays tells `present`. Call it from the broker's event loop.
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        """Raises `config.loader.ConfigError` for files that cannot be used."""
        self._settings = settings
        self._clock = clock
        self._accounts = Accounts(settings, clock)
        self.present = Present()
        self.addresses = Addresses(settings)
        self._listeners: list[Callable[[], None]] = []
        self._throttle = Throttle()
        self._decoys = Decoys()
        self._waiting_count = 0
        self._nobody = _anonymous_login(settings)

    @property
    def has_users(self) -> bool:
        """Whether anybody has an account: if not there is the guest, who comes from this machine only."""
        return bool(self._accounts.ways)

    @property
    def users(self) -> Users | None:
        """The accounts of the users file, None: there is no such file."""
        return self._accounts.users

    def prepare(self, settings: AccessSettings) -> Accounts:
        """Read the users anew, for `take`; raises ConfigError."""
        return Accounts(settings, self._clock)

    async def take(self, accounts: Accounts) -> int:
        """Go by these from now on; gives how many connections ended, of users who are gone or may do less."""
        before, self._accounts = self._accounts, accounts
        self._settings = accounts.settings
        self._nobody = _anonymous_login(accounts.settings)
        self.addresses.follow(accounts.settings)
        ended = self.present.review(lambda identity: self._login_now(identity.login))
        for listener in self._listeners:
            listener()
        await before.retire()
        return ended

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Have it called once the users have been read anew."""
        self._listeners.append(listener)

    def current(self, login: Login) -> Login:
        """What somebody may do by now who logged in before; raises LoginRefused where they are not known any
        more.
        """
        found = self._login_now(login)
        if found is None:
            raise LoginRefused(REMOVED, REMOVED)
        return found

    def earlier(self, user: str, source: str) -> Login:
        """Somebody who was in before the broker started, and what vouched for them ("": not known, it is what
        vouches for such a name now); `current` says what they may do.
        """
        if not source:
            source = ANONYMOUS if not user else USERS_FILE if self.has_users else GUEST
        return Login(user, {"*": EVERYTHING}, source=source)

    def _login_now(self, login: Login) -> Login | None:
        """The same; None: they may not be in."""
        if login.source == ANONYMOUS:
            is_admitted = self._settings.anonymous != "never"
            return self._nobody if is_admitted else None
        if login.source == GUEST:
            return None if self.has_users else guest()
        return self._accounts.login_now(login)

    @property
    def admits_others(self) -> bool:
        """Whether anybody may come in from another machine."""
        return self.has_users or self._settings.anonymous == "always"

    async def close(self) -> None:
        """Nobody is let in any more."""
        await self._accounts.close()

    def login_at_once(self, credentials: Credentials, peer: Peer) -> Login | None:
        """As `login`, where nothing has to be waited for; None: it has to be. Raises LoginRefused."""
        if isinstance(credentials, Anonymous):
            return self._stranger(peer)
        if isinstance(credentials, Certificate):
            return self._by_certificate(credentials, peer)
        if not self.has_users:
            if not peer.is_local:
                raise LoginRefused(GUEST_FROM_ELSEWHERE, GUEST_FROM_ELSEWHERE)
            if credentials.user == GUEST and hmac.compare_digest(credentials.password, GUEST.encode()):
                return guest()
        login = self._accounts.login_at_once(credentials)
        return login if login is not None and self._holds(login) else None

    async def login(self, credentials: Credentials, peer: Peer) -> Login:
        """Who that is; raises LoginRefused.

        Takes longer the more logins failed that came from there or were of that user.
        """
        if self._waiting_count >= limits.LOGINS_WAITING_MAX:
            raise LoginRefused("too many logins at once")
        self._waiting_count += 1
        try:
            login = self.login_at_once(credentials, peer)
            if login is not None:
                return login
            assert isinstance(credentials, Password)  # of others it is known at once
            login = self.current(await self._slowed_login(credentials, peer))
            if not self._holds(login):
                raise LoginRefused("the login has ended")
            return login
        finally:
            self._waiting_count -= 1

    def _holds(self, login: Login) -> bool:
        """Whether what vouched for it still does."""
        return login.expires_at_ms is None or self._clock.now_ms() < login.expires_at_ms

    # SCRAM, of which a client takes the steps

    def begin_scram(self) -> ScramExchange | None:
        """A client wants to prove its password; None where no user could."""
        users = self._accounts.users
        if users is None or not users.has_verifiers:
            return None
        decoys = self._decoys
        return ScramExchange(lambda user: users.verifier(user) or decoys.verifier(user))

    def check_scram(self, user: str, peer: Peer) -> None:
        """Raise LoginRefused where too many logins failed to wait for."""
        if self._throttle.wait_s(peer.host, user, self._clock.monotonic()) != 0:
            raise LoginRefused("too many failed logins")

    def scram_failed(self, user: str, peer: Peer) -> None:
        """The proof was wrong."""
        self._throttle.failed(peer.host, user, self._clock.monotonic())

    def scram_succeeded(self, user: str, peer: Peer) -> Login:
        """The proof was right: who that is; raises LoginRefused if the user went meanwhile."""
        login = None if self._accounts.users is None else self._accounts.users.find(user)
        if login is None:
            raise LoginRefused(LoginRefused.TOLD)
        self._throttle.succeeded(peer.host, user)
        return login

    def _by_certificate(self, shown: Certificate, peer: Peer) -> Login:
        """Whose certificate that is; one of nobody is as none, where no more is asked of it."""
        login = self._accounts.find_by_certificate(shown.names)
        if login is None and shown.is_claim:
            raise LoginRefused("the certificate is no user's")
        return login or self._stranger(peer)

    def _stranger(self, peer: Peer) -> Login:
        """Who does not say who it is."""
        allowed = self._settings.anonymous
        if allowed == "never":
            raise LoginRefused(NO_STRANGERS, NO_STRANGERS)
        if allowed == "loopback" and not peer.is_local:
            reason = NO_STRANGERS if self.has_users else GUEST_FROM_ELSEWHERE
            raise LoginRefused(reason, reason)
        return self._nobody

    async def _slowed_login(self, credentials: Password, peer: Peer) -> Login:
        throttle = self._throttle
        user = credentials.user[: limits.USER_NAME_BYTES_MAX]
        wait_s = throttle.wait_s(peer.host, user, self._clock.monotonic())
        if wait_s is None:
            raise LoginRefused("too many failed logins")
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        try:
            login = await self._accounts.login(credentials, peer)
        except LoginRefused:
            throttle.failed(peer.host, user, self._clock.monotonic())
            raise
        throttle.succeeded(peer.host, user)
        return login


def _anonymous_login(settings: AccessSettings) -> Login:
    """What those may do who do not say who they are, if they may come in."""
    return Login("", grants_of(settings.anonymous_permissions), source=ANONYMOUS)
