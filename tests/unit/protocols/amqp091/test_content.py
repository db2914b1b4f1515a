"""Content properties: checking, reading, writing, splicing."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from protocols.amqp091 import content
from protocols.errors import LocalProtocolError, ProtocolError

Properties = commands.Basic.Properties

FULL = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {"a": 1, "b": "x"},
    "delivery_mode": 2,
    "priority": 5,
    "correlation_id": "c-1",
    "reply_to": "amq.reply",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
    "message_type": "t",
    "user_id": "guest",
    "app_id": "app",
}

short = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
some_properties = st.builds(
    Properties,
    content_type=st.none() | short,
    content_encoding=st.none() | short,
    headers=st.none() | st.dictionaries(short, st.integers(-9, 9) | short, max_size=4),
    delivery_mode=st.sampled_from([None, 1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=st.none() | short,
    reply_to=st.none() | short,
    expiration=st.none() | short,
    message_id=st.none() | short,
    timestamp=st.none() | st.just(FULL["timestamp"]),
    message_type=st.none() | short,
    user_id=st.none() | short,
    app_id=st.none() | short,
)


def pamqp_raw(properties: Properties) -> bytes:
    return header.ContentHeader(0, 0, properties).marshal()[12:]


def test_properties_written_by_pamqp_are_read():
    raw = pamqp_raw(Properties(**FULL))
    content.check_properties(raw)
    decoded = content.decode_properties(raw)
    assert {name: getattr(decoded, name) for name in FULL} == FULL


@given(some_properties)
def test_properties_round_trip(properties):
    raw = content.encode_properties(properties)
    content.check_properties(raw)
    assert content.decode_properties(raw) == properties
    assert content.decode_properties(pamqp_raw(properties)) == properties
    expiration = None if properties.expiration is None else properties.expiration.encode()
    assert content.peek_fields(raw) == (properties.delivery_mode or 0, properties.priority or 0, expiration)
    assert dict(content.decode_headers(raw)) == (properties.headers or {})


def test_truncated_properties_are_refused():
    raw = pamqp_raw(Properties(**FULL))
    for cut in range(len(raw)):
        with pytest.raises(ProtocolError) as caught:
            content.check_properties(raw[:cut])
        assert caught.value.code == 502
    with pytest.raises(ProtocolError):
        content.check_properties(raw + b"\0")


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x02", b"\xff\xff"])
def test_unknown_property_flags_are_refused(flags):
    with pytest.raises(ProtocolError):
        content.check_properties(flags + bytes(100))


def test_invalid_utf8_passes_and_is_replaced_when_read():
    raw = b"\x04\x00\x02\xff\xfe"
    content.check_properties(raw)
    assert content.decode_properties(raw).correlation_id == "\ufffd\ufffd"


def test_delivery_mode_3_is_read_as_it_is():
    assert content.decode_properties(b"\x10\x00\x03").delivery_mode == 3


@given(st.binary(max_size=80))
def test_random_bytes_are_read_or_raise_protocol_error(raw):
    try:
        content.check_properties(raw)
    except ProtocolError:
        return
    content.decode_properties(raw)
    content.peek_fields(raw)
    content.check_properties(content.append_headers(raw, [("x", 1)]))


def test_headers_given_as_pairs_keep_order_and_duplicates():
    pairs = [("b", 1), ("a", 2), ("b", 3)]
    raw = content.encode_properties(Properties(delivery_mode=2), pairs)
    assert content.decode_headers(raw) == pairs


def test_encoding_a_property_beyond_its_length_raises():
    with pytest.raises(LocalProtocolError):
        content.encode_properties(Properties(correlation_id="x" * 256))


def test_header_appended_to_empty_properties_is_read_back():
    raw = content.append_headers(b"\0\0", [("x-delivery-count", 2)])
    assert content.decode_headers(raw) == [("x-delivery-count", 2)]
    content.check_properties(raw)


@given(some_properties, st.dictionaries(short, st.integers(0, 2**40) | short, min_size=1, max_size=3))
def test_appended_header_replaces_its_name_and_keeps_the_rest(properties, extra):
    raw = content.encode_properties(properties)
    changed = content.append_headers(raw, list(extra.items()))
    content.check_properties(changed)
    before = dict(content.decode_headers(raw))
    assert dict(content.decode_headers(changed)) == {**before, **extra}
    decoded = content.decode_properties(changed)
    decoded.headers = properties.headers
    assert decoded == properties


def test_appended_header_keeps_other_entries_byte_for_byte():
    raw = b"\x20\x00" + bytes.fromhex("0000000c 01 61 42 07 01 62 73 0001 01 61 56")
    changed = content.append_headers(raw, [("a", "new")])
    assert changed == b"\x20\x00" + bytes.fromhex("0000000f 01 62 73 0001 01 61 53 00000003") + b"new"


def test_name_inside_a_header_value_is_not_replaced():
    raw = content.encode_properties(Properties(headers={"k": "\x01a"}))
    changed = content.append_headers(raw, [("a", 1)])
    assert content.decode_headers(changed) == [("k", "\x01a"), ("a", 1)]


@pytest.mark.parametrize(
    ("fields", "mode"),
    [
        ({}, 0),
        ({"delivery_mode": 2}, 2),
        ({"delivery_mode": 1, "content_type": "a/b", "headers": {"k": 1}, "message_id": "m"}, 1),
        ({"timestamp": datetime(2026, 1, 1, tzinfo=UTC), "message_id": "m"}, 0),
        ({"delivery_mode": 2, "priority": 0}, -1),
        ({"delivery_mode": 2, "expiration": "5"}, -1),
        ({"user_id": "guest"}, -1),
    ],
)
def test_check_of_properties_gives_the_delivery_mode(fields, mode):
    assert content.check_properties(content.encode_properties(Properties(**fields))) == mode


header_names = st.sampled_from(["a", "x-offset", "x-group-id", "x-offset-2", "b"])


@given(
    st.lists(
        st.none() | st.lists(st.tuples(header_names, st.integers(0, 9) | st.text()), max_size=4), min_size=1
    ),
    st.booleans(),
)
def test_numbers_are_appended_like_single_headers(tables, is_grouped):
    fixed = [("x-group-id", "workers")] if is_grouped else []
    raws = [content.encode_properties(Properties(message_id="m", delivery_mode=2), pairs) for pairs in tables]
    numbers = list(range(len(raws)))
    found = content.NumberAppender(fixed, ["x-offset", "x-time"]).append(
        raws, [numbers, [-n for n in numbers]]
    )
    assert found == [
        content.append_headers(raw, [*fixed, ("x-offset", number), ("x-time", -number)])
        for raw, number in zip(raws, numbers, strict=True)
    ]
