"""Messages over HTTP: looked at, published, moved, tried again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from pydantic import Field

from broker.access.accounts_of_file import administrator
from broker.access.login import Identity
from broker.access.rights import Action
from broker.admin.admin_views import LookedAt, MessageView, Published, State
from broker.http.endpoints import Endpoints, Limit, PageLimit, Rate
from broker.http.site import Site
from broker.http.v1.queues import Count
from broker.http.values import payload, plain, shown
from broker.properties import amqp
from config import limits
from queue_manager.address import address_of
from queue_manager.errors import InvalidArgument, QueueNotFound

messages: Final = Endpoints("messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageItem(LookedAt):
    """One message as JSON has it; see `sluicemq.admin.MessageView`.

    `encoding` says whether `body` is `text` or `base64`. `body_bytes` is its whole size; None: not asked for,
    or not kept any more.
    """

    body: str | None
    encoding: str
    body_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    """Some messages, and where the next page begins (`after`); None: this was the last."""

    items: list[MessageItem]
    next: str | None


def item_of(view: MessageView, body_bytes: int) -> MessageItem:
    """Return a message as JSON has it."""
    body, encoding = (None, "text") if view.body is None else shown(view.body[:body_bytes])
    told: dict[str, Any] = {each.name: getattr(view, each.name) for each in fields(LookedAt)}
    told |= {"headers": plain(view.headers), "properties": plain(view.properties), "body": body}
    return MessageItem(**told, encoding=encoding, body_bytes=None if view.body is None else len(view.body))


@messages.endpoint("GET", "/queues/{queue}/messages", needs=Action.READ)
async def browse_messages(
    site: Site,
    queue: str,
    *,
    state: State = "ready",
    group: str | None = None,
    after: str | None = None,
    start: str | None = None,
    limit: PageLimit = limits.HTTP_PAGE_ITEMS_DEFAULT,
    body_bytes: Annotated[int, Field(ge=0, le=limits.MESSAGE_BYTES_MAX)] = 4096,
) -> MessagePage:
    """Look at messages of a `state` and `group`, a page at a time; nothing is claimed or moved. `start` is
    where the first page of ready ones begins. Bodies are cut at `body_bytes`; 0: none.
    """
    place: str | int | None = start
    if start is not None and start.isascii() and start.isdigit():
        place = int(start)
    page = await site.admin.browse(
        queue, group, state, after=after, start=place, limit=limit, bodies=body_bytes > 0
    )
    return MessagePage(items=[item_of(view, body_bytes) for view in page.messages], next=page.next)


@messages.endpoint("POST", "/queues/{queue}/messages", needs=Action.WRITE)
async def publish_message(
    site: Site,
    queue: str,
    *,
    caller: Identity | None,
    body: str = "",
    encoding: str = "text",
    topic: str = "",
    headers: dict[str, str | int | float | bool | None] = {},  # noqa: B006 (pydantic copies it)
    properties: dict[str, str | int] = {},  # noqa: B006
    persistent: bool = True,
) -> Published:
    """Publish a message to a queue; it is durable when the answer comes. `topic` "": to the queue itself,
    else a `$queue/...` address of it.
    """
    prefix = address_of(queue)
    if topic and topic != prefix and not topic.startswith(f"{prefix}/"):
        raise InvalidArgument(f"topic: {prefix} or below it, as it goes to queue {queue!r}")
    unknown = sorted(set(properties) - set(amqp.FIELDS))
    if unknown:
        raise InvalidArgument(f"properties: {', '.join(unknown)}: unknown")
    await site.admin.queue(queue)
    return await site.admin.publish(
        topic or queue,
        payload(body, encoding),
        headers=headers,
        persistent=persistent,
        publisher=_publisher(caller),
        **properties,
    )


def _publisher(caller: Identity | None) -> Identity | None:
    """Return whose permissions count: an administrator may publish anywhere, under the own name."""
    if caller is None or not caller.login.is_administrator:
        return caller
    return administrator(caller.user).enter(caller.vhost)


@messages.endpoint("POST", "/queues/{queue}/move", needs=Action.READ, also=Action.WRITE, lasts=True)
async def move_messages(
    site: Site,
    queue: str,
    *,
    to: str,
    group: str | None = None,
    state: State = "ready",
    limit: Limit = None,
    per_second: Rate = None,
) -> Count:
    """Move ready or failed messages to the end of another queue, at most `limit`, `per_second` at a time; how
    many went.
    """
    admin = site.admin
    return Count(await admin.move(queue, to, group=group, state=state, limit=limit, per_second=per_second))


@messages.endpoint("POST", "/queues/{queue}/copy", needs=Action.READ, also=Action.WRITE, lasts=True)
async def copy_messages(
    site: Site,
    queue: str,
    *,
    to: str,
    group: str | None = None,
    state: State = "ready",
    start: str | int | None = None,
    limit: Limit = None,
    per_second: Rate = None,
) -> Count:
    """Copy messages to the end of another queue, from `start` on; how many it were."""
    count = await site.admin.copy(
        queue, to, group=group, state=state, start=start, limit=limit, per_second=per_second
    )
    return Count(count)


@messages.endpoint("POST", "/queues/{queue}/redrive", needs=Action.READ, lasts=True)
async def redrive_messages(
    site: Site,
    queue: str,
    *,
    group: str = "",
    offsets: list[int] | None = None,
    limit: Limit = None,
    per_second: Rate = None,
) -> Count:
    """Have a group try its failed messages again, those at `offsets` or all, at their places; how many it
    were.
    """
    admin = site.admin
    return Count(await admin.redrive(queue, group, offsets=offsets, limit=limit, per_second=per_second))


@messages.endpoint(
    "POST", "/queues/{queue}/redrive-dead-letters", needs=Action.READ, also=Action.WRITE, lasts=True
)
async def redrive_dead_letters(
    site: Site, queue: str, *, to: str | None = None, limit: Limit = None, per_second: Rate = None
) -> Count:
    """Send dead letters back to where they came from, or to the queue `to`; how many went."""
    return Count(await site.admin.redrive_dead_letters(queue, to=to, limit=limit, per_second=per_second))


@messages.endpoint("DELETE", "/queues/{queue}/scheduled/{message}", needs=Action.WRITE)
async def cancel_scheduled(site: Site, queue: str, message: str) -> None:
    """Cancel a message published for later, by its `message_id`; 404 if it is not there, or due already."""
    of, _, name = message.rpartition(":")
    if of not in ("", queue):
        raise InvalidArgument(f"that is a message of queue {of!r}")
    if not await site.admin.cancel_scheduled(f"{queue}:{name}"):
        raise QueueNotFound(f"no such scheduled message in queue {queue!r}")
