"""What the broker is and how much there is in it; is it well?"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from broker.http.endpoints import Ask, Endpoints, NoBody, NoQuery
from broker.http.site import Site
from broker.node import CounterView, NodeView
from config import limits

overview: Final = Endpoints("overview")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all queues, and how many of each thing there are."""

    queues: int
    ready: int
    in_flight: int
    delayed: int
    scheduled: int
    failed: int
    consumers: int
    connections: int
    published: int
    delivered: int
    settled: int
    redelivered: int


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


@overview.get("/overview", Overview)
async def show_overview(site: Site, ask: Ask[NoQuery, NoBody]) -> Overview:
    """The process, sums over all queues, and what was counted since the start."""
    return await overview_of(site)


async def overview_of(site: Site) -> Overview:
    """The same, in process."""
    views = await site.queues()
    return Overview(
        node=site.node.view(),
        totals=Totals(
            queues=len(views),
            ready=sum(view.ready for view in views),
            in_flight=sum(view.in_flight for view in views),
            delayed=sum(view.delayed for view in views),
            scheduled=sum(view.scheduled for view in views),
            failed=sum(view.failed for view in views),
            consumers=sum(view.consumers for view in views),
            connections=site.node.connection_count(),
            published=sum(view.published for view in views),
            delivered=sum(view.delivered for view in views),
            settled=sum(view.settled for view in views),
            redelivered=sum(view.redelivered for view in views),
        ),
        counters=site.node.counters(),
    )


@overview.get("/node", NodeView)
async def show_node(site: Site, ask: Ask[NoQuery, NoBody]) -> NodeView:
    """The process and its listeners."""
    return site.node.view()


@overview.get("/ready", Health)
async def show_readiness(site: Site, ask: Ask[NoQuery, NoBody]) -> Health:
    """Whether a message that comes now is made durable: 200, or 503. Waits for the store."""
    site.admin.check()
    async with asyncio.timeout(limits.READINESS_TIMEOUT_S):
        await site.hub.client.commits.durable()
    return Health("ok")


@overview.get("/health", Health)
async def show_health(site: Site, ask: Ask[NoQuery, NoBody]) -> Health:
    """Whether the broker works: 200, or 503 once its store has failed or it stops."""
    site.admin.check()
    return Health("ok")
