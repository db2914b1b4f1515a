"""User properties and headers the broker acts on."""

from __future__ import annotations

import pytest

from broker.mqtt.settling.settle_topics import offset_of
from broker.properties.single import aliased_value, single_values
from queue_manager.errors import InvalidArgument


def test_each_is_there_once() -> None:
    pairs = [("a", "1"), ("b", "2"), ("b", "3")]
    assert single_values(pairs, "header", ("a",)) == {"a": "1"}
    with pytest.raises(InvalidArgument, match="header b is there more than once"):
        single_values(pairs, "header", ("a", "b"))
    with pytest.raises(InvalidArgument, match="header b"):
        single_values(pairs, "header")


def test_two_names_of_one_thing() -> None:
    assert aliased_value({"b": "1"}, ("a", "b")) == ("b", "1")
    assert aliased_value({"a": "1", "b": "1"}, ("a", "b")) == ("a", "1")
    assert aliased_value({}, ("a", "b")) == ("", None)
    with pytest.raises(InvalidArgument, match="a '1' and b '2' differ"):
        aliased_value({"a": "1", "b": "2"}, ("a", "b"))


@pytest.mark.parametrize("text", ["abc", "-1", "1.5", "", "9" * 30])
def test_an_offset_that_is_none_is_called_by_its_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^offset '.*' is not a whole number from 0$"):
        offset_of(text, "q", "offset")
    with pytest.raises(InvalidArgument, match=r"^message-id '.*' is not <queue>:<offset>$"):
        offset_of(text, "q")
