"""Queues and groups, from their records."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.reset_keep import ResetKeep
from queue_manager.group.group import Group
from queue_manager.log.levels import level_name, split_level_name
from queue_manager.log.members import released_by_all
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval
from queue_manager.log.stream_log import StreamLog
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.part import Part
from queue_manager.queue.priority import PriorityQueue
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from queue_manager.recovery.buckets import active_offsets
from queue_manager.routing.queue_directory import QueueDirectory
from queue_manager.shard.context import Context
from queue_manager.spec_records import QueueDefinition, StoredQueue, stored_group
from storage.records import ClaimState, QueueMeta, QueueSpec
from storage.records.fields import Ranges

StoredLog = tuple[QueueSpec, QueueMeta | None, int]  # spec, head, the offset behind the last message


def has_default_group(spec: QueueSpec) -> bool:
    """Whether the queue's default group was ever used."""
    return StoredQueue(spec).has_default_group


def restore_queue(
    context: Context, directory: QueueDirectory, name: str, logs: dict[str, StoredLog], now_ms: int
) -> Queue:
    """Restore a durable queue without its groups. `logs` are those of all queues, by name."""
    stored = StoredQueue(logs[name][0])
    definition = QueueDefinition(
        name,
        durable=True,
        policy=stored.policy,
        topics=stored.topics,
        arguments=stored.arguments,
        description=stored.description,
        user=stored.user,
    )
    queue = directory.maker.restore(_restore_log(context, name, logs[name]), definition, now_ms)
    for part in queue.parts:
        part.begin_unknown(stored.purged_to)
    if isinstance(queue, PriorityQueue):
        for priority in range(1, stored.policy.priority_max + 1):
            level = level_name(name, priority)
            log = _restore_log(context, level, logs[level])
            directory.maker.note_log_id(log.log_id)
            part = queue.make_part(log)
            part.begin_unknown(StoredQueue(logs[level][0]).purged_to)
            queue.parts.append(part)
    held = directory.policy_held(queue)
    if held != queue.policy:  # the queue follows once it is whole: what its rules keep is read by then
        for part in queue.parts:
            part.set_policy(held)
    queue.follow_pause(stored.pause)
    directory.adopt(queue)
    queue.watch_use()
    return queue


def _restore_log(context: Context, name: str, stored_log: StoredLog) -> QueueLog:
    spec, meta, log_end = stored_log
    stored = StoredQueue(spec)
    head_offset = 0 if meta is None else meta.head_offset
    make_log = StreamLog if stored.policy.stream else QueueLog
    next_offset = max(head_offset, log_end)
    return make_log(
        context,
        name,
        split_level_name(name)[0],
        durable=True,
        policy=stored.policy,
        log_id=stored.log_id,
        durable_offset=next_offset,
        head_offset=head_offset,
        head_sequence=0 if meta is None else meta.head_sequence,
        mixes_payloads=True,  # as far as this process knows
        recovered_end=next_offset,
    )


@dataclass(eq=False, slots=True)
class StoredCursor:
    """The stored state of one group in one log."""

    position: int | None
    sequence: int | None
    claims: ClaimState | None
    _: KW_ONLY
    awaits_history: bool


def restore_group(queue: Queue, spec: QueueSpec, group_id: str, stored: list[StoredCursor]) -> Group:
    """Restore a group with its places in the logs of the queue, that of priority 0 first."""
    name, pattern = stored_group(spec) if group_id else ("", MATCH_ALL)
    if isinstance(queue, Stream):
        place, (_, sequence) = stored[0].position, _place(queue.parts[0], stored[0])
        position = queue.log.head_offset if place is None else place  # it is told what is gone since
        return queue.restore_group(name, pattern, spec.selector, position, sequence)
    group = queue.groups.blank(name, pattern, spec.selector)
    cursors = [
        part.new_cursor(group, *_place(part, row)) for part, row in zip(queue.parts, stored, strict=True)
    ]
    group.join(cursors[::-1])
    queue.groups.restore(group)
    for part, cursor, row in zip(queue.parts, cursors, stored, strict=True):
        part.cursors[group.group_id] = cursor
        if row.claims is not None:
            cursor.claims.buckets.restore_number(row.claims)
        if row.position is not None:
            part.log.extend_to(row.position)
        if row.awaits_history:
            cursor.await_history()
    return group


def _place(part: Part, stored: StoredCursor) -> tuple[int, int]:
    log = part.log
    position = log.head_offset if stored.position is None else max(stored.position, log.head_offset)
    return position, log.head_sequence if stored.sequence is None else stored.sequence


def restore_claimed(group: Group, cursor: Cursor, chunk: int, bitmap: bytes) -> None:
    """Restore what the group had claimed out of order."""
    cursor.progress.restore_claimed(chunk, bitmap)
    group.serving.go_out_of_order(cursor)


def restore_gaps(part: Part, ranges: Ranges) -> None:
    """Restore the gaps of a log: what was let go of where its groups cannot tell."""
    part.retention.payloads.restore_gaps(ranges)
    for cursor in part.cursors.values():
        cursor.progress.released.add_all(part.retention.payloads.released)
        cursor.backlog.pass_released()


def restore_reset(cursor: Cursor, passed_at_ms: int, ranges: Ranges) -> None:
    """Restore what a group passed by a reset and still keeps."""
    kept = RangeSet()
    kept.add_pairs(ranges)
    kept.drop_before(cursor.log.head_offset)
    cursor.keep(ResetKeep(cursor, kept, passed_at_ms))


def restore_group_removal(part: Part, removal: GroupRemoval) -> None:
    """Restore a deletion or reset that a crash interrupted."""
    part.retention.restore_removal(removal)
    for cursor in part.cursors.values():
        cursor.backlog.pass_released()
    own = part.cursors.get(removal.group_id)
    if own is not None and removal.has_rows:
        own.claims.buckets.restore_first(removal.claim_end)


def restore_released(part: Part, taken: dict[Cursor, RangeSet], kept: dict[Cursor, RangeSet]) -> None:
    """Work out what of the log is gone.

    `taken` are the offsets that the groups had claimed or passed at the start of this process and `kept`
    those among them whose done records were still there.
    """
    retention = part.retention
    head_offset = part.log.head_offset
    expired = retention.expired.at_start
    let_go: RangeSet | None = None
    below_head = RangeSet()
    below_head.add(0, head_offset)
    for cursor, had in taken.items():
        held = kept[cursor]
        held.add_all(retention.removals.own_of(cursor.storage_id))  # let go of once this is known
        end = had.ends[-1] if had.ends else 0
        for offset in active_offsets(cursor):
            held.add(offset, offset + 1)
        for purge in cursor.done_purges:
            for first_offset, _, count in (*purge.items, *purge.shared_items):
                held.add(first_offset, first_offset + count)
        if cursor.reset_keep is not None:
            held.add_all(cursor.reset_keep.ranges)
        # what is still held below the head was redriven
        cursor.progress.failed.add_all(held.intersection(below_head))
        released = held.complement(head_offset, end).intersection(had)
        # what this process released does not count as let go of before a group it may have made meanwhile
        before = released.intersection(cursor.progress.released.complement(head_offset, end))
        let_go = before if let_go is None else let_go.intersection(before)
        cursor.progress.released.add_all(released)
        if expired.ends:
            cursor.progress.released.add_all(expired.intersection(had.complement(0, expired.ends[-1])))
    if let_go is not None:
        retention.payloads.released.add_all(let_go)
    if part.cursors:
        retention.payloads.released.add_all(released_by_all(part.cursors.values()))
    retention.want_trim()
