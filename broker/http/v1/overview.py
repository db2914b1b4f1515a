"""The broker, how much there is in it, and whether it is well."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Final, Literal

from broker.admin.node import NodeView
from broker.http.endpoints import Endpoints
from broker.http.problems import unavailable
from broker.http.site import Site
from broker.http.totals import QueueTotals, totals_of
from broker.process.counters import CounterView
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


@dataclass(frozen=True, slots=True)
class Impaired:
    """`impaired`: part of the broker cannot be used just now, for that reason."""

    status: Literal["impaired"]
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker of the broker; those that are not up are being started again."""

    number: int
    is_up: bool


@overview.endpoint("GET", "/overview")
async def show_overview(site: Site) -> Overview:
    """Show the process, sums over all queues, and what was counted since the start."""
    views = await site.queues()
    return Overview(
        node=await site.node.whole_view(),
        totals=Totals(
            **asdict(await totals_of(views)),
            queues=len(views),
            connections=await site.node.connection_count(),
        ),
        counters=await site.node.counters(),
    )


@overview.endpoint("GET", "/node")
async def show_node(site: Site) -> NodeView:
    """Show the process and its listeners."""
    return site.node.view()


@overview.endpoint("GET", "/ready")
async def show_readiness(site: Site) -> Health:
    """Tell whether a message that comes now is made durable: 200, or 503, also while a worker is missing; of
    a node that is one of several, whether it is. Waits for the store.
    """
    site.admin.check()
    if site.node.cluster is None:
        check_workers(site)
    trouble = site.client.commits.trouble()
    if trouble is not None:
        raise unavailable(trouble.reason)
    async with asyncio.timeout(limits.READINESS_TIMEOUT_S):
        await site.client.commits.durable()
    return Health("ok")


@overview.endpoint("GET", "/health")
async def show_health(site: Site) -> Health | Impaired:
    """Tell whether the broker works: 200, or 503 once its store has failed or it stops. While a worker is
    missing, which is started again by itself, `status` is `impaired`, with the reason.
    """
    site.admin.check()
    reason = _told_missing(site)
    return Impaired("impaired", reason) if reason else Health("ok")


@overview.endpoint("GET", "/workers")
async def list_workers(site: Site) -> list[WorkerView]:
    """List the workers, if the broker has several."""
    return [WorkerView(number, is_up) for number, is_up in site.node.workers_up().items()]


def check_workers(site: Site) -> None:
    """Raise Problem if a worker is missing."""
    reason = _told_missing(site)
    if reason:
        raise unavailable(reason)


def _told_missing(site: Site) -> str:
    """Return which workers are missing; "": none is."""
    missing = site.node.missing_workers()
    return f"worker {missing[0]} is missing" if len(missing) == 1 else _several(missing)


def _several(missing: list[int]) -> str:
    return f"workers {', '.join(map(str, missing))} are missing" if missing else ""
