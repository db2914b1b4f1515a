import pytest
from hypothesis import given
from hypothesis import strategies as st

from config import limits
from storage import envelope
from storage.envelope import (
    PROPERTIES_AMQP,
    EnvelopeTemplate,
    TemplateCache,
    decode_envelope,
    encode_metadata_block,
    encode_varied_elements,
    vary,
)
from storage.errors import CorruptRecord, FormatTooNew
from tests.unit.storage.envelopes import encode_envelope, encode_metadata_run, encode_run
from tests.unit.storage.record_checks import T0, check_strict, i64, u64, unhex

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FIELDS = (
    "expires_at_ms",
    "visible_at_ms",
    "priority",
    "topic",
    "properties_kind",
    "properties",
    "persistent",
    "shared",
    "exchange",
)


def fields_of(value):
    offset, received_at_ms, template = decode_envelope(value)
    return offset, received_at_ms, *[getattr(template, name) for name in FIELDS]


@st.composite
def templates(draw):
    kind = draw(st.integers(0, 3))
    return EnvelopeTemplate(
        draw(texts),
        kind,
        draw(st.binary(max_size=30)) if kind else b"",
        priority=draw(st.integers(0, 255)),
        visible_at_ms=draw(st.just(0) | i64),
        expires_at_ms=draw(st.just(0) | i64),
        persistent=draw(st.booleans()),
        shared=draw(st.booleans()),
        exchange=draw(texts),
    )


def test_smallest_envelope_matches_the_documented_vector():
    value = encode_envelope(5, T0, 0, 0, 0, "a", 0, b"", False, False)
    assert value == unhex("01 00  05 00 00 00 00 00 00 00  00 a8 da 76 9b 01 00 00  01 00 61")


def test_amqp_envelope_matches_the_documented_vector():
    value = encode_envelope(300, T0, 0, 0, 4, "eu", 1, unhex("10 00 02"), True, False, "orders")
    assert value == unhex(
        "01 ac  2c 01 00 00 00 00 00 00  00 a8 da 76 9b 01 00 00"
        "04  02 00 65 75  06 00 6f 72 64 65 72 73  03 00 00 00 10 00 02"
    )


def test_mqtt_envelope_with_times_and_shared_payload_matches_the_documented_vector():
    value = encode_envelope(1, T0, T0 + 30_000, T0 + 1_234, 0, "t", 2, b"", True, True)
    assert value == unhex(
        "01 5b  01 00 00 00 00 00 00 00  00 a8 da 76 9b 01 00 00"
        "d2 ac da 76 9b 01 00 00  30 1d db 76 9b 01 00 00  01 00 74  00 00 00 00"
    )


@given(
    u64,
    i64,
    i64,
    i64,
    st.integers(0, 255),
    texts,
    st.binary(max_size=30),
    st.booleans(),
    st.booleans(),
    texts,
)
def test_every_field_round_trips(
    offset, received, expires, visible, priority, topic, properties, persistent, shared, exchange
):
    for kind in range(4):
        given_fields = (
            offset,
            received,
            expires,
            visible,
            priority,
            topic,
            kind,
            properties if kind else b"",
            persistent,
            shared,
            exchange,
        )
        value = encode_envelope(*given_fields)
        assert fields_of(value) == given_fields
        check_strict(decode_envelope, value)


@given(templates(), st.integers(0, 2**63), i64, st.integers(1, 20))
def test_run_encodes_like_its_envelopes(template, first_offset, received_at_ms, count):
    run = encode_run(template, first_offset, received_at_ms, count)
    assert len(run) == count
    for offset, value in enumerate(run, first_offset):
        assert len(value) == template.envelope_bytes
        assert value[18:] == template.suffix
        *place, decoded = decode_envelope(value)
        assert place == [offset, received_at_ms]
        assert decoded.flags == template.flags
        assert (decoded.topic, decoded.exchange, decoded.properties) == (
            template.topic,
            template.exchange,
            template.properties,
        )


@given(
    templates(),
    st.integers(0, 2**62) | st.integers(0, 70_000),
    st.integers(0, 2**62) | st.integers(0, 70_000),
    st.integers(1, 40) | st.integers(250, 1_100),
)
def test_metadata_block_encodes_like_its_run(template, first_message_id, first_offset, count):
    parts = encode_metadata_run(first_message_id, encode_run(template, first_offset, T0, count))
    block = envelope.encode_metadata_block(template, first_message_id, first_offset, T0, count)
    assert block == b"".join(parts)


@pytest.mark.parametrize("first", [0, 0xFF, 0xFFFF - 3, 0xFFFFFF - 70, 2**40 - 1, 2**64 - 65_535])
def test_metadata_block_carries_ids_over_byte_borders(first):
    template = EnvelopeTemplate("t")
    parts = encode_metadata_run(first, encode_run(template, first, T0, 65_535))
    assert envelope.encode_metadata_block(template, first, first, T0, 65_535) == b"".join(parts)


def test_metadata_block_of_invalid_size_or_id_is_refused():
    template = EnvelopeTemplate("t")
    for count in (0, 65_536):
        with pytest.raises(ValueError, match="elements"):
            envelope.encode_metadata_block(template, 0, 0, T0, count)
    with pytest.raises(ValueError, match="u64"):
        envelope.encode_metadata_block(template, 2**64 - 1, 0, T0, 2)


def test_invalid_template_is_refused():
    with pytest.raises(ValueError, match="without a kind"):
        EnvelopeTemplate("t", 0, b"x")
    with pytest.raises(ValueError, match="kind 4"):
        EnvelopeTemplate("t", 4)
    with pytest.raises(ValueError):
        EnvelopeTemplate("t", priority=256)
    with pytest.raises(ValueError, match="65536 bytes"):
        EnvelopeTemplate("t" * 65_536)


def test_envelope_of_another_version_is_refused():
    value = encode_envelope(5, T0, 0, 0, 0, "a", 0, b"", False, False)
    with pytest.raises(FormatTooNew, match="version 2"):
        decode_envelope(b"\x02" + value[1:])
    with pytest.raises(CorruptRecord, match="version"):
        decode_envelope(b"\x00" + value[1:])


def test_envelope_with_invalid_utf8_is_corrupt():
    value = encode_envelope(5, T0, 0, 0, 0, "a", 0, b"", False, False)
    with pytest.raises(CorruptRecord, match="UTF-8"):
        decode_envelope(value[:-1] + b"\xff")


@given(st.binary(max_size=60))
def test_arbitrary_bytes_decode_or_are_refused(data):
    try:
        decode_envelope(b"\x01" + data)
    except CorruptRecord:
        pass


@given(templates(), st.integers(0, 2**60))
def test_cache_gives_one_template_for_equal_envelopes(template, offset):
    cache = TemplateCache()
    first, second = encode_run(template, offset, T0, 2)
    decoded = cache.decode([first, second])
    assert [(o, t) for o, t, _ in decoded] == [(offset, T0), (offset + 1, T0)]
    found = decoded[0][2]
    assert found is decoded[1][2]
    for name in EnvelopeTemplate.__slots__:
        assert getattr(found, name) == getattr(template, name)


def test_cache_is_bounded():
    cache = TemplateCache()
    for number in range(limits.ENVELOPE_TEMPLATES_MAX + 10):
        cache.find(encode_run(EnvelopeTemplate(f"t{number}"), 0, T0, 1)[0])
    assert len(cache._templates) <= limits.ENVELOPE_TEMPLATES_MAX


def test_cache_refuses_invalid_envelopes():
    cache = TemplateCache()
    with pytest.raises(CorruptRecord):
        cache.find(b"\x01")
    with pytest.raises(FormatTooNew):
        cache.find(b"\x09" * 30)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("priority", [0, 5])
def test_varied_templates_equal_those_made_one_by_one(shared, priority):
    fixed = {"shared": shared, "priority": priority, "exchange": "e"}
    base = EnvelopeTemplate("t", PROPERTIES_AMQP, b"", persistent=True, **fixed)
    raws = [b"", b"a", b"b" * 300]
    modes = [True, False, True]
    varied = vary(base, raws, modes)
    single = [
        EnvelopeTemplate("t", PROPERTIES_AMQP, raw, persistent=mode, **fixed)
        for raw, mode in zip(raws, modes, strict=True)
    ]
    for one, other in zip(varied, single, strict=True):
        for slot in EnvelopeTemplate.__slots__:
            assert getattr(one, slot) == getattr(other, slot), slot
    assert encode_varied_elements(varied, 7, 9, 11) == [
        encode_metadata_block(template, 7 + at, 9 + at, 11, 1) for at, template in enumerate(single)
    ]
