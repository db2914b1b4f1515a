"""Listings of what clients of MQTT left: their sessions, and retained messages; a page at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Generic, TypeVar

from broker.engine.client.retained import RetainedClient
from broker.engine.client.sessions import SessionClient
from broker.engine.session_traffic import Session
from broker.engine.shard import Shard
from broker.stepping import in_steps
from config import limits
from queue_manager.address import DEFAULT_VHOST
from queue_manager.retained_messages import RetainedMessage

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class ListedPage(Generic[T]):
    """Some things by name, how many there are in all, and behind which name the next page begins; None: this
    was the last.
    """

    items: list[T]
    total: int
    next: str | None


class ListingClient:
    """The listings of one virtual host."""

    def __init__(self, shard: Shard, vhost: str = DEFAULT_VHOST) -> None:
        self._shard = shard
        self._sessions = SessionClient(shard, vhost)
        self._retained = RetainedClient(shard, vhost)

    def within(self, vhost: str) -> ListingClient:
        """Return the same for another virtual host."""
        return ListingClient(self._shard, vhost)

    async def sessions(self, after: str, limit: int, *, away: bool) -> ListedPage[SessionView]:
        """Return the sessions behind a client identifier; `away`: of clients that are not connected."""
        found = self._sessions.all()
        if away:
            found = [session for session in found if session.link is None]
        items, following = await page_of(found, lambda session: session.client_id, after, limit)
        return ListedPage(list(map(_session_view, items)), len(found), following)

    async def retained(self, after: str, limit: int, topic_filter: str) -> ListedPage[RetainedView]:
        """Return the retained messages behind a topic, of topics that a filter matches."""
        found: list[RetainedMessage] = []
        for message in self._retained.matching(topic_filter):
            if message is None:  # others have their turn
                await asyncio.sleep(0)
            else:
                found.append(message)
        messages, following = await page_of(found, lambda message: message.topic, after, limit)
        items = list(map(_retained_view, messages))
        return ListedPage(items, len(found), following)


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


def _retained_view(message: RetainedMessage) -> RetainedView:
    return RetainedView(
        topic=message.topic,
        qos=message.qos,
        body_bytes=len(message.body),
        received_at_ms=message.received_at_ms,
        expires_at_ms=message.expires_at_ms or None,
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


def joined_page(pages: Sequence[ListedPage[T]], name: Callable[[T], str], limit: int) -> ListedPage[T]:
    """Return the first `limit` things of pages that begin at the same name, of different shards."""
    found = sorted([item for page in pages for item in page.items], key=name)
    is_last = len(found) <= limit and not any(page.next for page in pages)
    following = None if is_last or not found else name(found[:limit][-1])
    return ListedPage(found[:limit], sum([page.total for page in pages]), following)
