"""Backups over HTTP: the broker makes a cut of its storage, who asked copies it from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.clock import iso_time
from broker.http.endpoints import Ask, Endpoints, NoBody, NoQuery
from broker.http.problems import Problem
from broker.http.site import Site
from config import limits
from storage.open import absolute_url

backups: Final = Endpoints("backups")


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCut:
    """A cut of the storage at `storage`: everything confirmed before the call, as of `made_at` (ISO 8601).

    It is kept for `lifetime_s`, and again so long from every `keep`.
    """

    id: str
    sequence: int
    made_at: str
    storage: str
    lifetime_s: int


@backups.post("/cuts", MadeCut)
async def make_cut(site: Site, ask: Ask[NoQuery, NoBody]) -> MadeCut:
    """Keep the storage as it is at this moment for a reader elsewhere; publishing goes on."""
    site.admin.check()
    cut = await site.hub.client.backups.cut()
    return MadeCut(
        id=cut.id,
        sequence=cut.sequence,
        made_at=iso_time(site.hub.clock.now_ms()),
        storage=absolute_url(site.settings.storage.url),
        lifetime_s=limits.CUT_LIFETIME_S,
    )


@backups.post("/cuts/{cut}/keep", None)
async def keep_cut(site: Site, ask: Ask[NoQuery, NoBody]) -> None:
    """Keep a cut for another ten minutes."""
    site.admin.check()
    _check_found(await site.hub.client.backups.keep(ask.path["cut"]))


@backups.delete("/cuts/{cut}", None)
async def drop_cut(site: Site, ask: Ask[NoQuery, NoBody]) -> None:
    """Let go of a cut; what it held back is deleted in time."""
    site.admin.check()
    _check_found(await site.hub.client.backups.drop(ask.path["cut"]))


def _check_found(found: bool) -> None:
    if not found:
        raise Problem(404, "not_found", "there is no such cut, or no longer")
