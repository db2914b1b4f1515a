"""Messages over HTTP: looked at, published, moved, tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pydantic import Field

from broker.access.login import Identity
from broker.access.rights import Action
from broker.access.users import administrator
from broker.admin.views import MessageView, Page, Published, State
from broker.http.endpoints import Ask, Body, Endpoints, NoBody, NoQuery, Query
from broker.http.site import Site
from broker.http.v1.queues import Count
from broker.http.values import payload, plain, shown
from broker.properties import amqp
from config import limits
from queue_manager.address import address_of
from queue_manager.errors import InvalidArgument, QueueNotFound

messages: Final = Endpoints("messages")


class Browsing(Query):
    """Which messages: of a `state` and `group`; `start` is where the first page of ready ones begins.

    Bodies are cut at `body_bytes`; 0: none.
    """

    state: State = "ready"
    group: str | None = None
    after: str | None = None
    start: str | None = None
    limit: int = Field(default=limits.HTTP_PAGE_ITEMS_DEFAULT, ge=1, le=limits.HTTP_PAGE_ITEMS_MAX)
    body_bytes: int = Field(default=4096, ge=0, le=limits.MESSAGE_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageItem:
    """One message, looked at and not touched; see `sluicemq.admin.MessageView`.

    `encoding` says whether `body` is `text` or `base64`. `body_bytes` is its whole size; None: not asked for,
    or not kept any more.
    """

    message_id: str
    offset: int
    topic: str
    state: State
    attempts: int
    received_at_ms: int
    time_ms: int
    persistent: bool
    headers: dict[str, Any]
    properties: dict[str, Any]
    consumer: str
    body: str | None
    encoding: str
    body_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages, and where the next page begins (`after`); None: this was the last."""

    items: list[MessageItem]
    next: str | None


class Message(Body):
    """A message to be published; `topic` "": to the queue itself, else a `$queue/...` address of it."""

    body: str = ""
    encoding: str = "text"
    topic: str = ""
    headers: dict[str, str | int | float | bool | None] = {}
    properties: dict[str, str | int] = {}
    persistent: bool = True


class Transfer(Body):
    """Which messages go where: at most `limit`, `per_second` at a time."""

    to: str
    group: str | None = None
    state: State = "ready"
    limit: int | None = Field(default=None, ge=0)
    per_second: float | None = Field(default=None, gt=0)


class Copying(Transfer):
    """As a transfer; `start` is where in the queue to begin."""

    start: str | int | None = None


class Redrive(Body):
    """Which failed messages are tried again: those at `offsets`, or all."""

    group: str = ""
    offsets: list[int] | None = None
    limit: int | None = Field(default=None, ge=0)
    per_second: float | None = Field(default=None, gt=0)


class DeadLetterRedrive(Body):
    """Where dead letters go: to the queue `to`, or each to where it came from."""

    to: str | None = None
    limit: int | None = Field(default=None, ge=0)
    per_second: float | None = Field(default=None, gt=0)


def item_of(view: MessageView, body_bytes: int) -> MessageItem:
    """A message as JSON has it."""
    body, encoding = (None, "text") if view.body is None else shown(view.body[:body_bytes])
    return MessageItem(
        message_id=view.message_id,
        offset=view.offset,
        topic=view.topic,
        state=view.state,
        attempts=view.attempts,
        received_at_ms=view.received_at_ms,
        time_ms=view.time_ms,
        persistent=view.persistent,
        headers=plain(view.headers),
        properties=plain(view.properties),
        consumer=view.consumer,
        body=body,
        encoding=encoding,
        body_bytes=None if view.body is None else len(view.body),
    )


async def browse(site: Site, queue: str, query: Browsing) -> Page:
    """One page of messages."""
    start: str | int | None = query.start
    if query.start is not None and query.start.isascii() and query.start.isdigit():
        start = int(query.start)
    return await site.admin.browse(
        queue,
        query.group,
        query.state,
        after=query.after,
        start=start,
        limit=query.limit,
        bodies=query.body_bytes > 0,
    )


@messages.get("/queues/{queue}/messages", MessagePage, Browsing, needs=Action.READ)
async def browse_messages(site: Site, ask: Ask[Browsing, NoBody]) -> MessagePage:
    """Look at messages in a state, a page at a time; nothing is claimed or moved."""
    page = await browse(site, ask.path["queue"], ask.query)
    items = [item_of(view, ask.query.body_bytes) for view in page.messages]
    return MessagePage(items=items, next=page.next)


@messages.post("/queues/{queue}/messages", Published, Message, needs=Action.WRITE)
async def publish_message(site: Site, ask: Ask[NoQuery, Message]) -> Published:
    """Publish a message to a queue; it is durable when the answer comes."""
    name, body = ask.path["queue"], ask.body
    prefix = address_of(name)
    if body.topic and body.topic != prefix and not body.topic.startswith(f"{prefix}/"):
        raise InvalidArgument(f"topic: {prefix} or below it, as it goes to queue {name!r}")
    unknown = sorted(set(body.properties) - set(amqp.FIELDS))
    if unknown:
        raise InvalidArgument(f"properties: {', '.join(unknown)}: unknown")
    await site.admin.queue(name)
    return await site.admin.publish(
        body.topic or name,
        payload(body.body, body.encoding),
        headers=body.headers,
        persistent=body.persistent,
        publisher=_publisher(ask.caller),
        **body.properties,
    )


def _publisher(caller: Identity | None) -> Identity | None:
    """Whose permissions count: an administrator may publish anywhere, under the own name."""
    if caller is None or not caller.is_administrator:
        return caller
    return administrator(caller.user).enter(caller.vhost)


@messages.post("/queues/{queue}/move", Count, Transfer, needs=Action.READ, also=Action.WRITE, lasts=True)
async def move_messages(site: Site, ask: Ask[NoQuery, Transfer]) -> Count:
    """Move ready or failed messages to the end of another queue; how many went."""
    body = ask.body
    count = await site.admin.move(
        ask.path["queue"],
        body.to,
        group=body.group,
        state=body.state,
        limit=body.limit,
        per_second=body.per_second,
    )
    return Count(count)


@messages.post("/queues/{queue}/copy", Count, Copying, needs=Action.READ, also=Action.WRITE, lasts=True)
async def copy_messages(site: Site, ask: Ask[NoQuery, Copying]) -> Count:
    """Copy messages to the end of another queue; how many it were."""
    body = ask.body
    count = await site.admin.copy(
        ask.path["queue"],
        body.to,
        group=body.group,
        state=body.state,
        start=body.start,
        limit=body.limit,
        per_second=body.per_second,
    )
    return Count(count)


@messages.post("/queues/{queue}/redrive", Count, Redrive, needs=Action.READ, lasts=True)
async def redrive_messages(site: Site, ask: Ask[NoQuery, Redrive]) -> Count:
    """Have a group try its failed messages again, at their places; how many it were."""
    body = ask.body
    count = await site.admin.redrive(
        ask.path["queue"], body.group, offsets=body.offsets, limit=body.limit, per_second=body.per_second
    )
    return Count(count)


@messages.post(
    "/queues/{queue}/redrive-dead-letters",
    Count,
    DeadLetterRedrive,
    needs=Action.READ,
    also=Action.WRITE,
    lasts=True,
)
async def redrive_dead_letters(site: Site, ask: Ask[NoQuery, DeadLetterRedrive]) -> Count:
    """Send dead letters back to where they came from, or to another queue; how many went."""
    body = ask.body
    count = await site.admin.redrive_dead_letters(
        ask.path["queue"], to=body.to, limit=body.limit, per_second=body.per_second
    )
    return Count(count)


@messages.delete("/queues/{queue}/scheduled/{message}", None, needs=Action.WRITE)
async def cancel_scheduled(site: Site, ask: Ask[NoQuery, NoBody]) -> None:
    """Cancel a message published for later, by its `message_id`; 404 if it is not there, or due already."""
    queue, _, name = ask.path["message"].rpartition(":")
    if queue not in ("", ask.path["queue"]):
        raise InvalidArgument(f"that is a message of queue {queue!r}")
    if not await site.admin.cancel_scheduled(f"{ask.path['queue']}:{name}"):
        raise QueueNotFound(f"no such scheduled message in queue {ask.path['queue']!r}")
