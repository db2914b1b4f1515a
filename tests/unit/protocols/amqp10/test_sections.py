import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10 import performatives as p
from protocols.amqp10 import sections as s
from protocols.amqp10 import types as t
from protocols.amqp10.errors import LINK, AmqpError
from protocols.amqp10.sections import Sections, encode_header, encode_section
from tests.unit.protocols.amqp10.strategies import VALUES

HEADER = p.encode(p.Header(True, 7, 1000))
DELIVERY = encode_section(s.DELIVERY_ANNOTATIONS, {t.Symbol("x-d"): 1})
ANNOTATIONS = encode_section(s.MESSAGE_ANNOTATIONS, {t.Symbol("x-a"): "b"})
PROPERTIES = p.encode(p.Properties("id", to="/queues/q"))
APPLICATION = encode_section(s.APPLICATION_PROPERTIES, {"k": t.Int(1)})
DATA = encode_section(s.DATA, b"body")
FOOTER = encode_section(s.FOOTER, {t.Symbol("x-f"): True})
WHOLE = HEADER + DELIVERY + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + DATA + FOOTER


def test_every_section_is_found():
    found = Sections(WHOLE)
    assert found.header == p.Header(True, 7, 1000)
    assert found.decode(s.DELIVERY_ANNOTATIONS) == {"x-d": 1}
    assert found.decode(s.MESSAGE_ANNOTATIONS) == {"x-a": "b"}
    assert found.properties == p.Properties("id", to="/queues/q")
    assert found.decode(s.APPLICATION_PROPERTIES) == {"k": 1}
    assert found.decode(s.FOOTER) == {"x-f": True}
    assert found.body_kind == s.DATA
    assert found.body_values() == [b"body", b"body"]
    assert found.body_data() == b"bodybody"
    assert WHOLE[found.body_at : found.body_end] == DATA + DATA
    assert found.bare() == PROPERTIES + APPLICATION + DATA + DATA + FOOTER
    assert found.annotations() == ANNOTATIONS


def test_what_is_not_there_is_none_or_default():
    found = Sections(b"")
    assert found.header == p.Header()
    assert found.properties == p.Properties()
    assert found.decode(s.FOOTER) is None
    assert found.body_kind == 0
    assert found.body_data() == b""
    assert found.annotations() == b""


def test_another_header_leaves_all_else_as_it_was():
    found = Sections(WHOLE)
    header = found.header._replace(delivery_count=2, ttl=None)
    again = found.with_header(header)
    assert again == p.encode(header) + ANNOTATIONS + found.bare()
    assert Sections(ANNOTATIONS + DATA).with_header(header) == p.encode(header) + ANNOTATIONS + DATA
    assert Sections(DATA).with_header(header) == p.encode(header) + DATA


def test_a_header_of_the_broker_tells_all_it_knows():
    header = encode_header(True, 7, 60_000, False, 300)
    assert Sections(header).header == p.Header(True, 7, 60_000, False, 300)
    assert Sections(encode_header(False)).header == p.Header()


@pytest.mark.parametrize("body", [[1, "a"], {"a": 1}, None, b"x"])
def test_a_value_may_be_anything(body):
    found = Sections(encode_section(s.VALUE, body))
    assert (found.body_kind, found.body_values()) == (s.VALUE, [body])
    assert found.body_data() == b""


def test_sequences_may_be_several():
    found = Sections(encode_section(s.SEQUENCE, [1]) + encode_section(s.SEQUENCE, [2, 3]))
    assert (found.body_kind, found.body_values()) == (s.SEQUENCE, [[1], [2, 3]])


@pytest.mark.parametrize(
    "descriptor", [t.Symbol("amqp:data:binary"), b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75"]
)
def test_a_descriptor_may_have_any_of_its_forms(descriptor):
    head = descriptor if isinstance(descriptor, bytes) else b"\x00" + t.encode_value(descriptor)
    assert Sections(head + t.encode_value(b"x")).body_data() == b"x"


MALFORMED = {
    "garbage": b"\xff",
    "header behind the body": DATA + HEADER,
    "header twice": HEADER + HEADER,
    "two values": encode_section(s.VALUE, 1) * 2,
    "two kinds of body": DATA + encode_section(s.VALUE, 1),
    "cut off": DATA[:-1],
    "no value": HEADER + b"\x00\x53\x75",
    "descriptor alone": b"\x00\x53",
    "unknown section": b"\x00\x53\x79\x45",
    "data of another type": encode_section(s.DATA, "text"),
    "list for a map": encode_section(s.APPLICATION_PROPERTIES, []),
    "described by a string": b"\x00\xa1\x01x\x45",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_message_is_a_decode_error_of_the_link(data):
    with pytest.raises(AmqpError) as caught:
        Sections(data)
    assert caught.value.condition == "amqp:decode-error"
    assert caught.value.scope == LINK


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=4), VALUES)
def test_any_message_is_found_again(application, body):
    data = encode_section(s.APPLICATION_PROPERTIES, application) + encode_section(s.VALUE, body)
    found = Sections(data)
    assert found.decode(s.APPLICATION_PROPERTIES) == application
    assert found.body_values() == [body]


@given(st.binary(max_size=100))
def test_random_octets_are_a_message_or_a_decode_error(data):
    try:
        found = Sections(data)
    except AmqpError:
        return
    assert found.with_header(p.Header()).endswith(found.bare())
