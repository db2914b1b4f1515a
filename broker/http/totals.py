"""Sums over all queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from broker.admin.admin_views import QueueView
from broker.clock import Clock
from broker.stepping import in_steps
from config import limits

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTotals:
    """The sums of the queues; see `QueueView`."""

    ready: int
    in_flight: int
    delayed: int
    scheduled: int
    failed: int
    consumers: int
    published: int
    delivered: int
    settled: int
    redelivered: int


_NAMES = [each.name for each in fields(QueueTotals)]
_values = attrgetter(*_NAMES)


async def totals_of(views: Sequence[QueueView]) -> QueueTotals:
    """Return the sums; others have their turn meanwhile."""
    sums = (0,) * len(_NAMES)
    async for part in in_steps(views):
        sums = tuple(map(sum, zip(sums, *map(_values, part), strict=True)))
    return QueueTotals(**dict(zip(_NAMES, sums, strict=True)))


class Counts(NamedTuple):
    """The counts of a queue, or of all: messages published, delivered, settled, delivered again."""

    published: int
    delivered: int
    settled: int
    redelivered: int


class Rates(NamedTuple):
    """The same in messages per second, over the last samples."""

    published: float
    delivered: float
    settled: float
    redelivered: float

    def plus(self, *others: Rates) -> Rates:
        """Return the sums."""
        return Rates(*map(sum, zip(self, *others, strict=True)))


NO_RATES: Final = Rates(0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Sample:
    at: float
    queues: dict[str, Counts]


def counts_of(view: QueueView) -> Counts:
    """Return the counts of one queue since it was made, or since the start."""
    return Counts(view.published, view.delivered, view.settled, view.redelivered)


class RateMeter:
    """Keeps the last samples. `look` takes one, if the last is old enough."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[_Sample] = deque(maxlen=limits.RATE_SAMPLES)

    async def look(self, views: Sequence[QueueView]) -> None:
        """Take a sample of all queues, unless one was taken just now."""
        now = self._clock.monotonic()
        if self._samples and now - self._samples[-1].at < limits.RATE_INTERVAL_S:
            return
        if self._samples and now - self._samples[-1].at > limits.RATE_SPAN_S_MAX:
            self._samples.clear()
        sample = _Sample(now, {})
        self._samples.append(sample)
        async for part in in_steps(views):
            sample.queues.update([(view.name, counts_of(view)) for view in part])

    def of(self, view: QueueView) -> Rates:
        """Return the rates of one queue."""
        if not self._samples:
            return NO_RATES
        first = self._samples[0]
        return _rates(first.queues.get(view.name), counts_of(view), self._clock.monotonic() - first.at)

    async def total(self, views: Sequence[QueueView]) -> Rates:
        """Return the rates of all queues together."""
        rates = NO_RATES
        async for part in in_steps(views):
            rates = rates.plus(*map(self.of, part))
        return rates


def _rates(before: Counts | None, after: Counts, seconds: float) -> Rates:
    if before is None or seconds <= 0:
        return NO_RATES
    return Rates(*(max(0, b - a) / seconds for a, b in zip(before, after, strict=True)))
