"""Sums over all queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TypeVar

from broker.admin.admin_views import QueueView
from broker.stepping import in_steps

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
