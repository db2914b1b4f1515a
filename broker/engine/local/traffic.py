"""Publishing, consuming and settling: the one place where front-ends still meet objects of the core.

Calls go straight on to the manager of a shard in this process, by the run and by the chunk. Queues, plans,
consumers, claims and groups that are given out here are to be given back here; front-ends have their types
from here and from nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from broker.engine.local.queues import find
from broker.engine.shard import Shard
from queue_manager.api import OPERATOR, StreamStart
from queue_manager.claims.claim import IN_FLIGHT, UNLIMITED, Claim, Consumer, ConsumerGroup, CreditPool, Sink
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.stream_group import StreamGroup
from queue_manager.model import Message
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from queue_manager.routing.bindings import NOWHERE, Route, joined
from queue_manager.routing.exchange_types.base import Headers
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.publisher import is_remembered
from storage.envelope import EnvelopeTemplate

__all__ = [
    "IN_FLIGHT",
    "NOWHERE",
    "UNLIMITED",
    "Claim",
    "Consumer",
    "Consuming",
    "CreditPool",
    "Message",
    "PublishPlan",
    "Publishing",
    "Queue",
    "Sink",
    "StreamGroup",
    "Targets",
    "Turns",
    "is_remembered",
]

Targets = Route
"""The queues a publish goes to, until bindings change."""


class Publishing:
    """From a publish to the queues that take it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    @property
    def creates_queues(self) -> bool:
        """Whether a publish to a name nobody declared makes a queue in memory."""
        return self._manager.queues.auto_create

    def match(self, topic: str) -> Targets:
        """The queues that are bound to a `$queue/...` address."""
        return self._manager.queues.bindings.route(topic)

    def route(self, topic: str, now_ms: int) -> Targets:
        """As `match`, but a queue in memory is made if there is none. Raises QueueNotFound where that is not
        allowed, InvalidAddress, LimitReached.
        """
        return self._manager.publisher.route(topic, now_ms)

    def named(self, name: str) -> Targets:
        """The queue of that name, if there is one."""
        return self._manager.queues.route_to(name)

    def through(self, exchange: str, keys: Sequence[str], headers: Callable[[], Headers]) -> Targets:
        """The queues that an exchange other than the default one gives messages with these routing keys (one,
        and what CC and BCC add) and headers, which are asked for where they matter. They are not current
        where the next message may go elsewhere. Raises ExchangeNotFound, AccessRefused.
        """
        return self._manager.queues.exchanges.route(exchange, keys, headers)

    def joined(self, targets: Iterable[Targets]) -> Targets:
        """All these queues, each once; not current, so that it is asked for again."""
        return joined(targets)

    def unconditional(self, exchange: str, key: str) -> Targets:
        """As `through`, if headers do not matter and it is the same for all messages; otherwise, and if
        clients may not publish there, there are none.
        """
        return self._manager.queues.exchanges.unconditional_route(exchange, key)

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
        exchange: str = "",
    ) -> PublishPlan:
        """What publishes of this topic and these properties have in common; to be aimed."""
        return self._manager.plan(topic, properties_kind, properties, persistent, options, exchange)

    def aim(self, plan: PublishPlan, targets: Targets) -> None:
        """Point a plan at queues; see `is_current`."""
        plan.aim(targets)

    def is_current(self, plan: PublishPlan) -> bool:
        """Whether the plan is aimed as bindings are now."""
        return plan.is_current

    def publish(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """Publish a run; gives an outcome of `queue_manager.outcomes`. Raises QueueManagerError."""
        return self._manager.publish(plan, bodies, now_ms, templates)

    def first_full(self, wanted: Iterable[tuple[PublishPlan, list[bytes]]], now_ms: int) -> Queue | None:
        """A queue that has no room for what all these plans and bodies would bring it; None: all have."""
        return self._manager.publisher.first_full(wanted, now_ms)

    def next_offset(self, name: str) -> int:
        """The offset that the next message without a priority gets in a queue; raises QueueNotFound."""
        return find(self._shard, name).log.next_offset


class Consuming:
    """From a queue to consumers, and what they settle."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    def find(self, name: str, caller: str = OPERATOR) -> Queue:
        """The queue; raises QueueNotFound, ResourceLocked."""
        return find(self._shard, name, caller)

    def find_or_create(self, name: str, caller: str, now_ms: int) -> Queue:
        """As `find`, but an unknown name makes a queue in memory where that is allowed."""
        return self._manager.queues.find_or_create(name, sys.intern(caller), now_ms)

    def is_stream(self, name: str) -> bool:
        """Whether there is a stream of that name."""
        return isinstance(self._manager.queues.get(name), Stream)

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
        start: StreamStart | None = None,
        auto_commit: bool = True,
    ) -> Consumer:
        """Add a consumer to a group, made if need be; `start` and `auto_commit` are for streams.

        Raises AccessRefused, PreconditionFailed, InvalidAddress, LimitReached.
        """
        options: dict[str, Any] = {
            "consumer_id": consumer_id,
            "credit_max": credit_max,
            "no_ack": no_ack,
            "exclusive": exclusive,
            "lease_ms": lease_ms,
            "pool": pool,
            "priority": priority,
            "wanted": wanted,
            "group_selector": group_selector,
        }
        consumption = self._manager.consumption
        if not isinstance(queue, Stream):
            return consumption.subscribe(queue, group_name, pattern, sink, **options)
        return consumption.subscribe_stream(
            queue, group_name, pattern, sink, start=start, auto_commit=auto_commit, **options
        )

    def unsubscribe(self, consumer: Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """Take a consumer away, unless its queue is gone; its claims return, or stay with their holder."""
        if not consumer.group.log.deleted:
            self._manager.consumption.unsubscribe(consumer, now_ms, keep_claims=keep_claims)

    def wake(self, consumer: Consumer) -> None:
        """The consumer's credit grew or it is no longer paused."""
        self._manager.consumption.wake(consumer)

    def puller(
        self, queue: Queue, sink: Sink, consumer_id: str, *, lease_ms: int, group_name: str = ""
    ) -> Consumer:
        """A consumer of a group that is given nothing by itself and takes by `pull`."""
        consumption = self._manager.consumption
        group = consumption.group(queue, group_name, MATCH_ALL) if group_name else None
        return consumption.puller(queue, sink, consumer_id, lease_ms=lease_ms, group=group)

    def pull(self, consumer: Consumer, no_ack: bool, now_ms: int, count: int = 1) -> int | None:
        """Claim up to `count` messages for a puller; how many there were. None: they are being read
        (`when_loaded`).
        """
        return self._manager.consumption.pull(consumer, no_ack, now_ms, count)

    def set_credit(self, consumer: Consumer, credit_max: int) -> None:
        """Let a consumer hold so many unsettled messages."""
        consumer.set_credit(credit_max)
        self.wake(consumer)

    def when_loaded(self, consumer: Consumer, call: Callable[[int], None]) -> None:
        """Have `call` called, with the time, when what the consumer's group is reading has been read."""
        consumer.group.when_loaded(call)

    # claims

    def ack(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Mark claims done; gives how many came too late."""
        return self._manager.ack(claims, now_ms)

    def requeue(self, claims: Iterable[Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """Return claims to their places after `delay_ms` (None: the back-off of the queue); gives how many
        came too late.
        """
        return self._manager.requeue(claims, now_ms, delay_ms=delay_ms)

    def reject(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Fail claims for good; gives how many came too late."""
        return self._manager.reject(claims, now_ms)

    def extend(self, claim: Claim, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        return self._manager.consumption.extend(claim, lease_ms, now_ms)

    def find_claim(self, queue: Queue, group_id: str, offset: int) -> Claim:
        """The claim a control topic names; raises GroupNotFound, InvalidAddress."""
        return self._manager.consumption.find_claim(queue, group_id, offset)

    def ready_count(self, consumer: Consumer) -> int:
        """Messages that wait for a claim in the consumer's group."""
        queue = self._manager.queues.of_log(consumer.group.log)
        group = None if queue is None else queue.groups.get(consumer.group.group_id)
        return 0 if group is None else group.ready_count()

    def durable_group_of(self, claim: Claim) -> ConsumerGroup | None:
        """The group of a claim that is in flight, if its queue is stored; None otherwise."""
        consumer = claim.consumer
        return consumer.group if consumer is not None and consumer.group.log.durable else None

    def is_claim_of(self, claim: Claim, queue: Queue) -> bool:
        """Whether a claim that is in flight is of this queue."""
        return claim.consumer is not None and self._manager.queues.of_log(claim.consumer.group.log) is queue

    def is_consumer_of(self, consumer: Consumer, queue: Queue) -> bool:
        """Whether the queue, and not an older one of its name, is what the consumer reads."""
        return self._manager.queues.of_log(consumer.group.log) is queue

    def is_gone(self, consumer: Consumer) -> bool:
        """Whether the consumer's queue was deleted."""
        return consumer.group.log.deleted

    def primary_committed(self, consumer: Consumer) -> int:
        """How far the primary group of the stream is that the consumer reads."""
        queue = self._manager.queues.of_log(consumer.group.log)
        return queue.primary_committed() if isinstance(queue, Stream) else 0

    def write_soon(self, group: ConsumerGroup) -> None:
        """Have what was settled in a group written with the open commit, which can be waited for."""
        group.write_soon()


class Turns:
    """The end of each chunk and loop turn: what was done to the core is followed up."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    def has_work(self) -> bool:
        """Whether `settle` has anything to do."""
        return self._manager.context.has_work()

    def settle(self) -> None:
        """Deliver what can be delivered, commit what must be."""
        manager = self._manager
        if manager.context.dispatchable:
            manager.dispatch(self._shard.clock.now_ms())
        self._shard.wake()

    def uncommitted_bytes(self) -> int:
        """Memory of what waits for durability; publishers are held back when it grows too much."""
        return self._manager.context.uncommitted_bytes()
