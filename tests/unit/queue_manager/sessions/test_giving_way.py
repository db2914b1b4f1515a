"""Which of the messages that wait for a session are not sent, as there are too many."""

from types import SimpleNamespace
from typing import Any

import pytest

from queue_manager.effective_policy import Policies
from queue_manager.sessions.common import NEWEST, OLDEST, REJECT, Bounds, Common
from queue_manager.sessions.giving_way import GivingWay


def merged(message_id: int) -> Any:
    """A message of ten bytes that one filter matched."""
    message = SimpleNamespace(message_id=message_id, body=b"x" * 10)
    return SimpleNamespace(message=message, subscriptions=[None])


class Reading:
    """A session of a shard that gives out `next_id` next, as it reads."""

    def __init__(self, bounds: Bounds, next_id: int = 100) -> None:
        context: Any = SimpleNamespace(message_ids=SimpleNamespace(next_value=next_id))
        self.bounds = bounds
        self.giving_way = GivingWay(Common(context, Policies(context)))


def kept(reading: Reading, ids: range, waiting_count: int) -> list[int]:
    waiting = [merged(i) for i in ids]
    found = reading.giving_way.keep(waiting, reading.bounds, waiting_count, waiting_count * 10)
    return [each.message.message_id for each in found]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounds(), [0, 1, 2, 3, 4, 5]),
        (Bounds(messages_max=4), [2, 3, 4, 5]),
        (Bounds(bytes_max=30), [3, 4, 5]),
        (Bounds(messages_max=4, drop=NEWEST), [0, 1, 2, 3]),
        (Bounds(bytes_max=30, drop=NEWEST), [0, 1, 2]),
        (Bounds(messages_max=4, drop=REJECT), [0, 1, 2, 3, 4, 5]),
    ],
)
def test_what_is_kept_of_six_messages_that_are_all(bounds: Bounds, expected: list[int]) -> None:
    assert kept(Reading(bounds), range(6), 6) == expected


def test_oldest_are_kept_over_several_reads_and_what_came_since_is_sent() -> None:
    reading = Reading(Bounds(messages_max=4, drop=NEWEST))
    assert kept(reading, range(3), 10) == [0, 1, 2]
    assert kept(reading, range(3, 6), 7) == [3]
    assert kept(reading, range(6, 10), 4) == []
    assert kept(reading, range(100, 102), 2) == [100, 101]


def test_oldest_drop_depends_on_what_waits_beyond_what_is_read() -> None:
    reading = Reading(Bounds(messages_max=4, drop=OLDEST))
    assert kept(reading, range(2), 6) == []
    assert kept(reading, range(2, 4), 4) == [2, 3]
