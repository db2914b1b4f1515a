"""Backups over HTTP: the broker makes a cut of its storage, who asked copies it from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.clock import iso_time
from broker.http.endpoints import Endpoints
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


@backups.endpoint("POST", "/cuts")
async def make_cut(site: Site) -> MadeCut:
    """Keep the storage as it is at this moment for a reader elsewhere; publishing goes on."""
    site.admin.check()
    cut = await site.client.backups.cut()
    return MadeCut(
        id=cut.id,
        sequence=cut.sequence,
        made_at=iso_time(site.hub.clock.now_ms()),
        storage=absolute_url(site.admin.settings.storage.url),
        lifetime_s=limits.CUT_LIFETIME_S,
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
