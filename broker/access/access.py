"""What a running broker asks: who is that, and who is there."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

import structlog

from broker.access import passwords
from broker.access.credentials import Anonymous, Certificate, Credentials, LoginRefused, Password, Peer
from broker.access.login import Identity, Login
from broker.access.present import Present
from broker.access.throttle import Throttle
from broker.access.users import GUEST, USERS_FILE, Users, grants_of, guest
from broker.clock import Clock
from config import limits
from config.access import AccessSettings
from config.users_file import load_users

_log: Final = structlog.get_logger("sluicemq.access")

GUEST_FROM_ELSEWHERE: Final = "without a users file clients may only connect from the broker's own machine"
ANONYMOUS: Final = "anonymous"
NO_STRANGERS: Final = "clients have to say who they are"


class Access:
    """Decides who comes in, and knows the identities of who is in.

    `login` finds out who somebody is; `Login.enter` gives the identity for a virtual host, which a connection
    that stays tells `present`. Call it from the broker's event loop.
    """

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        """Raises `config.loader.ConfigError` for a users file that cannot be used."""
        self._settings = settings
        self._clock = clock
        self._users = _load(settings)
        self.present = Present()
        self._listeners: list[Callable[[], None]] = []
        self._throttle = Throttle()
        self._known = _KnownPasswords()
        self._waiting_count = 0
        self._threads: ThreadPoolExecutor | None = None

    @property
    def has_users(self) -> bool:
        """Whether there is a users file: without one there are no accounts but that of the guest."""
        return self._users is not None

    def check(self, settings: AccessSettings) -> None:
        """Raise ConfigError if the settings could not be used."""
        _load(settings)

    def reload(self, settings: AccessSettings) -> int:
        """Read the users anew; gives how many connections ended, of users who are gone or may do less.

        Raises ConfigError; then nothing changes.
        """
        users = _load(settings)
        self._settings = settings
        self._users = users
        ended = self.present.review(self._login_now)
        for listener in self._listeners:
            listener()
        return ended

    def on_reload(self, listener: Callable[[], None]) -> None:
        """Have it called once the users have been read anew."""
        self._listeners.append(listener)

    def _login_now(self, identity: Identity) -> Login | None:
        """What somebody who is in may do by now; None: not be in."""
        login = identity.login
        if login.source == ANONYMOUS:
            is_admitted = self._settings.anonymous != "never"
            return self._anonymous_login() if is_admitted else None
        if login.source == GUEST:
            return guest() if self._users is None else None
        if login.source == USERS_FILE:
            return None if self._users is None else self._users.find(login.user)
        return login

    @property
    def admits_others(self) -> bool:
        """Whether anybody may come in from another machine."""
        return self._users is not None or self._settings.anonymous == "always"

    def close(self) -> None:
        """Nobody is let in any more."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def login_at_once(self, credentials: Credentials, peer: Peer) -> Login | None:
        """As `login`, where nothing has to be waited for; None: it has to be. Raises LoginRefused."""
        if isinstance(credentials, Anonymous):
            return self._stranger(peer)
        if isinstance(credentials, Certificate):
            return self._by_certificate(credentials, peer)
        now = self._clock.monotonic()
        if self._users is None:
            if not peer.is_local:
                raise LoginRefused(GUEST_FROM_ELSEWHERE, GUEST_FROM_ELSEWHERE)
            if credentials.user == GUEST and hmac.compare_digest(credentials.password, GUEST.encode()):
                return guest()
        elif self._known.holds(credentials, self._users.password_hash(credentials.user), now):
            return self._users.find(credentials.user)
        return None

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
            return await self._slowed_login(credentials, peer)
        finally:
            self._waiting_count -= 1

    def _by_certificate(self, shown: Certificate, peer: Peer) -> Login:
        """Whose certificate that is; one of nobody is as none, where no more is asked of it."""
        login = None
        if self._users is not None:
            login = self._users.find_by_certificate(shown.names, self._settings.certificate_user)
        if login is None and shown.is_claim:
            raise LoginRefused("the certificate is no user's")
        return login or self._stranger(peer)

    def _stranger(self, peer: Peer) -> Login:
        """Who does not say who it is."""
        allowed = self._settings.anonymous
        if allowed == "never":
            raise LoginRefused(NO_STRANGERS, NO_STRANGERS)
        if allowed == "loopback" and not peer.is_local:
            reason = GUEST_FROM_ELSEWHERE if self._users is None else NO_STRANGERS
            raise LoginRefused(reason, reason)
        return self._anonymous_login()

    def _anonymous_login(self) -> Login:
        return Login("", grants_of(self._settings.anonymous_permissions), source=ANONYMOUS)

    async def _slowed_login(self, credentials: Password, peer: Peer) -> Login:
        throttle = self._throttle
        user = credentials.user[: limits.USER_NAME_BYTES_MAX]
        wait_s = throttle.wait_s(peer.host, user, self._clock.monotonic())
        if wait_s is None:
            raise LoginRefused("too many failed logins")
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        try:
            login = await self._by_password(credentials)
        except LoginRefused:
            throttle.failed(peer.host, user, self._clock.monotonic())
            raise
        throttle.succeeded(peer.host, user)
        return login

    async def _by_password(self, credentials: Password) -> Login:
        users = self._users
        if users is None or len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            raise LoginRefused(LoginRefused.TOLD)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(limits.PASSWORD_THREADS_MAX, "passwords")
        loop = asyncio.get_running_loop()
        call = partial(users.login, credentials.user, credentials.password)
        login = await loop.run_in_executor(self._threads, call)
        self._known.keep(credentials, users.password_hash(credentials.user), self._clock.monotonic())
        return login


def _load(settings: AccessSettings) -> Users | None:
    if not settings.users_file:
        return None
    passwords.nobodys_hash()  # made now, that the first stranger does not wait longer
    return Users(load_users(settings.users_file))


class _KnownPasswords:
    """Which passwords were found right lately: a client who comes back need not be hashed again.

    What is kept is a keyed hash that is worth nothing outside this process.
    """

    __slots__ = ("_key", "_until")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def holds(self, credentials: Password, password_hash: str | None, now: float) -> bool:
        """Whether this password was found to be the one hashed so."""
        if password_hash is None or len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            return False
        return self._until.get(self._digest(credentials, password_hash), 0.0) > now

    def keep(self, credentials: Password, password_hash: str | None, now: float) -> None:
        """It was."""
        if password_hash is not None:
            if len(self._until) >= limits.LOGINS_KEPT_MAX:
                self._until.popitem(last=False)
            self._until[self._digest(credentials, password_hash)] = now + limits.LOGINS_KEPT_S

    def _digest(self, credentials: Password, password_hash: str) -> bytes:
        text = f"{credentials.user}\0{password_hash}\0".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text + credentials.password, hashlib.sha256)
