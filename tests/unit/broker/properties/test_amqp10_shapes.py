"""broker.properties.amqp10_sections.PublishReader: no message is read otherwise for those before it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.properties import amqp10_sections
from broker.properties.amqp10_sections import Published, PublishReader
from protocols.amqp10 import types as t
from protocols.amqp10.errors import AmqpError
from tests.e2e.raw_amqp10 import message

IDS = [*map(t.ULong, (0, 5, 300, 301, 2**40)), UUID(int=1), b"a", "a", "b", "order-1", "order-22", "x-delay"]
VALUES = [None, True, 7, 300, "red", "blue", "x-cc", t.Symbol("red"), [1], {"x-delay": 5}, b"\0Su"]
NAMES = ["site", "size", "x-delay", "x-expires"]
MESSAGES = st.builds(
    message,
    st.sampled_from([b"", b"x", b"y" * 300]),
    durable=st.booleans(),
    annotations=st.sampled_from([None, None, {"x-a": 1}, {"x-a": 2}, {"x-cc": ["k"]}]),
    message_id=st.sampled_from([None, *IDS]),
    user_id=st.sampled_from([None, None, None, b"me"]),
    subject=st.sampled_from([None, "s", "t"]),
    application=st.none() | st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES), max_size=2),
)


def whole(number: int, **more: Any) -> bytes:
    return message(b"%d" % number, message_id=f"order-{number:03}", application={"site": number}, **more)


def outcome(reader: PublishReader, octets: bytes) -> Published | str:
    try:
        return reader.read(octets)
    except AmqpError as error:
        return error.description


@given(st.lists(MESSAGES, max_size=30), st.data())
def test_a_message_is_read_alike_whatever_came_before(messages: list[bytes], data: st.DataObject) -> None:
    """But for one case: what only looks as if it asked may be told as such."""
    reader = PublishReader()
    for octets in messages:
        if data.draw(st.integers(0, 4)) == 0:  # one octet is another, or it is cut off
            at = data.draw(st.integers(0, len(octets) - 1))
            octets = octets[:at] + data.draw(st.sampled_from([b"", b"\0", b"\x40", b"\xa1", b"\xff", octets]))
            octets += octets[at + 1 :]
        read, fresh = outcome(reader, octets), outcome(PublishReader(), octets)
        if isinstance(read, Published) and isinstance(fresh, Published) and not read.asks:
            fresh = fresh._replace(asks=fresh.asks and b"x-delay" not in octets and b"x-cc" not in octets)
        assert read == fresh


def test_messages_that_differ_in_values_are_taken_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    sections = amqp10_sections._sections

    def noted(data: bytes) -> Any:
        seen.append(data)
        return sections(data)

    monkeypatch.setattr(amqp10_sections, "_sections", noted)
    reader = PublishReader()
    read = [reader.read(whole(number)) for number in range(300, 400)]
    assert seen.count(whole(300)) == 1
    assert not any(whole(number) in seen for number in range(301, 400))
    assert len({one.block for one in read}) == 100
    assert [one.body for one in read] == [b"%d" % number for number in range(300, 400)]


def test_shapes_of_many_sizes_are_kept_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = PublishReader()
    for number in range(100):
        for size in range(3, 20):
            reader.read(message(b"x", message_id=f"{number:0{size}}"))
    monkeypatch.setattr(amqp10_sections, "_sections", None)
    for size in range(3, 20):
        assert reader.read(message(b"x", message_id="j" * size)).body == b"x"


@pytest.mark.parametrize("user_id", [b"me", b"you"])
def test_a_user_id_is_no_value_that_may_differ(user_id: bytes) -> None:
    reader = PublishReader()
    assert not reader.read(whole(1)).asks
    assert reader.read(whole(2, user_id=user_id)).asks
    assert reader.read(whole(3, user_id=b"me")).asks


def test_a_name_that_asks_is_seen_behind_one_that_does_not() -> None:
    reader = PublishReader()
    assert not reader.read(message(b"x", message_id="a", application={"y-delay": 5})).asks
    assert reader.read(message(b"x", message_id="b", application={"x-delay": 5})).asks
