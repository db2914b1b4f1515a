"""The statistics of commits: how many, how long they took to be durable, how large they were."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds of the classes of durations."""


@dataclass(slots=True)
class CommitStats:
    """Counts since the start. `by_duration` has one for each bound of `BOUNDS_S` and one beyond."""

    count: int = 0
    seconds: float = 0.0
    records: int = 0
    retries: int = 0
    by_duration: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))

    def committed(self, seconds: float, record_count: int) -> None:
        """Count a commit of so many records that was durable so long after it was sealed."""
        self.count += 1
        self.seconds += seconds
        self.records += record_count
        self.by_duration[bisect_left(BOUNDS_S, seconds)] += 1

    def tried_again(self) -> None:
        """Count a failure of the store, which is asked once more."""
        self.retries += 1
