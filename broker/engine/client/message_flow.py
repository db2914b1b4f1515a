"""Publishing, consuming and settling with a shard in this process.

Calls go straight on to the manager, by the run and by the chunk. What `broker.engine.traffic` states is here
what the core works with itself: it is given out, and taken back, as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol, cast

from broker.engine import session_traffic, traffic
from broker.engine.answers import Answer
from broker.engine.call_names import Address, Name, VhostName
from broker.engine.client.queues import find
from broker.engine.shard import Shard
from queue_manager.address import DEFAULT_VHOST
from queue_manager.api import OPERATOR, StreamStart
from queue_manager.claims.claim import Claim, Consumer, ConsumerGroup, CreditPool
from queue_manager.claims.places import LinkCredit, Places
from queue_manager.errors import QueueManagerError, QueueNotFound
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.stream_group import StreamGroup
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.patterns import MATCH_ALL
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from queue_manager.routing.exchange_types.base import Headers
from queue_manager.routing.judgement import Judgement
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.publisher import is_remembered
from queue_manager.routing.route import Route, joined, open_to
from queue_manager.sessions.session import Session
from storage.envelope import EnvelopeTemplate

_NONE: Final = Answer.given(0)
_ONE: Final = Answer.given(1)


class _Publish(Protocol):
    """See `PublishingClient.publish`."""

    def __call__(
        self,
        plan: traffic.PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int: ...


class PublishingClient:
    """From a publish to the queues that take it."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        self._queues = shard.manager.queues
        self._exchanges = shard.manager.queues.exchanges
        # without a detour, for each run
        self.publish = cast("_Publish", shard.manager.publish)
        self.is_current: Callable[[traffic.PublishPlan], bool] = attrgetter("is_current")

    @property
    def creates_queues(self) -> bool:
        """Whether a publish to a name nobody declared makes a queue in memory."""
        return self._queues.auto_create

    def match(self, topic: Address) -> traffic.Targets:
        """Return the queues that are bound to a `$queue/...` address."""
        return self._queues.bindings.route(topic)

    def route(self, topic: Address, now_ms: int, user: str | None = None) -> traffic.Targets:
        """Return the queues as `match`, but a queue in memory of this user is made if there is none. Raises
        QueueNotFound where that is not allowed, InvalidAddress, LimitReached.
        """
        return self._manager.publisher.route(topic, now_ms, user)

    def named(self, name: Name) -> traffic.Targets:
        """Return the queue of that name, if there is one."""
        return self._queues.route_to(name)

    def through(self, exchange: Name, keys: Sequence[str], headers: Callable[[], Headers]) -> traffic.Targets:
        """Return the queues that an exchange other than the default one gives messages with these routing
        keys (one, and what CC and BCC add) and headers, which are asked for where they matter. They are not
        current where the next message may go elsewhere. Raises ExchangeNotFound, AccessRefused.
        """
        return self._exchanges.route(exchange, keys, headers)

    def joined(self, targets: Collection[traffic.Targets]) -> traffic.Targets:
        """Return all these queues, each once; not current, so that it is asked for again."""
        return joined(cast("Collection[Route]", targets))

    def open_to(self, targets: traffic.Targets, publisher: str) -> traffic.Targets:
        """Return those that take messages from a publisher; not current if some do not."""
        return open_to(cast(Route, targets), publisher)

    def unconditional(self, exchange: Name, key: str) -> traffic.Targets:
        """Return the queues as `through`, if headers do not matter and it is the same for all messages;
        otherwise, and if clients may not publish there, there are none.
        """
        return self._exchanges.unconditional_route(exchange, key)

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
        exchange: str = "",
    ) -> traffic.PublishPlan:
        """Return what publishes of this topic and these properties have in common; to be aimed."""
        return self._manager.plan(topic, properties_kind, properties, persistent, options, exchange)

    def aim(self, plan: traffic.PublishPlan, targets: traffic.Targets, keys: Sequence[str] = ()) -> None:
        """Point a plan at queues, see `is_current`, and at the subscribers of the topics that it meets: those
        of these routing keys, or of its own topic.
        """
        self._manager.publisher.aim(cast(PublishPlan, plan), cast(Route, targets), keys)

    def join(self, topics: traffic.Topics | None, vhost: VhostName = DEFAULT_VHOST) -> None:
        """Have the subscribers of these topics hear what is published in a virtual host; None: it is
        deleted.
        """
        self._queues.topics.join(vhost, topics)

    def judge(
        self,
        wanted: Iterable[tuple[traffic.PublishPlan, list[bytes], list[EnvelopeTemplate] | None]],
        now_ms: int,
    ) -> Sequence[traffic.Judgement]:
        """Find what would become of publishes that are applied one after the other, up to the first that is
        refused; nothing changes. The templates are those of `publish`. Raises QueueManagerError.
        """
        return self._manager.publisher.judge_all(
            cast("Iterable[tuple[PublishPlan, list[bytes], list[EnvelopeTemplate] | None]]", wanted), now_ms
        )

    def publish_elsewhere(self, judged: Iterable[traffic.Judgement]) -> Answer[None]:
        """Publish what of these goes to queues of other shards: all that goes to one of them in one commit
        there, or none of it. What is for this shard is left to `apply`. Comes to
        PreconditionFailed where it is refused.
        """
        return Answer.given(None)

    def apply(self, judged: traffic.Judgement, now_ms: int) -> int:
        """Do what was judged, in the same turn; gives the outcome as `publish` does."""
        return self._manager.publisher.apply(cast(Judgement, judged), now_ms)

    def is_remembered(self, plan: traffic.PublishPlan, outcome: int) -> bool:
        """Return whether a refusal is to be told only when the open commit, which remembers it, is
        durable.
        """
        return is_remembered(cast(PublishPlan, plan), outcome)

    def next_offset(self, name: Name) -> int:
        """Return the offset that the next message without a priority gets in a queue; raises
        QueueNotFound.
        """
        return find(self._shard, name).log.next_offset


class ConsumingClient:
    """From a queue to consumers."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        context = shard.manager.context
        self._timers = context.timers
        self._user_of = context.quotas.user_of

    def find(self, name: Name, caller: str = OPERATOR) -> traffic.Source:
        """Return the queue; raises QueueNotFound, ResourceLocked."""
        return find(self._shard, name, caller)

    def find_or_create(self, name: Name, caller: str, now_ms: int) -> traffic.Source:
        """Return the queue as `find`, but an unknown name makes a queue in memory where that is allowed."""
        user = self._user_of(caller)
        return self._manager.queues.find_or_create(name, sys.intern(caller), now_ms, user)

    def is_stream(self, name: Name) -> bool:
        """Return whether there is a stream of that name."""
        return isinstance(self._manager.queues.get(name), Stream)

    def credit(self, credit_max: int) -> traffic.Credit:
        """Return a limit that consumers share, of so many unsettled messages."""
        return CreditPool(credit_max)

    def link_credit(self, dried: Callable[[], None]) -> traffic.LinkCredit:
        """Return credit for one consumer, 0 at first; `dried` is called once for each drain of it."""
        return LinkCredit(self._manager.context, dried)

    def places(
        self, window: traffic.Window, fill: Callable[[], None], session: session_traffic.Session | None
    ) -> traffic.Places:
        """Return what is free of a client's window, for its consumers. `session`: that of the client, which
        sends by the same window; `fill` sends what else waits for it, as long as there is a place.
        """
        return Places(self._manager.context, window, fill, cast("Session | None", session))

    def share(self, consumer: traffic.Consumer, credit: traffic.Credit) -> None:
        """Have a consumer that was there before a limit come under it; what it holds counts, too."""
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
        pool: traffic.Credit | traffic.LinkCredit | traffic.Places | None = None,
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
        group_selector: str | None = None,
        start: StreamStart | None = None,
        auto_commit: bool = True,
        is_told_offsets: bool = False,
        is_fetch: bool = False,
        is_single_active: bool = False,
        on_activity: Callable[[bool], None] | None = None,
    ) -> Answer[traffic.Consumer]:
        """Add a consumer to a group, made if need be; `start` and `auto_commit` are for streams. Its sink is
        given nothing before the answer is there.

        `is_single_active`: one of the group at a time is to be given messages; `on_activity` is told whether
        it is this one, where there is a single active consumer, whatever asked for it.

        `is_told_offsets`: what it is given is shown with its offset, or anything made of that: so its group
        is given only what is durable, as any of a stream. `is_fetch`: it is there for a single request, so
        that an auto-delete queue does not go with it. Raises AccessRefused, PreconditionFailed,
        InvalidAddress, LimitReached.
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
        subscribe: Any
        if isinstance(queue, Stream):
            subscribe = self._manager.consumption.subscribe_stream
            options |= {"start": start, "auto_commit": auto_commit}
        else:
            subscribe = self._manager.consumption.subscribe
            options |= {
                "is_told_offsets": is_told_offsets,
                "is_fetch": is_fetch,
                "is_single_active": is_single_active,
                "on_activity": on_activity,
            }
        try:
            return Answer.given(subscribe(queue, group_name, pattern, sink, **options))
        except QueueManagerError as error:
            return Answer.failed(error)

    def unsubscribe(self, consumer: traffic.Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """Take a consumer away, unless its queue is gone; its claims return, or stay with their holder."""
        taken = cast(Consumer, consumer)
        if not taken.group.log.deleted:
            self._manager.consumption.unsubscribe(taken, now_ms, keep_claims=keep_claims)

    def wake(self, consumer: traffic.Consumer) -> None:
        """Deliver again: the consumer's credit grew or it is no longer paused."""
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
        """Return a consumer of a group that is given nothing by itself and takes by `pull`."""
        consumption = self._manager.consumption
        source = cast(Queue, queue)
        group = consumption.group(source, group_name, MATCH_ALL) if group_name else None
        return consumption.puller(
            source, sink, consumer_id, lease_ms=lease_ms, group=group, is_told_offsets=is_told_offsets
        )

    def pull(self, consumer: traffic.Consumer, no_ack: bool, now_ms: int, count: int = 1) -> Answer[int]:
        """Claim up to `count` messages for a puller; how many its sink was given. Comes to QueueNotFound when
        the queue is deleted before they are read.
        """
        due_ms = self._timers.next_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._manager.fire_timers(now_ms)  # what was for a ready consumer only is not for this one
        taken = cast(Consumer, consumer)
        try:
            given = self._manager.consumption.pull(taken, no_ack, now_ms, count)
        except QueueManagerError as error:
            return Answer.failed(error)
        if given is not None:
            return _NONE if not given else _ONE if given == 1 else Answer.given(given)
        loaded: Answer[int] = Answer()
        taken.group.when_loaded(loaded.resolve)
        return loaded.chain(partial(self._pull_loaded, taken, no_ack, count))

    def _pull_loaded(self, consumer: Consumer, no_ack: bool, count: int, now_ms: int) -> Answer[int]:
        group = consumer.group
        if group.log.deleted:
            return Answer.failed(QueueNotFound.named(group.queue_name))
        return self.pull(consumer, no_ack, now_ms, count) if consumer.active else _NONE

    def set_credit(self, consumer: traffic.Consumer, credit_max: int) -> None:
        """Let a consumer hold so many unsettled messages."""
        cast(Consumer, consumer).set_credit(credit_max)
        self.wake(consumer)

    def ready_count(self, consumer: traffic.Consumer) -> int:
        """Count the messages that wait for a claim in the consumer's group."""
        taken = cast(Consumer, consumer)
        queue = self._manager.queues.of_log(taken.group.log)
        group = None if queue is None else queue.groups.get(taken.group.group_id)
        return 0 if group is None else group.ready_count()

    def failed_attempts(self, consumer: traffic.Consumer, claim: traffic.Claim) -> int | None:
        """Return how many earlier attempts at a claim of a quorum queue count; None for other queues, where
        all do.
        """
        group = cast(Consumer, consumer).group
        return group.counted_attempts(cast(Claim, claim)) - 1 if group.log.policy.quorum else None

    def ends_late(self, consumer: traffic.Consumer) -> bool:
        """Return whether a consumer that lost claims is to be cancelled: by a lease, in a quorum queue."""
        group = cast(Consumer, consumer).group
        return group.log.policy.quorum and not group.is_removed

    def is_gone(self, consumer: traffic.Consumer) -> bool:
        """Return whether the consumer's queue was deleted."""
        return cast(Consumer, consumer).group.log.deleted

    def primary_group(self, consumer: traffic.Consumer) -> str:
        """Return the group of the consumer's stream whose progress deliveries tell; "" for none."""
        return cast(Consumer, consumer).group.log.policy.primary_group

    def gap(self, consumer: traffic.Consumer) -> int:
        """Return how many messages were lost to retention that no consumer of the stream's group was told of
        yet.
        """
        return cast(StreamGroup, consumer.group).cursor.backlog.gap

    def reads_stream(self, consumer: traffic.Consumer, name: Name, caller: str) -> bool:
        """Return whether it is a consumer of the stream of that name."""
        queue = find(self._shard, name, caller)
        return isinstance(queue, Stream) and cast(Consumer, consumer).group.log is queue.log

    def position(self, consumer: traffic.Consumer) -> int:
        """Return the first offset of a stream that its consumer was not given yet."""
        return cast(StreamGroup, consumer.group).position

    def take_gap(self, consumer: traffic.Consumer) -> int:
        """Return the gap as `gap`; it is told now."""
        return cast(StreamGroup, consumer.group).cursor.backlog.take_gap()

    def primary_committed(self, consumer: traffic.Consumer) -> int:
        """Return how far that group is."""
        queue = self._manager.queues.of_log(cast(Consumer, consumer).group.log)
        return queue.primary_committed() if isinstance(queue, Stream) else 0


class SettlingClient:
    """Settling of messages that consumers hold."""

    def __init__(self, shard: Shard) -> None:
        self._manager = shard.manager
        # without a detour, for each run
        self.ack = cast("Callable[[Iterable[traffic.Claim], int], int]", shard.manager.ack)

    def requeue(
        self,
        claims: Iterable[traffic.Claim],
        now_ms: int,
        *,
        delay_ms: int | None = None,
        is_spared: bool = False,
    ) -> int:
        """Return claims to their places after `delay_ms` (None: the back-off of the queue); gives how many
        came too late. `is_spared`: in a quorum queue they do not count as attempts.
        """
        return self._manager.requeue(
            cast("Iterable[Claim]", claims), now_ms, delay_ms=delay_ms, is_spared=is_spared
        )

    def reject(self, claims: Iterable[traffic.Claim], now_ms: int) -> int:
        """Fail claims for good; gives how many came too late."""
        return self._manager.reject(cast("Iterable[Claim]", claims), now_ms)

    def release(self, claims: Iterable[traffic.Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """Return claims to their places after `delay_ms` (None: the back-off of a quorum queue), which is no
        attempt; gives how many came too late.
        """
        return self._manager.consumption.release(cast("Iterable[Claim]", claims), now_ms, delay_ms=delay_ms)

    def amend(
        self, claims: Iterable[traffic.Claim], change: Callable[[EnvelopeTemplate], EnvelopeTemplate]
    ) -> None:
        """Change what messages have beside their bodies, for the groups of these claims, which are to be
        given back or rejected then.
        """
        self._manager.consumption.amend(cast("Iterable[Claim]", claims), change)

    def unclaim(self, claims: Iterable[traffic.Claim], now_ms: int) -> None:
        """Return claims to their places that a sink was just given and has not sent: they are no attempts."""
        self._manager.consumption.unclaim(cast("Iterable[Claim]", claims), now_ms)

    def extend(self, claim: traffic.Claim, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        return self._manager.consumption.extend(cast(Claim, claim), lease_ms, now_ms)

    def find_claim(self, queue: traffic.Source, group_id: str, offset: int) -> Answer[traffic.Claim]:
        """Return the claim a control topic names; comes to GroupNotFound, InvalidAddress."""
        try:
            return Answer.given(self._manager.consumption.find_claim(cast(Queue, queue), group_id, offset))
        except QueueManagerError as error:
            return Answer.failed(error)

    def durable_group_of(self, claim: traffic.Claim) -> traffic.Group | None:
        """Return the group of a claim that is in flight, if its queue is stored; None otherwise."""
        consumer = cast(Claim, claim).consumer
        return consumer.group if consumer is not None and consumer.group.log.durable else None

    def holder(self, claim: traffic.Claim) -> traffic.Consumer | None:
        """Return the consumer that has, or had, the claim."""
        return cast(Claim, claim).consumer

    def is_claim_of(self, claim: traffic.Claim, queue: traffic.Source) -> bool:
        """Return whether a claim that is in flight is of this queue."""
        consumer = cast(Claim, claim).consumer
        return consumer is not None and self._manager.queues.of_log(consumer.group.log) is queue

    def write_soon(self, group: traffic.Group) -> None:
        """Have what was settled in a group written with the open commit, which can be waited for."""
        cast(ConsumerGroup, group).write_soon()


class TurnClient:
    """The end of each chunk and loop turn: what was done to the core is followed up."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._manager = shard.manager
        self._wants_commit = shard.wakeups.commit
        # without a detour, for each chunk
        self.has_work = shard.manager.context.has_work
        self.uncommitted_bytes = shard.manager.context.uncommitted_bytes

    def announce(self) -> None:
        """Have the core committed once `settle` was called, which follows at the end of the turn: something
        may have been done to it, and more may be in this turn.
        """
        if self.has_work():
            self._wants_commit.set()

    def settle(self) -> None:
        """Deliver what can be delivered, commit what must be."""
        manager = self._manager
        if manager.context.dispatchable:
            manager.dispatch(self._shard.clock.now_ms())
        self._shard.wake()
