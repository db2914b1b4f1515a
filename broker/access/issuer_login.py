"""A login at an issuer: as it was begun, and what it comes to."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from broker.access.login import Login


class Begun(NamedTuple):
    """A login that a browser began: what comes back has to belong to it."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str

    @property
    def challenge(self) -> str:
        """What the issuer is shown of the verifier (RFC 7636, 4.2)."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Vouched(NamedTuple):
    """What an issuer gave with a login: the ID token, which it is shown at logout, whom that is of, and what
    a new login is got by without its user ("": nothing).
    """

    id_token: str
    subject: str
    refresh_token: str


class Done(NamedTuple):
    """A login that an issuer vouches for."""

    login: Login
    vouched: Vouched


class IssuerSilent(Exception):
    """The issuer does not answer, or not as one."""
