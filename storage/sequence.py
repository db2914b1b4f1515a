"""Sequence blocks: unique, rising numbers that cost one small record per few thousand of them.

A block `[base, base + size)` is reserved by storing it; numbers are then given out from memory. What a
crash leaves unused of a block is skipped: gaps are legal, using a number twice is not.
"""

import struct
from typing import Final, NamedTuple

from storage.encoding import U64_MAX
from storage.errors import CorruptRecord, StorageError

BLOCK_SIZE: Final = 4_096
_BLOCK: Final = struct.Struct(">QQ")  # big-endian, unlike all other values


class SeqBlock(NamedTuple):
    """A reserved range of sequence numbers."""

    base: int
    size: int

    @property
    def end(self) -> int:
        """The first number after the block."""
        return self.base + self.size


def encode_block(block: SeqBlock) -> bytes:
    """Encode a block: `base u64BE ‖ size u64BE`."""
    return _BLOCK.pack(block.base, block.size)


def decode_block(value: bytes) -> SeqBlock:
    if len(value) != _BLOCK.size:
        raise CorruptRecord("sequence block", "length", f"{len(value)} bytes")
    block = SeqBlock(*_BLOCK.unpack(value))
    if block.end > U64_MAX:
        raise CorruptRecord("sequence block", "size", "passes 2^64")
    return block


class SequenceAllocator:
    """Gives out numbers of one sequence. One task owns it.

    `stored` is the block read from `key`, or None if there is none; all of it counts as used.
    """

    __slots__ = ("_next", "_reserved_end", "key")

    def __init__(self, key: bytes, stored: SeqBlock | None = None) -> None:
        self.key = key
        self._next = self._reserved_end = stored.end if stored is not None else 0

    @property
    def next_value(self) -> int:
        """The number that the next allocation will begin with; everything below has been given out or
        skipped.
        """
        return self._next

    def allocate(self, count: int) -> tuple[int, tuple[bytes, bytes] | None]:
        """Take `count` consecutive numbers: the first of them, and the put that reserves them if one is
        needed.

        The caller must write that put in the same batch as (or before) the first record using one of the
        numbers.
        """
        if count < 1:
            raise ValueError(f"cannot allocate {count} numbers")
        first = self._next
        end = first + count
        if end <= self._reserved_end:
            self._next = end
            return first, None
        block = SeqBlock(self._reserved_end, max(end - self._reserved_end, BLOCK_SIZE))
        if block.end > U64_MAX:
            raise StorageError("sequence exhausted: 2^64 numbers given out")
        self._next = end
        self._reserved_end = block.end
        return first, (self.key, encode_block(block))
