"""Consumer groups over HTTP. In a path `~` stands for the default group, which has no name."""

from __future__ import annotations

from typing import Final

from broker.access.rights import Action
from broker.admin.admin_views import GroupView
from broker.http.endpoints import Endpoints
from broker.http.site import Site

groups: Final = Endpoints("groups")


@groups.endpoint("GET", "/queues/{queue}/groups")
async def list_groups(site: Site, queue: str) -> list[GroupView]:
    """List the consumer groups of a queue."""
    return await site.admin.groups(queue)


@groups.endpoint("GET", "/queues/{queue}/groups/{group}")
async def show_group(site: Site, queue: str, group: str) -> GroupView:
    """Show one consumer group: lag, oldest age, what is in flight."""
    return await site.admin.group(queue, group)


@groups.endpoint("PUT", "/queues/{queue}/groups/{group}", needs=Action.CONFIGURE)
async def create_group(
    site: Site,
    queue: str,
    group: str,
    *,
    pattern: str = "#",
    selector: str = "",
    start: str | int = "earliest",
) -> GroupView:
    """Make a group that is given what matches `pattern` and `selector`, from `start` on: `earliest`,
    `latest`, an offset, or `timestamp=<ms>`; 409 if it is there.
    """
    return await site.admin.create_group(queue, group, pattern=pattern, selector=selector, start=start)


@groups.endpoint("POST", "/queues/{queue}/groups/{group}/reset", needs=Action.CONFIGURE)
async def reset_group(
    site: Site, queue: str, group: str, *, to: str | int = "earliest", force: bool = False
) -> GroupView:
    """Have a group go on at another place, as `start` of a new one, with whatever is still kept; `force`:
    also while it has consumers.
    """
    return await site.admin.reset_group(queue, group, to=to, force=force)


@groups.endpoint("DELETE", "/queues/{queue}/groups/{group}", needs=Action.CONFIGURE)
async def delete_group(site: Site, queue: str, group: str, *, force: bool = False) -> None:
    """Delete a group with its progress and its failed messages; `force`: also while it has consumers or
    claims.
    """
    await site.admin.delete_group(queue, group, force=force)
