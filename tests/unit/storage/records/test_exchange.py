from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.encoding import Reader
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import (
    TO_EXCHANGE,
    TO_QUEUE,
    BindingKey,
    StoredExchange,
    binding,
    binding_digest,
    exchange,
)
from storage.typed_values import encode_table, encode_value, read_table
from tests.unit.storage.record_checks import check_strict, i64, unhex

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | i64
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=20)
    | st.decimals(allow_nan=False)
    | st.integers(0, 2**40).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
tables = st.dictionaries(texts, values, max_size=4)


def test_exchange_matches_the_documented_vector():
    stored = StoredExchange("topic", True, False, False, {"alternate-exchange": "rest"})
    value = unhex(
        "05 00 74 6f 70 69 63 01 01 00"
        "12 00 61 6c 74 65 72 6e 61 74 65 2d 65 78 63 68 61 6e 67 65 05 04 00 00 00 72 65 73 74"
    )
    assert exchange.key("events") == unhex("01 1a 65 76 65 6e 74 73")
    assert exchange.encode(*stored) == value
    assert exchange.decode(value) == stored
    check_strict(exchange.decode, value)


def test_binding_matches_the_documented_vectors():
    plain = BindingKey("events", TO_QUEUE, "orders", "eu.#", b"")
    assert binding.key(*plain) == unhex("01 1b 65 76 65 6e 74 73 00 00 6f 72 64 65 72 73 00 65 75 2e 23 00")
    assert binding.encode({}) == unhex("00 00")
    arguments = {"n": 1}
    value = unhex("01 00 01 00 6e 03 01 00 00 00 00 00 00 00")
    wanted = BindingKey("events", TO_EXCHANGE, "all", "", binding_digest(arguments))
    assert binding.key(*wanted) == unhex("01 1b 65 76 65 6e 74 73 00 01 61 6c 6c 00 00") + wanted.digest
    assert binding.encode(arguments) == value
    assert binding.decode(value) == (arguments, None)
    assert binding.encode(arguments, "bob") == value + unhex("03 00 62 6f 62")
    assert binding.decode(value + unhex("03 00 62 6f 62")) == (arguments, "bob")
    check_strict(binding.decode, value)


@given(texts, texts, texts, st.sampled_from((TO_QUEUE, TO_EXCHANGE)), tables)
def test_binding_key_round_trips(name, destination, routing_key, kind, arguments):
    wanted = BindingKey(name, kind, destination, routing_key, binding_digest(arguments))
    assert binding.parse_key(binding.key(*wanted)) == wanted


@given(tables)
def test_tables_round_trip_whatever_the_order_of_their_entries(table):
    encoded = encode_table(table)
    assert read_table(Reader("test", encoded)) == table
    assert encode_table(dict(reversed(table.items()))) == encoded


def test_values_of_other_types_are_refused():
    for value in (1 << 63, object(), {1, 2}):
        with pytest.raises(ValueError, match="64 bits|no value"):
            encode_value(value)


def test_unknown_flags_kinds_and_tags_are_of_a_newer_release():
    with pytest.raises(FormatTooNew, match="exchange: flags 0x08 .written by a newer release"):
        exchange.decode(unhex("06 00 64 69 72 65 63 74 08 00 00"))
    with pytest.raises(FormatTooNew, match="binding: kind 0x02"):
        binding.parse_key(unhex("01 1b 65 00 02 6f 00 00"))
    with pytest.raises(FormatTooNew, match="binding: value tag 0x0b"):
        binding.decode(unhex("01 00 01 00 6e 0b"))


@pytest.mark.parametrize("value", ["08 01 00 78", "05 01 00 00 00 ff"])
def test_broken_texts_are_corrupt(value):
    with pytest.raises(CorruptRecord):
        read_table(Reader("test", unhex("01 00 01 00 6e" + value)))


def test_one_and_true_are_different_values():
    assert len({encode_value(value) for value in (1, True, 1.0, Decimal(1), "1", b"1")}) == 6
