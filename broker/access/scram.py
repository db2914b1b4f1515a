"""SCRAM-SHA-256 (RFC 5802, 7677): a password is proven without being sent; nothing is bound to a channel."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.access.credentials import LoginRefused
from config import limits

METHOD: Final = "SCRAM-SHA-256"
_UNBOUND: Final = ("n,,", "y,,")


class Verifier(NamedTuple):
    """The verifier kept of a password: neither it, nor what a client needs to prove it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def make_verifier(password: bytes) -> str:
    """Make a verifier as the users file has it: `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server
    key>`.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, limits.SCRAM_ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return f"{METHOD}${limits.SCRAM_ITERATIONS}:{_text(salt)}${_text(stored)}:{_text(server)}"


def read_verifier(text: str) -> Verifier:
    """Read what `make_verifier` made; raises ValueError."""
    method, parameters, keys = text.split("$")
    iterations, salt = parameters.split(":")
    stored, server = keys.split(":")
    if method != METHOD or not 1 <= int(iterations) <= limits.SCRAM_ITERATIONS_MAX:
        raise ValueError("no SCRAM-SHA-256 verifier")
    return Verifier(int(iterations), _bytes(salt), _bytes(stored), _bytes(server))


class ScramExchange:
    """One client proving who it is, in two steps. `find` gives the verifier of a user; there is one for every
    name, so that nothing tells which users there are.
    """

    __slots__ = ("_auth_message", "_find", "_nonce", "is_done", "user", "verifier")

    def __init__(self, find: Callable[[str], Verifier]) -> None:
        self._find = find
        self._nonce = ""
        self._auth_message = ""
        self.verifier: Verifier
        self.user = ""
        self.is_done = False

    @property
    def is_challenged(self) -> bool:
        """Whether the next step is the last one, which proves the password."""
        return bool(self._nonce)

    def step(self, data: bytes) -> bytes:
        """Return the answer to the client; once `is_done`, it is `user`. Raises LoginRefused."""
        if len(data) > limits.SCRAM_MESSAGE_BYTES_MAX:
            raise LoginRefused("SCRAM message too long")
        try:
            text = data.decode()
            return self._first(text) if not self._nonce else self._final(text)
        except (UnicodeDecodeError, ValueError, KeyError, binascii.Error):
            raise LoginRefused("malformed SCRAM message") from None

    def _first(self, text: str) -> bytes:
        header, bare = text[:3], text[3:]
        if header not in _UNBOUND:
            raise LoginRefused("SCRAM with channel binding or another identity is not offered")
        fields = _fields(bare)
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        if len(user.encode()) > limits.USER_NAME_BYTES_MAX:
            raise ValueError
        if not fields["r"] or not fields["r"].isprintable():
            raise ValueError
        self.user = user
        self.verifier = verifier = self._find(self.user)
        self._nonce = fields["r"] + secrets.token_urlsafe(18)
        told = f"r={self._nonce},s={_text(verifier.salt)},i={verifier.iterations}"
        self._auth_message = f"{bare},{told}"
        return told.encode()

    def _final(self, text: str) -> bytes:
        unproven, separator, proof = text.rpartition(",p=")
        fields = _fields(unproven)
        if not separator or _bytes(fields["c"]).decode() not in _UNBOUND or fields["r"] != self._nonce:
            raise ValueError
        message = f"{self._auth_message},{unproven}".encode()
        signature = hmac.digest(self.verifier.stored_key, message, "sha256")
        shown = _bytes(proof)
        if len(shown) != len(signature):
            raise ValueError
        client_key = bytes(one ^ other for one, other in zip(shown, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(client_key).digest(), self.verifier.stored_key):
            raise LoginRefused(LoginRefused.TOLD)
        self.is_done = True
        return b"v=" + base64.b64encode(hmac.digest(self.verifier.server_key, message, "sha256"))


class Decoys:
    """Verifiers of users who are not there: always the same salt for a name, and no password fits."""

    __slots__ = ("_key",)

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def verifier(self, user: str) -> Verifier:
        """Return the verifier of a name."""
        salt = hmac.digest(self._key, user.encode("utf-8", "surrogatepass"), "sha256")[:16]
        return Verifier(limits.SCRAM_ITERATIONS, salt, secrets.token_bytes(32), secrets.token_bytes(32))


def _fields(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",")]
    return {name: value for name, _, value in pairs}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
