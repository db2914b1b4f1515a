"""Quotas over all workers: each tells the others, once a second, what virtual hosts and users with quotas
have there. So a quota may be exceeded by what comes to different workers within a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from broker.engine.client.quotas import QuotaClient
from broker.engine.shard import Shard
from config import limits
from queue_manager.api import QuotasView
from queue_manager.quota_accounts import BINDINGS, EXCHANGES, AccountKey, QuotaView

Used: TypeAlias = Mapping[AccountKey, Mapping[str, int]]
AskOthers: TypeAlias = Callable[..., Awaitable[Mapping[int, Any]]]
"""Calls a part of each other worker: by the part, the method, and arguments."""


class QuotaExchange:
    """What quotas bound, as this worker and the others have it.

    `note` is called by the others, with their numbers.
    """

    def __init__(self, shard: Shard, number: int, count: int, tell_others: Callable[..., None]) -> None:
        self._quotas = shard.manager.context.quotas
        self._number = number
        self._count = count
        self._tell_others = tell_others
        self._by_worker: dict[int, Used] = {}

    async def run(self) -> None:
        """Tell the others again and again."""
        while True:
            await asyncio.sleep(limits.QUOTA_EXCHANGE_INTERVAL_MS / 1000)
            self._tell_others("quota_exchange", "note", self._number, self._quotas.usage())

    def note(self, number: int, used: Used) -> None:
        """Note what there is at another worker."""
        if used != self._by_worker.get(number, {}):
            self._by_worker[number] = used
            self._follow()

    def forget(self, number: int) -> None:
        """Note that a worker is gone, and with it what clients had there."""
        if self._by_worker.pop(number, None) is not None:
            self._follow()

    def _follow(self) -> None:
        sums: dict[AccountKey, Counter[str]] = {}
        for used in self._by_worker.values():
            for key, counts in used.items():
                sums.setdefault(key, Counter()).update(counts)
        self._quotas.take_elsewhere(sums, self._count)


class SharedQuotas(QuotaClient):
    """As `QuotaClient`, which counts what is at other workers, too."""

    def __init__(self, local: QuotaClient, ask_others: AskOthers) -> None:
        vars(self).update(vars(local))
        self._ask_others = ask_others

    async def whole_count(self, kind: str, vhost: str) -> int:
        """See `QuotaClient`."""
        others = await self._ask_others("quotas", "count", kind, vhost)
        return self.count(kind, vhost) + sum(map(int, others.values()))

    async def whole_views(self) -> list[QuotasView]:
        """See `QuotaClient`."""
        others = await self._ask_others("quotas", "views")
        found: dict[tuple[str, str], list[QuotasView]] = {}
        for views in (self.views(), *others.values()):
            for view in views:
                found.setdefault((view.scope, view.name), []).append(view)
        whole = [QuotasView(views[0].scope, views[0].name, _together(views)) for views in found.values()]
        return sorted(whole, key=lambda view: (view.scope, view.name))


def _together(views: list[QuotasView]) -> tuple[QuotaView, ...]:
    """Return the quotas of one virtual host or user at all workers as one."""
    by_kind: dict[str, list[QuotaView]] = {}
    for view in views:
        for quota in view.quotas:
            by_kind.setdefault(quota.quota, []).append(quota)
    return tuple(
        [
            QuotaView(
                kind,
                max(quota.most for quota in found),
                _used(kind, [quota.used for quota in found]),
                sum(quota.refused for quota in found),
            )
            for kind, found in by_kind.items()
        ]
    )


def _used(kind: str, counts: list[int]) -> int:
    return max(counts) if kind in (EXCHANGES, BINDINGS) else sum(counts)  # of these each worker has all
