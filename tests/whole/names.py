"""The few names that all operations share, so that features meet."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.whole.world import Operation

QUEUES = ("q1", "q1", "q1", "q2", "q2", "q3")
TOPICS = ("a", "a/b", "a/c", "b")
FILTERS = ("a", "a/b", "a/+", "a/#", "#", "+", "+/b", "b")

Part = Callable[[random.Random, set[str]], Operation]


def some(r: random.Random, share: float) -> bool:
    return r.random() < share
