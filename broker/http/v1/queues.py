"""Queues over HTTP."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from broker.admin.views import QueuePage, QueueView
from broker.http.endpoints import Ask, Endpoints, NoBody, NoQuery, Query
from broker.http.site import Site
from config import limits

queues: Final = Endpoints("queues")


class QueueListing(Query):
    """Which queues: those with `name` in their names, the first `limit` behind `after`."""

    after: str = ""
    limit: int = Field(default=limits.HTTP_PAGE_ITEMS_DEFAULT, ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)
    name: str = ""


@queues.get("/queues", QueuePage, QueueListing)
async def list_queues(site: Site, ask: Ask[QueueListing, NoBody]) -> QueuePage:
    """Queues by name, a page at a time: `next` of one page is `after` of the next."""
    query = ask.query
    return await site.admin.queue_page(after=query.after, limit=query.limit, name=query.name)


@queues.get("/queues/{queue}", QueueView)
async def show_queue(site: Site, ask: Ask[NoQuery, NoBody]) -> QueueView:
    """One queue."""
    return await site.admin.queue(ask.path["queue"])
