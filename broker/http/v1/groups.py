"""Consumer groups over HTTP. In a path `~` stands for the default group, which has no name."""

from __future__ import annotations

from typing import Final

from broker.access.rights import Action
from broker.admin.views import GroupView
from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery, Query
from broker.http.site import Site

groups: Final = Endpoints("groups")

DEFAULT_GROUP: Final = "~"


class GroupBeginning(Body):
    """A group to be made: what it is given, and where it begins (`earliest`, `latest`, an offset, or
    `timestamp=<ms>`).
    """

    pattern: str = "#"
    selector: str = ""
    start: str | int = "earliest"


class GroupReset(Body):
    """Where a group is to go on, as `start` of a new one; `force`: also while it has consumers."""

    to: str | int = "earliest"
    force: bool = False


class Force(Query):
    """Also while it has consumers or claims."""

    force: bool = False


def group_of(ask: Ask[Query, Body]) -> str:
    """The ID of the group that a path names."""
    name = ask.path["group"]
    return "" if name == DEFAULT_GROUP else name


@groups.get("/queues/{queue}/groups", list[GroupView])
async def list_groups(site: Site, ask: Ask[NoQuery, NoBody]) -> list[GroupView]:
    """The consumer groups of a queue."""
    return await site.admin.groups(ask.path["queue"])


@groups.get("/queues/{queue}/groups/{group}", GroupView)
async def show_group(site: Site, ask: Ask[NoQuery, NoBody]) -> GroupView:
    """One consumer group: lag, oldest age, what is in flight."""
    return await site.admin.group(ask.path["queue"], group_of(ask))


@groups.put("/queues/{queue}/groups/{group}", GroupView, GroupBeginning, needs=Action.CONFIGURE)
async def create_group(site: Site, ask: Ask[NoQuery, GroupBeginning]) -> GroupView:
    """Make a group; 409 if it is there."""
    body = ask.body
    return await site.admin.create_group(
        ask.path["queue"], group_of(ask), pattern=body.pattern, selector=body.selector, start=body.start
    )


@groups.post("/queues/{queue}/groups/{group}/reset", GroupView, GroupReset, needs=Action.CONFIGURE)
async def reset_group(site: Site, ask: Ask[NoQuery, GroupReset]) -> GroupView:
    """Have a group go on at another place, with whatever is still kept."""
    return await site.admin.reset_group(
        ask.path["queue"], group_of(ask), to=ask.body.to, force=ask.body.force
    )


@groups.delete("/queues/{queue}/groups/{group}", None, Force, needs=Action.CONFIGURE)
async def delete_group(site: Site, ask: Ask[Force, NoBody]) -> None:
    """Delete a group with its progress and its failed messages."""
    await site.admin.delete_group(ask.path["queue"], group_of(ask), force=ask.query.force)
