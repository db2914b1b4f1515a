"""The queue manager's public door: everything front-ends and the driver may call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

from config import limits
from queue_manager import address, group_records
from queue_manager.bucket import Run
from queue_manager.consumer import UNLIMITED, Consumer, CreditPool, Sink
from queue_manager.definitions import QueueDefinition, definition_of, encode_spec
from queue_manager.errors import (
    AccessRefused,
    GroupNotFound,
    InvalidAddress,
    LimitReached,
    PreconditionFailed,
    QueueBusy,
    QueueNotFound,
    ResourceLocked,
)
from queue_manager.group import Group, release_claim
from queue_manager.journal import Journal
from queue_manager.loads import LogLoad, PayloadLoad
from queue_manager.model import DONE, IN_FLIGHT, Entry, Message
from queue_manager.patterns import MATCH_ALL, validate
from queue_manager.plan import PublishPlan
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.queue import Queue
from queue_manager.removal import HeadRemoval, QueueRemoval, RangeRemoval, Removal
from queue_manager.retention import NO_BUCKET, Purge, add_to_runs, advance_head, release_unshared
from queue_manager.routing import Bindings
from queue_manager.tail import MESSAGE_OVERHEAD_BYTES
from storage.envelope import EnvelopeTemplate
from storage.metadata_log import MetadataLog
from storage.records import payload, payload_refs, queue_meta, queue_spec, removal
from storage.sequence import SequenceAllocator

# outcomes of a publish
ACCEPTED: Final = 0  # in every queue it was routed to; durable once the journal at the time of the call is
UNROUTED: Final = 1  # no queue wanted it
REFUSED_DEPTH: Final = 2  # a queue is full
REFUSED_SIZE: Final = 3  # larger than a queue takes


class QueueManager:
    """All queues of one shard. One thread calls it; it calls consumers' sinks before it returns.

    Whatever drives it must take `seal()` whenever `needs_commit()`, write it, and call `committed`; perform
    `loads`; and call `expire` and `take_purges` from time to time.
    """

    def __init__(
        self,
        *,
        default_policy: QueuePolicy,
        auto_create: bool,
        cache_bytes_max: int,
        log: MetadataLog,
        message_ids: SequenceAllocator,
    ) -> None:
        self.default_policy = default_policy
        self.auto_create = auto_create
        self.cache_bytes_max = cache_bytes_max
        self.log = log
        self.message_ids = message_ids
        self.queues: dict[str, Queue] = {}
        self.bindings = Bindings()
        self.journal = Journal()
        self.sealed_bytes = 0
        self.next_log_number = 1
        self.loads: list[LogLoad | PayloadLoad] = []
        self.removals: list[Removal] = []
        self.removing: dict[str, list[Callable[[], None]]] = {}
        self.dispatchable: dict[Group, None] = {}
        self.dirty_groups: dict[Group, None] = {}
        self.appended: dict[Queue, None] = {}
        self.trimmable: dict[Queue, None] = {}
        self.skipped: dict[Group, list[tuple[int, int, bool]]] = {}
        self.unread_purges: list[Purge] = []
        self.stale_settle_count = 0

    # queues

    def declare(self, definition: QueueDefinition, now_ms: int) -> Queue:
        """The queue of that name, created if it is not there.

        Raises PreconditionFailed when it exists with another definition, ResourceLocked when it is exclusive
        to another owner, QueueBusy while a queue of that name is being deleted, LimitReached.
        """
        queue = self.queues.get(definition.name)
        if queue is not None:
            self.check_owner(queue, definition.owner)
            difference = definition.difference(definition_of(queue))
            if not difference:
                queue.unused_since_ms = now_ms
                return queue
            if not queue.auto_created:
                raise PreconditionFailed(f"queue {queue.name!r} exists with {difference}")
            if queue.groups:
                raise PreconditionFailed(
                    f"queue {queue.name!r} was made in memory, by its first use, and has consumer groups"
                )
            return self._adopt_auto_created(queue, definition, now_ms)
        if len(self.queues) >= limits.QUEUES_MAX:
            raise LimitReached(f"{limits.QUEUES_MAX} queues exist already")
        if definition.durable and definition.name in self.removing:
            raise QueueBusy(definition.name)
        queue = Queue(
            self,
            definition.name,
            durable=definition.durable,
            policy=definition.policy,
            topics=definition.topics,
            log_id=f"q{self.next_log_number}",
            now_ms=now_ms,
        )
        queue.arguments = None if definition.arguments is None else dict(definition.arguments)
        queue.owner = definition.owner
        queue.auto_delete = definition.auto_delete
        queue.auto_created = definition.auto_created
        if definition.durable:
            self.next_log_number += 1
            queue.head_sequence = self.log.next_sequence
            self.journal.put(queue_spec.key(queue.name), encode_spec(queue))
            self.journal.put(queue_meta.key(queue.name), queue_meta.encode(0, queue.head_sequence))
        self.adopt(queue)
        return queue

    def _adopt_auto_created(self, old: Queue, definition: QueueDefinition, now_ms: int) -> Queue:
        """Declare properly what was only published to so far; the messages come along, in order."""
        if definition.durable and definition.name in self.removing:
            raise QueueBusy(definition.name)
        messages = old.tail.slice(old.head_offset, len(old.tail))
        self.delete(old, now_ms)
        queue = self.declare(definition, now_ms)
        for template, run in groupby(messages, key=lambda message: message.template):
            bodies = [message.body or b"" for message in run]
            self._append([queue], template, bodies, sum(map(len, bodies)), int(queue.durable), now_ms)
        return queue

    def redefine(self, queue: Queue, definition: QueueDefinition) -> None:
        """Give an existing queue another policy and other bindings; its messages stay."""
        self.bindings.remove(queue)
        queue.policy = definition.policy
        queue.topics = definition.topics
        self.bindings.add(queue)
        for group in queue.groups.values():
            group.resize_buckets()
        if queue.durable:
            self.journal.put(queue_spec.key(queue.name), encode_spec(queue))

    def adopt(self, queue: Queue) -> None:
        """Take in a queue that was made or recovered."""
        self.queues[queue.name] = queue
        self.bindings.add(queue)

    def find(self, name: str, owner: object = None) -> Queue:
        """The queue; raises QueueNotFound, or ResourceLocked when it is exclusive to somebody else."""
        queue = self.queues.get(name)
        if queue is None:
            raise QueueNotFound(f"no queue {name!r}")
        self.check_owner(queue, owner)
        return queue

    def find_or_create(self, name: str, owner: object, now_ms: int) -> Queue:
        """As `find`, but an unknown name makes an ephemeral queue where `auto_create` allows it."""
        if name not in self.queues and self.auto_create:
            return self.declare(QueueDefinition.ephemeral(name, self.default_policy), now_ms)
        return self.find(name, owner)

    def check_owner(self, queue: Queue, owner: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to somebody other than `owner`."""
        if queue.owner is not None and queue.owner is not owner:
            raise ResourceLocked(f"queue {queue.name!r} is exclusive to another connection")

    def delete(self, queue: Queue, now_ms: int, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue with all it holds; give how many messages waited in it.

        Raises PreconditionFailed when it is used or not empty and that was a condition. The records go with
        this commit as far as memory knows them, the rest by a `Removal` the driver performs.
        """
        if if_unused and queue.consumer_count():
            raise PreconditionFailed(f"queue {queue.name!r} has consumers")
        count = queue.ready_count()
        if if_empty and count:
            raise PreconditionFailed(f"queue {queue.name!r} is not empty")
        for group in queue.groups.values():
            if group.dirty and group.failed_count:
                # where the log no longer stands for a payload, its failed record tells the removal of it
                group_records.flush(group, self.journal, now_ms)
        queue.deleted = True
        del self.queues[queue.name]
        self.bindings.remove(queue)
        for table in (self.appended, self.trimmable):
            table.pop(queue, None)
        for group in queue.groups.values():
            for groups in (self.dispatchable, self.dirty_groups):
                groups.pop(group, None)
            self.skipped.pop(group, None)
            for consumer in [*group.consumers, *group.draining]:
                was_active = consumer.active
                consumer.active = False
                for entry in list(consumer.in_flight.values()):
                    release_claim(entry)
                    entry.state = DONE
                if was_active:
                    consumer.sink.cancelled(consumer, f"queue {queue.name!r} was deleted")
            group.consumers = []
            group.draining = []
        if queue.durable:
            storage_ids = tuple(dict.fromkeys([queue.name, *(g.storage_id for g in queue.groups.values())]))
            for storage_id in storage_ids:
                self.journal.delete(queue_spec.key(storage_id))
            self.journal.delete(queue_meta.key(queue.name))
            self.journal.put(removal.key(queue.log_id), removal.encode(queue.name, storage_ids))
            # the open blocks must reach the log, or their payloads would never be found again
            self._write_log(queue, now_ms)
            self.removing[queue.name] = []
            # what was purged before there was a group is below the head, but not gone yet
            purged = [
                r.start for r in self.removals if isinstance(r, RangeRemoval) and r.group.queue is queue
            ]
            head_offset = min(queue.head_offset, *purged, queue.tail.next_offset)
            released = queue.released if queue.released_known else None
            self.removals.append(QueueRemoval(queue.name, queue.log_id, storage_ids, head_offset, released))
        return count

    def purge(self, queue: Queue, now_ms: int) -> int:
        """Drop every waiting message of every group; claimed ones stay. Give how many it were."""
        count = queue.ready_count()
        for group in queue.groups.values():
            group.purge_ready()
        if not queue.groups:
            self._purge_unread(queue)
        self.trimmable[queue] = None
        return count

    def _purge_unread(self, queue: Queue) -> None:
        """Drop everything of a queue that has no group."""
        end = queue.tail.next_offset
        nobody = Group(queue, "", MATCH_ALL, queue.head_offset, queue.head_sequence)
        if queue.durable and queue.head_offset < end:
            self.removals.append(RangeRemoval(nobody, queue.head_offset, end, queue.head_sequence))
            self.removals.append(HeadRemoval(queue))
            self.journal.put(queue_meta.key(queue.name), queue_meta.encode(end, queue.head_sequence))
        queue.head_offset = end
        queue.tail.drop_before(end)

    # publishing

    def plan(self, topic: str, template_kind: int, properties: bytes, persistent: bool) -> PublishPlan:
        """What to do with publishes of this topic and these properties; reusable until it is stale.

        Raises InvalidAddress.
        """
        return PublishPlan(self, topic, template_kind, properties, persistent)

    def route(self, topic: str, now_ms: int) -> tuple[Queue, ...]:
        """The queues a `$queue/...` topic goes to; creates an ephemeral one where that is allowed.

        Raises InvalidAddress, or QueueNotFound when there is none and none may be made.
        """
        queues = self.bindings.match(topic)
        if queues:
            return queues
        parsed = address.parse(topic)
        if not self.auto_create:
            raise QueueNotFound(f"no queue is bound to {topic!r}")
        if parsed.name in self.queues:
            raise QueueNotFound(f"queue {parsed.name!r} is not bound to {topic!r}")
        self.declare(QueueDefinition.ephemeral(parsed.name, self.default_policy), now_ms)
        return self.bindings.match(topic)

    def publish(self, plan: PublishPlan, bodies: list[bytes], now_ms: int) -> int:
        """Append one message per body to every queue of the plan; the outcome holds for all of them.

        On ACCEPTED with `plan.durable` the messages are durable once `self.journal`, as it is now, is
        (`journal.wait`). Deliveries happen at `dispatch`.
        """
        queues = plan.queues
        if not queues:
            return UNROUTED
        sizes = list(map(len, bodies))
        body_bytes = sum(sizes)
        for queue in queues:
            policy = queue.policy
            if body_bytes > policy.message_bytes_max and max(sizes) > policy.message_bytes_max:
                return REFUSED_SIZE
            if policy.depth_max and queue.depth() + len(bodies) > policy.depth_max:
                return REFUSED_DEPTH
            if (
                not queue.durable
                and queue.tail.memory_bytes + body_bytes > limits.EPHEMERAL_BYTES_PER_QUEUE_MAX
            ):
                return REFUSED_DEPTH
        self._append(queues, plan.template, bodies, body_bytes, plan.durable_count, now_ms)
        return ACCEPTED

    def _append(
        self,
        queues: Sequence[Queue],
        template: EnvelopeTemplate,
        bodies: list[bytes],
        body_bytes: int,
        durable_count: int,
        now_ms: int,
    ) -> None:
        """Append one message per body to every queue; the payloads are stored once for `durable_count`."""
        count = len(bodies)
        first_id, put = self.message_ids.allocate(count)
        journal = self.journal
        if put is not None:
            journal.puts[put[0]] = put[1]
        if durable_count:
            keys = payload.key_run(first_id, count)
            journal.puts.update(zip(keys, bodies, strict=True))
            journal.held_bytes += body_bytes + count * MESSAGE_OVERHEAD_BYTES
            if durable_count > 1:
                for queue in queues:
                    queue.shares_payloads = True
                value = payload_refs.encode(durable_count)
                for message_id in range(first_id, first_id + count):
                    journal.puts[payload_refs.key(message_id)] = value
        for queue in queues:
            queue.append(template, first_id, bodies, body_bytes, now_ms)

    # consuming

    def subscribe(
        self,
        queue: Queue,
        group_name: str,
        pattern: str,
        sink: Sink,
        *,
        consumer_id: str,
        credit_max: int,
        no_ack: bool,
        exclusive: bool,
        lease_ms: int,
        pool: CreditPool | None = None,
    ) -> Consumer:
        """Add a consumer to a group (made if need be). Deliveries begin at the next `dispatch`.

        Raises AccessRefused about exclusivity, InvalidAddress, LimitReached.
        """
        existing = queue.groups.get(group_name if pattern == MATCH_ALL else f"{group_name}@{pattern}")
        if existing is not None:
            others = existing.consumers
            if any(c.exclusive for c in others) or (exclusive and others):
                raise AccessRefused(f"queue {queue.name!r} group {existing.group_id!r} is in exclusive use")
            if len(others) >= limits.CONSUMERS_PER_GROUP_MAX:
                raise LimitReached(
                    f"group {existing.group_id!r} has {limits.CONSUMERS_PER_GROUP_MAX} consumers"
                )
        group = self.group(queue, group_name, pattern)
        consumer = Consumer(
            group,
            consumer_id,
            sink,
            credit_max=credit_max,
            no_ack=no_ack,
            exclusive=exclusive,
            lease_ms=lease_ms,
            pool=pool,
        )
        queue.had_consumer = True
        group.add(consumer)
        return consumer

    def group(self, queue: Queue, group_name: str, pattern: str = MATCH_ALL) -> Group:
        """The group, made if need be; raises InvalidAddress, LimitReached."""
        if group_name:
            address.validate_group_name(group_name)
        group = queue.group(group_name, validate(pattern))
        if queue.durable and not group.spec_written:
            group.spec_written = True
            self.journal.put(queue_spec.key(group.storage_id), encode_spec(queue, group))
        return group

    def puller(self, queue: Queue, sink: Sink, consumer_id: str, *, lease_ms: int) -> Consumer:
        """A consumer that is given nothing by itself and takes by `pull` (AMQP basic.get)."""
        group = self.group(queue, "")
        consumer = Consumer(
            group,
            consumer_id,
            sink,
            credit_max=UNLIMITED,
            no_ack=False,
            exclusive=False,
            lease_ms=lease_ms,
            pool=None,
        )
        group.draining.append(consumer)
        return consumer

    def pull(self, consumer: Consumer, no_ack: bool, now_ms: int) -> bool | None:
        """Claim one message for a puller and deliver it to its sink.

        True: delivered; False: the group is empty; None: it must be read back first, ask again once
        `consumer.group.on_loaded` calls.
        """
        group = consumer.group
        if group.queue.deleted:
            return False
        if consumer not in group.draining and consumer not in group.consumers:
            group.draining.append(consumer)
        consumer.no_ack = no_ack
        group.queue.unused_since_ms = now_ms
        if group.claim(consumer, 1, now_ms):
            return True
        if group.loading:
            return None
        return False

    def unsubscribe(self, consumer: Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """Take a consumer away; its claims return at once, or stay with its holder (`keep_claims`)."""
        group = consumer.group
        if keep_claims:
            group.cancel(consumer)
        else:
            group.remove(consumer, now_ms)
        queue = group.queue
        if not queue.consumer_count():
            queue.unused_since_ms = now_ms
            if queue.auto_delete and queue.had_consumer and not queue.deleted:
                self.delete(queue, now_ms)

    def wake(self, consumer: Consumer) -> None:
        """The consumer's credit grew or it is no longer paused."""
        consumer.group.mark_dispatch()

    def dispatch(self, now_ms: int) -> None:
        """Deliver what can be delivered in every group that something happened to."""
        while self.dispatchable:
            groups = list(self.dispatchable)
            self.dispatchable.clear()
            for group in groups:
                if group.consumers:
                    group.dispatch(now_ms)
                queue = group.queue
                if not queue.durable:
                    queue.trim_tail(0)

    # settling

    def ack(self, entries: Iterable[Entry], now_ms: int) -> int:
        """Mark claims done; give how many of them came too late (nothing changes for those)."""
        stale = 0
        touched: Group | None = None
        for entry in entries:
            if entry.state != IN_FLIGHT:
                stale += 1
                continue
            entry.state = DONE
            entry.claimed_at_ms = now_ms
            message = entry.message
            consumer = entry.consumer
            if consumer is not None:
                del consumer.in_flight[message.offset]
                consumer.bytes_in_flight -= len(message.body)  # type: ignore[arg-type]
                pool = consumer.pool
                if pool is not None:
                    pool.in_flight -= 1
                    for other in pool.consumers:
                        self.dispatchable[other.group] = None
            bucket = entry.bucket
            group = entry.group
            if bucket is not None:
                bucket.open_count -= 1
                if not bucket.dirty:
                    bucket.dirty = True
                    group.dirty_buckets.append(bucket)
                    if not group.dirty:
                        group.mark_dirty()
            if group is not touched:
                touched = group
                self.dispatchable[group] = None
        self.stale_settle_count += stale
        return stale

    def requeue(self, entries: Iterable[Entry], now_ms: int) -> int:
        """Return claims to their place in the queue (nack); give how many came too late."""
        return self._give_back(entries, now_ms, failed=False)

    def reject(self, entries: Iterable[Entry], now_ms: int) -> int:
        """Fail claims for good; give how many came too late."""
        return self._give_back(entries, now_ms, failed=True)

    def _give_back(self, entries: Iterable[Entry], now_ms: int, *, failed: bool) -> int:
        stale = 0
        by_group: dict[Group, list[Entry]] = {}
        for entry in entries:
            if entry.state == IN_FLIGHT:
                by_group.setdefault(entry.group, []).append(entry)
            else:
                stale += 1
        for group, group_entries in by_group.items():
            group.requeue(group_entries, now_ms, failed=failed)
        self.stale_settle_count += stale
        return stale

    def extend(self, entry: Entry, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        consumer = entry.consumer
        if entry.state != IN_FLIGHT or consumer is None:
            return False
        entry.lease_deadline_ms = now_ms + lease_ms
        consumer.extended = True
        return True

    def find_claim(self, queue: Queue, group_id: str, offset: int) -> Entry:
        """The claim a `$ack` names; raises GroupNotFound, or InvalidAddress when there is no such claim."""
        group = queue.groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"queue {queue.name!r} has no consumer group {group_id!r}")
        entry = group.find_claim(offset)
        if entry is None:
            raise InvalidAddress(f"message {queue.name}:{offset} is not in flight in group {group_id!r}")
        return entry

    # time

    def expire(self, now_ms: int) -> None:
        """Return claims whose lease ended and remove ephemeral queues nobody uses."""
        for queue in list(self.queues.values()):
            for group in list(queue.groups.values()):
                if group.consumers or group.draining:
                    group.expire(now_ms)
            expires_ms = queue.policy.expires_ms
            if (
                expires_ms
                and not queue.durable
                and queue.owner is None
                and queue.unused_since_ms + expires_ms <= now_ms
                and not queue.consumer_count()
            ):
                self.delete(queue, now_ms)
        self.dispatch(now_ms)

    # committing

    def uncommitted_bytes(self) -> int:
        """Memory of what waits for durability; publishers are held back when it grows too much."""
        return self.journal.held_bytes + self.sealed_bytes

    def flush_with_next_commit(self, group: Group) -> None:
        """Have the group's state written with the open commit, whenever it was last written."""
        if group.dirty:
            group.flushed_at_ms = 0

    def needs_commit(self, now_ms: int) -> int | None:
        """In how many ms a commit is due: 0 for at once, None for not at all."""
        if self.journal or self.appended:
            return 0
        if not self.dirty_groups:
            return None
        oldest = min(group.flushed_at_ms for group in self.dirty_groups)
        return max(0, oldest + limits.STATE_FLUSH_INTERVAL_MS - now_ms)

    def seal(self, now_ms: int) -> Journal | None:
        """Close the open commit and give it for writing; None if it is empty. A new one is open then."""
        for queue in self.appended:
            self._write_log(queue, now_ms)
        self.appended.clear()
        for group, skipped in self.skipped.items():
            self._release_skipped(group, skipped)
            # the position goes with it, or a restart would skip and release the same messages again
            group.flushed_at_ms = 0
        self.skipped.clear()
        due = now_ms - limits.STATE_FLUSH_INTERVAL_MS
        for group in list(self.dirty_groups):
            if group.flushed_at_ms <= due:
                del self.dirty_groups[group]
                group_records.flush(group, self.journal, now_ms)
        for queue in self.trimmable:
            if not queue.deleted and advance_head(queue) and queue.durable:
                self.removals.append(HeadRemoval(queue))
        self.trimmable.clear()
        journal = self.journal
        if not journal:
            return None
        self.journal = Journal()
        self.sealed_bytes += journal.held_bytes
        return journal

    def committed(self, journal: Journal, now_ms: int) -> None:
        """`journal` is durable: its waiters may be told, memory may be let go of."""
        self.sealed_bytes -= journal.held_bytes
        share = max(limits.TAIL_BYTES_PER_QUEUE_MIN, self.cache_bytes_max // max(1, len(journal.log_ends)))
        for queue, end in journal.log_ends.items():
            assert isinstance(queue, Queue)
            queue.durable_offset = end
            queue.trim_tail(share)

    def _write_log(self, queue: Queue, now_ms: int) -> None:
        queue.close_entry(queue.tail.next_offset)
        entries = queue.open_entries
        if not entries:
            return
        queue.open_entries = []
        journal = self.journal
        first, puts = self.log.allocate(len(entries), now_ms)
        journal.puts.update(puts)
        listing = self.log.listing(queue.log_id)
        if listing is not None:
            journal.put(*listing)
        for sequence, (offset, value) in enumerate(entries, first):
            journal.puts[self.log.entry_key(queue.log_id, sequence)] = value
            queue.log_index.append((offset, sequence))
        if len(queue.log_index) > limits.LOG_INDEX_ENTRIES_MAX:
            del queue.log_index[: -limits.LOG_INDEX_ENTRIES_MAX // 2]
        journal.log_ends[queue] = queue.tail.next_offset

    def _release_skipped(self, group: Group, skipped: list[tuple[int, int, bool]]) -> None:
        runs: list[Run] = []
        shared_runs: list[Run] = []
        for offset, message_id, shared in skipped:
            add_to_runs(shared_runs if shared else runs, offset, message_id)
        release_unshared(group, runs, self.journal)
        if shared_runs:
            purge = Purge(group, NO_BUCKET, 0)
            purge.shared_items = shared_runs
            if group.queue.groups.get(group.group_id) is group:
                group.purges.appendleft(purge)
            else:
                self.unread_purges.append(purge)

    # retention

    def take_purges(self, now_ms: int) -> list[Purge]:
        """Done records whose retention has passed, some `limits.PURGED_MESSAGES_PER_SWEEP_MAX` at most.

        The driver reads the reference counts of their `shared_items` and calls `apply_purges`.
        """
        purges = self.unread_purges
        self.unread_purges = []
        message_count = 0
        busy_count = sum(len(queue.tail) > 0 for queue in self.queues.values())
        share = max(limits.TAIL_BYTES_PER_QUEUE_MIN, self.cache_bytes_max // max(1, busy_count))
        for queue in self.queues.values():
            queue.trim_tail(share)
            retention_ms = queue.policy.done_retention_ms
            for group in queue.groups.values():
                due = group.purges
                while (
                    due and due[0].due_ms <= now_ms and message_count < limits.PURGED_MESSAGES_PER_SWEEP_MAX
                ):
                    purge = due.popleft()
                    message_count += purge.message_count()
                    purges.append(purge)
                if retention_ms != FOREVER:
                    for bucket in group.buckets.values():
                        if bucket.done_written and not bucket.dirty:
                            part = Purge.of_open_bucket(group, bucket, retention_ms, now_ms)
                            if part is not None:
                                purges.append(part)
        return purges

    def apply_purges(self, purges: list[Purge], references: dict[int, int]) -> None:
        """Put purges into the open commit; `references` are the stored reference counts."""
        for purge in purges:
            group = purge.group
            # what a deleted queue holds is let go of by its removal, but for what was purged unread
            if not group.queue.deleted or group.queue.groups.get(group.group_id) is not group:
                purge.apply(self.journal, references)

    def release_range(self, done: RangeRemoval, rows: list[tuple[int, int, bool]]) -> None:
        """Purged messages, as (offset, message ID, shared): nobody in that group will ask for them."""
        if not done.group.queue.deleted:
            self.skipped.setdefault(done.group, []).extend(rows)

    def removed(self, done: QueueRemoval) -> None:
        """Nothing of a deleted queue is left: its name may be used again."""
        self.journal.delete(removal.key(done.log_id))
        for call in self.removing.pop(done.name, []):
            call()

    # loads

    def log_loaded(
        self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int, now_ms: int
    ) -> None:
        """What a LogLoad read: messages, the offset after the last one seen, the sequence to go on at."""
        load.group.log_loaded(load, rows, next_offset, sequence)
        self._loaded(load.group, now_ms)

    def payloads_loaded(self, load: PayloadLoad, bodies: dict[int, bytes], end_id: int, now_ms: int) -> None:
        """What a PayloadLoad read: payloads by message ID, all that exist below `end_id`."""
        load.group.payloads_loaded(load, bodies, end_id)
        self._loaded(load.group, now_ms)

    def _loaded(self, group: Group, now_ms: int) -> None:
        waiting = group.on_loaded
        group.on_loaded = []
        for call in waiting:
            call(now_ms)
        if not group.queue.deleted:
            self.dispatch(now_ms)
