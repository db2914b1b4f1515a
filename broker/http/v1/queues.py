"""Queues over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict

from broker import topics
from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.admin.admin_views import ChangedQueue, Listing, QueueInFull, QueueView
from broker.admin.queue_change import QueueChange
from broker.engine.group_settings import problems_of
from broker.http.endpoints import Body, Endpoints, PageLimit
from broker.http.site import Site
from config import limits
from config.settings_loader import ConfigError
from queue_manager.address import is_queue_topic
from queue_manager.errors import InvalidArgument, QueueNotFound

queues: Final = Endpoints("queues")


class QueueDefinition(Body):
    """The keys of an entry of `queues:` in the configuration file, but `name`."""

    model_config = ConfigDict(extra="allow", frozen=True)


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages it were."""

    count: int


@queues.endpoint("GET", "/queues")
async def list_queues(
    site: Site, *, after: str = "", limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT, name: str = ""
) -> Listing[QueueView, str]:
    """List queues by name, a page at a time: `next` of one page is `after` of the next; `name`: only those
    with this in their names.
    """
    return await site.admin.queue_page(after=after, limit=limit, name=name)


@queues.endpoint("GET", "/queues/{queue}")
async def show_queue(site: Site, queue: str) -> QueueInFull:
    """Show one queue; `settings` has those in force by the keys that `PUT` takes."""
    return await site.admin.queue(queue)


@queues.endpoint("PUT", "/queues/{queue}", needs=Action.CONFIGURE)
async def set_queue(site: Site, queue: str, caller: Identity | None, body: QueueDefinition) -> ChangedQueue:
    """Make a queue, or change one that is there: what the body does not name stays, `null` puts a setting
    back to its default.

    The body has the keys of `queues:` in the configuration file. `changed` of the answer has what is
    different now. What a queue that exists cannot become is refused with 409.
    """
    try:
        view = await site.admin.queue(queue)
    except QueueNotFound:
        view = None
    try:
        change = QueueChange(queue, body.model_extra or {}, view, problems_of)
    except ConfigError as error:
        raise InvalidArgument("; ".join(error.problems)) from None
    if caller is not None and not caller.login.is_administrator:
        _check_reach(caller, change)
    return await site.admin.change(change)


def _check_reach(caller: Identity, change: QueueChange) -> None:
    """Raise NotPermitted unless the caller may write where dead letters go, and read what the queue takes
    beside its own address, as far as that is asked for: as over AMQP.
    """
    settings = change.settings
    if settings.dead_letter and change.touches("dlq"):
        caller.check(Action.READ, Kind.QUEUE, settings.name)
        caller.check(Action.WRITE, Kind.QUEUE, settings.dead_letter)
    if not change.touches("topics"):
        return
    for topic in settings.topics:
        if not is_queue_topic(topic):
            caller.check(Action.WRITE, Kind.QUEUE, settings.name)
            caller.check(Action.READ, Kind.EXCHANGE, topics.EXCHANGE)
            caller.check_keys(Action.READ, topics.EXCHANGE, topics.pattern_of(topic))
        elif topic.split("/")[1] != settings.name:
            caller.check(Action.READ, Kind.ADDRESS, topic)


@queues.endpoint("DELETE", "/queues/{queue}", needs=Action.CONFIGURE)
async def delete_queue(site: Site, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> Count:
    """Delete a queue with all it holds, `if_unused`, `if_empty`: not one with consumers, with messages; how
    many messages waited in it.
    """
    return Count(await site.admin.delete(queue, if_unused=if_unused, if_empty=if_empty))


@queues.endpoint("POST", "/queues/{queue}/purge", needs=Action.READ)
async def purge_queue(site: Site, queue: str) -> Count:
    """Drop what waits in every group; how many messages it were."""
    return Count(await site.admin.purge(queue))


@queues.endpoint("POST", "/queues/{queue}/pause", needs=Action.CONFIGURE)
async def pause_queue(site: Site, queue: str, *, publish: bool = False, deliver: bool = False) -> QueueView:
    """Refuse publishes to a queue, give nothing to its consumers, or, where neither is named, both; holds
    over restarts.
    """
    is_both = not publish and not deliver
    return await site.admin.pause(queue, publish=publish or is_both, deliver=deliver or is_both)


@queues.endpoint("POST", "/queues/{queue}/resume", needs=Action.CONFIGURE)
async def resume_queue(site: Site, queue: str, *, publish: bool = False, deliver: bool = False) -> QueueView:
    """Let publishers and consumers of a paused queue go on, or those that are named."""
    is_both = not publish and not deliver
    return await site.admin.resume(queue, publish=publish or is_both, deliver=deliver or is_both)
