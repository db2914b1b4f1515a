"""The `visible_at` field of an envelope, put in and taken out without reading the rest.

A message keeps its envelope through all of its life; only while a group makes it wait does the group's active
record hold one with a time in it.
"""

from __future__ import annotations

import struct
from typing import Final

from storage.envelope import HAS_VISIBLE_AT, read_head
from storage.errors import CorruptRecord

_I64: Final = struct.Struct("<q")
_FIELD_AT: Final = 18


def with_visible_at(envelope: bytes, visible_at_ms: int) -> bytes:
    """Return the envelope with this time (over 0) in place of the one it may have."""
    plain, _ = without_visible_at(envelope)
    return b"".join(
        (
            plain[:1],
            bytes((plain[1] | HAS_VISIBLE_AT,)),
            plain[2:_FIELD_AT],
            _I64.pack(visible_at_ms),
            plain[_FIELD_AT:],
        )
    )


def without_visible_at(envelope: bytes) -> tuple[bytes, int]:
    """Return the envelope without the time, and the time in ms (0 if it had none).

    Raises CorruptRecord, or FormatTooNew for a later version.
    """
    flags, _, _ = read_head(envelope)
    if not flags & HAS_VISIBLE_AT:
        return envelope, 0
    end = _FIELD_AT + _I64.size
    if len(envelope) < end:
        raise CorruptRecord("envelope", "visible_at", "truncated")
    plain = b"".join((envelope[:1], bytes((flags & ~HAS_VISIBLE_AT,)), envelope[2:_FIELD_AT], envelope[end:]))
    return plain, _I64.unpack_from(envelope, _FIELD_AT)[0]
