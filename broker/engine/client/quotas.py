"""Quotas of virtual hosts and users of a shard in this process."""

from __future__ import annotations

from collections.abc import Mapping

from broker.engine.shard import Shard
from queue_manager.api import QuotasView
from queue_manager.quota_accounts import Share


class QuotaClient:
    """What virtual hosts and users may have; of all virtual hosts alike."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._quotas = shard.manager.context.quotas
        self._monotonic = shard.clock.monotonic

    def enter(self, caller: str, vhost: str, user: str) -> Share:
        """Let a client in, which has a connection then; raises LimitReached."""
        return self._quotas.enter(caller, vhost, user, self._monotonic())

    def leave(self, caller: str) -> None:
        """Note that a client is gone."""
        self._quotas.leave(caller)

    def bound_vhost(self, vhost: str, bounds: Mapping[str, int]) -> None:
        """Let a virtual host have so much from now on; what it has stays."""
        self._quotas.bound_vhost(vhost, bounds, self._monotonic())
        self._follow()

    def bound_users(self, any_user: Mapping[str, int], users: Mapping[str, Mapping[str, int]]) -> None:
        """Let these users have so much, and of what is not said there as much as any user."""
        self._quotas.bound_users(any_user, users, self._monotonic())
        self._follow()

    def _follow(self) -> None:
        self._shard.manager.queues.stored_bytes.follow_quotas()
        self._shard.wake()

    async def whole_count(self, kind: str, vhost: str) -> int:
        """Return how much a virtual host has, in all shards of the broker."""
        return self.count(kind, vhost)

    async def whole_views(self) -> list[QuotasView]:
        """Return `views` of all shards of the broker together."""
        return self.views()

    def count(self, kind: str, vhost: str) -> int:
        """Return how much a virtual host has."""
        return self._quotas.of_vhost(vhost).count(kind)

    def views(self) -> list[QuotasView]:
        """Return virtual hosts and users that have something, or may not have everything, by name."""
        told = [QuotasView("vhost", each.name, tuple(each.views())) for each in self._quotas.vhosts()]
        told += [QuotasView("user", each.name, tuple(each.views())) for each in self._quotas.users()]
        return sorted((view for view in told if view.quotas), key=lambda view: (view.scope, view.name))
