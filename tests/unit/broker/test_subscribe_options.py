"""broker.mqtt.consuming.subscribe_options: user properties of SUBSCRIBE are honoured, or refused by name."""

from __future__ import annotations

import pytest

from broker.clients.consumer_filters import Filters
from broker.mqtt.consuming.subscribe_options import StreamOptions, SubscribeOptions, read_options
from queue_manager.errors import InvalidArgument
from queue_manager.log.stream_start import OFFSET, StreamStart

NOW_MS = 1_767_225_600_000


def test_nothing_asked_for() -> None:
    assert read_options([("colour", "red"), ("colour", "blue")], NOW_MS) == SubscribeOptions(
        group=None, ack=None, exclusive=False, prefetch=0, priority=0, filters=Filters(), stream=None
    )


def test_everything_asked_for() -> None:
    pairs = [
        ("consumer-group", "g"), ("ack", "puback"), ("exclusive", "true"), ("prefetch", "65535"),
        ("x-priority", "-3"), ("x-group-selector", "a = 1"), ("x-stream-offset", "5"),
        ("auto-commit", "false"),
    ]  # fmt: skip
    assert read_options(pairs, NOW_MS) == SubscribeOptions(
        group="g",
        ack="puback",
        exclusive=True,
        prefetch=65_535,
        priority=-3,
        filters=Filters(None, "a = 1"),
        stream=StreamOptions(
            start=StreamStart(OFFSET, 5),
            auto_commit=False,
            given="user property x-stream-offset, auto-commit",
        ),
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ack", ""),
        ("ack", "later"),
        ("exclusive", "yes"),
        ("auto-commit", "no"),
        ("prefetch", "0"),
        ("prefetch", "65536"),
        ("prefetch", "many"),
        ("prefetch", "9" * 5_000),
        ("x-priority", "high"),
        ("x-priority", "--1"),
        ("x-priority", "9" * 5_000),
        ("x-stream-offset", "soon"),
    ],
)
def test_a_value_that_means_nothing_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        read_options([(name, text)], NOW_MS)


def test_a_property_that_is_there_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="user property prefetch is there more than once"):
        read_options([("prefetch", "1"), ("prefetch", "1")], NOW_MS)
