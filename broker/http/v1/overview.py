"""The broker, how much there is in it, and whether it is well."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Final, Literal

from broker.admin.node import CounterView, NodeView
from broker.http.endpoints import Endpoints
from broker.http.problems import unavailable
from broker.http.site import Site
from broker.http.totals import QueueTotals, totals_of
from config import limits

overview: Final = Endpoints("overview")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals(QueueTotals):
    """Sums over all queues, and how many of each thing there are."""

    queues: int
    connections: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The broker at one moment."""

    node: NodeView
    totals: Totals
    counters: CounterView


@dataclass(frozen=True, slots=True)
class Health:
    """`ok`: the broker takes messages and makes them durable."""

    status: Literal["ok"]


@overview.endpoint("GET", "/overview")
async def show_overview(site: Site) -> Overview:
    """Show the process, sums over all queues, and what was counted since the start."""
    views = await site.queues()
    return Overview(
        node=site.node.view(),
        totals=Totals(
            **asdict(await totals_of(views)),
            queues=len(views),
            connections=site.node.connection_count(),
        ),
        counters=site.node.counters(),
    )


@overview.endpoint("GET", "/node")
async def show_node(site: Site) -> NodeView:
    """Show the process and its listeners."""
    return site.node.view()


@overview.endpoint("GET", "/ready")
async def show_readiness(site: Site) -> Health:
    """Tell whether a message that comes now is made durable: 200, or 503. Waits for the store."""
    site.admin.check()
    trouble = site.client.commits.trouble()
    if trouble is not None:
        raise unavailable(trouble.reason)
    async with asyncio.timeout(limits.READINESS_TIMEOUT_S):
        await site.client.commits.durable()
    return Health("ok")


@overview.endpoint("GET", "/health")
async def show_health(site: Site) -> Health:
    """Tell whether the broker works: 200, or 503 once its store has failed or it stops."""
    site.admin.check()
    return Health("ok")
