"""broker.logs.log_processors: the same event again and again."""

import pytest
import structlog

from broker.logs.log_processors import LogRepeats
from config import limits


class Stopped:
    """A clock that goes when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_repeats_within_a_second_are_left_out_and_counted_with_the_next_line():
    clock = Stopped()
    repeats = LogRepeats(clock)
    for _ in range(limits.LOG_LINES_PER_EVENT_S_MAX):
        assert repeats(None, "warning", {"event": "a"}) == {"event": "a"}
    for _ in range(3):
        with pytest.raises(structlog.DropEvent):
            repeats(None, "warning", {"event": "a"})
    assert repeats(None, "warning", {"event": "b"}) == {"event": "b"}
    clock.now += 1
    assert repeats(None, "warning", {"event": "a"}) == {"event": "a", "left_out": 3}
    assert repeats(None, "warning", {"event": "a"}) == {"event": "a"}
