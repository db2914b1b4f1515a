"""Counts of queues and groups, as they are in memory."""

from __future__ import annotations

from collections.abc import Iterable

from broker.engine.client import log_view
from broker.engine.client.told_arguments import told_arguments
from broker.engine.shard import Shard
from queue_manager.api import GroupView, PolicyNames, QueueView
from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.effective_policy import Effective
from queue_manager.group.group import Group
from queue_manager.group.stream_group import StreamGroup
from queue_manager.log.levels import offset_in_level, priority_of
from queue_manager.log.range_set import RangeSet
from queue_manager.model import Message
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream


def queue_view(queue: Queue, effective: Effective) -> QueueView:
    """Return a queue as it is now; what failed and is done is known from `Sweeper.retention_known` on."""
    groups = list(queue.groups)
    is_stream = isinstance(queue, Stream)
    return QueueView(
        name=queue.name,
        type="stream" if is_stream else "classic" if queue.durable else "ephemeral",
        durable=queue.durable,
        topics=queue.topics,
        description=queue.description,
        policy=queue.policy,
        pause=queue.pause,
        declared=queue.declared,
        arguments=told_arguments(queue.arguments, queue.declared),
        exclusive=queue.owner is not None,
        auto_delete=queue.auto_delete,
        ready=queue.ready_count(),
        unmatched=sum(group.serving.unmatched_count() for group in groups),
        unwanted=queue.unwanted_count(),
        unwanted_dropped=queue.dropped_count,
        delayed=sum(group.delayed_count() for group in groups),
        in_flight=sum(group.in_flight_count() for group in groups),
        scheduled=queue.rules.scheduled_count(),
        failed=sum(group.failed_count() for group in queue.groups.with_keeper()),
        done=sum(map(done_count, groups)),
        consumers=queue.consumer_count(),
        first_offset=queue.log.head_offset,
        next_offset=queue.log.kept_end(),
        retained_bytes=queue.log.chunks.payload_bytes if isinstance(queue, Stream) else 0,
        memory_bytes=queue.memory_bytes(),
        groups=tuple(group.group_id for group in groups if has_name(group)),
        published=sum(offset_in_level(part.log.next_offset) for part in queue.parts),
        delivered=sum(map(_delivered_count, groups)),
        settled=sum(map(_settled_count, groups)),
        redelivered=sum(group.redelivered_count() for group in groups),
        policies=policy_names(effective),
    )


def policy_names(effective: Effective) -> PolicyNames:
    """Return which policies hold, and what they ask for."""
    policy, operator_policy = effective
    return PolicyNames(
        "" if policy is None else policy.name,
        "" if operator_policy is None else operator_policy.name,
        effective.definition(),
    )


def _delivered_count(group: Group) -> int:
    """Count deliveries, the first and later ones of each message."""
    if isinstance(group, StreamGroup):
        return group.position + group.redelivered_count()
    return sum(cursor.claims.buckets.next_claim for cursor in group.cursors) + group.redelivered_count()


def _settled_count(group: Group) -> int:
    """Count messages claimed once and done with: claims that are neither in flight, nor wait, nor failed."""
    if isinstance(group, StreamGroup):
        return group.cursor.committed_offset()
    claimed = sum(cursor.claims.buckets.next_claim for cursor in group.cursors)
    waiting = group.delayed_count()
    for cursor in group.cursors:
        waiting += len(cursor.claims.returned.heap) + cursor.dispatcher.held_count(cursor)
    return max(0, claimed - waiting - group.in_flight_count() - group.failed_count())


def has_name(group: Group) -> bool:
    """Return whether it is a group that can be asked for: not one of a single reader of a stream."""
    return not (isinstance(group, StreamGroup) and group.is_anonymous)


async def group_view(shard: Shard, group: Group) -> GroupView:
    """Return a group as it is now; see `queue_view`. May read one log claim for the age of its oldest
    message.
    """
    oldest_ms = min([ms for cursor in group.cursors if (ms := await _oldest_ms(shard, cursor))], default=0)
    ready, delayed, in_flight = group.ready_count(), group.delayed_count(), group.in_flight_count()
    lag = ready + delayed + in_flight
    position = group.cursors[-1].position
    committed, lost = position, 0
    if isinstance(group, StreamGroup):
        head = group.log.head_offset
        committed = group.cursor.committed_offset()
        lag = group.log.next_offset - max(head, committed)
        lost = group.cursor.backlog.lost_count + max(0, head - position)
    return GroupView(
        queue=group.log.title,
        group_id=group.group_id,
        name=group.name,
        pattern=group.pattern,
        selector=group.selector,
        position=position,
        committed=committed,
        lag=lag,
        oldest_age_ms=max(0, shard.clock.now_ms() - oldest_ms) if lag and oldest_ms else 0,
        ready=ready,
        unmatched=group.serving.unmatched_count(),
        delayed=delayed,
        in_flight=in_flight,
        failed=group.failed_count(),
        done=done_count(group),
        lost=lost,
        consumers=len(group.consumers.members),
        redelivered=group.redelivered_count(),
        idle_ms=shard.group_expiry.idle_ms(group),
        expires_ms=shard.group_expiry.expires_ms(group),
    )


def held_claims(cursor: Cursor) -> list[Claim]:
    """Return claims in flight, in order of their messages."""
    priority = priority_of(cursor.log.head_offset)
    held = [claim for consumer in cursor.consumers for claim in consumer.in_flight.values()]
    return _sorted(claim for claim in held if priority_of(claim.message.offset) == priority)


def returned_claims(cursor: Cursor) -> list[Claim]:
    """Return what came back, or was placed for a consumer, and may be claimed at once; in order."""
    cursor.returning.finish()
    return _sorted(cursor.claims.returned.available() + cursor.dispatcher.held(cursor))


def delayed_claims(cursor: Cursor) -> list[Claim]:
    """Return what came back and waits for its next attempt, in order of the messages."""
    return _sorted(cursor.claims.delays.claims())


def done_count(group: Group) -> int:
    """Count messages done and still kept for that; as far as they are in the log."""
    if not group.log.durable or isinstance(group, StreamGroup):
        return 0
    return sum(_done_offsets(cursor).count() for cursor in group.cursors)


def _done_offsets(cursor: Cursor) -> RangeSet:
    done_with = cursor.progress.taken()
    done_with.drop_before(cursor.log.head_offset)
    is_alone = len(cursor.retention.members) == 1
    done_with.discard_all(cursor.retention.payloads.released if is_alone else cursor.progress.released)
    for claim in cursor.claims.buckets.open_claims():
        done_with.discard(claim.message.offset, claim.message.offset + 1)
    return done_with


def _sorted(claims: Iterable[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda claim: claim.message.offset)


async def _oldest_ms(shard: Shard, cursor: Cursor) -> int:
    """Return when the oldest message the group has not done was published; 0 if there is none."""
    log = cursor.log
    claims = [*held_claims(cursor), *returned_claims(cursor), *delayed_claims(cursor)]
    times = [claim.message.received_at_ms for claim in claims]
    message: Message | None = None
    if cursor.position >= log.tail.first_offset:
        message = next(iter(log.tail.slice(cursor.position, 1)), None)
    else:
        async for part in log_view.read_from(shard, log, cursor.position):
            message = part[0]
            break
    if message is not None:
        times.append(message.received_at_ms)
    return min(times, default=0)
