"""Backups over HTTP: the broker makes a cut of its storage, who asked copies it from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.clock import iso_time
from broker.http.endpoints import Endpoints
from broker.http.problems import Problem
from broker.http.site import Site
from broker.http.v1.overview import check_workers
from config import limits
from storage.open import absolute_url
from storage.shards import shard_url

backups: Final = Endpoints("backups")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCut:
    """The cut of another shard, at `storage`."""

    id: str
    sequence: int
    storage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCut:
    """A cut of the storage at `storage`: everything confirmed before the call, as of `made_at` (ISO 8601).

    It is kept for `lifetime_s`, and again so long from every `keep`. With several workers `others` are the
    cuts of the other shards, by their numbers from 1 on, each to be kept by its own `id`.
    """

    id: str
    sequence: int
    made_at: str
    storage: str
    lifetime_s: int
    others: tuple[ShardCut, ...] = ()


@backups.endpoint("POST", "/cuts")
async def make_cut(site: Site) -> MadeCut:
    """Keep the storage as it is at this moment for a reader elsewhere; publishing goes on."""
    site.admin.check()
    check_workers(site)
    cut, *others = await site.client.backups.cut_all()
    url = absolute_url(site.admin.settings.storage.url)
    return MadeCut(
        id=cut.id,
        sequence=cut.sequence,
        made_at=iso_time(site.hub.clock.now_ms()),
        storage=url,
        lifetime_s=limits.CUT_LIFETIME_S,
        others=tuple(
            [
                ShardCut(id=other.id, sequence=other.sequence, storage=shard_url(url, number))
                for number, other in enumerate(others, 1)
            ]
        ),
    )


@backups.endpoint("POST", "/cuts/{cut}/keep")
async def keep_cut(site: Site, cut: str) -> None:
    """Keep a cut for another ten minutes."""
    site.admin.check()
    _check_found(await site.client.backups.keep(cut))


@backups.endpoint("DELETE", "/cuts/{cut}")
async def drop_cut(site: Site, cut: str) -> None:
    """Let go of a cut; what it held back is deleted in time."""
    site.admin.check()
    _check_found(await site.client.backups.drop(cut))


def _check_found(found: bool) -> None:
    if not found:
        raise Problem(404, "not_found", "there is no such cut, or no longer")
