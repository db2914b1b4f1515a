"""Records there is one of: message ID block (07), format marker (0f), journal state (1f), holder (20),
encryption (23), merge (35).
"""

import pytest

from storage.errors import CorruptRecord, FormatTooNew
from storage.records import (
    COPIED,
    Encryption,
    Holder,
    JournalState,
    MergeState,
    SealingKey,
    encryption,
    format_marker,
    holder,
    journal_state,
    merge,
    message_ids,
)
from storage.records.special_codecs import JOURNALED_VERSION
from storage.sequence import SeqBlock, SequenceAllocator
from tests.unit.storage.record_checks import check_strict, unhex


def test_message_id_block_matches_the_documented_vector():
    assert message_ids.key() == unhex("01 07")
    assert message_ids.prefix() == message_ids.key()
    value = unhex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00")
    assert message_ids.decode(value) == SeqBlock(0, 4_096)
    assert SequenceAllocator(message_ids.key()).allocate(1) == (0, (message_ids.key(), value))


def test_format_marker_matches_the_documented_vector():
    assert format_marker.key() == unhex("01 0f")
    assert format_marker.prefix() == format_marker.key()
    value = unhex("01 00 08 00 73 6c 75 69 63 65 6d 71")
    assert format_marker.encode() == value
    assert format_marker.decode(value) == 1
    check_strict(format_marker.decode, value)
    assert format_marker.encode(JOURNALED_VERSION) == unhex("02 00") + value[2:]
    assert format_marker.decode(format_marker.encode(JOURNALED_VERSION)) == 2


def test_journal_state_vector():
    assert journal_state.key() == unhex("01 1f")
    assert journal_state.prefix() == journal_state.key()
    value = unhex("ef cd ab 89 67 45 23 01  2d 01 00 00 00 00 00 00  78 56 34 12")
    state = JournalState(0x0123456789ABCDEF, 301, 0x12345678)
    assert journal_state.encode(*state) == value
    assert journal_state.decode(value) == state
    check_strict(journal_state.decode, value)


def test_holder_matches_the_documented_vector():
    assert holder.key() == unhex("01 20")
    assert holder.prefix() == holder.key()
    value = unhex("ef cd ab 89 67 45 23 01  05 00 00 00 00 00 00 00  39 30 00 00  03 00 62 6f 78")
    found = Holder(0x0123456789ABCDEF, 5, 12_345, "box")
    assert holder.encode(*found) == value
    assert holder.decode(value) == found
    assert found.describe() == "process 12345 on box"
    check_strict(holder.decode, value)


def test_encryption_matches_the_documented_vector():
    assert encryption.key() == unhex("01 23")
    value = unhex(
        "11 22 33 44 55 66 77 88  02 00 00 00 aa bb  01  01 00  07 00 01 00 6b  01 00 00 00 cc  00 00 00 00"
    )
    found = Encryption(unhex("1122334455667788"), unhex("aabb"), 1, (SealingKey(7, "k", unhex("cc"), b""),))
    assert encryption.encode(*found) == value
    assert encryption.decode(value) == found
    check_strict(encryption.decode, value)


def test_later_format_is_refused_whatever_bytes_follow():
    with pytest.raises(FormatTooNew, match="database format 4"):
        format_marker.decode(b"\x04\x00 anything")


@pytest.mark.parametrize("value", ["00 00 08 00 73 6c 75 69 63 65 6d 71", "01 00 02 00 73 6c"])
def test_marker_of_another_program_is_corrupt(value):
    with pytest.raises(CorruptRecord):
        format_marker.decode(unhex(value))


@pytest.mark.parametrize("module", [message_ids, format_marker, journal_state, holder])
def test_damaged_keys_are_corrupt(module):
    module.parse_key(module.key())
    for damaged in (b"\x01", module.key() + b"\x00", b"\x02" + module.key()[1:]):
        with pytest.raises(CorruptRecord):
            module.parse_key(damaged)


def test_merge_vector():
    assert merge.key() == unhex("01 35")
    assert merge.prefix() == merge.key()
    value = unhex("02 00  03 10 00 00 00 00 00 00  04 00 00 00 00 00 00 00  05 00 00 00 00 00 00 00  01")
    state = MergeState(2, 0x1003, 4, 5, COPIED)
    assert merge.encode(*state) == value
    assert merge.decode(value) == state
    check_strict(merge.decode, value)
    with pytest.raises(FormatTooNew):
        merge.decode(value[:-1] + b"\x02")
