import pytest

from config import limits
from queue_manager.filters import Selector, SelectorError, parse_selector
from queue_manager.filters.selector import _cached


@pytest.mark.parametrize("text", ["", " ", "\t\f\r\n "])
def test_blank_text_is_no_selector(text):
    assert parse_selector(text) is None


def test_selectors_of_one_text_are_shared_within_bounds():
    assert parse_selector("shared = 1") is parse_selector("shared = 1")
    assert parse_selector("shared = 1") is not parse_selector("shared = 1", "amqp-sql")
    assert _cached.cache_info().maxsize == limits.SELECTOR_CACHE_ENTRIES_MAX


def test_unknown_dialect():
    with pytest.raises(ValueError, match="dialect"):
        parse_selector("a = 1", "sql")


def test_names():
    selector = Selector(
        "a = 1 AND (b LIKE 'c' OR NOT d BETWEEN e AND -f * 2) OR g IN ('h') OR i IS NULL", "jms"
    )
    assert selector.names == set("abdefgi")
    assert Selector("TRUE", "jms").names == set()
    assert Selector("h.priority > 3 AND UTC() > p.creation_time", "amqp-sql").names == {
        "header.priority",
        "UTC()",
        "properties.creation-time",
    }


def test_answers_that_change_are_told():
    assert not Selector("a = 1", "jms").needs_delivery_count
    assert Selector("a = 1 OR JMSXDeliveryCount > 2", "jms").needs_delivery_count
    assert not Selector("JMSXDeliveryCount > 2", "amqp-sql").needs_delivery_count
    assert Selector("UTC() > 2", "amqp-sql").needs_now
    assert not Selector("a = 1", "amqp-sql").needs_now


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 'x'", ("a", "x")),
        ("'x' = a", ("a", "x")),
        ("(a = 'x')", ("a", "x")),
        ("b > 1 AND a = 'x'", ("a", "x")),
        ("b > 1 AND (c OR d) AND (e AND (a = 'x'))", ("a", "x")),
        ("a = 'x' AND b = 'y'", ("a", "x")),
        ("a = 'x' OR b > 1", None),
        ("NOT a = 'x'", None),
        ("a <> 'x'", None),
        ("a = 1", None),
        ("a = b", None),
        ("(a = 'x') = FALSE", None),
    ],
)
def test_equality_names_a_condition_that_must_hold(text, expected):
    assert Selector(text, "jms").equality == expected


def test_refusals_are_not_remembered_and_say_where():
    for _ in range(2):
        with pytest.raises(SelectorError, match="column 5"):
            parse_selector("a = ")
