"""Passwords as they are kept: argon2id, in the field's own text form."""

from __future__ import annotations

from functools import cache
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from config import limits

_HASHER: Final = PasswordHasher(
    time_cost=limits.PASSWORD_HASH_ROUNDS,
    memory_cost=limits.PASSWORD_HASH_KIB,
    parallelism=1,
)


def hashed(password: bytes) -> str:
    """Hash a password, with a salt of its own. Takes tens of ms of a processor."""
    return _HASHER.hash(password)


def is_password(hash_text: str, password: bytes) -> bool:
    """Return whether this is the password that was hashed. Takes tens of ms; other threads go on
    meanwhile.
    """
    try:
        return _HASHER.verify(hash_text, password)
    except (VerificationError, InvalidHashError):
        return False


@cache
def nobodys_hash() -> str:
    """Return a hash to look at where there is no user, so that it takes as long as with one."""
    return hashed(b"")
