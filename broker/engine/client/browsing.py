"""Looking at messages in any state. Nothing is claimed, locked or moved by it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from broker.engine.client import counting, log_view, scheduled
from broker.engine.shard import Shard
from config import limits
from queue_manager.api import STATES, BrowsedMessage, BrowsedPage, State
from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.errors import InvalidArgument
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.condition import condition_of_filter
from queue_manager.group.group import Group
from queue_manager.log.levels import priority_of
from queue_manager.model import Message
from queue_manager.queue.part import Part
from queue_manager.queue.queue import Queue
from storage import layout
from storage.encoding import prefix_end
from storage.envelope import TemplateCache, read_head
from storage.records import done, failed

ROWS_PER_SCAN: Final = 16


class Found(NamedTuple):
    """One message of a listing; `cursor` is where the listing goes on behind it."""

    cursor: str
    message: Message
    attempts: int
    time_ms: int
    consumer: str


async def read_page(
    shard: Shard,
    queue: Queue,
    group: Group | None,
    state: State,
    *,
    after: str | None,
    limit: int,
    bodies: bool = True,
    wanted: ConsumerFilter | None = None,
) -> BrowsedPage:
    """Read one page of a queue's messages in a state; see `MessageClient.browse`."""
    if state not in STATES:
        raise InvalidArgument(f"state is one of {', '.join(STATES)}, not {state!r}")
    if not 1 <= limit <= limits.LISTED_MESSAGES_MAX:
        raise InvalidArgument(f"limit is 1 to {limits.LISTED_MESSAGES_MAX}, not {limit}")
    found, more = await find(shard, queue, group, state, after=after, limit=limit, wanted=wanted)
    if queue.durable and not all(_is_durable(queue, item.message) for item in found):
        await shard.barrier()  # a crash might give their offsets to others
    texts: dict[int, bytes] = {}
    if bodies:
        texts, read_count = await read_bodies(shard, [item.message for item in found])
        more |= read_count < len(found)
        del found[read_count:]
    messages = tuple([_browsed(state, item, texts.get(item.message.message_id)) for item in found])
    last = found[-1].cursor if found else None
    return BrowsedPage(messages, last if more else None, last)


def _is_durable(queue: Queue, message: Message) -> bool:
    return message.offset < queue.parts[priority_of(message.offset)].log.durable_offset


def _browsed(state: State, found: Found, body: bytes | None) -> BrowsedMessage:
    message = found.message
    return BrowsedMessage(
        name=found.cursor if state == "scheduled" else str(message.offset),
        offset=message.offset,
        template=message.template,
        received_at_ms=message.received_at_ms,
        attempts=found.attempts,
        time_ms=found.time_ms,
        consumer=found.consumer,
        body=body,
    )


async def find(
    shard: Shard,
    queue: Queue,
    group: Group | None,
    state: State,
    *,
    after: str | None,
    limit: int,
    wanted: ConsumerFilter | None = None,
) -> tuple[list[Found], bool]:
    """Return at most `limit` messages of a listing that match, and whether there are more."""
    found: list[Found] = []
    matches = None if wanted is None else condition_of_filter(queue.parts[0].log, wanted.condition)
    async for item in _listing(shard, queue, group, state, after):
        if matches is not None and not matches(item.message):
            continue
        found.append(item)
        if len(found) > limit:
            break
    more = len(found) > limit
    del found[limit:]
    return found, more


async def read_bodies(shard: Shard, messages: list[Message]) -> tuple[dict[int, bytes], int]:
    """Read payloads by message ID, and of how many messages they are: about `limits.LOAD_BYTES_MAX` at
    most.
    """
    missing = [message.message_id for message in messages if message.body is None]
    read, read_count = await shard.reader.read_payloads(missing) if missing else ({}, 0)
    known = set(missing[:read_count])
    body_bytes = sum(map(len, read.values()))
    bodies: dict[int, bytes] = {}
    for index, message in enumerate(messages):
        body = message.body
        if body is None:
            if message.message_id not in known:
                return bodies, index
            body = read.get(message.message_id)
        elif message.message_id not in read:
            body_bytes += len(body)
        if index and body_bytes > 2 * limits.LOAD_BYTES_MAX:
            return bodies, index
        if body is not None:
            bodies[message.message_id] = body
    return bodies, len(messages)


async def _listing(
    shard: Shard, queue: Queue, group: Group | None, state: State, after: str | None
) -> AsyncIterator[Found]:
    """Return the messages in delivery order: those of the highest priority first."""
    if state == "scheduled":
        async for item in _scheduled(shard, queue, after):
            yield item
        return
    parts = queue.parts
    if len(parts) == 1:
        cursor = None if group is None else group.cursors[0]
        async for item in _part(shard, parts[0], cursor, state, _number(after)):
            yield item
        return
    last, rest = len(parts) - 1, None
    if after is not None:
        first, _, rest = after.partition(".")
        last = min(_number(first), last)
    for priority in range(last, -1, -1):
        part = parts[priority]
        cursor = None if group is None else part.cursors.get(group.group_id)
        async for item in _part(shard, part, cursor, state, _number(rest)):
            yield item._replace(cursor=f"{priority}.{item.cursor}")
        rest = None


async def _part(
    shard: Shard, part: Part, cursor: Cursor | None, state: State, after: int
) -> AsyncIterator[Found]:
    if state == "ready":
        async for item in _ready(shard, part, cursor, after):
            yield item
    elif cursor is None or (part.log.policy.stream and state in ("failed", "done")):
        return
    elif state in ("failed", "done"):
        async for item in _settled(shard, cursor, state, after):
            yield item
    else:
        find_claims = counting.held_claims if state == "in_flight" else counting.delayed_claims
        for item in _of_claims(find_claims(cursor), after):
            yield item


def _number(after: str | None) -> int:
    if after is None:
        return -1
    if not after.isascii() or not after.isdigit() or len(after) > 20:
        raise InvalidArgument(f"{after!r} is not where a page of this listing ended")
    return int(after)


def _of_claims(claims: list[Claim], after: int) -> list[Found]:
    found = []
    for claim in claims:
        message = claim.message
        if message.offset > after:
            time_ms = claim.deadline_ms if claim.consumer is None else claim.at_ms
            holder = "" if claim.consumer is None else claim.consumer.consumer_id
            found.append(Found(str(message.offset), message, claim.attempts, time_ms, holder))
    return found


async def _ready(shard: Shard, part: Part, cursor: Cursor | None, after: int) -> AsyncIterator[Found]:
    position = part.log.head_offset
    if cursor is not None:
        position = cursor.position
        for item in _of_claims(counting.returned_claims(cursor), after):
            yield item
    wants = None if cursor is None else cursor.backlog.wants
    async for messages in log_view.read_from(shard, part.log, max(position, after + 1)):
        for message in messages:
            if cursor is not None and cursor.progress.has_taken(message.offset):
                continue  # claimed meanwhile
            if part.retention.is_gone(message.offset):
                continue
            if wants is None or wants(message):
                yield Found(str(message.offset), message, 0, 0, "")


async def _settled(shard: Shard, cursor: Cursor, state: State, after: int) -> AsyncIterator[Found]:
    """Return done or failed messages, in order of their claims."""
    if not cursor.log.durable:
        return
    await shard.sweeper.retention_known()
    cursor.claims.buckets.records.want_all_whole()
    cursor.stored.write_soon()
    await shard.barrier()
    record = failed if state == "failed" else done
    prefix = record.prefix(cursor.storage_id)
    start = prefix
    if after >= 0:
        start = record.key(cursor.storage_id, layout.bucket_of_claim(after))
    templates = TemplateCache()
    end = prefix_end(prefix)
    while not cursor.is_over():
        rows = await shard.store.scan(start, end, limit=ROWS_PER_SCAN)
        for key, value in rows:
            if (
                state == "done"
                and layout.id_number(record.parse_key(key)[1]) < cursor.claims.buckets.first_claim
            ):
                continue
            for settled in record.decode(value):
                _, offset, received_at_ms = read_head(settled.metadata)
                if settled.claim_id <= after or (
                    state == "failed" and not cursor.progress.failed.contains(offset)
                ):
                    continue
                template = templates.find(settled.metadata)
                message = Message(settled.message_id, offset, None, template, received_at_ms)
                yield Found(str(settled.claim_id), message, settled.attempts, settled.settled_at_ms, "")
        if len(rows) < ROWS_PER_SCAN:
            return
        start = rows[-1][0] + b"\x00"


async def _scheduled(shard: Shard, queue: Queue, after: str | None) -> AsyncIterator[Found]:
    place = (0, 0) if after is None else scheduled_key(after)
    while True:
        page = await scheduled.list_scheduled(
            shard, queue.name, after=place, limit=limits.LISTED_MESSAGES_MAX
        )
        for item in page:
            message = Message(item.message_id, -1, item.body, item.template, 0)
            yield Found(f"{item.due_ms}.{item.message_id}", message, 0, item.due_ms, "")
        if len(page) < limits.LISTED_MESSAGES_MAX:
            return
        place = (page[-1].due_ms, page[-1].message_id)


def scheduled_key(text: str) -> tuple[int, int]:
    """Return the (due_ms, message ID) in the name of a scheduled message; raises InvalidArgument."""
    due, dot, message_id = text.partition(".")
    if not dot:
        raise InvalidArgument(f"{text!r} does not name a scheduled message")
    return _number(due), _number(message_id)
