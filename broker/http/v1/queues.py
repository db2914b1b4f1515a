"""Queues over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import ConfigDict, Field

from broker import topics
from broker.access.login import Identity
from broker.access.rights import Action, Kind
from broker.admin.views import ChangedQueue, QueuePage, QueueView
from broker.engine.group_settings import problems_of
from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery, Query
from broker.http.site import Site
from broker.queue_change import QueueChange
from config import limits
from config.loader import ConfigError
from queue_manager.address import is_queue_topic
from queue_manager.errors import InvalidArgument, QueueNotFound

queues: Final = Endpoints("queues")


class QueueListing(Query):
    """Which queues: those with `name` in their names, the first `limit` behind `after`."""

    after: str = ""
    limit: int = Field(default=limits.HTTP_PAGE_ITEMS_DEFAULT, ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)
    name: str = ""


class QueueDefinition(Body):
    """The keys of an entry of `queues:` in the configuration file, but `name`."""

    model_config = ConfigDict(extra="allow", frozen=True)


class Deletion(Query):
    """Refuse the deletion of a queue that has consumers, or messages."""

    if_unused: bool = False
    if_empty: bool = False


class Pausing(Body):
    """What of a queue: publishers, consumers. Neither: both."""

    publish: bool = False
    deliver: bool = False

    def chosen(self) -> dict[str, bool]:
        """As `Admin.pause` takes it."""
        is_both = not self.publish and not self.deliver
        return {"publish": self.publish or is_both, "deliver": self.deliver or is_both}


@dataclass(frozen=True, slots=True)
class Count:
    """How many messages it were."""

    count: int


@queues.get("/queues", QueuePage, QueueListing)
async def list_queues(site: Site, ask: Ask[QueueListing, NoBody]) -> QueuePage:
    """Queues by name, a page at a time: `next` of one page is `after` of the next."""
    query = ask.query
    return await site.admin.queue_page(after=query.after, limit=query.limit, name=query.name)


@queues.get("/queues/{queue}", QueueView)
async def show_queue(site: Site, ask: Ask[NoQuery, NoBody]) -> QueueView:
    """One queue."""
    return await site.admin.queue(ask.path["queue"])


@queues.put("/queues/{queue}", ChangedQueue, QueueDefinition, needs=Action.CONFIGURE)
async def set_queue(site: Site, ask: Ask[NoQuery, QueueDefinition]) -> ChangedQueue:
    """Make a queue, or change one that is there: what the body does not name stays, `null` puts a setting
    back to its default.

    The body has the keys of `queues:` in the configuration file. `changed` of the answer has what is
    different now. What a queue that exists cannot become is refused with 409.
    """
    name = ask.path["queue"]
    try:
        view = await site.admin.queue(name)
    except QueueNotFound:
        view = None
    try:
        change = QueueChange(name, ask.body.model_extra or {}, view, problems_of)
    except ConfigError as error:
        raise InvalidArgument("; ".join(error.problems)) from None
    if ask.caller is not None and not ask.caller.is_administrator:
        _check_reach(ask.caller, change)
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


@queues.delete("/queues/{queue}", Count, Deletion, needs=Action.CONFIGURE)
async def delete_queue(site: Site, ask: Ask[Deletion, NoBody]) -> Count:
    """Delete a queue with all it holds; how many messages waited in it."""
    query = ask.query
    name = ask.path["queue"]
    return Count(await site.admin.delete(name, if_unused=query.if_unused, if_empty=query.if_empty))


@queues.post("/queues/{queue}/purge", Count, needs=Action.READ)
async def purge_queue(site: Site, ask: Ask[NoQuery, NoBody]) -> Count:
    """Drop what waits in every group; how many messages it were."""
    return Count(await site.admin.purge(ask.path["queue"]))


@queues.post("/queues/{queue}/pause", QueueView, Pausing, needs=Action.CONFIGURE)
async def pause_queue(site: Site, ask: Ask[NoQuery, Pausing]) -> QueueView:
    """Refuse publishes to a queue, give nothing to its consumers; holds over restarts."""
    return await site.admin.pause(ask.path["queue"], **ask.body.chosen())


@queues.post("/queues/{queue}/resume", QueueView, Pausing, needs=Action.CONFIGURE)
async def resume_queue(site: Site, ask: Ask[NoQuery, Pausing]) -> QueueView:
    """Let publishers and consumers of a paused queue go on."""
    return await site.admin.resume(ask.path["queue"], **ask.body.chosen())
