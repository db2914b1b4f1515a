"""Runs of deliveries and confirms out; runs of publishes and acks in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from protocols.amqp091 import hot
from protocols.amqp091.content import append_headers, decode_headers
from tests.unit.protocols.amqp091.driver import publish
from tests.vectors import amqp


def template(body_bytes: int, **changes) -> hot.DeliverTemplate:
    values = {
        "channel": 1,
        "consumer_tag": "c",
        "exchange": "",
        "routing_key": "q",
        **changes,
    }
    properties = values.pop("properties", b"\x10\x00\x02")
    return hot.DeliverTemplate(values["channel"], hot.DeliverAddress(**values), properties, body_bytes)


def unmarshal_all(data: bytes):
    found = []
    while data:
        consumed, channel, value = frame.unmarshal(data)
        found.append((channel, value))
        data = data[consumed:]
    return found


def test_delivery_matches_the_hand_written_bytes():
    output: list[bytes] = []
    hot.encode_deliver_run(output, template(5), 1, [b"hello"])
    assert b"".join(output) == amqp.DELIVER_HELLO


def test_delivery_of_an_empty_body_has_no_body_frame():
    output: list[bytes] = []
    hot.encode_deliver_run(output, template(0), 1, [b"", b""])
    assert [value.name for _, value in unmarshal_all(b"".join(output))] == [
        "Basic.Deliver",
        "ContentHeader",
    ] * 2


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("size", [0, 1, 100])
def test_run_of_deliveries_equals_single_deliveries(count, size):
    bodies = [bytes([at]) * size for at in range(count)]
    run: list[bytes] = []
    hot.encode_deliver_run(run, template(size), 2**33, bodies)
    parts: list[bytes] = []
    hot.encode_deliver_parts(parts, template(size), 2**33, bodies)
    assert b"".join(run) == b"".join(parts)
    assert all(any(part is body for part in parts) for body in bodies)
    found = unmarshal_all(b"".join(run))
    delivers = [value for _, value in found if value.name == "Basic.Deliver"]
    assert [value.delivery_tag for value in delivers] == list(range(2**33, 2**33 + count))
    assert all(not value.redelivered and value.routing_key == "q" for value in delivers)
    if size:
        assert [value.value for _, value in found if value.name == "ContentBody"] == bodies


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 2**63))
def test_deliveries_of_different_sizes_decode_in_order(bodies, first_tag):
    output: list[bytes] = []
    for tag, body in enumerate(bodies, first_tag):
        hot.encode_deliver_run(output, template(7).resized(len(body)), tag, [body])
    found = unmarshal_all(b"".join(output))
    assert [v.value for _, v in found if v.name == "ContentBody"] == [body for body in bodies if body]
    assert [v.body_size for _, v in found if v.name == "ContentHeader"] == [len(body) for body in bodies]


def test_body_of_a_size_other_than_its_template_fails_an_assertion():
    with pytest.raises(AssertionError):
        hot.encode_deliver_run([], template(5), 1, [b"hello", b"hell"])
    with pytest.raises(AssertionError):
        hot.encode_deliver_run([], template(5), 1, [b"hell"])


@pytest.mark.parametrize("size", [0, 5])
def test_numbered_deliveries_carry_their_offsets(size):
    properties = append_headers(b"\x10\x00\x02", [("x-group-id", "g"), ("x-offset", 0)])
    numbered = hot.NumberedTemplate(template(size, properties=properties), ["x-offset"])
    bodies = [bytes([at]) * size for at in range(3)]
    output: list[bytes] = []
    hot.encode_deliver_numbered(output, numbered, 5, [[10, 2**40, 12]], bodies)
    hot.encode_deliver_numbered(output, numbered, 8, [[]], [])
    headers = [v for _, v in unmarshal_all(b"".join(output)) if v.name == "ContentHeader"]
    assert [v.properties.headers for v in headers] == [
        {"x-group-id": "g", "x-offset": offset} for offset in (10, 2**40, 12)
    ]
    assert decode_headers(properties) == [("x-group-id", "g"), ("x-offset", 0)]
    with pytest.raises(ValueError):
        hot.NumberedTemplate(template(size), ["x-offset"])


@pytest.mark.parametrize("multiple", [False, True])
def test_confirm_equals_what_pamqp_writes(multiple):
    assert hot.encode_ack(3, 2**40, multiple) == frame.marshal(commands.Basic.Ack(2**40, multiple), 3)
    nack = commands.Basic.Nack(2**40, False, requeue=False)
    assert hot.encode_nack(3, 2**40) == frame.marshal(nack, 3)


PREFIX = amqp.HELLO_TO_Q[: -len(b"hello\xce")]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 200])
def test_equal_publishes_are_all_read(count):
    bodies = [at.to_bytes(5, "big") for at in range(count)]
    data = b"junk" + b"".join(PREFIX + body + b"\xce" for body in bodies)
    for tail in (b"", b"\x01", PREFIX, PREFIX + b"hell", PREFIX + b"hello", PREFIX + b"hello\xcd"):
        taken: list[bytes] = []
        assert hot.take_equal_publishes(data + tail, 4, PREFIX, 5, taken) == len(data)
        assert taken == bodies


@given(st.integers(0, 150), st.integers(0, 40), st.integers(0, 255))
def test_reading_equal_publishes_stops_at_the_first_difference(at, offset, value):
    one = PREFIX + b"hello\xce"
    data = bytearray(one * 150)
    if at < 150:
        data[at * len(one) + offset % len(PREFIX)] ^= value
    broken = at < 150 and value != 0
    taken: list[bytes] = []
    expected = at if broken else 150
    assert hot.take_equal_publishes(bytes(data), 0, PREFIX, 5, taken) == expected * len(one)
    assert taken == [b"hello"] * expected


def test_bodies_that_look_like_the_prefix_are_read_as_bodies():
    body = PREFIX[:5]
    data = (PREFIX + body + b"\xce") * 100
    taken: list[bytes] = []
    assert hot.take_equal_publishes(data, 0, PREFIX, 5, taken) == len(data)
    assert taken == [body] * 100


def test_publish_of_pamqp_repeats_byte_for_byte():
    one = publish(1, "q", b"x" * 100, delivery_mode=2)
    prefix = one[:-101]
    taken: list[bytes] = []
    assert hot.take_equal_publishes(one * 3, len(one), prefix, 100, taken) == 3 * len(one)


HEAD = amqp.ACK_7[:11]


def ack(tag: int, multiple: int = 0) -> bytes:
    return HEAD + tag.to_bytes(8, "big") + bytes([multiple]) + b"\xce"


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 255, 256, 257, 600])
def test_consecutive_single_acks_are_all_read(count):
    data = b"".join(ack(tag) for tag in range(1, count + 1))
    for tail in (b"", ack(5)[:-1], ack(5, 1), amqp.NACK_7, amqp.HELLO_TO_Q, ack(5)[:-1] + b"\xcd"):
        tags: list[int] = []
        assert hot.take_acks(data + tail, 0, HEAD, tags) == len(data)
        assert tags == list(range(1, count + 1))


@given(st.integers(0, 299), st.integers(0, 20), st.integers(1, 255))
def test_reading_acks_stops_at_the_first_difference(at, offset, flip):
    data = bytearray(b"".join(ack(tag) for tag in range(300)))
    data[at * 21 + offset] ^= flip
    tags: list[int] = []
    taken = hot.take_acks(bytes(data), 0, HEAD, tags)
    if 11 <= offset < 19:  # another tag is still an ack
        assert len(tags) == 300
    else:
        assert (taken, tags) == (at * 21, list(range(at)))


def test_varied_deliveries_equal_single_ones():
    raws = [append_headers(b"\x10\x00\x02", [("n", at)]) for at in range(3)]
    bodies = [b"x", b"yy", b"z" * 300]
    keys = [("", "q"), ("", "$queue/q/eu"), ("e", "q")]
    addresses = [hot.DeliverAddress(3, "ctag", exchange, key) for exchange, key in keys]
    varied: list[bytes] = []
    hot.encode_deliver_varied(varied, 3, 7, addresses, raws, bodies)
    single: list[bytes] = []
    for at, (raw, payload, (exchange, key)) in enumerate(zip(raws, bodies, keys, strict=True)):
        changes = {"channel": 3, "consumer_tag": "ctag", "exchange": exchange, "routing_key": key}
        one = template(len(payload), properties=raw, **changes)
        hot.encode_deliver_run(single, one, 7 + at, [payload])
    assert b"".join(varied) == b"".join(single)


NAMES = ("x-offset", "x-stream-timestamp", "x-stream-offset")


def made(size: int) -> hot.DeliverTemplate:
    headers = [("x-group-id", "g"), *((name, 0) for name in NAMES)]
    return template(size, properties=append_headers(b"\x10\x00\x02", headers))


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize("count", [1, 3])
def test_each_delivery_with_several_numbers_has_its_own(size, count):
    bodies = [bytes([at]) * size for at in range(count)]
    columns = [[at * 1_000 + number for at in range(count)] for number in (1, 2**41, 3)]
    output: list[bytes] = []
    hot.encode_deliver_numbered(output, hot.NumberedTemplate(made(size), NAMES), 5, columns, bodies)
    hot.encode_deliver_numbered(output, hot.NumberedTemplate(made(size), NAMES), 9, [[], [], []], [])
    frames = [frame for _, frame in unmarshal_all(b"".join(output))]
    headers = [frame.properties.headers for frame in frames if frame.name == "ContentHeader"]
    numbers = [dict(zip(NAMES, row, strict=True)) for row in zip(*columns, strict=True)]
    assert headers == [{"x-group-id": "g"} | row for row in numbers]
    tags = [frame.delivery_tag for frame in frames if frame.name == "Basic.Deliver"]
    assert tags == list(range(5, 5 + count))
    if size:
        assert [frame.value for frame in frames if frame.name == "ContentBody"] == bodies


def test_numbering_a_header_that_is_absent_raises():
    with pytest.raises(ValueError):
        hot.NumberedTemplate(template(5), NAMES)
