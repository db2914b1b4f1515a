"""The common part of the ways to log in."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
from collections import OrderedDict
from typing import NamedTuple, Protocol

from broker.access.credentials import Password, Peer
from broker.access.login import Login
from config import limits


class Way(Protocol):
    """One of the places that know users: a file, whoever signs tokens, a service that is asked."""

    @property
    def source(self) -> str:
        """The `source` of its logins."""

    def login_at_once(self, credentials: Password) -> Login | None:
        """Log in where nothing has to be waited for; None: it has to be, or no user is known so."""

    async def login(self, credentials: Password, peer: Peer) -> Login:
        """Log a client in; raises LoginRefused."""

    def login_now(self, login: Login) -> Login | None:
        """Return the present rights of a user that came in this way; None: not to be in."""

    async def close(self) -> None:
        """Ask about nobody any more."""


def seconds_of(said: object) -> float:
    """Return a time from outside, in seconds, as JSON has numbers; raises ValueError for what is no finite
    number or makes no sense.
    """
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise ValueError("a time is a number of seconds")
    if not math.isfinite(said) or abs(said) > limits.LOGIN_TIMES_S_MAX:
        raise ValueError("a time is a number of seconds that a clock could show")
    return float(said)


class Known(NamedTuple):
    """The login that credentials came to, None: to none; and how long that holds, in monotonic seconds."""

    login: Login | None
    until: float


class KnownSecrets:
    """Which credentials were looked at lately, with what they came to: who comes back need not be looked at
    again. What is kept of them is a keyed hash that is worth nothing outside this process.

    An answer is given as long as it holds, and while `about`, what it was derived from, is what it was then.
    """

    __slots__ = ("_found", "_key")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._found: OrderedDict[bytes, Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, credentials: Password, about: str, now: float) -> Known | None:
        """Return the result for these, if it is known and still holds."""
        if len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            return None
        digest = self._digest(credentials, about)
        known = self._found.get(digest)
        if known is not None and known.until <= now:
            del self._found[digest]
            return None
        return known

    def keep(self, credentials: Password, about: str, login: Login | None, until: float) -> None:
        """Keep the result for these until then; None: no user."""
        if len(self._found) >= limits.LOGINS_KEPT_MAX:
            self._found.popitem(last=False)
        self._found[self._digest(credentials, about)] = Known(login, until)

    def _digest(self, credentials: Password, about: str) -> bytes:
        text = f"{credentials.user}\0{about}\0".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text + credentials.password, hashlib.sha256)
