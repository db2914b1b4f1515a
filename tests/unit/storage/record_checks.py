"""Checks every record's tests share."""

from collections.abc import Callable, Collection
from typing import Any

import pytest
from hypothesis import strategies as st

from storage.errors import CorruptRecord

T0 = 1_767_225_600_000  # 2026-01-01T00:00:00Z
QUEUE = "orders"

u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
metadata_bytes = st.binary(max_size=40)
queue_ids = st.text(
    st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=50
)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text)


def check_strict(decode: Callable[[bytes], Any], value: bytes, whole_prefixes: Collection[int] = ()) -> None:
    """No strict prefix of `value` decodes, save those of the lengths given, and neither does more than it."""
    for length in range(len(value)):
        if length not in whole_prefixes:
            with pytest.raises(CorruptRecord):
                decode(value[:length])
    with pytest.raises(CorruptRecord):
        decode(value + b"\x00")


def check_key_strict(parse_key: Callable[[bytes], Any], key: bytes, free_tail: int = 0) -> None:
    """No strict prefix of `key` parses (but for the last `free_tail` bytes), nor does another type's key."""
    for length in range(len(key) - free_tail):
        with pytest.raises(CorruptRecord):
            parse_key(key[:length])
    with pytest.raises(CorruptRecord):
        parse_key(key[:1] + b"\x7f" + key[2:])
