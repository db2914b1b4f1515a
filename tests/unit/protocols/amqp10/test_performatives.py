import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocols.amqp10 import performatives as p
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from protocols.errors import LocalProtocolError
from tests.unit.protocols.amqp10.strategies import VALUES

SAMPLES = [
    p.Open("c"),
    p.Open(
        "c", "h", 1000, 3, 5, ("en-US",), ("en-US",), ("A", "B"), ("C",), {t.Symbol("product"): "x"}
    ),
    p.Begin(None, 0, 1, 2),
    p.Begin(3, 0, 1, 2, 7, ("A",), ("B",), {t.Symbol("a"): 1}),
    p.Attach("n", 0, True),
    p.Attach(
        "n",
        0,
        False,
        1,
        1,
        p.Source(
            "/queues/q",
            2,
            "never",
            10,
            True,
            {t.Symbol("lifetime-policy"): t.Described(t.ULong(0x2B), [])},
            "move",
            {t.Symbol("f"): t.Described(t.Symbol("f"), "x")},
            p.Modified(True),
            ("amqp:accepted:list",),
            ("queue",),
        ),
        p.Target("/exchanges/e", 1, "link-detach", 1, True, {}, ("topic",)),
        {b"tag": p.as_described(p.Accepted())},
        True,
        0,
        1 << 40,
        ("A",),
        ("B",),
        {t.Symbol("a"): None},
    ),
    p.Attach("txn", 0, False, target=p.Coordinator(("amqp:local-transactions",))),
    p.Flow(None, 1, 2, 3),
    p.Flow(0, 1, 2, 3, 4, 5, 6, 7, True, True, {}),
    p.Transfer(0),
    p.Transfer(1, 2, b"tag", 0, False, True, 0, p.TransactionalState(b"t", p.Accepted()), True, True, True),
    p.Disposition(True, 0),
    p.Disposition(False, 1, 300, True, p.Rejected(p.Error("amqp:not-found", "no", {t.Symbol("q"): 1})), True),
    p.Disposition(True, 1, 2, True, p.Modified(True, True, {t.Symbol("x-a"): 1})),
    p.Disposition(True, 1, state=p.Received(1, 2)),
    p.Disposition(True, 1, state=p.Declared(b"t")),
    p.Disposition(True, 1, state=p.Released()),
    p.Disposition(True, 1, state=p.Accepted()),
    p.Detach(1),
    p.Detach(1, True, p.Error("amqp:link:stolen")),
    p.End(),
    p.Close(p.Error("amqp:connection:forced", "text")),
    p.Declare(),
    p.Discharge(b"t", True),
    p.DeleteOnClose(),
    p.DeleteOnNoLinks(),
    p.DeleteOnNoMessages(),
    p.DeleteOnNoLinksOrMessages(),
    p.SaslMechanisms(("PLAIN", "ANONYMOUS")),
    p.SaslInit("PLAIN", b"\0guest\0guest", "localhost"),
    p.SaslChallenge(b"c"),
    p.SaslResponse(b"r"),
    p.SaslOutcome(0),
    p.SaslOutcome(1, b"more"),
    p.Header(),
    p.Header(True, 9, 1000, True, 3),
    p.Properties(b"id", b"u", "to", "s", "r", t.ULong(4), "text/plain", "gzip", 1, 2, "g", 3, "rg"),
]  # fmt: skip


@pytest.mark.parametrize("value", SAMPLES, ids=lambda value: type(value).__name__)
def test_each_comes_back_as_it_was(value):
    data = p.encode(value)
    assert p.decode(data, 0, len(data)) == (value, len(data))
    assert type(p.decode(data, 0, len(data))[0]) is type(value)


def test_each_of_the_table_has_a_sample():
    sampled = {type(value) for sample in SAMPLES for value in (sample, *sample)}
    assert sampled >= set(p.CODES) - {p.Error}


# written by hand
def test_the_wire_forms_are_those_of_the_specification():
    assert p.encode(p.Accepted()) == b"\x00\x53\x24\x45"
    assert p.encode(p.Disposition(True, 1, None, True, p.Accepted())) == bytes.fromhex(
        "00 53 15 c0 0a 05 41 52 01 40 41 00 53 24 45"
    )
    assert p.encode(p.Transfer(0, 256, b"\x01", 0)) == bytes.fromhex(
        "00 53 14 c0 0b 04 43 70 00 00 01 00 a0 01 01 43"
    )
    assert p.encode(p.Close()) == b"\x00\x53\x18\x45"


def test_a_descriptor_may_be_a_symbol():
    data = t.encode_value(t.Described(t.Symbol("amqp:accepted:list"), []))
    assert p.decode(data, 0, len(data))[0] == p.Accepted()


def test_a_multiple_field_may_be_a_bare_symbol():
    data = t.encode_value(t.Described(t.ULong(0x30), [t.Symbol("amqp:local-transactions")]))
    assert p.decode(data, 0, len(data))[0] == p.Coordinator(("amqp:local-transactions",))


def test_a_mandatory_field_left_out_is_an_invalid_field():
    data = t.encode_value(t.Described(t.ULong(0x12), ["name", t.UInt(0)]))
    with pytest.raises(AmqpError) as caught:
        p.decode(data, 0, len(data))
    assert caught.value.condition == "amqp:invalid-field"
    assert "role" in caught.value.description


@pytest.mark.parametrize(
    "value",
    [
        None,
        t.Described(t.ULong(0x99), []),
        t.Described(t.ULong(0x10), {}),
        t.Described(t.ULong(0x10), [1]),
        t.Described(t.ULong(0x17), [None, None]),
        t.Described(t.ULong(0x17), [t.Described(t.ULong(0x24), [])]),
        t.Described(t.ULong(0x14), [5]),
        t.Described([], []),
    ],
)
def test_another_shape_is_a_decode_error(value):
    data = t.encode_value(value)
    with pytest.raises(AmqpError) as caught:
        p.decode(data, 0, len(data))
    assert caught.value.condition == "amqp:decode-error"


def test_a_field_that_its_type_has_no_room_for_is_our_error():
    with pytest.raises(LocalProtocolError):
        p.encode(p.Flow(None, -1, 0, 0))
    with pytest.raises(LocalProtocolError):
        p.encode(p.Open(5))  # type: ignore[arg-type]


@given(st.sampled_from(sorted(p.CODES.values())), st.lists(VALUES, max_size=15))
def test_random_fields_give_a_performative_or_an_error(code, items):
    data = t.encode_value(t.Described(t.ULong(code), items))
    try:
        value, _ = p.decode(data, 0, len(data))
    except AmqpError:
        return
    again = p.encode(value)
    assert p.decode(again, 0, len(again))[0] == value


def test_outcomes_without_fields_are_not_the_same():
    assert p.Accepted() == p.Accepted()
    assert p.Accepted() != p.Released()
    assert len({p.Accepted(), p.Released(), p.Released(), ()}) == 3
