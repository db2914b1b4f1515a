"""Counts of queues and groups, as they are in memory."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.operations import log_view
from broker.engine.shard import Shard
from queue_manager.api import GroupView, QueueView
from queue_manager.group import Group
from queue_manager.model import AVAILABLE, IN_FLIGHT, Entry, Message
from queue_manager.queue import Queue
from queue_manager.streams.group import StreamGroup
from queue_manager.streams.stream import Stream


def queue_view(queue: Queue) -> QueueView:
    """A queue as it is now; what failed and is done is known from `Shard.retention_known` on."""
    groups = list(queue.groups.values())
    is_stream = isinstance(queue, Stream)
    return QueueView(
        name=queue.name,
        type="stream" if is_stream else "classic" if queue.durable else "ephemeral",
        durable=queue.durable,
        topics=queue.topics,
        policy=queue.policy,
        exclusive=queue.owner is not None,
        auto_delete=queue.auto_delete,
        ready=queue.ready_count(),
        unmatched=sum(group.unmatched_count() for group in groups),
        delayed=sum(group.delayed_count() for group in groups),
        in_flight=sum(group.in_flight_count() for group in groups),
        scheduled=queue.scheduled_count(),
        failed=sum(map(failed_count, groups)),
        done=sum(map(done_count, groups)),
        consumers=queue.consumer_count(),
        first_offset=queue.head_offset,
        next_offset=queue.tail.next_offset,
        retained_bytes=queue.chunks.payload_bytes if isinstance(queue, Stream) else 0,
        memory_bytes=sum(part.tail.memory_bytes + part.scheduled_bytes() for part in queue.parts()),
        groups=tuple(group_id for group_id, group in queue.groups.items() if has_name(group)),
    )


def has_name(group: Group) -> bool:
    """Whether it is a group that can be asked for: not one of a single reader of a stream."""
    return not (isinstance(group, StreamGroup) and group.is_anonymous)


async def group_view(shard: Shard, group: Group) -> GroupView:
    """A group as it is now; see `queue_view`. May read one log entry for the age of its oldest message."""
    parts = group.parts()
    oldest_ms = min([ms for part in parts if (ms := await _oldest_ms(shard, part))], default=0)
    ready, delayed, in_flight = group.ready_count(), group.delayed_count(), group.in_flight_count()
    lag = ready + delayed + in_flight
    committed, lost = group.position, 0
    if isinstance(group, StreamGroup):
        head = group.queue.head_offset
        committed = group.committed_offset()
        lag = group.queue.tail.next_offset - max(head, committed)
        lost = group.lost_count + max(0, head - group.position)
    return GroupView(
        queue=group.queue.name,
        group_id=group.group_id,
        name=group.name,
        pattern=group.pattern,
        selector=group.selector,
        position=group.position,
        committed=committed,
        lag=lag,
        oldest_age_ms=max(0, shard.clock.now_ms() - oldest_ms) if lag and oldest_ms else 0,
        ready=ready,
        unmatched=group.unmatched_count(),
        delayed=delayed,
        in_flight=in_flight,
        failed=failed_count(group),
        done=done_count(group),
        lost=lost,
        consumers=len(group.consumers),
        redelivered=sum(part.redelivered_count for part in parts),
    )


def claimed_entries(group: Group) -> list[Entry]:
    """Claims in flight, in order of their messages."""
    held = [e for c in (*group.consumers, *group.draining) for e in c.in_flight.values()]
    return _sorted([entry for entry in held if entry.group is group])


def returned_entries(group: Group) -> list[Entry]:
    """What came back, or was placed for a consumer, and may be claimed at once; in order."""
    entries = [entry for _, entry in group.returned if entry.state == AVAILABLE]
    if group.selection is not None:
        entries += group.selection.waiting.values()
    if group.sticky is not None:
        entries += group.sticky.entries(group)
    return _sorted(entries)


def delayed_entries(group: Group) -> list[Entry]:
    """What came back and waits for its next attempt, in order of the messages."""
    return [] if group.delays is None else _sorted(group.delays.entries())


def failed_count(group: Group) -> int:
    """Messages that failed and are kept."""
    return sum(part.failed_count for part in group.parts())


def done_count(group: Group) -> int:
    """Messages done and still kept for that; as far as they are in the log."""
    if not group.queue.durable or isinstance(group, StreamGroup):
        return 0
    return sum(map(_done_in, group.parts()))


def _done_in(group: Group) -> int:
    queue = group.queue
    taken = group.taken()
    taken.drop_before(queue.head_offset)
    taken.discard_all(queue.released if len(queue.groups) == 1 else group.released)
    for bucket in group.buckets.values():
        if bucket.open_count:
            for entry in bucket.entries:
                if entry is not None and entry.state in (AVAILABLE, IN_FLIGHT):
                    taken.discard(entry.message.offset, entry.message.offset + 1)
    return taken.count()


def _sorted(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.message.offset)


async def _oldest_ms(shard: Shard, group: Group) -> int:
    """When the oldest message the group has not done was published; 0 if there is none."""
    queue = group.queue
    entries = [*claimed_entries(group), *returned_entries(group), *delayed_entries(group)]
    times = [entry.message.received_at_ms for entry in entries]
    message: Message | None = None
    if group.position >= queue.tail.first_offset:
        message = next(iter(queue.tail.slice(group.position, 1)), None)
    else:
        async for part in log_view.read_from(shard, queue, group.position):
            message = part[0]
            break
    if message is not None:
        times.append(message.received_at_ms)
    return min(times, default=0)
