"""Consumers and what they are given."""

from __future__ import annotations

from config import limits
from queue_manager import address
from queue_manager.consumer import UNLIMITED, Consumer, CreditPool, Sink
from queue_manager.definitions import encode_spec
from queue_manager.door.lifecycle import Lifecycle
from queue_manager.errors import (
    AccessRefused,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
)
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group import Group
from queue_manager.patterns import MATCH_ALL, validate
from queue_manager.queue import Queue
from storage.records import queue_spec


class Consuming(Lifecycle):
    """Subscribe, pull, dispatch."""

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
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
        group_selector: str | None = None,
    ) -> Consumer:
        """Add a consumer to a group (made if need be). Deliveries begin at the next `dispatch`.

        `wanted`: it takes only what matches. `group_selector`: the messages of the whole group; None: as the
        group has it. Raises AccessRefused about exclusivity, PreconditionFailed when the group has another
        selector, or filters cannot be had here, InvalidAddress, LimitReached.
        """
        if wanted is not None and queue.policy.binds_keys():
            raise PreconditionFailed(
                f"queue {queue.name!r} has message groups: its consumers have no filters"
            )
        existing = queue.groups.get(group_name if pattern == MATCH_ALL else f"{group_name}@{pattern}")
        if existing is not None:
            others = existing.consumers
            if any(c.exclusive for c in others) or (exclusive and others):
                raise AccessRefused(f"queue {queue.name!r} group {existing.group_id!r} is in exclusive use")
            if len(others) >= limits.CONSUMERS_PER_GROUP_MAX:
                raise LimitReached(
                    f"group {existing.group_id!r} has {limits.CONSUMERS_PER_GROUP_MAX} consumers"
                )
            if wanted is not None and existing.selection is not None:
                existing.selection.check_room(wanted)
            if group_selector is not None and group_selector != existing.selector:
                raise PreconditionFailed(
                    f"group {existing.group_id!r} has "
                    + (f"the selector {existing.selector!r}" if existing.selector else "no selector")
                )
        group = self.group(queue, group_name, pattern, group_selector or "")
        consumer = Consumer(
            group,
            consumer_id,
            sink,
            credit_max=credit_max,
            no_ack=no_ack,
            exclusive=exclusive,
            lease_ms=lease_ms,
            pool=pool,
            priority=priority,
            wanted=wanted,
        )
        queue.had_consumer = True
        group.add(consumer)
        return consumer

    def group(self, queue: Queue, group_name: str, pattern: str = MATCH_ALL, selector: str = "") -> Group:
        """The group, made if need be; raises InvalidAddress, LimitReached."""
        if group_name:
            address.validate_group_name(group_name)
        group = queue.group(group_name, validate(pattern), selector)
        if queue.durable and not group.spec_written:
            for part in group.parts():
                part.spec_written = True
                self.journal.put(queue_spec.key(part.storage_id), encode_spec(part.queue, part))
        return group

    def puller(
        self, queue: Queue, sink: Sink, consumer_id: str, *, lease_ms: int, group: Group | None = None
    ) -> Consumer:
        """A consumer that is given nothing by itself and takes by `pull` (AMQP basic.get).

        `group` None: the default group.
        """
        if queue.policy.stream:
            raise InvalidArgument(f"queue {queue.name!r} is a stream: it is consumed, not pulled from")
        if group is None:
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
        self.consuming[group] = None
        return consumer

    def pull(self, consumer: Consumer, no_ack: bool, now_ms: int) -> bool | None:
        """Claim one message for a puller and deliver it to its sink.

        True: delivered; False: the group is empty; None: it must be read back first, ask again once
        `consumer.group.on_loaded` calls. Raises AccessRefused while there is an exclusive consumer.
        """
        group = consumer.group
        if group.queue.deleted:
            return False
        if group.removed:
            group = consumer.group = self.group(group.queue, group.name, group.pattern, group.selector)
        if any(c.exclusive for c in group.consumers):
            raise AccessRefused(f"queue {group.queue.name!r} is in exclusive use")
        if consumer not in group.draining and consumer not in group.consumers:
            group.draining.append(consumer)
            self.consuming[group] = None
        consumer.no_ack = no_ack
        group.queue.unused_since_ms = now_ms
        claimed = group.pull(consumer, 1, now_ms)
        return None if claimed is None else claimed > 0

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
            queue.watch_use()
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
