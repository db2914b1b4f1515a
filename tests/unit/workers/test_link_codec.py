"""Values over links: they come through as they were, whatever comes, and between releases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.workers import link_codec, link_frames
from broker.workers.link_codec import Codec, NotCarried, Unknown, Unreadable, carried, number_of
from broker.workers.link_values import CARRIED, CODEC, ERRORS
from config import limits
from queue_manager.api import BindingDefinition
from queue_manager.errors import InUse, QueueManagerError, QueueNotFound
from storage.errors import CorruptRecord, StorageError

READER = CODEC.reader(CODEC.table)


def through(*told: Any, codec: Codec = CODEC, reader: Any = READER) -> Any:
    frame = codec.frame(link_frames.CALL, *told)
    return reader.fields(frame, 0, len(frame))


def same(value: Any, other: Any) -> bool:
    """Whether values are equal, and of the same types all through."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return same(list(value.items()), list(other.items()))
    if isinstance(value, list | tuple):
        return len(value) == len(other) and all(map(same, value, other))
    return value == other


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 200), 1 << 200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None))
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.datetimes()
    | st.decimals(allow_nan=False)
    | st.uuids()
)
KEYS = st.text() | st.integers() | st.tuples(st.text(), st.booleans())
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(KEYS, inner)
        | st.sets(st.integers())
        | st.frozensets(st.text())
    ),
)


@given(VALUES)
@example([(), [], {}, set(), frozenset(), b"", ""])
@example([1 << 63, 1 << 64, -(1 << 63), -(1 << 64), True, 1, 1.0, False, 0])
@example(datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))))
@example({("a", True): ("b",), ("a", False): [()]})
@example("\ud800")
@example(UUID(int=1))
def test_values_come_through_with_their_types(value):
    assert same(through(value), [value])


@given(
    st.recursive(
        SCALARS | st.binary().map(bytearray),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
@example({"a": bytearray(b"x"), "b": [bytearray(b"")], "c": {"d": [[bytearray(b"y")]]}})
def test_what_clients_gave_comes_through_with_its_types(value):
    binding = BindingDefinition(source="a", destination="b", arguments={"x": value})
    (back,) = through(binding)
    assert type(back) is BindingDefinition
    assert same(back.arguments, {"x": value})


# what does not go


class Stray:
    """Of no declared type."""


class StrayTuple(NamedTuple):
    """Of no declared type, although a tuple."""

    name: str


class StrayText(str):
    """Of no declared type, although a text."""

    __slots__ = ()


@pytest.mark.parametrize("value", [Stray(), StrayTuple("a"), StrayText("a"), Exception("a"), print, 1j])
def test_value_of_an_undeclared_type_is_refused_and_the_next_frame_goes(value):
    with pytest.raises(NotCarried, match=f"a value of type {type(value).__name__} cannot go to another"):
        CODEC.frame(link_frames.CALL, 1, {"a": [value]})
    assert through(1) == [1]


def nested(depth: int, wrap: Any = lambda inner: [inner]) -> Any:
    value: Any = "a"
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda it: [it], lambda it: {"a": it}, lambda it: (it,)])
def test_arguments_of_clients_are_bounded_in_depth_at_both_ends(wrap, monkeypatch):
    deepest = limits.LINK_VALUE_DEPTH_MAX
    fits = BindingDefinition(source="a", destination="b", arguments={"x": nested(deepest - 1, wrap)})
    assert through(fits) == [fits]
    deeper = BindingDefinition(source="a", destination="b", arguments={"x": nested(deepest, wrap)})
    with pytest.raises(NotCarried, match="inside each other"):
        CODEC.frame(link_frames.CALL, deeper)
    monkeypatch.setattr(limits, "LINK_VALUE_DEPTH_MAX", deepest + 1)
    frame = CODEC.frame(link_frames.CALL, deeper)
    monkeypatch.undo()
    with pytest.raises(Unreadable, match="inside each other"):
        READER.fields(frame, 0, len(frame))


def test_value_deeper_than_msgpack_has_it_is_refused():
    with pytest.raises(NotCarried, match="recursion"):
        CODEC.frame(link_frames.CALL, nested(100_000))
    raw = b"\x91" * 100_000 + b"\x90"
    with pytest.raises(Unreadable):
        READER.fields(b"-----" + raw, 0, 5 + len(raw))


def test_frame_over_the_limit_is_refused_and_the_next_one_goes(monkeypatch):
    monkeypatch.setattr(link_codec, "_KEPT_BUFFER_BYTES", 100)
    monkeypatch.setattr(limits, "LINK_FRAME_BYTES_MAX", 1_000)
    with pytest.raises(NotCarried, match="bytes cannot go to another worker: 1000 at most"):
        CODEC.frame(link_frames.CALL, b"x" * 1_000)
    assert through(b"x" * 900) == [b"x" * 900]


# errors


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_come_through_with_what_they_keep(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "why")
    vars(error).update({name: f"the {name}" for name in ERRORS[kind]}, reason="why")
    (back,) = through(error)
    assert type(back) is kind
    assert (str(back), vars(back)) == ("why", vars(error))


def test_error_of_another_class_comes_as_the_nearest_one_above_it():
    class Special(CorruptRecord):
        pass

    (back,) = through(Special("payload", "size"))
    assert type(back) is CorruptRecord
    assert (back.record_type, back.field) == ("payload", "size")
    assert "corrupt payload record" in back.reason


def test_error_of_a_newer_release_comes_as_one_that_is_known():
    older = Codec(CARRIED, {QueueManagerError: (), StorageError: (), QueueNotFound: ()})
    (back,) = through(InUse("queue", "q"), reader=older.reader(CODEC.table))
    assert type(back) is QueueManagerError
    assert back.reason == "queue 'q' is in use"
    (named,) = through(QueueNotFound("none", "q"), codec=older)
    assert named.name is None


# releases


class Colour(Enum):
    """Of the older release."""

    RED = 1


class MoreColours(Enum):
    """Of the newer release."""

    RED = 1
    BLUE = 2


@dataclass(frozen=True, kw_only=True)
class Older:
    """A type as a release has it."""

    name: str
    colour: Any = Colour.RED


@dataclass(frozen=True, kw_only=True)
class Newer:
    """As the next release has it: `size` and `tags` were added."""

    size: int = 7
    name: str
    colour: Any = Colour.RED
    tags: dict[str, int] = field(default_factory=dict)


class OlderPair(NamedTuple):
    """A type as a release has it."""

    left: int


class NewerPair(NamedTuple):
    """As the next release has it."""

    left: int
    right: int = 3


def releases() -> tuple[Codec, Codec]:
    older = Codec([carried("Thing", Older), carried("Pair", OlderPair), carried("Colour", Colour)], {})
    newer = Codec([carried("Colour", MoreColours), carried("Pair", NewerPair), carried("Thing", Newer)], {})
    return older, newer


def told(writer: Codec, reader: Codec, *values: Any) -> list[Any]:
    return through(*values, codec=writer, reader=reader.reader(writer.table))


def test_field_that_the_reader_does_not_know_is_left_out():
    older, newer = releases()
    things = [Newer(name="a", size=9, tags={"x": 1}, colour=None), (NewerPair(1, 2),)]
    assert told(newer, older, *things) == [Older(name="a", colour=None), (OlderPair(1),)]


def test_field_that_the_writer_does_not_know_has_its_default():
    older, newer = releases()
    things = told(older, newer, Older(name="a", colour=None), OlderPair(1))
    assert things == [Newer(name="a", size=7, colour=None, tags={}), NewerPair(1, 3)]


def test_members_of_enumerations_come_by_name_and_a_new_one_is_unknown():
    older, newer = releases()
    assert told(older, newer, Older(name="a", colour=Colour.RED))[0].colour is MoreColours.RED
    with pytest.raises(Unknown, match="Colour: 'BLUE'"):
        told(newer, older, 1, MoreColours.BLUE)


def test_field_without_a_default_that_is_missing_is_unknown_to_the_reader():
    _, newer = releases()
    oldest = Codec([carried("Thing", OlderPair)], {})
    with pytest.raises(Unknown, match="Thing: .*'name'"):
        told(oldest, newer, OlderPair(1))


def test_new_type_is_unknown_to_the_reader_and_the_number_of_the_frame_is_not_lost():
    _, newer = releases()
    nothing = Codec([], {})
    frame = newer.frame(link_frames.CALL, 70_000, [Newer(name="a", colour=None)])
    with pytest.raises(Unknown, match="the type Thing is not known here"):
        nothing.reader(newer.table).fields(frame, 0, len(frame))
    assert number_of(frame, 0, len(frame)) == 70_000


# what else may come


def changed(frame: bytes, changes: Iterable[tuple[int, int]]) -> bytes:
    raw = bytearray(frame)
    for place, octet in changes:
        raw[5 + place % (len(raw) - 5)] = octet
    return bytes(raw)


EXAMPLE = CODEC.frame(
    link_frames.CALL,
    1,
    [(1, {2}), frozenset("a"), Decimal("1.5"), 1 << 70, datetime.now(UTC), InUse("queue", "q")],
)
MADE = {each.kind for each in CARRIED} | set(ERRORS)
PLAIN = {
    type(None), bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset, datetime, Decimal,
    UUID,
}  # fmt: skip


def types_in(value: Any) -> set[type]:
    found = {type(value)}
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    if isinstance(value, dict | list | tuple | set | frozenset):
        for each in inner:
            found |= types_in(each)
    return found


def check_what_comes(data: bytes) -> None:
    try:
        fields = READER.fields(data, 0, len(data))
    except Unreadable:
        return
    assert types_in(fields) <= PLAIN | MADE


@given(st.binary())
@example(b"\xc1")
@example(b"\x91\xc7\x00\x01")  # an array of a tuple's mark alone: ()
@example(b"\xc7\x00\x01")  # the mark without an array
@example(b"\x81\xc7\x00\x01\xc7\x00\x01")
@example(b"\x92\x01\xc7\x00\x01")
@example(b"\x91\xd5\x04\x00\x00")  # a value without fields
@example(b"\x91\xd5\x04\xff\xff")
@example(b"\x91\xc7\x00\x05")  # an error without a name
@example(b"\x91\xd4\x7f\x00")
@example(b"\x91\xd6\xff\x00\x00\x00\x00")  # a time as msgpack has it
@example(b"\x91\xdd\xff\xff\xff\xff")
@example(b"\x91\x81\x90\x01")  # a list as a key
def test_whatever_comes_is_a_declared_value_or_unreadable(raw):
    check_what_comes(b"-----" + raw)


@given(st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=4))
def test_a_frame_with_octets_changed_is_a_declared_value_or_unreadable(changes):
    check_what_comes(changed(EXAMPLE, changes))


@given(st.binary(max_size=40), st.sampled_from([each.name for each in CARRIED]), VALUES)
def test_fields_of_declared_types_may_be_anything(raw, name, value):
    index = list(CODEC.table).index(name)
    mark = b"\xd5\x04" + index.to_bytes(2, "little")
    count = len(CODEC.table[name])
    body = CODEC.frame(link_frames.CALL, *[value] * count)[5:]
    head = 1 if count < 16 else 3
    for fields in (raw, body[head:]):
        whole = b"\x91\xdc" + (count + 1).to_bytes(2, "big") + mark + fields
        try:
            READER.fields(b"-----" + whole, 0, 5 + len(whole))
        except Unreadable:
            pass


@given(st.binary(max_size=50))
def test_number_of_what_cannot_be_read_is_a_number_or_none(raw):
    assert isinstance(number_of(b"-----" + raw, 0, 5 + len(raw)), int | None)
