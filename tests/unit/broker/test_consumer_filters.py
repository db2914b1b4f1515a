"""broker.clients.consumer_filters: what the arguments of consumers mean."""

import pytest

from broker.clients.consumer_filters import Filters, filters_of
from queue_manager.errors import InvalidArgument

APPLICATION = "application-properties.region"


def test_nothing_asked():
    assert filters_of({}) == Filters()
    assert filters_of({"selector": "  ", "x-consumer-group": "g"}) == Filters()


@pytest.mark.parametrize("name", ["selector", "x-jms-selector"])
def test_a_selector(name):
    wanted = filters_of({name: "region = 'eu'"}).wanted
    assert wanted.condition.matches({"region": "eu"})
    assert not wanted.condition.matches({"region": "us"})


def test_both_spellings_may_agree():
    assert filters_of({"selector": "a = 1", "x-jms-selector": "a = 1"}).wanted is not None
    with pytest.raises(InvalidArgument, match="the same argument"):
        filters_of({"selector": "a = 1", "x-jms-selector": "a = 2"})


def test_everything_given_must_match():
    wanted = filters_of(
        {
            "selector": "qty > 5",
            "x-properties-filter": {"subject": "order"},
            "x-application-properties-filter": '{"region": "eu"}',
        }
    ).wanted
    fields = {"qty": 6, "properties.subject": "order", APPLICATION: "eu"}
    assert wanted.condition.matches(fields)
    for name in fields:
        assert not wanted.condition.matches({**fields, name: None})


def test_equal_filters_have_equal_keys():
    one = filters_of({"selector": " a = 1", "x-application-properties-filter": {"b": 1, "c": "x"}})
    same = filters_of({"x-jms-selector": "a = 1 ", "x-application-properties-filter": {"c": "x", "b": 1}})
    other = filters_of({"selector": "a = 1", "x-application-properties-filter": {"b": True, "c": "x"}})
    assert one.wanted.key == same.wanted.key != other.wanted.key


def test_a_groups_selector():
    assert filters_of({"x-group-selector": " a = 1 "}) == Filters(None, "a = 1")
    assert filters_of({"x-group-selector": ""}).group_selector == ""


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"selector": 5}, "selector must be a text"),
        ({"x-jms-selector": "a = "}, "x-jms-selector: selector, column 5: "),
        ({"selector": "a = "}, "selector: selector, column 5: "),
        ({"x-group-selector": "(a"}, "x-group-selector: selector, column 3: "),
        ({"x-properties-filter": {"colour": "red"}}, "x-properties-filter: property filter, 'colour'"),
        ({"x-properties-filter": 5}, "x-properties-filter: .* must be a table"),
        ({"x-application-properties-filter": {}}, "x-application-properties-filter: .* 0 entries"),
        ({"x-application-properties-filter": "[]"}, "x-application-properties-filter: .*JSON object"),
        ({"x-application-properties-filter": "{"}, "x-application-properties-filter: .*JSON object"),
        ({"x-application-properties-filter": '{"a": 1, "b": 2, "a": 1}'}, "'a' is there more than once"),
        ({"x-application-properties-filter": '{"a": NaN}'}, "NaN is no number"),
        ({"x-application-properties-filter": '{"a": -Infinity}'}, "-Infinity is no number"),
        ({"x-application-properties-filter": '{"a": 1e999}'}, "1e999 is no number"),
        ({"x-application-properties-filter": '{"a": [1]}'}, "x-application-properties-filter: .*reference"),
        ({"selector": "a = 1", "x-properties-filter": {"to": "&x"}}, "x-properties-filter: property filter"),
    ],
)
def test_refused_with_name_and_place(values, reason):
    with pytest.raises(InvalidArgument, match=reason):
        filters_of(values)


def test_what_subscribing_is_told():
    filters = filters_of({"selector": "a = 1"})
    assert filters.options() == {"wanted": filters.wanted, "group_selector": None}
    assert Filters().options() == {}
