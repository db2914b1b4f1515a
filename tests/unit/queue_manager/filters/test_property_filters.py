"""AMQP property filter expressions: the examples P1 to P22 but that of a header field, types and limits."""

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_manager.filters import (
    AllOf,
    PropertyFilter,
    PropertyFilterError,
    Symbol,
    filters_from_arguments,
    parse_selector,
)
from queue_manager.filters.field_access import PROPERTY_FIELDS

CREATED_MS = 1_700_000_000_000
MESSAGE = {
    "properties.subject": "order.eu.new",
    "properties.to": "q1",
    "properties.message-id": "&m1",
    "properties.content-type": "application/json",
    "properties.group-id": "g1",
    "properties.creation-time": CREATED_MS,
    "properties.user-id": "ann",
    "application-properties.region": "eu",
    "application-properties.n": 5,
    "application-properties.w": 5.0,
    "application-properties.flag": True,
    "application-properties.k": None,
    "application-properties.raw": b"eu",
}


def props(**entries):
    return PropertyFilter("properties", {key.replace("_", "-"): value for key, value in entries.items()})


def app(**entries):
    return PropertyFilter("application-properties", entries)


@pytest.mark.parametrize(
    ("row", "message_filter", "expected"),
    [
        ("P1", props(subject="&p:order."), True),
        ("P2", props(subject="&s:.new"), True),
        ("P3", props(subject="&p:order.", to="q2"), False),
        ("P4", props(subject="&p:ORDER"), False),
        ("P5", props(message_id="&&m1"), True),
        ("P7", props(content_type=Symbol("application/json")), True),
        ("P9", props(reply_to=None), True),
        ("P10", props(reply_to="x"), False),
        ("P11", app(region="eu"), True),
        ("P11 symbol", app(region=Symbol("eu")), True),
        ("P12", app(n=5.0), True),
        ("P12 back", app(w=5), True),
        ("P13", app(n="5"), False),
        ("P14", app(flag=1), False),
        ("P15", app(flag=True), True),
        ("P16", app(nope=None), True),
        ("P17", app(k=None), True),
        ("P19", app(region="&p:"), True),
        ("P19 number", app(n="&p:"), False),
        ("all", AllOf([app(region="eu"), props(to="q1")]), True),
        ("all but one", AllOf([app(region="eu"), props(to="q2")]), False),
        ("exact text", props(to="q1"), True),
        ("a text that is no modifier", app(region="eu&p:"), False),
        ("modifiers are none in symbols", app(region=Symbol("&p:e")), False),
        ("suffix longer than the value", app(region="&s:the eu"), False),
        ("exact integers", app(n=5), True),
        ("another number", app(n=6), False),
        ("number for boolean", app(n=True), False),
        ("binary", app(raw=b"eu"), True),
        ("binary is no text", app(raw="eu"), False),
        ("text is no binary", app(region=b"eu"), False),
        ("NaN is no number", app(w=float("nan")), False),
        ("absent", app(nope="x"), False),
        ("absent, prefix", app(nope="&p:"), False),
        ("absent, boolean", app(nope=False), False),
        ("absent, number", app(nope=0), False),
        ("time", props(creation_time=CREATED_MS), True),
        ("user-id", props(user_id=b"ann"), True),
        ("uuid", props(message_id=UUID(int=5)), False),
    ],
)
def test_matching(row, message_filter, expected):
    assert message_filter.matches(MESSAGE) is expected


def test_identifiers_of_other_types():
    assert props(message_id=UUID(int=5)).matches({"properties.message-id": UUID(int=5)})
    assert props(message_id=7).matches({"properties.message-id": 7})
    assert props(user_id=b"\xff").matches({"properties.user-id": b"\xff"})


@pytest.mark.parametrize(
    ("section", "entries", "words"),
    [
        ("properties", {"message-id": "&m1"}, "must begin with &p:"),  # P6
        ("properties", {"content-type": "application/json"}, "must be symbol, not str"),  # P8
        ("application-properties", {}, "0 entries"),  # P18
        ("properties", {"message-id": "&"}, "must begin with &p:"),
        ("properties", {"message-id": "&x:1"}, "must begin with &p:"),
        ("properties", {"colour": "x"}, "no such property"),
        ("properties", {"message_id": "x"}, "no such property"),
        ("properties", {"to": 1}, "must be str, not int"),
        ("properties", {"user-id": "x"}, "must be bytes"),
        ("properties", {"group-sequence": True}, "must be int, not bool"),
        ("properties", {"creation-time": 1.5}, "must be int, not float"),
        ("application-properties", {"a": [1]}, "not list"),
        ("application-properties", {"a": {}}, "not dict"),
        ("application-properties", {"a": "x" * 5_000}, "longer than 4096"),
        ("application-properties", {1: "x"}, "a key is a text"),
        ("application-properties", {f"k{index}": 1 for index in range(17)}, "17 entries"),
        ("header", {"priority": 4}, "'header' cannot be filtered by"),
    ],
)
def test_malformed_filters_are_refused(section, entries, words):
    with pytest.raises(PropertyFilterError) as caught:
        PropertyFilter(section, entries)
    assert words in caught.value.reason


def test_what_a_filter_tells_about_itself():
    found = PropertyFilter("properties", {"reply-to": None, "subject": "&p:a", "to": "&&q", "group-id": "g"})
    assert found.names == {"properties.subject", "properties.to", "properties.group-id"}
    assert found.equality == ("properties.to", "&q")
    assert not found.needs_delivery_count
    assert not found.needs_now
    other = app(region="eu", n=5)
    assert AllOf([props(subject="&p:x"), other]).equality == ("application-properties.region", "eu")
    selector = parse_selector("JMSXDeliveryCount > 1")
    assert AllOf([other, selector]).needs_delivery_count


def test_consume_arguments():
    assert filters_from_arguments({}) is None
    assert filters_from_arguments({"x-properties-filter": None, "x-other": 1}) is None
    one = filters_from_arguments({"x-application-properties-filter": {"region": "eu"}})
    assert isinstance(one, PropertyFilter)
    both = filters_from_arguments(
        {
            "x-properties-filter": {
                "type": "&p:order.",
                "content-type": "&s:/json",
                "user-id": "ann",
                "creation-time": datetime.fromtimestamp(CREATED_MS / 1_000, UTC),
            },
            "x-application-properties-filter": {"region": "eu", "raw": bytearray(b"eu")},
        }
    )
    assert isinstance(both, AllOf)
    assert both.matches(MESSAGE)
    assert not both.matches({**MESSAGE, "properties.subject": "invoice"})
    assert not both.matches({**MESSAGE, "application-properties.region": "us"})
    naive = filters_from_arguments(
        {"x-properties-filter": {"creation-time": datetime(2023, 11, 14, 22, 13, 20)}}
    )
    assert naive.matches(MESSAGE)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x-properties-filter": "a"}, "x-properties-filter must be a table, not str"),
        ({"x-properties-filter": {}}, "0 entries"),
        ({"x-properties-filter": {"type": "a", "subject": "b"}}, "same property"),
        ({"x-properties-filter": {"app-id": "a"}}, "no such property"),
        ({"x-application-properties-filter": {"a": {"b": 1}}}, "not dict"),
    ],
)
def test_malformed_consume_arguments_are_refused(arguments, words):
    with pytest.raises(PropertyFilterError, match=words):
        filters_from_arguments(arguments)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.integers())
)


@given(
    st.dictionaries(st.one_of(st.text(), st.sampled_from(PROPERTY_FIELDS)), VALUES),
    st.sampled_from(["x-properties-filter", "x-application-properties-filter"]),
    VALUES,
)
def test_any_table_is_a_filter_or_refused(table, argument, value):
    try:
        found = filters_from_arguments({argument: table})
    except PropertyFilterError:
        return
    assert found.matches(dict.fromkeys(found.names, value)) in (True, False)
