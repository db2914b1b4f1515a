"""Consumers of queues: subscribed, given messages, and what becomes of their claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Unpack

from config import limits
from queue_manager import address
from queue_manager.claims.claim import (
    IN_FLIGHT,
    UNLIMITED,
    Claim,
    Consumer,
    ConsumerGroup,
    ConsumerOptions,
    Sink,
    Verdict,
)
from queue_manager.claims.ledger import acknowledge
from queue_manager.errors import (
    InExclusiveUse,
    InvalidAddress,
    InvalidArgument,
    LimitReached,
    PreconditionFailed,
)
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.group.group import Group, group_id_of
from queue_manager.group.stream_group import StreamGroup
from queue_manager.log.stream_start import StreamStart
from queue_manager.patterns import validate
from queue_manager.queue.queue import Queue
from queue_manager.queue.queue_groups import Place
from queue_manager.queue.stream import Stream
from queue_manager.routing.queue_directory import QueueDirectory
from queue_manager.shard.context import Context
from storage.envelope import EnvelopeTemplate


class Consumption:
    """Subscribe, pull, dispatch, settle. `late_count`: claims that were settled too late."""

    def __init__(self, context: Context, directory: QueueDirectory) -> None:
        self._context = context
        self._directory = directory
        self._may_deliver: Callable[[], bool] | None = None
        self.late_count = 0

    def deliver_while(self, may_deliver: Callable[[], bool]) -> None:
        """Deliver nothing from now on unless `may_deliver` says so, which is asked before anything is."""
        self._may_deliver = may_deliver

    # consumers

    def subscribe(
        self,
        queue: Queue,
        group_name: str,
        pattern: str,
        sink: Sink,
        *,
        group_selector: str | None = None,
        is_fetch: bool = False,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Add a consumer to a group (made if need be). Deliveries begin at the next `dispatch`.

        `group_selector`: the messages of the whole group; None: as the group has it. `is_fetch`: it is there
        for a single request, so that an auto-delete queue does not go with it. Raises AccessRefused about
        exclusivity, PreconditionFailed when the group has another selector, or filters cannot be had here,
        InvalidAddress, LimitReached.
        """
        wanted = options.get("wanted")
        if wanted is not None and queue.policy.binds_keys():
            raise PreconditionFailed(
                f"queue {queue.name!r} has message groups: its consumers have no filters"
            )
        existing = queue.groups.get(group_id_of(group_name, pattern))
        if existing is not None:
            _check_welcome(queue, existing, wanted, group_selector, exclusive=options["exclusive"])
        group = self.group(queue, group_name, pattern, group_selector or "")
        consumer = Consumer(group, sink, **options)
        if not is_fetch:
            queue.use.joined()
        group.add(consumer)
        return consumer

    def subscribe_stream(
        self,
        stream: Stream,
        group_name: str,
        pattern: str,
        sink: Sink,
        *,
        start: StreamStart | None,
        auto_commit: bool,
        group_selector: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Consumer:
        """Subscribe as `subscribe`. A group without a name is this consumer's own.

        `start` moves a group that has no consumer; None: it goes on where it was, or begins at the oldest
        message. `wanted` holds for the group while it has consumers, which all ask for the same. Raises
        PreconditionFailed when others of the group commit (`auto_commit`) or filter otherwise.
        """
        wanted = options.pop("wanted", None)
        known = stream.known_group(group_id_of(group_name, pattern)) if group_name else None
        is_first = known is None or not known.consumers.members
        if known is not None and not is_first:
            _check_alike(stream, known, wanted, auto_commit=auto_commit)
        consumer = self.subscribe(stream, group_name, pattern, sink, group_selector=group_selector, **options)
        if is_first:
            group = consumer.group
            assert isinstance(group, StreamGroup)
            group.cursor.auto_commit = auto_commit
            if start is not None:
                group.cursor.seek(start)
            group.narrow(wanted)
        return consumer

    def group(
        self,
        queue: Queue,
        group_name: str,
        pattern: str,
        selector: str = "",
        places: Sequence[Place] | None = None,
    ) -> Group:
        """Return the group, made if need be, at `places` or the oldest kept message; raises InvalidAddress,
        LimitReached.
        """
        if group_name:
            address.validate_group_name(group_name)
        return queue.group(group_name, validate(pattern), selector, places)

    def puller(
        self,
        queue: Queue,
        sink: Sink,
        consumer_id: str,
        *,
        lease_ms: int,
        group: Group | None = None,
        is_told_offsets: bool = False,
    ) -> Consumer:
        """Return a consumer that is given nothing by itself and takes by `pull` (AMQP basic.get).

        `group` None: the default group.
        """
        if queue.policy.stream:
            raise InvalidArgument(f"queue {queue.name!r} is a stream: it is consumed, not pulled from")
        if group is None:
            group = queue.group("")
        consumer = Consumer(
            group,
            sink,
            consumer_id=consumer_id,
            credit_max=UNLIMITED,
            no_ack=False,
            exclusive=False,
            lease_ms=lease_ms,
            is_told_offsets=is_told_offsets,
        )
        group.drain(consumer)
        return consumer

    def pull(self, consumer: Consumer, no_ack: bool, now_ms: int, count: int = 1) -> int | None:
        """Claim up to `count` messages for a puller and deliver them to its sink; give how many it were.

        0: the group is empty; None: they must be read back first, ask again once `consumer.group.when_loaded`
        calls. An exclusive consumer does not keep a puller out (as RabbitMQ's does not).
        """
        queue = self._directory.of_log(consumer.group.log)
        if queue is None:
            return 0
        group = self.current_group(queue, consumer)
        if self._may_deliver is not None and not self._may_deliver():
            group.want_dispatch()
            return None
        group.drain(consumer)
        consumer.no_ack = no_ack
        queue.use.note(now_ms)
        return group.pull(consumer, count, now_ms)

    def current_group(self, queue: Queue, consumer: Consumer) -> ConsumerGroup:
        """Return the group of a consumer; another one has taken its place if it was reset or deleted."""
        group = consumer.group
        if group.is_removed:
            group = self.group(queue, group.name, group.pattern, group.selector)
            consumer.move_to(group)
        return group

    def unsubscribe(self, consumer: Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """Take a consumer away; its claims return at once, or stay with its holder (`keep_claims`)."""
        group = consumer.group
        if keep_claims:
            group.cancel(consumer)
        else:
            group.remove(consumer, now_ms)
        queue = self._directory.of_log(group.log)
        if queue is not None and not queue.consumer_count():
            queue.use.note(now_ms)
            queue.watch_use()
            if queue.auto_delete and queue.use.had_consumer:
                self._directory.delete_unused(queue, now_ms)

    def wake(self, consumer: Consumer) -> None:
        """Deliver again: the consumer's credit grew or it is no longer paused."""
        consumer.group.credit_grew(consumer)
        consumer.group.want_dispatch()

    def dispatch(self, now_ms: int) -> None:
        """Deliver what can be delivered in every group that something happened to.

        What is more than may be handed out in one turn goes on with `take_step`.
        """
        if self._may_deliver is not None and not self._may_deliver():
            return
        context = self._context
        dispatchable = context.dispatchable
        budget = context.budget
        budget.renew()
        context.discards.renew()
        while dispatchable:
            groups = list(dispatchable)
            dispatchable.clear()
            for index, group in enumerate(groups, 1):
                group.dispatch(now_ms)
                if budget.left <= 0:
                    context.defer(groups[index:])
                    break

    def take_step(self, now_ms: int) -> bool:
        """Go on with what is too large for one turn; give whether there was anything."""
        context = self._context
        if not context.has_steps():
            return False
        context.steps.take(now_ms)
        context.resume_one()
        self.dispatch(now_ms)
        return True

    def end_leases(self, now_ms: int) -> None:
        """Return claims whose lease ended."""
        leased = self._context.leased
        for group in list(leased):
            if not group.end_leases(now_ms):
                leased.pop(group, None)

    # claims

    def ack(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Mark claims done; give how many of them came too late (nothing changes for those)."""
        late_count = acknowledge(claims, now_ms)
        self.late_count += late_count
        return late_count

    def requeue(
        self, claims: Iterable[Claim], now_ms: int, *, delay_ms: int | None = None, is_spared: bool = False
    ) -> int:
        """Return claims to their place in the queue after `delay_ms`; give how many came too late.

        None: after the back-off of the queue's retry policy, if it has one. `is_spared`: they do not count as
        attempts in a quorum queue.
        """
        return self._give_back(claims, Verdict(now_ms, delay_ms=delay_ms, is_spared=is_spared))

    def reject(self, claims: Iterable[Claim], now_ms: int) -> int:
        """Fail claims for good; give how many came too late."""
        return self._give_back(claims, Verdict(now_ms, failed=True))

    def release(self, claims: Iterable[Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """Return claims to their places after `delay_ms`, which is no attempt; give how many came too late.

        A quorum queue counts that they were claimed, and has them wait as it says (None); any other is as if
        they had not been. A reader of a stream by itself is done with them.
        """
        by_group, late_count = self._by_group(claims)
        for group, part in by_group.items():
            policy = group.log.policy
            if policy.stream:
                group.give_back(part, Verdict(now_ms))
            elif policy.quorum:
                group.give_back(part, Verdict(now_ms, delay_ms=delay_ms, is_spared=True))
            else:
                group.unclaim(part, now_ms, delay_ms=delay_ms or 0)
        return late_count

    def amend(self, claims: Iterable[Claim], change: Callable[[EnvelopeTemplate], EnvelopeTemplate]) -> None:
        """Change what messages of claims in flight have beside their bodies, for their groups, before they
        are given back: further attempts and dead letters have it so.

        Nothing changes in streams, which many read.
        """
        for claim in claims:
            consumer = claim.consumer
            if claim.state == IN_FLIGHT and consumer is not None and not consumer.group.log.policy.stream:
                claim.amend(change)

    def unclaim(self, claims: Iterable[Claim], now_ms: int) -> None:
        """Return claims that were just made, and not sent, to their places: they are no attempts."""
        for claim in claims:
            if claim.consumer is not None and claim.state == IN_FLIGHT:
                claim.consumer.group.unclaim([claim], now_ms)

    def _give_back(self, claims: Iterable[Claim], verdict: Verdict) -> int:
        by_group, late_count = self._by_group(claims)
        for group, part in by_group.items():
            group.give_back(part, verdict)
        return late_count

    def _by_group(self, claims: Iterable[Claim]) -> tuple[dict[ConsumerGroup, list[Claim]], int]:
        """Return the claims that are in flight by their groups, and how many are not, which came too late."""
        late_count = 0
        by_group: dict[ConsumerGroup, list[Claim]] = {}
        holder: Consumer | None = None
        part: list[Claim] = []
        for claim in claims:
            consumer = claim.consumer
            if claim.state == IN_FLIGHT and consumer is not None:
                if consumer is not holder:
                    holder = consumer
                    part = by_group.setdefault(consumer.group, [])
                part.append(claim)
            else:
                late_count += 1
                if consumer is not None:
                    consumer.came_late()
        self.late_count += late_count
        return by_group, late_count

    def extend(self, claim: Claim, lease_ms: int, now_ms: int) -> bool:
        """Give a claim a new lease from now; False if it is no claim any more."""
        return claim.extend(now_ms + lease_ms)

    def find_claim(self, queue: Queue, group_id: str, offset: int) -> Claim:
        """Return the claim a `$ack` names; raises GroupNotFound, or InvalidAddress when there is no such
        claim.
        """
        claim = queue.groups.find(group_id).consumers.find_claim(offset)
        if claim is None:
            raise InvalidAddress(f"message {queue.name}:{offset} is not in flight in group {group_id!r}")
        return claim


def _check_welcome(
    queue: Queue,
    group: Group,
    wanted: ConsumerFilter | None,
    group_selector: str | None,
    *,
    exclusive: bool,
) -> None:
    """Raise AccessRefused, LimitReached or PreconditionFailed if a group cannot take one more consumer."""
    others = group.consumers.members
    if group.has_exclusive() or (exclusive and others):
        raise InExclusiveUse(queue.name, group.name)
    if len(others) >= limits.CONSUMERS_PER_GROUP_MAX:
        raise LimitReached(f"group {group.group_id!r} has {limits.CONSUMERS_PER_GROUP_MAX} consumers")
    if wanted is not None:
        group.serving.check_room(wanted)
    if group_selector is not None and group_selector != group.selector:
        raise PreconditionFailed(
            f"group {group.group_id!r} has "
            + (f"the selector {group.selector!r}" if group.selector else "no selector")
        )


def _check_alike(
    stream: Stream, group: StreamGroup, wanted: ConsumerFilter | None, *, auto_commit: bool
) -> None:
    """Raise PreconditionFailed if the consumers of a stream's group commit or filter otherwise."""
    if group.cursor.auto_commit != auto_commit:
        theirs = str(not auto_commit).lower()
        raise PreconditionFailed(
            f"group {group.group_id!r} of stream {stream.name!r} has auto-commit {theirs}"
        )
    if ("" if wanted is None else wanted.key) != group.filter_key:
        raise PreconditionFailed(
            f"group {group.group_id!r} of stream {stream.name!r} is read with another filter"
        )
