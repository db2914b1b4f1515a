import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.envelope import decode_envelope, with_visible_at, without_visible_at
from storage.errors import CorruptRecord
from tests.unit.storage.envelopes import encode_envelope

times = st.integers(1, 1 << 60)


@given(st.sampled_from([0, 77]), st.sampled_from([0, 99]), st.sampled_from([0, 4]), times, times)
def test_visible_at_is_inserted_and_removed_without_other_changes(
    expires: int, visible: int, priority: int, due: int, again: int
) -> None:
    plain = encode_envelope(5, 6, expires, visible, priority, "a/b", 1, b"\x00\x00", True, True, "ex")
    waiting = with_visible_at(plain, due)
    assert waiting == encode_envelope(5, 6, expires, due, priority, "a/b", 1, b"\x00\x00", True, True, "ex")
    assert decode_envelope(waiting)[2].visible_at_ms == due
    assert with_visible_at(waiting, again) == with_visible_at(plain, again)
    without = encode_envelope(5, 6, expires, 0, priority, "a/b", 1, b"\x00\x00", True, True, "ex")
    assert without_visible_at(waiting) == (without, due)
    assert without_visible_at(plain) == (without, visible)


def test_visible_at_matches_the_documented_vector() -> None:
    plain = bytes.fromhex("0100 0500000000000000 00a8da769b010000 0100 61")
    waiting = bytes.fromhex("0101 0500000000000000 00a8da769b010000 d2acda769b010000 0100 61")
    assert with_visible_at(plain, 1_767_225_600_000 + 1_234) == waiting


def test_truncated_envelope_with_visible_at_is_corrupt() -> None:
    waiting = with_visible_at(encode_envelope(5, 6, 0, 0, 0, "a", 0, b"", False, False), 7)
    with pytest.raises(CorruptRecord):
        without_visible_at(waiting[:20])
    with pytest.raises(CorruptRecord):
        without_visible_at(waiting[:10])
