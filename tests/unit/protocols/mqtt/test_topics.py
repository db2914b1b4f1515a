"""Topic names, filters, shared subscriptions and matching, section 4.7 and 4.8.2."""

import pytest
from hypothesis import given

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.topic_filters import (
    matches,
    overlap,
    split_shared,
    validate_topic_filter,
    validate_topic_name,
)
from tests.unit.protocols.mqtt.strategies import filters, topics

DEEPEST = "/".join("a" * limits.MQTT_TOPIC_LEVELS_MAX)


@pytest.mark.parametrize("topic", ["a", "/", "a//b", "$queue/q", " ", "é/日本", DEEPEST, "x" * 65_535])
def test_valid_topic_name_is_accepted(topic: str) -> None:
    validate_topic_name(topic)
    validate_topic_filter(topic)


@pytest.mark.parametrize("topic", ["", "+", "a/#", "a+", "a\0", DEEPEST + "/a", "x" * 65_536, "é" * 32_768])
def test_invalid_topic_name_is_refused(topic: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        validate_topic_name(topic)
    assert raised.value.code == c.TOPIC_NAME_INVALID


@pytest.mark.parametrize("topic", ["#", "+", "a/#", "/#", "+/+/#", "a/+/b", "+/", "$share/g/#", "$shared/g"])
def test_valid_topic_filter_is_accepted(topic: str) -> None:
    validate_topic_filter(topic)


@pytest.mark.parametrize(
    "topic",
    ["", "a#", "#/a", "a/#/b", "##", "a+", "+a/b", "a/b+/c", "a\0", DEEPEST + "/#"]
    + ["$share", "$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#"],
)
def test_invalid_topic_filter_is_refused(topic: str) -> None:
    with pytest.raises(ProtocolError) as raised:
        validate_topic_filter(topic)
    assert raised.value.code == c.TOPIC_FILTER_INVALID


def test_shared_subscription_is_split_into_group_and_filter() -> None:
    assert split_shared("$share/g/a/b") == ("g", "a/b")
    assert split_shared("$share/g//b") == ("g", "/b")
    assert split_shared("$sharex/g/a") == ("", "$sharex/g/a")
    assert split_shared("a/$share") == ("", "a/$share")


# examples of 4.7.1.2, 4.7.1.3 and 4.7.2
@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/ranking", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/tennis/player1/#", "sport/tennis/player10", False),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("sport/tennis/+", "sport/tennis/player1", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/a", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/a", True),
        ("$SYS/monitor/+", "$SYS/monitor/Clients", True),
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/b/c", "a/b", False),
        ("a", "a/b", False),
        ("a/+/#", "a", False),
    ],
)
def test_filter_matches_as_specified(topic_filter: str, topic: str, expected: bool) -> None:
    assert matches(topic_filter, topic) is expected


@given(topics, filters)
def test_topic_name_matches_itself_and_hash(topic: str, topic_filter: str) -> None:
    assert matches(topic, topic)
    assert matches("#", topic)
    assert isinstance(matches(topic_filter, topic), bool)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/c", False),
        ("a/+", "+/b", True),
        ("a/+", "b/#", False),
        ("a/#", "a", True),
        ("a", "a/#", True),
        ("a/b/#", "a", False),
        ("a/+", "a", False),
        ("#", "a/b/c", True),
        ("a/+/c", "a/b", False),
    ],
)
def test_filters_overlap_where_a_topic_matches_both(one: str, other: str, expected: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is expected


@given(filters, filters, topics)
def test_filters_that_match_one_topic_overlap(one: str, other: str, topic: str) -> None:
    if matches(one, topic) and matches(other, topic):
        assert overlap(one, other)
