"""What the journal needs of the encryption of a storage."""

from collections.abc import Sequence
from typing import Final, Protocol

BLOCK_START_BYTES: Final = 24
"""By so much of a block its key is known."""


class Seal(Protocol):
    """What encrypts the commits in a journal: a ring of keys, made by `storage.sealing`."""

    has_plain: bool
    """Whether there may be commits of the time before."""

    @property
    def overhead_bytes(self) -> int:
        """By how much what is sealed is longer."""
        ...

    def seal_parts(self, parts: Sequence[bytes], size: int, place: bytes) -> bytes:
        """Seal what is in parts, `size` bytes in all, so that it opens at `place` alone."""
        ...

    def open_sealed(self, block: bytes, place: bytes) -> bytes:
        """Return what is sealed in a block. Raises NotOpened."""
        ...
