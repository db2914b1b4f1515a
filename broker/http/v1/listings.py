"""The listings that can only be looked at over HTTP: sessions, retained messages, staged epochs."""

from __future__ import annotations

from heapq import nsmallest
from typing import Final

from broker.admin.admin_views import Listing
from broker.engine.client.listings import RetainedView, SessionView, page_of
from broker.http.endpoints import Endpoints, PageLimit
from broker.http.site import Site
from broker.stepping import one_by_one
from config import limits
from queue_manager.api import ProducerView
from queue_manager.errors import QueueNotFound
from queue_manager.patterns import validate

listings: Final = Endpoints("listings")


@listings.endpoint("GET", "/sessions")
async def list_sessions(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT, away: bool = False
) -> Listing[SessionView, str]:
    """List MQTT sessions that outlive their connection, by client identifier, with what waits for them;
    `away`: only those whose client is not connected.
    """
    page = await site.client.listings.sessions(after, limit, away=away)
    return Listing(items=page.items, total=page.total, next=page.next)


@listings.endpoint("GET", "/retained")
async def list_retained(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT, filter: str = "#"
) -> Listing[RetainedView, str]:
    """List retained messages that a topic filter matches, by topic."""
    validate(filter)
    page = await site.client.listings.retained(after, limit, filter)
    return Listing(items=page.items, total=page.total, next=page.next)


@listings.endpoint("GET", "/queues/{queue}/epochs")
async def list_epochs(
    site: Site, queue: str, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT
) -> Listing[ProducerView, str]:
    """List the producers that stage epochs in a queue: the last one committed, and what waits for its
    commit.
    """
    client = site.client.epochs
    producers = await client.producers(queue)
    names, following = await page_of(producers, str, after, limit)
    return Listing(items=await client.views(queue, names), total=len(producers), next=following)


async def staging_page(
    site: Site, *, after: tuple[str, str], limit: int
) -> Listing[tuple[str, ProducerView], tuple[str, str]]:
    """List the producers that stage epochs, in all queues; `after` are the names of a queue and a
    producer.
    """
    client = site.client.epochs
    found: list[tuple[str, str]] = []
    total = 0
    async for view in one_by_one(await site.queues()):
        try:
            producers = await client.producers(view.name)
        except QueueNotFound:  # it went meanwhile
            continue
        total += len(producers)
        if len(found) <= limit:
            behind = [(view.name, producer) for producer in producers if (view.name, producer) > after]
            found += nsmallest(limit + 1 - len(found), behind)
    shown = found[:limit]
    items = [(queue, view) for queue, producer in shown for view in await client.views(queue, [producer])]
    return Listing(items=items, total=total, next=shown[-1] if len(found) > limit else None)
