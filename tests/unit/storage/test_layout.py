import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import layout, records
from storage.records import RECORDS, active, format_marker
from storage.records.fields import Record


def test_claim_and_bucket_ids_match_the_documented_vectors():
    assert layout.bucket_of_claim(0x1000000000000017) == 0x1000000000000014


@given(st.integers(0, 15), st.integers(0, 2**60 - 1))
def test_a_claim_lies_in_the_bucket_of_its_number(exponent, number):
    claim_id = exponent << layout.NUMBER_BITS | number
    assert layout.id_number(claim_id) == number
    bucket_id = layout.bucket_of_claim(claim_id)
    assert bucket_id >> layout.NUMBER_BITS == exponent
    first = layout.id_number(bucket_id)
    assert first % layout.bucket_capacity(exponent) == 0
    assert first <= number < first + layout.bucket_capacity(exponent)


@given(st.integers(0, 2**40), st.integers(0, 4))
def test_aligned_claim_number_begins_a_bucket(number, exponent):
    aligned = layout.align_claim_number(number, exponent)
    assert aligned % 10**exponent == 0
    assert 0 <= aligned - number < 10**exponent


@pytest.mark.parametrize("exponent", [-1, 5])
def test_bucket_exponent_beyond_an_array_is_refused(exponent):
    with pytest.raises(ValueError, match="0 to 4"):
        layout.check_bucket_exponent(exponent)


def test_group_queue_id_joins_and_splits_queue_and_group():
    assert layout.group_queue_id("orders", "") == "orders"
    assert layout.group_queue_id("orders", "billing") == "orders\x1fbilling"
    assert layout.split_group_queue_id("orders") == ("orders", "")
    assert layout.split_group_queue_id("orders\x1fbilling") == ("orders", "billing")


@pytest.mark.parametrize(
    ("name", "group"), [("a\x1fb", ""), ("a", "b\x1f"), ("", ""), ("a\x00", ""), ("é" * 400, "")]
)
def test_invalid_name_in_a_queue_id_is_refused(name, group):
    with pytest.raises(ValueError):
        layout.group_queue_id(name, group)


def test_queue_id_of_the_longest_names_fits_the_limit():
    name = "v" * 128 + "\x1d" + "q" * 255 + layout.LEVEL_SEPARATOR + "31"
    longest = layout.group_queue_id(name, "g" * 255)
    assert len(longest) == layout.QUEUE_ID_BYTES_MAX == 643


def test_every_kind_of_record_has_a_number_of_its_own():
    kinds = [each for each in vars(records).values() if isinstance(each, Record)]
    assert len(kinds) == len(RECORDS) == 48
    assert format_marker.key() == b"\x01\x0f"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8))
def test_prefix_of_a_queue_excludes_keys_of_longer_names(name):
    prefix = active.prefix(name)
    assert not active.prefix(name + "x").startswith(prefix)
    assert not active.prefix(name + "\x01").startswith(prefix)
    assert active.key(name, 5) == prefix + bytes(7) + b"\x05"
