"""Listings of what clients of MQTT left at any worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from broker.engine.client.listings import (
    ListedPage,
    ListingClient,
    RetainedView,
    SessionView,
    joined_page,
)
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST

AskOthers: TypeAlias = Callable[..., Awaitable[Mapping[int, Any]]]


class OwnListings:
    """The listings of this worker, for the others."""

    def __init__(self, local: ListingClient) -> None:
        self._local = local

    async def sessions(self, vhost: str, after: str, limit: int, away: bool) -> ListedPage[SessionView]:
        """See `ListingClient`."""
        return await self._local.within(vhost).sessions(after, limit, away=away)

    async def retained(
        self, vhost: str, after: str, limit: int, topic_filter: str
    ) -> ListedPage[RetainedView]:
        """See `ListingClient`."""
        return await self._local.within(vhost).retained(after, limit, topic_filter)


class SharedListings(ListingClient):
    """As `ListingClient`, of all workers."""

    def __init__(self, shard: Shard, ask_others: AskOthers, vhost: str = DEFAULT_VHOST) -> None:
        super().__init__(shard, vhost)
        self._ask_others = ask_others
        self._vhost = vhost

    def within(self, vhost: str) -> SharedListings:
        """See `ListingClient`."""
        return SharedListings(self._shard, self._ask_others, vhost)

    async def sessions(self, after: str, limit: int, *, away: bool) -> ListedPage[SessionView]:
        """See `ListingClient`."""
        others = await self._ask_others("listings", "sessions", self._vhost, after, limit, away)
        own = await super().sessions(after, limit, away=away)
        return joined_page([own, *others.values()], lambda view: view.client_id, limit)

    async def retained(self, after: str, limit: int, topic_filter: str) -> ListedPage[RetainedView]:
        """See `ListingClient`."""
        others = await self._ask_others("listings", "retained", self._vhost, after, limit, topic_filter)
        own = await super().retained(after, limit, topic_filter)
        return joined_page([own, *others.values()], lambda view: view.topic, limit)
