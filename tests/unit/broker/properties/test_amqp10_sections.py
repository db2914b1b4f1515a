"""Messages of AMQP 1.0 taken apart for the store, and put together for consumers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.properties.amqp10_sections import (
    FORM_DATA,
    FORM_NONE,
    FORM_PARTS,
    FORM_SECTIONS,
    FORM_WIDE,
    Delivery,
    PublishReader,
    are_body_sections,
    read_block,
)
from broker.properties.filter_fields import fields_of
from broker.properties.message_groups import group_key
from broker.properties.templates import as_amqp, as_amqp10, as_mqtt, copies_of
from config import limits
from protocols.amqp091 import content
from protocols.amqp10.errors import LINK, AmqpError
from protocols.mqtt import constants as c
from protocols.mqtt.properties import decode_properties
from storage.envelope import PROPERTIES_AMQP10, PROPERTIES_NONE, EnvelopeTemplate
from tests import amqp10_values as v
from tests.amqp10_values import Value
from tests.unit.broker.properties.translation_cases import DATA

HEADER = v.section(v.HEADER, ("list", [("boolean", True), ("ubyte", 5), ("uint", 9_000)]))
ANNOTATIONS = v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("symbol", "x-a"), ("string", "b"))]))
PROPERTIES = v.section(v.PROPERTIES, ("list", [("string", "m1")]))
APPLICATION = v.section(v.APPLICATION_PROPERTIES, ("map", [(("string", "k"), ("int", 5))]))
FOOTER = v.section(v.FOOTER, ("map", [(("symbol", "x-sum"), ("int", 9))]))


def template_of(message: bytes) -> tuple[EnvelopeTemplate, bytes]:
    published = PublishReader().read(message)
    template = EnvelopeTemplate(
        "k", published.properties_kind, published.block, persistent=published.persistent, exchange="e"
    )
    return template, published.body


def delivery_of(message: bytes) -> Delivery:
    return as_amqp10(*template_of(message))


def delivered(message: bytes, **delivery: Any) -> bytes:
    template, body = template_of(message)
    return as_amqp10(template, body).message(body, **delivery)


def section_of(message: bytes, code: int) -> Value:
    return dict(v.sections(message))[code]


def form_of(message: bytes) -> int:
    return read_block(PublishReader().read(message).block).form


# publish


def test_a_message_of_one_data_section_is_stored_as_its_bytes() -> None:
    published = PublishReader().read(DATA)
    assert published == (PROPERTIES_NONE, b"", b"body", False, False)


@pytest.mark.parametrize("durable", [True, False])
def test_a_header_that_tells_only_of_durability_is_not_stored(durable: bool) -> None:
    header = v.section(v.HEADER, ("list", [("boolean", durable)]))
    assert PublishReader().read(header + DATA) == (PROPERTIES_NONE, b"", b"body", durable, False)


def test_a_body_of_data_is_stored_as_its_bytes_beside_properties() -> None:
    published = PublishReader().read(HEADER + PROPERTIES + DATA + FOOTER)
    assert published.properties_kind == PROPERTIES_AMQP10
    assert published.body == b"body"
    assert published.persistent


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (PROPERTIES + DATA, FORM_DATA),
        (b"\x00\x53\x75\xb0\x00\x00\x00\x04body", FORM_WIDE),
        (DATA + DATA, FORM_PARTS),
        (b"\x00\xa3\x10amqp:data:binary\xa0\x04body", FORM_PARTS),
        (v.section(v.SEQUENCE, ("list", [])), FORM_SECTIONS),
        (v.section(v.VALUE, ("null", None)), FORM_SECTIONS),
        (PROPERTIES, FORM_NONE),
        (b"", FORM_NONE),
    ],
)
def test_every_kind_of_body_comes_back_octet_for_octet(body: bytes, form: int) -> None:
    message = HEADER + body
    assert form_of(message) == form
    assert delivered(message).endswith(body)
    assert form_of(message + FOOTER) == form
    assert delivered(message + FOOTER).endswith(body + FOOTER)


def test_messages_alike_share_one_block() -> None:
    reader = PublishReader()
    first = reader.read(PROPERTIES + DATA)
    second = reader.read(PROPERTIES + v.section(v.DATA, ("binary", b"other")))
    assert second.block is first.block
    assert second.body == b"other"


@pytest.mark.parametrize(
    ("fields", "asks"),
    [([], False), ([("string", "m")], False), ([("string", "m"), ("null", None), ("string", "t")], False),
     ([("null", None), ("binary", b"me")], True)],
)  # fmt: skip
def test_a_user_id_has_to_be_looked_at(fields: list[Value], asks: bool) -> None:
    assert PublishReader().read(v.section(v.PROPERTIES, ("list", fields)) + DATA).asks is asks


def test_messages_alike_ask_alike() -> None:
    reader = PublishReader()
    assert [reader.read(HEADER + PROPERTIES + DATA).asks for _ in range(2)] == [True, True]
    assert [reader.read(PROPERTIES + DATA).asks for _ in range(2)] == [False, False]
    assert [reader.read(HEADER + APPLICATION + DATA).persistent for _ in range(2)] == [True, True]


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
def test_bodies_of_every_size_are_read_after_one_alike(size: int) -> None:
    reader = PublishReader()
    reader.read(PROPERTIES + DATA)
    body = bytes(size)
    assert reader.read(PROPERTIES + v.section(v.DATA, ("binary", body))).body == body


@pytest.mark.parametrize(
    "rest",
    [
        b"\x00\x53\x75\xb0\x00\x00\x00\x04body", DATA + FOOTER, DATA + DATA,
        b"\x00\x53\x75\xb0\x00\x00\x01\x00" + bytes(256) + FOOTER,
    ],
)  # fmt: skip
def test_what_begins_alike_and_ends_otherwise_is_read_for_itself(rest: bytes) -> None:
    reader = PublishReader()
    reader.read(PROPERTIES + DATA)
    assert reader.read(PROPERTIES + rest) == PublishReader().read(PROPERTIES + rest)


@pytest.mark.parametrize(("size", "kept"), [(100, True), (limits.AMQP10_KEPT_SECTIONS_BYTES_MAX, False)])
def test_only_what_is_small_is_kept_to_compare_with(size: int, kept: bool) -> None:
    name = v.section(v.APPLICATION_PROPERTIES, ("map", [(("string", "k"), ("string", "x" * size))]))
    reader = PublishReader()
    first, second = reader.read(name + DATA), reader.read(name + DATA)
    assert second == first
    assert (second.block is first.block) is kept
    assert (read_block(first.block) is read_block(first.block)) is kept
    template = EnvelopeTemplate("k", first.properties_kind, first.block)
    assert as_amqp10(template, b"body").message(b"body").endswith(name + DATA)


@pytest.mark.parametrize("section", ["header", "annotations"])
def test_large_headers_and_annotations_come_out_as_small_ones_do(section: str) -> None:
    size = limits.AMQP10_KEPT_SECTIONS_BYTES_MAX
    large: Value = ("string", "x" * size)
    if section == "header":
        fields: list[Value] = [("boolean", True), ("ubyte", 3), ("null", None), ("null", None), large]
        found = v.describe(delivered(v.section(v.HEADER, ("list", fields)) + DATA))
        assert found["header"]["priority"] == "ubyte 3"
    else:
        pairs = v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("symbol", "x-a"), large)]))
        found = v.describe(delivered(pairs + DATA))
        assert found["annotations"]["symbol x-a"] == f"string {large[1]}"


def test_delivery_annotations_end_at_the_broker() -> None:
    section = v.section(v.DELIVERY_ANNOTATIONS, ("map", [(("symbol", "x-d"), ("int", 1))]))
    assert PublishReader().read(section + DATA) == (PROPERTIES_NONE, b"", b"body", False, False)


def test_a_history_of_deaths_that_a_publisher_tells_has_another_name() -> None:
    claim = v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("symbol", "x-opt-deaths"), ("list", []))]))
    annotations = section_of(delivered(claim + DATA), v.MESSAGE_ANNOTATIONS)
    assert (("symbol", "x-original-x-opt-deaths"), ("list", [])) in annotations[1]
    assert "x-opt-deaths" not in [name for (_, name), _ in annotations[1]]


@pytest.mark.parametrize(
    "message",
    [
        b"\x00", b"abc", b"\x00\x53\x75", b"\x00\x53\x75\xa0\x05body", b"\x00\x53\x79\x40", DATA[:-1],
        DATA + b"\x00\x53\x78\x45", DATA + b"\x00\x53\x78\xc1\x02\x01\x40",
        DATA + PROPERTIES, APPLICATION + PROPERTIES + DATA, PROPERTIES + PROPERTIES + DATA, DATA + b"\x40",
        v.section(v.VALUE, ("null", None)) * 2, DATA + v.section(v.VALUE, ("null", None)),
        v.section(v.DATA, ("string", "text")), v.section(v.PROPERTIES, ("map", [])) + DATA,
        v.section(v.APPLICATION_PROPERTIES, ("list", [])) + DATA,
        v.section(v.APPLICATION_PROPERTIES, ("map", [(("symbol", "k"), ("int", 1))])) + DATA,
        v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("symbol", "plain"), ("int", 1))])) + DATA,
        v.section(v.MESSAGE_ANNOTATIONS, ("map", [(("ulong", 1), ("int", 1))])) + DATA,
        b"\x00\x53\x74\xc1\x02\x01\x40" + DATA, b"\x00\x53\x73\xc0\x03\x05\x40\x40" + DATA,
        b"\x00\x53\x73\xc0\x03\x01\x40\x40" + DATA, b"\x00\x53\x73\xc0\x00" + DATA,
    ],
)  # fmt: skip
def test_what_is_no_message_ends_the_link_with_a_decode_error(message: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        PublishReader().read(message)
    assert caught.value.condition == "amqp:decode-error"
    assert caught.value.scope == LINK


@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda tail: PROPERTIES + tail))
def test_random_bytes_are_a_message_or_a_decode_error(data: bytes) -> None:
    check_delivered(data)


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_changed_octet_is_a_message_or_a_decode_error(place: int, octet: int) -> None:
    message = bytearray(HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + FOOTER)
    message[place % len(message)] = octet
    check_delivered(bytes(message))


def check_delivered(message: bytes) -> None:
    """Check that a message that is taken can be delivered by every protocol."""
    try:
        template, body = template_of(message)
    except AmqpError as error:
        assert (error.condition, error.scope) == ("amqp:decode-error", LINK)  # noqa: PT017
        return
    as_amqp10(template, body).message(body)
    if template.properties:
        content.check_properties(as_amqp(template))
        decode_properties(as_mqtt(template), c.PUBLISH)
        dict(fields_of(template))
        group_key(template)
        copies_of(template)


# deliver


def test_a_first_delivery_tells_of_address_and_header() -> None:
    found = delivered(HEADER + ANNOTATIONS + PROPERTIES + DATA)
    assert v.describe(found) == {
        "header": {
            "durable": "boolean True",
            "priority": "ubyte 5",
            "ttl": "uint 9000",
            "first-acquirer": "boolean True",
            "delivery-count": "uint 0",
        },
        "annotations": {
            "symbol x-routing-key": "string k",
            "symbol x-exchange": "string e",
            "symbol x-a": "string b",
        },
        "properties": {"message-id": "string m1"},
        "data": ["binary 626f6479"],
    }


def test_a_redelivery_tells_how_often_and_what_is_left_of_the_ttl() -> None:
    found = delivered(HEADER + DATA, delivery_count=2, first_acquirer=False, left_ms=500)
    assert section_of(found, v.HEADER)[1][2:] == [("uint", 500), ("boolean", False), ("uint", 2)]


@pytest.mark.parametrize(("left_ms", "told"), [(-5, 1), (0, 1), (9_001, 9_000)])
def test_the_ttl_that_is_told_is_at_least_1_and_at_most_the_publishers(left_ms: int, told: int) -> None:
    assert section_of(delivered(HEADER + DATA, left_ms=left_ms), v.HEADER)[1][2] == ("uint", told)


def test_a_message_without_a_ttl_gets_none() -> None:
    assert "ttl" not in v.describe(delivered(DATA, left_ms=5))["header"]


def test_added_annotations_take_the_place_of_those_of_their_name() -> None:
    found = delivered(ANNOTATIONS + DATA, added=[("x-a", 5), ("x-opt-new", True)])
    assert v.describe(found)["annotations"] == {
        "symbol x-a": "long 5",
        "symbol x-opt-new": "boolean True",
        "symbol x-routing-key": "string k",
        "symbol x-exchange": "string e",
    }


def test_what_goes_before_bodies_of_one_size_is_made_once() -> None:
    delivery = delivery_of(PROPERTIES + DATA)
    first = delivery.before(4)
    assert delivery.before(4) is first
    assert delivery.before(5) != first


simple: st.SearchStrategy[Value] = st.one_of(
    st.just(("null", None)),
    st.tuples(st.just("boolean"), st.booleans()),
    st.tuples(st.just("int"), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just("ulong"), st.integers(0, (1 << 64) - 1)),
    st.tuples(st.just("string"), st.text(st.characters(codec="utf-8"), max_size=300)),
    st.tuples(st.just("binary"), st.binary(max_size=300)),
    st.tuples(st.just("uuid"), st.uuids()),
    st.tuples(st.just("timestamp"), st.integers(-(1 << 63), (1 << 63) - 1)),
    st.tuples(st.just("char"), st.integers(0, 0xD7FF)),
    st.tuples(st.just("decimal64"), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just("double"), st.floats(allow_nan=False)),
)
nested: st.SearchStrategy[Value] = st.recursive(
    simple, lambda inner: st.tuples(st.just("list"), st.lists(inner, max_size=3)), max_leaves=6
)
names = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=20)


def maps(key: str, prefix: str, values: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return st.dictionaries(names, values, max_size=4).map(
        lambda pairs: ("map", [((key, prefix + name), value) for name, value in pairs.items()])
    )


def optional(code: int, values: st.SearchStrategy[Value]) -> st.SearchStrategy[bytes]:
    return st.just(b"") | values.map(lambda value: v.section(code, value))


bodies = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(
        lambda parts: b"".join(v.section(v.DATA, ("binary", part)) for part in parts)
    ),
    nested.map(lambda value: v.section(v.VALUE, value)),
    st.lists(nested, max_size=3).map(lambda items: v.section(v.SEQUENCE, ("list", items))),
)
properties = st.tuples(st.just("list"), st.lists(simple, max_size=13))


@given(
    optional(v.MESSAGE_ANNOTATIONS, maps("symbol", "x-q", nested)),
    optional(v.PROPERTIES, properties),
    optional(v.APPLICATION_PROPERTIES, maps("string", "", simple)),
    bodies,
    optional(v.FOOTER, maps("symbol", "", nested)),
)
def test_the_bare_message_and_the_footer_come_back_octet_for_octet(
    annotations: bytes, own: bytes, application: bytes, body: bytes, footer: bytes
) -> None:
    found = delivered(annotations + own + application + body + footer)
    assert found.endswith(own + application + body + footer)
    before = found[: len(found) - len(own + application + body + footer)]
    (_, _), (_, (_, pairs)) = v.sections(before)
    sent = v.sections(annotations)[0][1][1] if annotations else []
    assert pairs[2:] == sent


@pytest.mark.parametrize(
    ("body", "whether"),
    [
        (v.section(v.VALUE, ("null", None)), True), (v.section(v.SEQUENCE, ("list", [])) * 2, True),
        (DATA, True), (b"", False), (b"text", False), (PROPERTIES, False), (DATA + FOOTER, False),
    ],
)  # fmt: skip
def test_body_sections_are_told_from_other_bytes(body: bytes, whether: bool) -> None:
    assert are_body_sections(body) is whether
