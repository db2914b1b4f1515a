"""The keys that tokens are signed with: read from PEM, from a JSON web key set, or as a shared secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from config import limits

HMAC: Final = frozenset(("HS256", "HS384", "HS512"))
RSA: Final = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
ED: Final = frozenset(("EdDSA",))
_CURVES: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_HMAC_BYTES_MIN: Final = 32


class TokenKey:
    """A key, what it is called, and the algorithms that go with its kind: a public key is never a secret."""

    __slots__ = ("algorithms", "key", "name")

    def __init__(self, key: Any, algorithms: Iterable[str], name: str | None = None) -> None:
        self.key = key
        self.algorithms = frozenset(algorithms)
        self.name = name


def secret_key(data: bytes) -> TokenKey:
    """Make a key of a secret that the broker shares with the signer; raises ValueError for a short one."""
    secret = data.strip()
    if len(secret) < _HMAC_BYTES_MIN:
        raise ValueError(f"a secret has {_HMAC_BYTES_MIN} bytes at least")
    return TokenKey(secret, HMAC)


def read_keys(data: bytes) -> list[TokenKey]:
    """Read public keys of a PEM file or a key set (RFC 7517); raises ValueError."""
    if data.lstrip()[:1] == b"{":
        return _read_set(data)
    ends = b"-----END PUBLIC KEY-----"
    blocks = [block + ends for block in data.split(ends)[:-1]]
    if not blocks:
        raise ValueError("neither a PEM public key nor a JSON web key set")
    return [_public_key(load_pem_public_key(block.lstrip())) for block in blocks[: limits.TOKEN_KEYS_MAX]]


def _read_set(data: bytes) -> list[TokenKey]:
    try:
        found = json.loads(data)["keys"]
        entries = [entry for entry in found if isinstance(entry, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("no JSON web key set") from None
    keys = []
    for entry in entries[: limits.TOKEN_KEYS_MAX]:
        if entry.get("use", "sig") != "sig" or entry.get("kty") == "oct":
            continue  # a secret has no place in what is published
        try:
            public = jwt.PyJWK.from_dict(entry, algorithm=_guessed(entry)).key
            key = _public_key(public)
        except (jwt.PyJWTError, ValueError):
            continue  # of a kind that is not known here; others may be
        named = entry.get("alg")
        algorithms = key.algorithms & {named} if isinstance(named, str) else key.algorithms
        keys.append(TokenKey(key.key, algorithms, entry.get("kid")))
    return keys


def _guessed(entry: dict[str, Any]) -> str:
    """Return any algorithm of the entry's kind, for the library to read it by."""
    if entry.get("kty") == "RSA":
        return "RS256"
    if entry.get("kty") == "EC":
        return {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}.get(str(entry.get("crv")), "ES256")
    return "EdDSA"


def _public_key(key: object) -> TokenKey:
    if isinstance(key, rsa.RSAPublicKey):
        return TokenKey(key, RSA)
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return TokenKey(key, (_CURVES[key.curve.name],))
    if isinstance(key, ed25519.Ed25519PublicKey | ed448.Ed448PublicKey):
        return TokenKey(key, ED)
    raise ValueError("a key of a kind that signs no tokens here")
