"""Logging in as a user of the users file, by password."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from broker.access import passwords
from broker.access.accounts_of_file import USERS_FILE, Users
from broker.access.credentials import LoginRefused, Password, Peer
from broker.access.login import Login
from broker.access.way import KnownSecrets
from broker.clock import Clock
from config import limits


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
