import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import FormatTooNew
from storage.records import StoredVhost, vhost
from tests.unit.storage.record_checks import check_strict, unhex

u32 = st.integers(0, 2**32 - 1)


def test_vhost_matches_the_documented_vectors():
    assert vhost.key("acme") == unhex("01 22 61 63 6d 65")
    value = unhex("00 64 00 00 00 e8 03 00 00")
    plain = unhex("00 00 00 00 00 00 07 00 63 6c 61 73 73 69 63 00")
    assert vhost.encode(False, 100, 1000) == value + plain
    assert vhost.decode(value) == StoredVhost(False, 100, 1000), "as earlier releases wrote it"
    whole = StoredVhost(False, 100, 1000, (("bytes", 3),), "d", ("t",), "quorum", 1)
    written = value + unhex(
        "01 00 05 00 62 79 74 65 73 03 00 00 00 00 00 00 00 01 00 64 01 00 01 00 7406 00 71 75 6f 72 75 6d 01"
    )
    assert vhost.encode(*whole) == written
    assert vhost.decode(written) == whole
    check_strict(vhost.decode, value)
    assert vhost.decode(unhex("01 00 00 00 00 00 00 00 00")) == StoredVhost(True, 0, 0)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), u32, u32, st.booleans())
def test_vhost_round_trips(name, connections_max, queues_max, is_being_deleted):
    wanted = StoredVhost(is_being_deleted, connections_max, queues_max)
    assert vhost.decode(vhost.encode(*wanted)) == wanted
    assert vhost.parse_key(vhost.key(name)) == name


def test_unknown_flags_are_of_a_newer_release():
    with pytest.raises(FormatTooNew, match="virtual host: flags 0x02"):
        vhost.decode(unhex("02 00 00 00 00 00 00 00 00"))
