"""Building queues and groups from their records after a start.

Pure: the driver scans, this module makes sense of the rows. What a group had in flight when the broker ended
is available again, attempts kept; what its log cursor had not reached is still in the log.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from queue_manager.bucket import SETTLED_MESSAGE, Bucket
from queue_manager.definitions import StoredQueue, stored_group
from queue_manager.group import Group
from queue_manager.group_removal import GroupRemoval, begin_after
from queue_manager.kinds import queue_class
from queue_manager.lanes.queue import Lane, LanedQueue, lane_name, split_lane_name
from queue_manager.model import AVAILABLE, DONE, FAILED, Entry, Message
from queue_manager.passed_over import PassedOver
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue import Queue
from queue_manager.ranges import RangeSet
from queue_manager.retention import Purge
from queue_manager.selection import select
from storage import layout
from storage.envelope import TemplateCache, read_head
from storage.ranges import Ranges
from storage.records import active, done, queue_account, queue_spec
from storage.records.settled import SettledMessage
from storage.visible_at import without_visible_at

if TYPE_CHECKING:
    from queue_manager.manager import QueueManager
    from storage.records.claim_state import ClaimState
    from storage.records.queue_meta import QueueMeta


def restore_queue(
    manager: QueueManager,
    name: str,
    spec: queue_spec.QueueSpec,
    meta: QueueMeta | None,
    log_end: int,
    now_ms: int,
) -> Queue:
    """A durable queue without its groups; its log ends before offset `log_end` (0: it is empty)."""
    stored = StoredQueue(spec)
    head_offset = meta.head_offset if meta is not None else 0
    is_lane = split_lane_name(name)[1] > 0
    queue = (Lane if is_lane else queue_class(stored.policy))(
        manager,
        name,
        durable=True,
        policy=stored.policy,
        topics=stored.topics,
        log_id=stored.log_id,
        now_ms=now_ms,
        next_offset=max(head_offset, log_end),
        head_offset=head_offset,
        head_sequence=meta.head_sequence if meta is not None else 0,
    )
    queue.arguments = stored.arguments
    queue.mixes_payloads = True  # as far as this process knows
    queue.recovered_end = queue.tail.next_offset
    queue.released_known = False
    number = int(stored.log_id[1:]) if stored.log_id[1:].isdigit() else 0
    manager.next_log_number = max(manager.next_log_number, number + 1)
    manager.adopt(queue)
    queue.watch_use()
    return queue


def join_lanes(manager: QueueManager) -> None:
    """Put the restored queues with priorities together."""
    for queue in list(manager.queues.values()):
        if isinstance(queue, LanedQueue):
            for priority in range(1, queue.policy.priority_max + 1):
                lane = manager.queues[lane_name(queue.name, priority)]
                assert isinstance(lane, Lane)
                queue.join(lane)
            queue.join_groups()


def has_default_group(spec: queue_spec.QueueSpec) -> bool:
    """Whether the queue's default group was ever used."""
    return StoredQueue(spec).has_default_group


def restore_group(
    queue: Queue,
    spec: queue_spec.QueueSpec | None,
    position: int | None,
    cursor_sequence: int | None,
    claims: ClaimState | None,
    selector: str = "",
) -> Group:
    """A group with its place in the log; `spec` None is the default group."""
    name, pattern = ("", MATCH_ALL) if spec is None else stored_group(spec)
    group = queue.new_group(
        name,
        pattern,
        queue.head_offset if position is None else max(position, queue.head_offset),
        queue.head_sequence if cursor_sequence is None else cursor_sequence,
        selector,
    )
    group.spec_written = True
    if claims is not None:
        group.next_claim = claims.next_claim_number
        if claims.bucket_exponent != queue.policy.bucket_size:
            group.next_claim = layout.align_claim_number(group.next_claim, queue.policy.bucket_size)
    queue.groups[group.group_id] = group
    # the log cannot end before what was assigned from it
    if position is not None and position > queue.tail.next_offset:
        queue.tail.first_offset = queue.durable_offset = queue.recovered_end = position
    return group


def hold_back(group: Group) -> None:
    """The group was made, but not told yet what its queue had let go of: it is when that is known."""
    group.loading = True
    group.queue.manager.unborn.append(group)


def restore_taken(group: Group, chunk: int, bitmap: bytes) -> None:
    """What the group had taken out of order."""
    selection = select(group)
    selection.taken.restore(chunk, bitmap)
    group.position = selection.taken.position


def restore_bucket(
    group: Group,
    bucket_id: int,
    active_value: bytes | None,
    done_value: bytes | None,
    failed_value: bytes | None,
    templates: TemplateCache,
    now_ms: int = 0,
) -> None:
    """One bucket that still has something active, or is not yet full."""
    exponent = bucket_id >> layout.NUMBER_BITS
    first = bucket_id & layout.NUMBER_MASK
    bucket = Bucket(group, first, layout.bucket_capacity(exponent), exponent << layout.NUMBER_BITS)
    bucket.plain = False
    slots: dict[int, Entry] = {}
    if active_value is not None:
        available, in_flight = active.decode(active_value)
        bucket.active_written = True
        for message_id, claim_id, attempts, metadata in available:
            plain, due_ms = without_visible_at(metadata)
            entry = _entry(group, bucket, templates, message_id, claim_id, attempts, plain, AVAILABLE, 0)
            slots[entry.claim_number] = entry
            if due_ms > now_ms:
                group.delay(entry, due_ms)
        for message_id, claim_id, claimed_at_ms, _, attempts, metadata in in_flight:
            entry = _entry(group, bucket, templates, message_id, claim_id, attempts, metadata, AVAILABLE, 0)
            slots[entry.claim_number] = entry
            group.log_attempt(message_id, claimed_at_ms, "")
    if done_value is not None:
        bucket.done_written = True
        group.mark_purgeable()
        for message in done.decode(done_value):
            entry = _settled_entry(group, bucket, message)
            slots[entry.claim_number] = entry
    if failed_value is not None:
        bucket.failed_written = True
        for message in done.decode(failed_value):
            entry = _entry(
                group, bucket, templates, message.message_id, message.claim_id, message.attempts,
                message.metadata, FAILED, message.settled_at_ms,
            )  # fmt: skip
            slots[entry.claim_number] = entry
    end = min(first + bucket.capacity, group.next_claim)
    bucket.entries = [slots.get(number) for number in range(first, end)]
    waiting = [entry for entry in slots.values() if entry.state == AVAILABLE]
    bucket.open_count = len(waiting)
    group.buckets[first] = bucket
    head_offset = group.queue.head_offset
    for entry in waiting:
        if entry.message.offset < head_offset:  # it was redriven
            group.failed_offsets.add(entry.message.offset, entry.message.offset + 1)
    if waiting:
        group.returned += [(e.message.offset, e) for e in waiting if not e.lease_deadline_ms]
        heapify(group.returned)


def _entry(
    group: Group,
    bucket: Bucket,
    templates: TemplateCache,
    message_id: int,
    claim_id: int,
    attempts: int,
    metadata: bytes,
    state: int,
    at_ms: int,
) -> Entry:
    template = templates.find(metadata)
    _, offset, received_at_ms = read_head(metadata)
    message = Message(message_id, offset, None, template, received_at_ms)
    return Entry(message, group, claim_id & layout.NUMBER_MASK, bucket, attempts, state, None, at_ms)


def _settled_entry(group: Group, bucket: Bucket, message: SettledMessage) -> Entry:
    entry = Entry(
        SETTLED_MESSAGE,
        group,
        message.claim_id & layout.NUMBER_MASK,
        bucket,
        message.attempts,
        DONE,
        None,
        message.settled_at_ms,
    )
    entry.packed = done.pack_done(*message)
    return entry


def restore_keeper(queue: Queue, counts: dict[tuple[str, int], queue_account.Bytes]) -> None:
    """Have what came back before the start watched for its expiry; know what groups to come will not get."""
    if queue.keeper is not None and queue.keeper.ahead is not None and not queue.groups:
        queue.released.add_all(queue.keeper.ahead.ranges_from(queue.head_offset))
        queue.manager.trimmable[queue] = None
    for group in queue.groups.values():
        for entry in (*[entry for _, entry in group.returned], *group.delayed()):
            if queue.keeper is not None or entry.message.template.expires_at_ms:
                queue.keep().watch(group, entry, None)
    if queue.keeper is not None:
        taken = {queue_id: count for (queue_id, kind), count in counts.items() if kind == queue_account.TAKEN}
        queue.keeper.restore_bytes(counts.get((queue.name, queue_account.APPENDED)), taken)


def restore_holes(manager: QueueManager, queue_name: str, ranges: Ranges) -> None:
    """What was let go of in a queue, where its groups cannot tell."""
    queue = manager.queues.get(queue_name)
    if queue is None:
        return
    queue.holes = RangeSet()
    for start, end in ranges:
        queue.holes.add(start, end)
    queue.released.add_all(queue.holes)
    queue.released.drop_before(queue.head_offset)
    for group in queue.groups.values():
        group.released.add_all(queue.released)
        group.pass_over(queue.released)
    manager.trimmable[queue] = None


def restore_passed(group: Group, passed_at_ms: int, ranges: Ranges) -> None:
    """What a group passed over by a reset and still keeps."""
    kept = RangeSet()
    for start, end in ranges:
        kept.add(start, end)
    kept.drop_before(group.queue.head_offset)
    group.passed_over = PassedOver(group, kept, passed_at_ms)


def restore_group_removal(removal: GroupRemoval, group: Group | None) -> None:
    """A deletion or reset a crash interrupted; `group` is what bears the name now."""
    queue = removal.queue
    queue.group_removals.append(removal)
    queue.released.add_all(removal.log_free)
    queue.released.drop_before(queue.head_offset)
    queue.manager.trimmable[queue] = None
    for other in queue.groups.values():
        other.pass_over(queue.released)
    if group is not None and removal.has_rows:
        group.first_claim = max(group.first_claim, removal.claim_end)
        if group.next_claim < removal.claim_end:
            begin_after(group, removal.claim_end)


def settled_messages(value: bytes) -> list[SettledMessage]:
    """The messages of a failed record."""
    return done.decode(value)


def restore_failed(group: Group, bucket_id: int, value: bytes) -> None:
    """Account for a failed record."""
    number = bucket_id & layout.NUMBER_MASK
    resets = [
        removal
        for removal in group.queue.group_removals
        if removal.storage_id == group.storage_id and removal.has_rows and number < removal.claim_end
    ]
    for message in done.decode(value):
        _, offset, _ = read_head(message.metadata)
        if group.failed_offsets.contains(offset):
            continue  # it failed since the start
        if not all(removal.keeps_failed(offset) for removal in resets):
            continue
        group.failed_offsets.add(offset, offset + 1)
        group.failed_count += 1


def purge_of_record(group: Group, bucket_id: int, value: bytes) -> tuple[Purge | None, list[int]]:
    """The purge of a stored done record (None: kept for ever), and the offsets it holds."""
    messages = done.decode(value)
    offsets = [read_head(message.metadata)[1] for message in messages]
    retention_ms = group.queue.policy.done_retention_ms
    if retention_ms < 0 or not messages:
        return None, offsets
    due_ms = max(message.settled_at_ms for message in messages) + retention_ms
    return Purge.of_packed(group, bucket_id, [done.pack_done(*m) for m in messages], due_ms), offsets


def restore_released(queue: Queue, taken: dict[Group, RangeSet], kept: dict[Group, RangeSet]) -> None:
    """Work out what of the queue is gone.

    `taken` are the offsets that the groups had claimed or passed over at the start of this process and `kept`
    those among them whose done records were still there.
    """
    ahead = RangeSet() if queue.keeper is None else queue.keeper.ahead_at_start
    let_go: RangeSet | None = None
    below_head = RangeSet()
    below_head.add(0, queue.head_offset)
    for group, had in taken.items():
        held = kept[group]
        end = had.ends[-1] if had.ends else 0
        for offset in _active_offsets(group):
            held.add(offset, offset + 1)
        for purge in group.purges:
            for first_offset, _, count in (*purge.items, *purge.shared_items):
                held.add(first_offset, first_offset + count)
        if group.passed_over is not None:
            held.add_all(group.passed_over.ranges)
        # what is still held below the head was redriven
        group.failed_offsets.add_all(held.intersection(below_head))
        released = held.complement(queue.head_offset, end).intersection(had)
        # what this process released does not count as let go of before a group it may have made meanwhile
        before = released.intersection(group.released.complement(queue.head_offset, end))
        let_go = before if let_go is None else let_go.intersection(before)
        group.released.add_all(released)
        if ahead.ends:
            group.released.add_all(ahead.intersection(had.complement(0, ahead.ends[-1])))
    common: RangeSet | None = None
    for group in queue.groups.values():
        common = group.released if common is None else common.intersection(group.released)
    for ranges in (let_go, common):
        if ranges is not None:
            queue.released.add_all(ranges)
    queue.manager.trimmable[queue] = None


def _active_offsets(group: Group) -> list[int]:
    offsets = []
    for bucket in group.buckets.values():
        for entry in bucket.entries:
            if entry is None:
                continue
            offset = read_head(entry.packed[30:48])[1] if entry.packed else entry.message.offset
            if entry.state != FAILED:
                offsets.append(offset)
    return offsets
