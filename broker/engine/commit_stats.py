"""The statistics of commits: how many, how long they took to be durable, how large they were."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Bounds of the classes of durations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitView:
    """Counts since the start. `by_duration` has one for each bound of `BOUNDS_S` and one beyond."""

    count: int
    seconds: float
    records: int
    retries: int
    by_duration: tuple[int, ...]


class CommitStats:
    """Told of each commit once."""

    __slots__ = ("_by_duration", "_count", "_records", "_retries", "_seconds")

    def __init__(self) -> None:
        self._count = 0
        self._seconds = 0.0
        self._records = 0
        self._retries = 0
        self._by_duration = [0] * (len(BOUNDS_S) + 1)

    def committed(self, seconds: float, record_count: int) -> None:
        """Count a commit of so many records that was durable so long after it was sealed."""
        self._count += 1
        self._seconds += seconds
        self._records += record_count
        self._by_duration[bisect_left(BOUNDS_S, seconds)] += 1

    def tried_again(self) -> None:
        """Count a failure of the store, which is asked once more."""
        self._retries += 1

    def view(self) -> CommitView:
        """Return the counts so far."""
        return CommitView(
            count=self._count,
            seconds=self._seconds,
            records=self._records,
            retries=self._retries,
            by_duration=tuple(self._by_duration),
        )
