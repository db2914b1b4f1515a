"""Publishing, consuming and settling with a shard in this process.

Calls go straight on to the manager, by the run and by the chunk. What `broker.engine.traffic` states is here
what the core works with itself: it is given out, and taken back, as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Protocol, cast

from broker.engine import traffic
from broker.engine.local.queues import find
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import OPERATOR, StreamStart
from queue_manager.claims.claim import Claim, Consumer, ConsumerGroup, CreditPool
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.stream_group import StreamGroup
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from queue_manager.routing.bindings import Route, joined
from queue_manager.routing.exchange_types.base import Headers
from queue_manager.routing.judgement import Judgement
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.publisher import is_remembered
from storage.envelope import EnvelopeTemplate


class _Publish(Protocol):
    """See `PublishingClient.publish`."""

    def __call__(
        self,
        plan: traffic.PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int: ...


class _Ack(Protocol):
    """See `SettlingClient.ack`."""

    def __call__(self, claims: Iterable[traffic.Claim], now_ms: int) -> int: ...


class LocalPublishing:
    """See `PublishingClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        # without a detour, for each run
        self.publish = cast("_Publish", shard.manager.publish)
        self.is_current: Callable[[traffic.PublishPlan], bool] = attrgetter("is_current")

    @property
    def creates_queues(self) -> bool:
        """See `PublishingClient`."""
        return self._manager.queues.auto_create

    def match(self, topic: str) -> traffic.Targets:
        """See `PublishingClient`."""
        return self._manager.queues.bindings.route(topic)

    def route(self, topic: str, now_ms: int) -> traffic.Targets:
        """See `PublishingClient`."""
        return self._manager.publisher.route(topic, now_ms)

    def named(self, name: str) -> traffic.Targets:
        """See `PublishingClient`."""
        return self._manager.queues.route_to(name)

    def through(self, exchange: str, keys: Sequence[str], headers: Callable[[], Headers]) -> traffic.Targets:
        """See `PublishingClient`."""
        return self._manager.queues.exchanges.route(exchange, keys, headers)

    def joined(self, targets: Iterable[traffic.Targets]) -> traffic.Targets:
        """See `PublishingClient`."""
        return joined(cast("Iterable[Route]", targets))

    def unconditional(self, exchange: str, key: str) -> traffic.Targets:
        """See `PublishingClient`."""
        return self._manager.queues.exchanges.unconditional_route(exchange, key)

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
        exchange: str = "",
    ) -> traffic.PublishPlan:
        """See `PublishingClient`."""
        return self._manager.plan(topic, properties_kind, properties, persistent, options, exchange)

    def aim(self, plan: traffic.PublishPlan, targets: traffic.Targets, keys: Sequence[str] = ()) -> None:
        """See `PublishingClient`."""
        self._manager.publisher.aim(cast(PublishPlan, plan), cast(Route, targets), keys)

    def join(self, topics: traffic.Topics | None, vhost: str = DEFAULT_VHOST) -> None:
        """See `PublishingClient`."""
        self._manager.queues.topics.join(vhost, topics)

    def judge(
        self, wanted: Iterable[tuple[traffic.PublishPlan, list[bytes]]], now_ms: int
    ) -> Sequence[traffic.Judgement]:
        """See `PublishingClient`."""
        return self._manager.publisher.judge_all(
            cast("Iterable[tuple[PublishPlan, list[bytes]]]", wanted), now_ms
        )

    def apply(self, judged: traffic.Judgement, now_ms: int) -> int:
        """See `PublishingClient`."""
        return self._manager.publisher.apply(cast(Judgement, judged), now_ms)

    def is_remembered(self, plan: traffic.PublishPlan, outcome: int) -> bool:
        """See `PublishingClient`."""
        return is_remembered(cast(PublishPlan, plan), outcome)

    def next_offset(self, name: str) -> int:
        """The offset that the next message without a priority gets in a queue; raises QueueNotFound."""
        return find(self._shard, name).log.next_offset


class LocalConsuming:
    """See `ConsumingClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager

    def find(self, name: str, caller: str = OPERATOR) -> traffic.Source:
        """See `ConsumingClient`."""
        return find(self._shard, name, caller)

    def find_or_create(self, name: str, caller: str, now_ms: int) -> traffic.Source:
        """See `ConsumingClient`."""
        return self._manager.queues.find_or_create(name, sys.intern(caller), now_ms)

    def is_stream(self, name: str) -> bool:
        """See `ConsumingClient`."""
        return isinstance(self._manager.queues.get(name), Stream)

    def credit(self, credit_max: int) -> traffic.Credit:
        """See `ConsumingClient`."""
        return CreditPool(credit_max)

    def share(self, consumer: traffic.Consumer, credit: traffic.Credit) -> None:
        """See `ConsumingClient`."""
        cast(CreditPool, credit).adopt(cast(Consumer, consumer))

    def subscribe(
        self,
        queue: traffic.Source,
        group_name: str,
        pattern: str,
        sink: traffic.Sink,
        *,
        consumer_id: str,
        credit_max: int,
        no_ack: bool,
        exclusive: bool,
        lease_ms: int,
        pool: traffic.Credit | None = None,
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
        group_selector: str | None = None,
        start: StreamStart | None = None,
        auto_commit: bool = True,
        is_told_offsets: bool = False,
    ) -> traffic.Consumer:
        """See `ConsumingClient`."""
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
            return consumption.subscribe(
                cast(Queue, queue), group_name, pattern, sink, is_told_offsets=is_told_offsets, **options
            )
        return consumption.subscribe_stream(
            queue, group_name, pattern, sink, start=start, auto_commit=auto_commit, **options
        )

    def unsubscribe(self, consumer: traffic.Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """See `ConsumingClient`."""
        taken = cast(Consumer, consumer)
        if not taken.group.log.deleted:
            self._manager.consumption.unsubscribe(taken, now_ms, keep_claims=keep_claims)

    def wake(self, consumer: traffic.Consumer) -> None:
        """See `ConsumingClient`."""
        self._manager.consumption.wake(cast(Consumer, consumer))

    def puller(
        self,
        queue: traffic.Source,
        sink: traffic.Sink,
        consumer_id: str,
        *,
        lease_ms: int,
        group_name: str = "",
        is_told_offsets: bool = False,
    ) -> traffic.Consumer:
        """See `ConsumingClient`."""
        consumption = self._manager.consumption
        source = cast(Queue, queue)
        group = consumption.group(source, group_name, MATCH_ALL) if group_name else None
        return consumption.puller(
            source, sink, consumer_id, lease_ms=lease_ms, group=group, is_told_offsets=is_told_offsets
        )

    def pull(self, consumer: traffic.Consumer, no_ack: bool, now_ms: int, count: int = 1) -> int | None:
        """See `ConsumingClient`."""
        return self._manager.consumption.pull(cast(Consumer, consumer), no_ack, now_ms, count)

    def set_credit(self, consumer: traffic.Consumer, credit_max: int) -> None:
        """See `ConsumingClient`."""
        cast(Consumer, consumer).set_credit(credit_max)
        self.wake(consumer)

    def when_loaded(self, consumer: traffic.Consumer, call: Callable[[int], None]) -> None:
        """See `ConsumingClient`."""
        cast(Consumer, consumer).group.when_loaded(call)

    def ready_count(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        taken = cast(Consumer, consumer)
        queue = self._manager.queues.of_log(taken.group.log)
        group = None if queue is None else queue.groups.get(taken.group.group_id)
        return 0 if group is None else group.ready_count()

    def is_consumer_of(self, consumer: traffic.Consumer, queue: traffic.Source) -> bool:
        """See `ConsumingClient`."""
        return self._manager.queues.of_log(cast(Consumer, consumer).group.log) is queue

    def is_gone(self, consumer: traffic.Consumer) -> bool:
        """See `ConsumingClient`."""
        return cast(Consumer, consumer).group.log.deleted

    def primary_group(self, consumer: traffic.Consumer) -> str:
        """See `ConsumingClient`."""
        return cast(Consumer, consumer).group.log.policy.primary_group

    def gap(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        return cast(StreamGroup, consumer.group).gap

    def take_gap(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        return cast(StreamGroup, consumer.group).take_gap()

    def primary_committed(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        queue = self._manager.queues.of_log(cast(Consumer, consumer).group.log)
        return queue.primary_committed() if isinstance(queue, Stream) else 0


class LocalSettling:
    """See `SettlingClient`."""

    def __init__(self, shard: Shard) -> None:
        self._manager = shard.manager
        # without a detour, for each run
        self.ack = cast("_Ack", shard.manager.ack)

    def requeue(self, claims: Iterable[traffic.Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """See `SettlingClient`."""
        return self._manager.requeue(cast("Iterable[Claim]", claims), now_ms, delay_ms=delay_ms)

    def reject(self, claims: Iterable[traffic.Claim], now_ms: int) -> int:
        """See `SettlingClient`."""
        return self._manager.reject(cast("Iterable[Claim]", claims), now_ms)

    def extend(self, claim: traffic.Claim, lease_ms: int, now_ms: int) -> bool:
        """See `SettlingClient`."""
        return self._manager.consumption.extend(cast(Claim, claim), lease_ms, now_ms)

    def find_claim(self, queue: traffic.Source, group_id: str, offset: int) -> traffic.Claim:
        """See `SettlingClient`."""
        return self._manager.consumption.find_claim(cast(Queue, queue), group_id, offset)

    def durable_group_of(self, claim: traffic.Claim) -> traffic.Group | None:
        """See `SettlingClient`."""
        consumer = cast(Claim, claim).consumer
        return consumer.group if consumer is not None and consumer.group.log.durable else None

    def holder(self, claim: traffic.Claim) -> traffic.Consumer | None:
        """See `SettlingClient`."""
        return cast(Claim, claim).consumer

    def is_claim_of(self, claim: traffic.Claim, queue: traffic.Source) -> bool:
        """See `SettlingClient`."""
        consumer = cast(Claim, claim).consumer
        return consumer is not None and self._manager.queues.of_log(consumer.group.log) is queue

    def write_soon(self, group: traffic.Group) -> None:
        """See `SettlingClient`."""
        cast(ConsumerGroup, group).write_soon()


class LocalTurns:
    """See `TurnClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        # without a detour, for each chunk
        self.has_work = shard.manager.context.has_work
        self.uncommitted_bytes = shard.manager.context.uncommitted_bytes

    def announce(self) -> None:
        """See `TurnClient`."""
        if self.has_work():
            self._shard.wakeups.commit.set()

    def settle(self) -> None:
        """See `TurnClient`."""
        manager = self._manager
        if manager.context.dispatchable:
            manager.dispatch(self._shard.clock.now_ms())
        self._shard.wake()
