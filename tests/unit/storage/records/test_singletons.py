"""Records there is one of: message ID block (07) and format marker (0f)."""

import pytest

from storage.errors import CorruptRecord, FormatTooNew
from storage.records import format_marker, message_ids
from storage.sequence import SeqBlock
from tests.unit.storage.record_checks import check_strict, unhex


def test_message_id_block_matches_the_documented_vector():
    assert message_ids.key() == unhex("01 07")
    assert message_ids.prefix() == message_ids.key()
    value = unhex("00 00 00 00 00 00 00 00 00 00 00 00 00 00 10 00")
    assert message_ids.decode(value) == SeqBlock(0, 4_096)
    allocator = message_ids.allocator(None)
    assert allocator.allocate(1) == (0, (message_ids.key(), value))
    assert message_ids.allocator(value).next_value == 4_096


def test_format_marker_matches_the_documented_vector():
    assert format_marker.key() == unhex("01 0f")
    assert format_marker.prefix() == format_marker.key()
    value = unhex("01 00 08 00 73 6c 75 69 63 65 6d 71")
    assert format_marker.encode() == value
    assert format_marker.decode(value) == 1
    check_strict(format_marker.decode, value)


def test_later_format_is_refused_whatever_bytes_follow():
    with pytest.raises(FormatTooNew, match="database format 2"):
        format_marker.decode(b"\x02\x00 anything")


@pytest.mark.parametrize("value", ["00 00 08 00 73 6c 75 69 63 65 6d 71", "01 00 02 00 73 6c"])
def test_marker_of_another_program_is_corrupt(value):
    with pytest.raises(CorruptRecord):
        format_marker.decode(unhex(value))


@pytest.mark.parametrize("module", [message_ids, format_marker])
def test_damaged_keys_are_corrupt(module):
    module.parse_key(module.key())
    for damaged in (b"\x01", module.key() + b"\x00", b"\x02" + module.key()[1:]):
        with pytest.raises(CorruptRecord):
            module.parse_key(damaged)
