"""Queues come and go."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager import group_records
from queue_manager.definitions import QueueDefinition, definition_of, encode_spec
from queue_manager.door.committing import Committing
from queue_manager.door.scheduling import Scheduling
from queue_manager.door.staging import Staging
from queue_manager.errors import (
    LimitReached,
    PreconditionFailed,
    QueueBusy,
)
from queue_manager.groups.settling import release_claim
from queue_manager.kinds import queue_class
from queue_manager.lanes.queue import LANE_SHIFT, Lane, LanedQueue, lane_name
from queue_manager.model import DONE
from queue_manager.queue import Queue
from queue_manager.removal import QueueRemoval, RangeRemoval
from storage.records import holes, queue_meta, queue_spec, removal

if TYPE_CHECKING:
    from queue_manager.manager import QueueManager


class Lifecycle(Committing, Scheduling, Staging):
    """Declare, redefine, purge, delete."""

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
        self._check_free(definition)
        queue = queue_class(definition.policy)(
            cast("QueueManager", self),
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
        self._begin(queue)
        if isinstance(queue, LanedQueue):
            self._make_lanes(queue, now_ms)
        queue.watch_use()
        return queue

    def _check_free(self, definition: QueueDefinition) -> None:
        """Raise QueueBusy while something of a queue of this name is still being removed."""
        if definition.durable:
            priorities = range(1, definition.policy.priority_max + 1)
            for name in (definition.name, *(lane_name(definition.name, p) for p in priorities)):
                if name in self.removing:
                    raise QueueBusy(name)

    def _begin(self, queue: Queue) -> None:
        """Take in a new queue, with its first records."""
        if queue.durable:
            self.next_log_number += 1
            queue.head_sequence = self.log.next_sequence
            self.journal.put(queue_spec.key(queue.name), encode_spec(queue))
            meta = queue_meta.encode(queue.head_offset, queue.head_sequence)
            self.journal.put(queue_meta.key(queue.name), meta)
        self.adopt(queue)

    def _make_lanes(self, queue: LanedQueue, now_ms: int) -> None:
        for priority in range(1, queue.policy.priority_max + 1):
            lane = Lane(
                cast("QueueManager", self),
                lane_name(queue.name, priority),
                durable=queue.durable,
                policy=queue.policy,
                topics=(),
                log_id=f"q{self.next_log_number}",
                now_ms=now_ms,
                next_offset=priority << LANE_SHIFT,
                head_offset=priority << LANE_SHIFT,
            )
            self._begin(lane)
            queue.join(lane)

    def _adopt_auto_created(self, old: Queue, definition: QueueDefinition, now_ms: int) -> Queue:
        """Declare properly what was only published to so far; the messages come along, in order."""
        self._check_free(definition)
        messages = old.tail.slice(old.head_offset, len(old.tail))
        planned = [] if old.schedule is None else old.schedule.take_all()
        self.delete(old, now_ms)
        queue = self.declare(definition, now_ms)
        self.plan_again(queue, planned, now_ms)
        if old.identities is not None:
            old.identities.move_to(queue)
        for template, run in groupby(messages, key=lambda message: message.template):
            bodies = [message.body or b"" for message in run]
            self.append([queue], template, bodies, sum(map(len, bodies)), int(queue.durable), now_ms)
        return queue

    def redefine(self, queue: Queue, definition: QueueDefinition) -> None:
        """Give an existing queue another policy and other bindings; its messages stay."""
        if definition.policy.priority_max != queue.policy.priority_max:
            raise PreconditionFailed(
                f"queue {queue.name!r} has priorities up to {queue.policy.priority_max}; that cannot change"
            )
        self.bindings.remove(queue)
        queue.topics = definition.topics
        for part in queue.parts():
            part.policy = definition.policy
            part.apply_policy()
            for group in part.groups.values():
                group.resize_buckets()
                group.apply_message_groups()
                group.is_ranked |= queue.policy.single_active
            if queue.durable:
                self.journal.put(queue_spec.key(part.name), encode_spec(part))
        self.bindings.add(queue)
        queue.watch_use()

    def find_or_create(self, name: str, owner: object, now_ms: int) -> Queue:
        """As `find`, but an unknown name makes an ephemeral queue where `auto_create` allows it."""
        if name not in self.queues and self.auto_create:
            return self.declare(QueueDefinition.ephemeral(name, self.default_policy), now_ms)
        return self.find(name, owner)

    def delete(self, queue: Queue, now_ms: int, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue with all it holds; give how many messages waited in it.

        Raises PreconditionFailed when it is used or not empty and that was a condition. The records go with
        this commit as far as memory knows them, the rest by a `Removal` the driver performs.
        """
        if if_unused and queue.consumer_count():
            raise PreconditionFailed(f"queue {queue.name!r} has consumers")
        count = queue.waiting_count()
        if if_empty and count:
            raise PreconditionFailed(f"queue {queue.name!r} is not empty")
        for part in queue.parts():
            self._delete_part(part, now_ms)
        return count

    def _delete_part(self, queue: Queue, now_ms: int) -> None:
        for group in queue.groups.values():
            if group.dirty and group.failed_count:
                # where the log no longer stands for a payload, its failed record tells the removal of it
                group_records.flush(group, self.journal, now_ms)
        queue.deleted = True
        self.timers.forget(queue)
        if queue.keeper is not None:
            self.timers.forget(queue.keeper)
        if queue.schedule is not None:
            self.timers.forget(queue.schedule)
        if queue.identities is not None:
            self.timers.forget(queue.identities)
        if queue.stage is not None:
            self.timers.forget(queue.stage)
        self.dead_letters.forget(queue.name)
        del self.queues[queue.name]
        self.bindings.remove(queue)
        for table in (self.appended, self.trimmable, self.tailed, self.replayed):
            table.pop(queue, None)
        for group in queue.groups.values():
            for groups in (self.dispatchable, self.dirty_groups, self.consuming, self.purgeable):
                groups.pop(group, None)
            self.skipped.pop(group, None)
            if group in self.unborn:
                self.unborn.remove(group)
            if group.delays is not None:
                group.delays.clear()
            if group.selection is not None:
                self.timers.forget(group.selection)
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
            self.journal.delete(holes.key(queue.name))
            self.journal.put(removal.key(queue.log_id), removal.encode(queue.name, storage_ids))
            # the open blocks must reach the log, or their payloads would never be found again
            self._write_log(queue, now_ms)
            self.removing[queue.name] = []
            # what was purged before there was a group is below the head, but not gone yet
            purged = [
                r.start for r in self.removals if isinstance(r, RangeRemoval) and r.group.queue is queue
            ]
            head_offset = min(queue.kept_from(), *purged, queue.tail.next_offset)
            released = queue.released if queue.released_known else None
            self.removals.append(QueueRemoval(queue.name, queue.log_id, storage_ids, head_offset, released))
