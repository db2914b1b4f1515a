"""Which values of headers are equal to those of a binding, and which names count."""

from datetime import UTC, datetime

import pytest

from queue_manager.routing.binding import Binding
from queue_manager.routing.exchange import Exchange, ExchangeDefinition
from queue_manager.routing.exchange_types.headers import HeadersMatcher
from storage.records import TO_EXCHANGE

MOMENT = datetime.fromtimestamp(5, UTC)


def matches(arguments, headers):
    """Whether a binding with these arguments takes a message with these headers."""
    destination = Exchange(ExchangeDefinition("to", "fanout", durable=False))
    matcher = HeadersMatcher()
    matcher.check("", arguments)
    matcher.add(Binding("from", destination, TO_EXCHANGE, "", arguments, is_durable=False))
    return bool(list(matcher.match([""], headers)))


@pytest.mark.parametrize(
    ("wanted", "given", "is_equal"),
    [
        ("a", "a", True),
        ("a", bytearray(b"a"), True),
        (bytearray(b"\xff"), b"\xff", True),
        (b"\xff", "a", False),
        (5, MOMENT, True),
        (MOMENT, 5, True),
        (5, 5.0, False),
        (1, True, False),
        ("1", 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ({"a": 1}, {"a": 1}, True),
        (None, "anything", True),
    ],
)
def test_values_are_equal_whatever_their_types_on_the_wire(wanted, given, is_equal):
    assert matches({"k": wanted}, {"k": given}) is is_equal


@pytest.mark.parametrize(
    ("mode", "headers", "is_taken"),
    [
        ("all", {"b": 2}, True),
        ("all", {"x-a": 1}, False),
        ("any", {"x-a": 1}, False),
        ("any", {"b": 2}, True),
        ("all-with-x", {"b": 2}, False),
        ("all-with-x", {"x-a": 1, "b": 2}, True),
        ("any-with-x", {"x-a": 1}, True),
        ("any-with-x", {"x-a": 2}, False),
    ],
)
def test_names_that_begin_x_count_where_the_mode_says_so(mode, headers, is_taken):
    assert matches({"x-match": mode, "x-a": 1, "b": 2}, headers) is is_taken


@pytest.mark.parametrize(
    ("mode", "is_taken"), [("all", True), ("any", False), ("all-with-x", False), ("any-with-x", False)]
)
def test_a_binding_with_nothing_but_names_that_do_not_count_takes_all_or_nothing(mode, is_taken):
    assert matches({"x-match": mode, "x-a": 1}, {"b": 2}) is is_taken
