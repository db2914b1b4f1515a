"""Access control of a running broker: logins, and the clients that are there."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.access.accounts import Accounts
from broker.access.accounts_of_file import GUEST, ITSELF, USERS_FILE, Users, grants_of, guest
from broker.access.address_limits import Addresses
from broker.access.ban_table import BanTable, Flapping
from broker.access.credentials import (
    Anonymous,
    Certificate,
    Credentials,
    LoginRefused,
    Misled,
    Password,
    Peer,
)
from broker.access.issuer_login import Begun, Done, IssuerSilent, Vouched
from broker.access.login import Login
from broker.access.present import CHANGED, EXPIRED, REMOVED, Present
from broker.access.rights import EVERYTHING, ExchangeTypes
from broker.access.scram import Decoys, ScramExchange
from broker.access.throttle import Throttle
from broker.access.way import KnownSecrets
from broker.clock import Clock
from config import limits
from config.access_settings import AccessSettings
from queue_manager.validity import Version

if TYPE_CHECKING:
    from broker.access.openid import OpenId

GUEST_FROM_ELSEWHERE: Final = "without a users file clients may only connect from the broker's own machine"
ANONYMOUS: Final = "anonymous"
NO_STRANGERS: Final = "clients have to say who they are"


class Access:
    """Decides who comes in, and knows the identities of who is in.

    `login` finds out who somebody is; `Login.enter` gives the identity for a virtual host, which a connection
    that stays tells `present`. Call it from the broker's event loop.
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        """Read the accounts. Raises `config.settings_loader.ConfigError` for files that cannot be used."""
        self._settings = settings
        self._clock = clock
        self._known = KnownSecrets()
        self.exchange_types = ExchangeTypes()
        self._accounts = Accounts(settings, clock, self._known, self.exchange_types)
        self.present = Present()
        self.version = Version()  # of the accounts and settings
        self.addresses = Addresses(settings)
        self.bans = BanTable(clock.now_ms)
        self.flapping = Flapping(settings.flapping)
        self._listeners: list[Callable[[], None]] = []
        self._users_taken: Callable[[Users | None, Users | None, str], None] = lambda before, after, by: None
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

    @property
    def quotas(self) -> tuple[Mapping[str, int], Mapping[str, Mapping[str, int]]]:
        """What any user may have, and users of the users file, as far as they have quotas of their own."""
        users = self._accounts.users
        return self._settings.quotas.quotas(), {} if users is None else users.quotas()

    @property
    def webhook_networks(self) -> tuple[str, ...]:
        """The networks without public addresses that webhooks may post to."""
        return self._settings.webhook_networks

    def prepare(self, settings: AccessSettings) -> Accounts:
        """Read the users anew, for `take`; raises ConfigError."""
        return Accounts(settings, self._clock, self._known, self.exchange_types)

    def on_users_taken(self, call: Callable[[Users | None, Users | None, str], None]) -> None:
        """Have `call` called with the users there were, those there are, and who changed them."""
        self._users_taken = call

    async def take(self, accounts: Accounts, by: str = "") -> int:
        """Go by these from now on; gives how many connections ended, of users who are gone or may do less.
        `by` changed them.
        """
        before, self._accounts = self._accounts, accounts
        self.version.expire()
        self.version = Version()
        self._settings = accounts.settings
        self._nobody = _anonymous_login(accounts.settings)
        self.addresses.follow(accounts.settings)
        self.flapping.settings = accounts.settings.flapping
        ended = self.present.review(lambda identity: self._login_now(identity.login))
        for listener in self._listeners:
            listener()
        self._users_taken(before.users, accounts.users, by)
        await before.retire()
        return ended

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Have it called once the users have been read anew."""
        self._listeners.append(listener)

    def current(self, login: Login) -> Login:
        """Return the present rights of a user that logged in before; raises LoginRefused where the user is
        not known any more.
        """
        found = self._login_now(login)
        if found is None:
            raise LoginRefused(REMOVED, REMOVED)
        self.bans.check_user(found.user)
        return found

    def earlier(self, user: str, source: str) -> Login:
        """Return the login of a user that was in before the broker started, with what vouched for it ("": not
        known, it is what vouches for such a name now); `current` gives its rights.
        """
        if not source:
            source = ANONYMOUS if not user else USERS_FILE if self.has_users else GUEST
        return Login(user, {"*": EVERYTHING}, source=source)

    def _login_now(self, login: Login) -> Login | None:
        """Return the same; None: the user may not be in."""
        if login.source == ITSELF:
            return login
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
        """Let no client in any more."""
        await self._accounts.close()

    def login_at_once(self, credentials: Credentials, peer: Peer) -> Login | None:
        """Log in as `login`, where nothing has to be waited for; None: it has to be. Raises LoginRefused."""
        if self.bans.is_empty:
            return self._login_at_once(credentials, peer)
        self.bans.check_address(peer.host)
        login = self._login_at_once(credentials, peer)
        if login is not None:
            self.bans.check_user(login.user)
        return login

    def _login_at_once(self, credentials: Credentials, peer: Peer) -> Login | None:
        if isinstance(credentials, Anonymous):
            return self._stranger(peer)
        if isinstance(credentials, Certificate):
            return self._by_certificate(credentials, peer)
        if not self.has_users:
            if not peer.is_local:
                raise LoginRefused(GUEST_FROM_ELSEWHERE, GUEST_FROM_ELSEWHERE)
            if credentials.user == GUEST and hmac.compare_digest(credentials.password, GUEST.encode()):
                if peer.is_misled:  # everybody knows that password
                    raise Misled
                return guest()
        login = self._accounts.login_at_once(credentials)
        return login if login is not None and self._holds(login) else None

    async def login(self, credentials: Credentials, peer: Peer) -> Login:
        """Log a client in; raises LoginRefused.

        Takes longer the more logins failed that came from there or were of that user.
        """
        login = self.login_at_once(credentials, peer)
        if login is not None:
            return login
        assert isinstance(credentials, Password)  # of others it is known at once
        at_once = partial(self.login_at_once, credentials, peer)
        look = partial(self._look, credentials, peer)
        login = await self._slowed(credentials.user, peer, at_once, look)
        if not self._holds(login):
            raise LoginRefused("the login has ended")
        self.bans.check_user(login.user)
        return login

    async def _look(self, credentials: Password, peer: Peer) -> Login:
        """Return the login by the accounts there are once it is known: they may be read anew meanwhile."""
        while True:
            accounts = self._accounts
            login = await accounts.login(credentials, peer)
            if accounts is self._accounts:
                return login
            now = self.login_at_once(credentials, peer)  # a password whose hash is the same is known
            if now is not None:
                return now

    def check_same(self, login: Login) -> None:
        """Raise LoginRefused unless who logged in so a moment ago may still do the same."""
        now = self._login_now(login)
        if now is None:
            raise LoginRefused(REMOVED, REMOVED)
        if not self._holds(login):
            raise LoginRefused(EXPIRED, EXPIRED)
        if not login.allows_as(now):
            raise LoginRefused(CHANGED, CHANGED)

    def _holds(self, login: Login) -> bool:
        """Return whether what vouched for it still does."""
        return login.expires_at_ms is None or self._clock.now_ms() < login.expires_at_ms

    # logins at an issuer, which the pages take

    @property
    def openid(self) -> OpenId | None:
        """Who logs people in by OpenID Connect; None: nobody."""
        return self._accounts.openid

    async def login_by_issuer(self, openid: OpenId, begun: Begun, code: str, peer: Peer) -> Done:
        """Log in whom the issuer gave a code; raises LoginRefused. Takes longer as `login` does."""
        self.bans.check_address(peer.host)
        found: list[Done] = []

        async def look() -> Login:
            found.append(await openid.log_in(begun, code))
            return found[0].login

        await self._slowed("", peer, lambda: None, look)
        return self._now(found[0])

    async def renew_by_issuer(self, vouched: Vouched) -> Done | None:
        """Log in again whom the issuer vouched for; None: it does not answer. Raises LoginRefused."""
        openid = self.openid
        if openid is None or not vouched.refresh_token:
            raise LoginRefused(EXPIRED, EXPIRED)
        try:
            return self._now(await openid.renew(vouched))
        except IssuerSilent:
            return None

    def _now(self, done: Done) -> Done:
        """Return the same, unless it does not hold any more: settings may have changed meanwhile."""
        self.check_same(done.login)
        self.bans.check_user(done.login.user)
        return done

    # SCRAM, of which a client takes the steps

    def begin_scram(self) -> ScramExchange | None:
        """Begin the exchange of a client that wants to prove its password; None where no user could."""
        users = self._accounts.users
        if users is None or not users.has_verifiers:
            return None
        decoys = self._decoys
        return ScramExchange(lambda user: users.verifier(user) or decoys.verifier(user))

    async def finish_scram(self, exchange: ScramExchange, proof: bytes, peer: Peer) -> tuple[Login, bytes]:
        """Return the login that the client's last message proves, and the answer to it; raises LoginRefused.

        Takes longer as `login` does.
        """
        said: list[bytes] = []

        async def look() -> Login:
            said.append(exchange.step(proof))
            users = self._accounts.users
            login = None if users is None else users.find(exchange.user)
            if users is None or login is None or users.verifier(exchange.user) != exchange.verifier:
                raise LoginRefused(
                    LoginRefused.TOLD
                )  # the user went, or has another password, since it began
            return login

        login = await self._slowed(exchange.user, peer, lambda: None, look)
        return login, said[0]

    def _by_certificate(self, shown: Certificate, peer: Peer) -> Login:
        """Return the login of the certificate's user; a certificate of no user is as none, where no more is
        asked of it.
        """
        login = self._accounts.find_by_certificate(shown.names)
        if login is None and shown.is_claim:
            raise LoginRefused("the certificate is no user's")
        return login or self._stranger(peer)

    def _stranger(self, peer: Peer) -> Login:
        """Return the login of a client that gives no name."""
        allowed = self._settings.anonymous
        if allowed == "never":
            raise LoginRefused(NO_STRANGERS, NO_STRANGERS)
        if allowed == "loopback" and not peer.is_local:
            reason = NO_STRANGERS if self.has_users else GUEST_FROM_ELSEWHERE
            raise LoginRefused(reason, reason)
        if peer.is_misled:
            raise Misled
        return self._nobody

    async def _slowed(
        self,
        user: str,
        peer: Peer,
        at_once: Callable[[], Login | None],
        look: Callable[[], Awaitable[Login]],
    ) -> Login:
        """Return the result of `look` in its turn, unless it is known `at_once` by then; raises
        LoginRefused.
        """
        if self._waiting_count >= limits.LOGINS_WAITING_MAX:
            raise LoginRefused("too many logins at once")
        self._waiting_count += 1
        try:
            async with self._throttle.slot(peer.host, user):
                login = at_once()
                if login is not None:
                    return login
                wait_s = self._throttle.wait_s(peer.host, user, self._clock.monotonic())
                if wait_s is None:
                    raise LoginRefused("too many failed logins")
                if not wait_s:
                    return await self._counted(user, peer, look)
            await asyncio.sleep(wait_s)
            return await self._counted(user, peer, look)
        finally:
            self._waiting_count -= 1

    async def _counted(self, user: str, peer: Peer, look: Callable[[], Awaitable[Login]]) -> Login:
        try:
            login = await look()
        except LoginRefused:
            self._throttle.failed(peer.host, user, self._clock.monotonic())
            raise
        self._throttle.succeeded(peer.host, user)
        return login


def _anonymous_login(settings: AccessSettings) -> Login:
    """Return the login of clients that give no name, if they may come in."""
    return Login("", grants_of(settings.anonymous_permissions), source=ANONYMOUS)
