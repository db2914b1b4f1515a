"""Sealed blocks, and the ring of keys that seals and opens them.

    block   mark 8 bytes, key number u16, salt 14 bytes, count u64, ciphertext, tag 16 bytes
    key     HKDF-SHA256(secret, salt = store_id, info = "sluicemq block", first 24 bytes of the block)
    nonce   00000000, count

AES-256-GCM. Authenticated besides: the place, which is the key of the record, or `F` and the head of the
frame from byte 8 on.
"""

import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from itertools import count
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from config import limits
from storage.errors import NotOpened
from storage.seal import BLOCK_START_BYTES

SALT_BYTES: Final = 14
SECRET_BYTES: Final = 32
STORE_ID_BYTES: Final = 16
OVERHEAD_BYTES: Final = 48
"""By which a block is longer than what is sealed in it."""

_HEAD: Final = struct.Struct("<8sH14s")
_HEAD_BYTES: Final = BLOCK_START_BYTES
_START_BYTES: Final = _HEAD_BYTES + 8
_TAG_BYTES: Final = 16
_NONCE_START: Final = bytes(4)
_pack_count: Final = struct.Struct("<Q").pack
_KEY_INFO: Final = b"sluicemq block"
_PROOF_INFO: Final = b"sluicemq proof"


class Secret:
    """A key: its number in blocks, its ID, and its bytes, which it shows nobody."""

    __slots__ = ("_bytes", "id", "number")

    def __init__(self, number: int, key_id: str, secret: bytes) -> None:
        self.number = number
        self.id = key_id
        self._bytes = secret

    def derived(self, store_id: bytes, info: bytes, size: int = SECRET_BYTES) -> bytes:
        """Return a key for one purpose."""
        return HKDF(SHA256(), size, store_id, info).derive(self._bytes)

    def proof(self, store_id: bytes, mark: bytes, has_plain: bool) -> bytes:
        """Return the bytes by which this key is known, and with it what the record says of the database."""
        said = struct.pack("<8s?H", mark, has_plain, self.number) + self.id.encode()
        return self.derived(store_id, _PROOF_INFO + said, 16)


class _Derived:
    """A key that was derived for one opening. As AESGCM, and for large blocks in parts."""

    __slots__ = ("_bytes", "decrypt", "encrypt")

    def __init__(self, key: bytes) -> None:
        self._bytes = key
        whole = AESGCM(key)
        self.encrypt = whole.encrypt
        self.decrypt = whole.decrypt

    def encrypt_into(self, sealed: BytesIO, nonce: bytes, parts: Iterable[bytes], place: bytes) -> None:
        """Write ciphertext and tag, in steps: other threads have their turn between them."""
        encryptor = Cipher(AES(self._bytes), GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(place)
        for part in parts:
            for step in _steps(part):
                sealed.write(encryptor.update(step))
        sealed.write(encryptor.finalize())
        sealed.write(encryptor.tag)

    def decrypt_parts(self, nonce: bytes, sealed: memoryview, place: bytes) -> bytes:
        """Open a large block, in steps. Raises InvalidTag."""
        tag = bytes(sealed[-_TAG_BYTES:])
        decryptor = Cipher(AES(self._bytes), GCM(nonce, tag)).decryptor()
        decryptor.authenticate_additional_data(place)
        text = sealed[:-_TAG_BYTES]
        opened = BytesIO(bytes(len(text)))  # in the end the bytes themselves, not copied again
        for step in _steps(text):
            opened.write(decryptor.update(step))
        decryptor.finalize()
        return opened.getvalue()


def _steps(data: bytes | memoryview) -> Iterable[bytes | memoryview]:
    size = limits.VALUE_PART_BYTES
    if len(data) <= size:
        return (data,)
    whole = memoryview(data)
    return [whole[start : start + size] for start in range(0, len(whole), size)]


class _Sealing:
    """The key that seals now, the head of its blocks, and their count."""

    __slots__ = ("count", "derived", "head", "taken")

    def __init__(self, derived: _Derived, head: bytes) -> None:
        self.derived = derived
        self.head = head
        self.count = count()
        self.taken = 0

    def take(self, block_count: int) -> None:
        """Note that so many blocks are sealed."""
        self.taken += block_count


def number_of(block: bytes, mark: bytes) -> int | None:
    """Return the number of the key that sealed a block, or its beginning; None if it is not sealed."""
    if not block.startswith(mark) or len(block) < _HEAD_BYTES:
        return None
    number: int = _HEAD.unpack_from(block)[1]
    return number


class Ring:
    """The keys of one database. The first of `secrets` seals; all open. May be used by several threads.

    `has_plain`: there may be values that are not sealed, of the time before. `salt` gives so many random
    bytes.
    """

    def __init__(
        self,
        mark: bytes,
        store_id: bytes,
        secrets: Sequence[Secret],
        salt: Callable[[int], bytes],
        *,
        has_plain: bool = False,
    ) -> None:
        self.mark = mark
        self.store_id = store_id
        self.secrets = tuple(secrets)
        self.has_plain = has_plain
        self._by_number = {secret.number: secret for secret in secrets}
        self._salt = salt
        self._openers: dict[bytes, _Derived] = {}
        self._renewing = threading.Lock()
        self._sealing = self._new_sealing()

    @property
    def overhead_bytes(self) -> int:
        """By which a block is longer than what is sealed in it."""
        return OVERHEAD_BYTES

    @property
    def newest(self) -> Secret:
        """The key that seals."""
        return self.secrets[0]

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Return a block with `value`, which opens at `place`."""
        (sealed,) = self.seal_puts([(place, value)])
        return sealed[1]

    def seal_puts(self, puts: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the same rows with their values sealed."""
        sealing = self._taken(len(puts))
        head, encrypt, number = sealing.head, sealing.derived.encrypt, sealing.count
        part_bytes = limits.VALUE_PART_BYTES
        sealed = []
        for key, value in puts:
            counted = _pack_count(next(number))
            if len(value) <= part_bytes:
                block = b"".join((head, counted, encrypt(_NONCE_START + counted, value, key)))
            else:
                block = self._large(sealing, counted, (value,), len(value), key)
            sealed.append((key, block))
        return sealed

    def seal_parts(self, parts: Sequence[bytes], size: int, place: bytes) -> bytes:
        """Seal as `seal` what is in parts, `size` bytes in all."""
        if size <= limits.VALUE_PART_BYTES:
            return self.seal(b"".join(parts), place)
        sealing = self._taken(1)
        return self._large(sealing, _pack_count(next(sealing.count)), parts, size, place)

    def open(self, block: bytes, place: bytes) -> bytes:
        """Return what is sealed in `block`. Raises NotOpened."""
        if not block.startswith(self.mark):
            if self.has_plain:
                return block
            raise NotOpened("it is not encrypted, as all else is")
        return self.open_sealed(block, place)

    def open_sealed(self, block: bytes, place: bytes) -> bytes:
        """Open as `open` what has to be a block. Raises NotOpened."""
        if not block.startswith(self.mark) or len(block) < OVERHEAD_BYTES:
            raise NotOpened("it is no whole encrypted block")
        opener = self._openers.get(block[:_HEAD_BYTES]) or self._opener(block[:_HEAD_BYTES])
        nonce = _NONCE_START + block[_HEAD_BYTES:_START_BYTES]
        try:
            if len(block) <= limits.VALUE_PART_BYTES:
                return opener.decrypt(nonce, block[_START_BYTES:], place)
            return opener.decrypt_parts(nonce, memoryview(block)[_START_BYTES:], place)
        except InvalidTag:
            raise NotOpened("it was changed, or lies at the place of another") from None

    def _secret(self, head: bytes) -> Secret:
        _, number, _ = _HEAD.unpack(head)
        secret = self._by_number.get(number)
        if secret is None:
            raise NotOpened(f"it is encrypted with the key of number {number}, which is not there")
        return secret

    def _opener(self, head: bytes) -> _Derived:
        opener = _Derived(self._secret(head).derived(self.store_id, _KEY_INFO + head))
        if len(self._openers) >= limits.SEALING_OPENERS_MAX:
            self._openers.clear()  # they are derived again
        self._openers[head] = opener
        return opener

    def _new_sealing(self) -> _Sealing:
        head = _HEAD.pack(self.mark, self.newest.number, self._salt(SALT_BYTES))
        return _Sealing(self._opener(head), head)

    def _taken(self, block_count: int) -> _Sealing:
        """Return the key for so many more blocks, a new one if the last has sealed its share."""
        with self._renewing:
            if self._sealing.taken + block_count > limits.SEALING_BLOCKS_MAX:
                self._sealing = self._new_sealing()
            self._sealing.take(block_count)
            return self._sealing

    def _large(
        self, sealing: _Sealing, counted: bytes, parts: Sequence[bytes], size: int, place: bytes
    ) -> bytes:
        sealed = BytesIO(bytes(size + OVERHEAD_BYTES))
        sealed.write(sealing.head)
        sealed.write(counted)
        sealing.derived.encrypt_into(sealed, _NONCE_START + counted, parts, place)
        return sealed.getvalue()
