"""Method frames: strict reading, writing without pamqp's name rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import base, commands, frame

from protocols.amqp091 import methods
from protocols.errors import LocalProtocolError, ProtocolError

EXAMPLES: dict[str, object] = {
    "octet": 9,
    "short": 513,
    "long": 70_000,
    "longlong": 2**40,
    "shortstr": "name",
    "longstr": "secret",
    "table": {"x-max-length": 5, "nested": {"a": [1, "b"]}},
}


def example(cls: type[base.Frame]) -> base.Frame:
    method = cls.__new__(cls)
    for at, argument in enumerate(cls.attributes()):
        kind = cls.amqp_type(argument)
        setattr(method, argument, at % 2 == 0 if kind == "bit" else EXAMPLES[kind])
    return method


def values(method: base.Frame) -> dict[str, object]:
    # long strings are bytes where we read them, str where pamqp does
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in method}


@pytest.mark.parametrize("cls", commands.INDEX_MAPPING.values(), ids=lambda cls: cls.name)
def test_each_method_round_trips_and_agrees_with_pamqp(cls):
    method = example(cls)
    raw = methods.encode_method(3, method)
    payload = raw[7:-1]
    assert int.from_bytes(raw[3:7], "big") == len(payload)
    assert raw[:3] == b"\x01\x00\x03"
    assert values(methods.decode_method(payload)) == values(method)
    theirs = cls.__new__(cls)
    theirs.unmarshal(payload[4:])
    assert values(theirs) == values(method)


@pytest.mark.parametrize("cls", commands.INDEX_MAPPING.values(), ids=lambda cls: cls.name)
def test_truncated_or_extended_method_is_refused(cls):
    payload = methods.encode_method(1, example(cls))[7:-1]
    for broken in [payload[:cut] for cut in range(4, len(payload))] + [payload + b"\0"]:
        with pytest.raises(ProtocolError) as caught:
            methods.decode_method(broken)
        assert caught.value.code == 502
        assert (caught.value.class_id << 16) + caught.value.method_id == cls.index


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\x3c\0"])
def test_payload_shorter_than_a_method_index_is_refused(payload):
    with pytest.raises(ProtocolError) as caught:
        methods.decode_method(payload)
    assert caught.value.code == 502


def test_unknown_method_is_refused_with_540():
    with pytest.raises(ProtocolError) as caught:
        methods.decode_method(b"\x00\x3c\x00\xff")
    assert (caught.value.code, caught.value.class_id, caught.value.method_id) == (540, 60, 255)


def test_names_that_pamqp_refuses_are_written():
    with pytest.raises(ValueError, match="Invalid value"):
        commands.Queue.DeclareOk("$queue/orders", 0, 0)
    raw = methods.encode_method(1, methods.QueueDeclareOk("$queue/orders", 3, 1))
    assert methods.decode_method(raw[7:-1]).queue == "$queue/orders"  # type: ignore[attr-defined]
    for cls in (methods.BasicDeliver, methods.BasicGetOk, methods.BasicReturn):
        reply = cls(exchange="$weird", routing_key="$queue/orders")
        raw = methods.encode_method(1, reply)
        assert methods.decode_method(raw[7:-1]).exchange == "$weird"  # type: ignore[attr-defined]


def test_frames_equal_those_of_pamqp():
    for method in (
        commands.Connection.Start(0, 9, {"capabilities": {"basic.nack": True}, "product": "x"}),
        commands.Connection.Tune(2047, 131072, 60),
        commands.Channel.Close(404, "NOT_FOUND - x", 60, 40),
        commands.Queue.DeclareOk("q", 3, 1),
        commands.Basic.Return(312, "NO_ROUTE", "", "q"),
        commands.Basic.ConsumeOk("ctag"),
        commands.Basic.Nack(5, True, False),
        commands.Channel.OpenOk(),
    ):
        assert methods.encode_method(1, method) == frame.marshal(method, 1)


def test_encoding_a_value_beyond_its_field_raises():
    with pytest.raises(LocalProtocolError):
        methods.encode_method(1, commands.Basic.Ack(2**64))
    with pytest.raises(LocalProtocolError):
        methods.encode_method(1, methods.QueueDeclareOk("q" * 256, 0, 0))


@given(st.sampled_from(sorted(commands.INDEX_MAPPING)), st.binary(max_size=60))
def test_random_arguments_decode_or_are_refused_with_502(index, arguments):
    try:
        methods.decode_method(index.to_bytes(4, "big") + arguments)
    except ProtocolError as error:
        code = error.code
    else:
        code = 502
    assert code == 502


def test_repeated_argument_is_refused_with_502():
    declare = commands.Queue.Declare(queue="q", arguments={"x-a": 1, "x-b": 2})
    payload = methods.encode_method(1, declare)[7:-1]
    assert methods.decode_method(payload).arguments == {"x-a": 1, "x-b": 2}  # type: ignore[attr-defined]
    with pytest.raises(ProtocolError, match="an argument is there twice: x-a") as refused:
        methods.decode_method(payload.replace(b"x-b", b"x-a"))
    assert refused.value.code == 502
