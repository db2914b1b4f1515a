"""Passwords as they are kept: argon2id, in the field's own text form, or as a RabbitMQ hashed them."""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from config import limits
from config.access_settings import RABBITMQ_HASH

_HASHER: Final = PasswordHasher(
    time_cost=limits.PASSWORD_HASH_ROUNDS,
    memory_cost=limits.PASSWORD_HASH_KIB,
    parallelism=1,
)
_ALGORITHMS: Final = {f"rabbit_password_hashing_sha{bits}": f"sha{bits}" for bits in (256, 512)}
_SALT_BYTES: Final = 4  # of RabbitMQ's hashes, before the digest


def hashed(password: bytes) -> str:
    """Hash a password, with a salt of its own. Takes tens of ms of a processor."""
    return _HASHER.hash(password)


def is_password(hash_text: str, password: bytes) -> bool:
    """Return whether this is the password that was hashed. Takes tens of ms; other threads go on
    meanwhile.
    """
    foreign = RABBITMQ_HASH.fullmatch(hash_text)
    if foreign is not None:
        is_password(nobodys_hash(), password)  # guessing is no quicker, and tells nothing by its time
        return _is_digest(foreign["algorithm"], b64decode(foreign["salted"]), password)
    try:
        return _HASHER.verify(hash_text, password)
    except (VerificationError, InvalidHashError):
        return False


def _is_digest(algorithm: str, salted: bytes, password: bytes) -> bool:
    salt, digest = salted[:_SALT_BYTES], salted[_SALT_BYTES:]
    return hmac.compare_digest(hashlib.new(algorithm, salt + password).digest(), digest)


def hashed_for_rabbitmq(password: bytes) -> str:
    """Hash a password as RabbitMQ does by default, in base64."""
    salt = os.urandom(_SALT_BYTES)
    return b64encode(salt + hashlib.sha256(salt + password).digest()).decode()


def kept_of_rabbitmq(text: str, algorithm: str) -> str:
    """Return how a hash of a RabbitMQ is kept; of what is none, what the settings refuse."""
    return f"$rabbitmq-{_ALGORITHMS.get(algorithm, algorithm)}${text}"


def of_rabbitmq(kept: str) -> tuple[str, str] | None:
    """Return the hash and its algorithm as a RabbitMQ has them; None where it is no such hash."""
    found = RABBITMQ_HASH.fullmatch(kept)
    if found is None:
        return None
    return found["salted"], f"rabbit_password_hashing_{found['algorithm']}"


@cache
def nobodys_hash() -> str:
    """Return a hash to look at where there is no user, so that it takes as long as with one."""
    return hashed(b"")
