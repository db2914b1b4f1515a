"""What ways to find out who somebody is have in common."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import Protocol

from broker.access.credentials import Password, Peer
from broker.access.login import Login
from config import limits


class Way(Protocol):
    """One of the places that know users: a file, whoever signs tokens, a service that is asked."""

    @property
    def source(self) -> str:
        """The `source` of its logins."""

    def login_at_once(self, credentials: Password) -> Login | None:
        """Who that is, where nothing has to be waited for; None: it has to be, or nobody is known so."""

    async def login(self, credentials: Password, peer: Peer) -> Login:
        """Who that is; raises LoginRefused."""

    def login_now(self, login: Login) -> Login | None:
        """What somebody who came in this way may do by now; None: not be in."""

    async def close(self) -> None:
        """Nobody is asked about any more."""


class KnownSecrets:
    """Which credentials were found good lately, with what they came to: who comes back need not be looked at
    again. What is kept of them is a keyed hash that is worth nothing outside this process.
    """

    __slots__ = ("_found", "_key")

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._found: OrderedDict[bytes, tuple[float, Login | None]] = OrderedDict()

    def find(self, credentials: Password, about: str, now: float) -> tuple[bool, Login | None]:
        """Whether these were seen, while `about` was what it is, and what they came to."""
        if len(credentials.password) > limits.PASSWORD_BYTES_MAX:
            return False, None
        until, login = self._found.get(self._digest(credentials, about), (0.0, None))
        return until > now, login

    def keep(self, credentials: Password, about: str, login: Login | None, until: float) -> None:
        """They came to that, and will until then; None: to nobody."""
        if len(self._found) >= limits.LOGINS_KEPT_MAX:
            self._found.popitem(last=False)
        self._found[self._digest(credentials, about)] = (until, login)

    def _digest(self, credentials: Password, about: str) -> bytes:
        text = f"{credentials.user}\0{about}\0".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, text + credentials.password, hashlib.sha256)
