"""What can only be looked at over HTTP: sessions, retained messages, staged epochs."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from broker.http.endpoints import Ask, Endpoints, NoBody, Query
from broker.http.listings import (
    EpochPage,
    RetainedPage,
    SessionPage,
    epoch_page,
    retained_page,
    session_page,
)
from broker.http.site import Site
from config import limits

listings: Final = Endpoints("listings")


class NameListing(Query):
    """Which things: by name, the first `limit` behind `after`."""

    after: str = ""
    limit: int = Field(default=limits.HTTP_PAGE_ITEMS_DEFAULT, ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)


class SessionListing(NameListing):
    """Which sessions: by client identifier, the first `limit` behind `after`; `away`: only those whose client
    is not connected.
    """

    away: bool = False


@listings.get("/sessions", SessionPage, SessionListing)
async def list_sessions(site: Site, ask: Ask[SessionListing, NoBody]) -> SessionPage:
    """MQTT sessions that outlive their connection, with what waits for them."""
    query = ask.query
    return await session_page(site, after=query.after, limit=query.limit, away=query.away)


class RetainedListing(NameListing):
    """Which messages: those that the topic filter `filter` matches, by topic, the first `limit` behind
    `after`.
    """

    filter: str = "#"


@listings.get("/retained", RetainedPage, RetainedListing)
async def list_retained(site: Site, ask: Ask[RetainedListing, NoBody]) -> RetainedPage:
    """Retained messages that a topic filter matches."""
    query = ask.query
    return await retained_page(site, query.filter, after=query.after, limit=query.limit)


@listings.get("/queues/{queue}/epochs", EpochPage, NameListing)
async def list_epochs(site: Site, ask: Ask[NameListing, NoBody]) -> EpochPage:
    """Who stages epochs in a queue: the last one committed, and what waits for its commit."""
    return await epoch_page(site, ask.path["queue"], after=ask.query.after, limit=ask.query.limit)
