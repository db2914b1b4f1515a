"""From the configuration and the record of a database to the ring of its keys."""

import asyncio
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config import limits
from config.settings import EncryptionKeySettings, EncryptionSettings
from storage.errors import StorageError
from storage.records import Encryption, SealingKey, encryption
from storage.sealing.key_sources import read_key, unwrap_key, wrap_key
from storage.sealing.sealed_blocks import SECRET_BYTES, STORE_ID_BYTES, Ring, Secret

_MARK_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The ring of a database, and its record where that is to be written before anything is sealed."""

    ring: Ring
    record: bytes | None


async def unlock(
    settings: EncryptionSettings, value: bytes | None, *, is_new: bool, only_reads: bool
) -> Unlocked | None:
    """Return the ring of a database whose record is `value`; `is_new`: nothing was ever stored in it.
    `only_reads`: a key that is not in the record yet is left out; None if there is no other.

    Raises StorageError for a key that is missing, or another one than the record knows. Nothing is written.
    """
    return await asyncio.get_running_loop().run_in_executor(
        None, _unlock, settings, value, is_new, only_reads
    )


def record_of(ring: Ring, known: Sequence[SealingKey], *, has_plain: bool) -> bytes:
    """Return the record of the keys `known` of a ring, with what it says of unsealed values."""
    by_number = {secret.number: secret for secret in ring.secrets}
    keys = [
        key._replace(proof=by_number[key.number].proof(ring.store_id, ring.mark, has_plain)) for key in known
    ]
    return encryption.encode(ring.mark, ring.store_id, has_plain, tuple(keys))


def _unlock(
    settings: EncryptionSettings, value: bytes | None, is_new: bool, only_reads: bool
) -> Unlocked | None:
    found = _begun(is_new) if value is None else encryption.decode(value)
    configured = {key.id: key for key in settings.keys}
    missing = [key.id for key in found.keys if key.id not in configured]
    if missing:
        raise StorageError(
            f"opening: storage.encryption.keys lacks {', '.join(missing)}, with which some of the storage is"
            " encrypted. `sluicemq store keys` tells which keys are in use, and forgets those that are not"
        )
    stored = [_read(found, key, configured[key.id]) for key in found.keys]
    if only_reads:
        return Unlocked(_ring(found, stored), None) if stored else None
    newest, added = _newest(found, stored, settings.keys[0])
    ring = _ring(found, [newest, *[secret for secret in stored if secret is not newest]])
    if added is None:
        return Unlocked(ring, None)
    return Unlocked(ring, encryption.encode(*found._replace(keys=(*found.keys, added))))


def _ring(found: Encryption, keys: Sequence[Secret]) -> Ring:
    has_plain = bool(found.has_plain)
    return Ring(found.mark, found.store_id, keys, secrets.token_bytes, has_plain=has_plain)


def _begun(is_new: bool) -> Encryption:
    return Encryption(secrets.token_bytes(_MARK_BYTES), secrets.token_bytes(STORE_ID_BYTES), not is_new, ())


def _read(found: Encryption, key: SealingKey, settings: EncryptionKeySettings) -> Secret:
    """Return the bytes of a key that the record knows. Raises StorageError."""
    if settings.file:
        secret = Secret(key.number, key.id, read_key(settings))
    elif key.wrapped:
        secret = Secret(key.number, key.id, unwrap_key(settings, key.wrapped))
    else:
        raise StorageError(f"opening: storage.encryption: key {key.id} was in a file when it was first used")
    proof = secret.proof(found.store_id, found.mark, bool(found.has_plain))
    if not hmac.compare_digest(proof, key.proof):
        raise StorageError(
            f"opening: storage.encryption: key {key.id}: {_source(settings)} has another key than the one"
            " that this storage is encrypted with"
        )
    return secret


def _newest(
    found: Encryption, stored: Sequence[Secret], settings: EncryptionKeySettings
) -> tuple[Secret, SealingKey | None]:
    """Return the key that seals, and its entry for the record if it has none yet."""
    for secret in stored:
        if secret.id == settings.id:
            return secret, None
    if len(stored) >= limits.SEALING_KEYS_MAX:
        raise StorageError(f"opening: storage.encryption: {limits.SEALING_KEYS_MAX} keys are in use already")
    number = max([key.number for key in found.keys], default=0) + 1
    wrapped = b""
    if settings.file:
        secret = Secret(number, settings.id, read_key(settings))
    else:
        made = secrets.token_bytes(SECRET_BYTES)
        wrapped = wrap_key(settings, made)
        if unwrap_key(settings, wrapped) != made:
            raise StorageError(
                f"opening: storage.encryption: key {settings.id}: {_source(settings)} does not unwrap what it"
                " wrapped"
            )
        secret = Secret(number, settings.id, made)
    proof = secret.proof(found.store_id, found.mark, bool(found.has_plain))
    return secret, SealingKey(number, settings.id, proof, wrapped)


def _source(settings: EncryptionKeySettings) -> str:
    return settings.file or settings.url or settings.command[0]
