"""The listings that can only be looked at over HTTP: sessions, retained messages, staged epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, TypeVar

from broker.admin.admin_views import Listing
from broker.engine.session_traffic import Session
from broker.engine.traffic import RetainedMessage
from broker.http.endpoints import Endpoints, PageLimit
from broker.http.site import Site
from broker.stepping import in_steps, one_by_one
from config import limits
from protocols.mqtt.topic_filters import matches
from queue_manager.api import ProducerView
from queue_manager.errors import QueueNotFound
from queue_manager.patterns import validate

T = TypeVar("T")

listings: Final = Endpoints("listings")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session. `queued` and `queued_bytes`: what waits for its client; a message that several filters
    matched counts for each. `dropped` had no room since the broker started. `expires_at_ms` None: never, or
    not while the client is connected. `max_queued_messages`, `max_queued_bytes`: how much may wait, by its
    policies, too; 0: no bound.
    """

    client_id: str
    user: str
    connected: bool
    subscriptions: int
    queued: int
    queued_bytes: int
    dropped: int
    max_queued_messages: int
    max_queued_bytes: int
    expires_at_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedView:
    """The retained message of a topic, without its payload. `expires_at_ms` None: never."""

    topic: str
    qos: int
    body_bytes: int
    received_at_ms: int
    expires_at_ms: int | None


@listings.endpoint("GET", "/sessions")
async def list_sessions(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT, away: bool = False
) -> Listing[SessionView, str]:
    """List MQTT sessions that outlive their connection, by client identifier, with what waits for them;
    `away`: only those whose client is not connected.
    """
    found = site.client.sessions.all()
    if away:
        found = [session for session in found if session.link is None]
    items, following = await page_of(found, lambda session: session.client_id, after, limit)
    return Listing(items=list(map(_session_view, items)), total=len(found), next=following)


def _session_view(session: Session) -> SessionView:
    queued, queued_bytes = session.queued
    return SessionView(
        client_id=session.client_id,
        user=session.user,
        connected=session.link is not None,
        subscriptions=sum(not each.is_own for each in session.subscriptions.values()),
        queued=queued,
        queued_bytes=queued_bytes,
        dropped=session.dropped_count,
        max_queued_messages=session.bounds.messages_max,
        max_queued_bytes=session.bounds.bytes_max,
        expires_at_ms=session.expires_at_ms,
    )


async def page_of(
    items: Sequence[T], name: Callable[[T], str], after: str, limit: int
) -> tuple[list[T], str | None]:
    """Return the first `limit` of the items behind the name `after`, by name, and behind which name the next
    page begins; None: this is the last.
    """
    found: list[T] = []
    async for step in in_steps(items, limits.LISTED_NAMES_PER_STEP):
        found = nsmallest(limit + 1, [*found, *(each for each in step if name(each) > after)], key=name)
    return found[:limit], name(found[limit - 1]) if len(found) > limit else None


@listings.endpoint("GET", "/retained")
async def list_retained(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT, filter: str = "#"
) -> Listing[RetainedView, str]:
    """List retained messages that a topic filter matches, by topic."""
    validate(filter)
    client = site.client.retained
    topics = one_by_one(client.topics(), limits.LISTED_NAMES_PER_STEP)
    found = [topic async for topic in topics if matches(filter, topic)]
    names, following = await page_of(found, str, after, limit)
    items = [_retained_view(message) for topic in names for message in client.matching(topic) if message]
    return Listing(items=items, total=len(found), next=following)


def _retained_view(message: RetainedMessage) -> RetainedView:
    return RetainedView(
        topic=message.topic,
        qos=message.qos,
        body_bytes=len(message.body),
        received_at_ms=message.received_at_ms,
        expires_at_ms=message.expires_at_ms or None,
    )


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
