"""Publishing, consuming and settling over the shards of all workers, and when that is durable.

A call that concerns only this worker's shard goes on to it with one question more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from broker.engine import session_traffic, traffic
from broker.engine.answers import Answer
from broker.engine.call_names import Address, Name
from broker.engine.client.commits import CommitClient
from broker.engine.client.message_flow import ConsumingClient, PublishingClient, SettlingClient, TurnClient
from broker.engine.shard import Shard
from broker.workers import link_frames as f
from broker.workers.asking_link import Link, plan_fields
from broker.workers.first_uses import FirstUses
from broker.workers.neighbours import Neighbours
from broker.workers.remote_consumers import (
    RemoteClaim,
    RemoteConsumer,
    RemoteGroup,
    SharedCredit,
    SharedLinkCredit,
    SharedPlaces,
    leave,
)
from broker.workers.waits import Entry, Gate, Part
from broker.workers.worker_directory import all_done
from queue_manager.address import parse
from queue_manager.api import OPERATOR
from queue_manager.claims.claim import Consumer
from queue_manager.errors import InvalidArgument, QueueManagerError, QueueNotFound, ResourceLocked
from queue_manager.group.group import group_id_of
from queue_manager.outcomes import ACCEPTED, FULL, REFUSED_IN_PART, REFUSED_LOST, REFUSED_SIZE, UNROUTED
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.route import ForeignQueue, Route
from queue_manager.sessions.session import Session
from queue_manager.shard.commit import Waiter
from storage.envelope import EnvelopeTemplate

Touched = list[tuple[Link, int, int]]
"""The links that the last publish went to, with the first and last number it has there."""


class ShardedPublishing:
    """As `PublishingClient`."""

    def __init__(self, local: PublishingClient, neighbours: Neighbours, first_uses: FirstUses) -> None:
        self._local = local
        self._neighbours = neighbours
        self._first_uses = first_uses
        self._publish_here = local.publish
        self.is_current = local.is_current
        self.touched: Touched = []
        self.is_here = True
        for name in (
            "match", "named", "through", "joined", "open_to", "unconditional", "plan", "join",
            "is_remembered",
        ):  # fmt: skip
            setattr(self, name, getattr(local, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def route(self, topic: Address, now_ms: int, user: str | None = None) -> traffic.Targets:
        """See `PublishingClient`."""
        name = parse(topic).name
        if self._neighbours.directory.get(name) is not None:
            targets = self._local.match(topic)
            if not targets:
                raise QueueNotFound(f"queue {name!r} is not bound to {topic!r}")
            return targets
        return self._first_uses.make(name, lambda: self._local.route(topic, now_ms, user))

    def aim(self, plan: traffic.PublishPlan, targets: traffic.Targets, keys: Sequence[str] = ()) -> None:
        """See `PublishingClient`."""
        self._local.aim(plan, targets, keys)
        if cast(Route, targets).foreign:
            for link in self._neighbours.links():
                link.forget_plan(cast(PublishPlan, plan))

    def publish(
        self,
        plan: traffic.PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """Publish here, and at the workers that have queues of the plan: ACCEPTED of those means that they
        were asked, and refusals are told to who waits.
        """
        foreign = cast(PublishPlan, plan).route.foreign
        if not foreign:
            self.touched = []
            self.is_here = True
            return self._publish_here(plan, bodies, now_ms, templates)
        return self._publish_both(cast(PublishPlan, plan), foreign, bodies, now_ms, templates)

    def _publish_both(
        self,
        plan: PublishPlan,
        foreign: Sequence[ForeignQueue],
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> int:
        largest = max(map(len, bodies))
        if any(largest > queue.policy.message_bytes_max for queue in foreign):
            return REFUSED_SIZE
        by_shard: dict[int, list[str]] = {}
        for queue in foreign:
            by_shard.setdefault(queue.shard, []).append(queue.name)
        links = [(self._neighbours.link(shard), names) for shard, names in by_shard.items()]
        self.touched = []
        if not all(link.is_up for link, _ in links):
            return REFUSED_LOST
        self.is_here = bool(plan.queues) or plan.audience is not None
        outcome = self._publish_here(plan, bodies, now_ms, templates) if self.is_here else ACCEPTED
        if outcome in FULL and len(bodies) == 1:  # the others take it
            outcome = REFUSED_IN_PART
        elif outcome not in (ACCEPTED, UNROUTED):
            return outcome
        asked = [(link, *link.publish(plan, names, bodies, templates)) for link, names in links]
        if outcome == REFUSED_IN_PART:
            return outcome
        self.touched += asked
        plan.durable = True  # there, or not: who waits is told by the other workers
        return ACCEPTED

    def next_offset(self, name: Name) -> int:
        """See `PublishingClient`; of a queue of another worker it is not known, and 0."""
        if self._neighbours.directory.get(name) is not None:
            return 0
        return self._local.next_offset(name)

    def judge(
        self,
        wanted: Iterable[tuple[traffic.PublishPlan, list[bytes], list[EnvelopeTemplate] | None]],
        now_ms: int,
    ) -> Sequence[traffic.Judgement]:
        """Judge as `PublishingClient`, what is for this worker's shard."""
        self.touched = []
        self.is_here = True
        return self._local.judge(wanted, now_ms)

    def publish_elsewhere(self, judged: Iterable[traffic.Judgement]) -> Answer[None]:
        """See `PublishingClient`."""
        by_shard: dict[int, list[Any]] = {}
        for one in judged:
            plan = cast(PublishPlan, one.plan)
            names: dict[int, list[str]] = {}
            for queue in plan.route.foreign:
                names.setdefault(queue.shard, []).append(queue.name)
            for shard, queues in names.items():
                properties = None
                if one.templates is not None:
                    properties = [(each.properties, each.persistent) for each in one.templates]
                by_shard.setdefault(shard, []).append(
                    (queues, *plan_fields(plan), list(one.bodies), properties)
                )
        if not by_shard:
            return Answer.given(None)
        answers = [
            self._neighbours.reach(shard).chain(partial(_publish_all, publishes))
            for shard, publishes in by_shard.items()
        ]
        return all_done(answers)

    def apply(self, judged: traffic.Judgement, now_ms: int) -> int:
        """See `PublishingClient`; what is for other shards was published by `publish_elsewhere`."""
        before = self.touched  # by publishes that are applied together, and waited for together
        outcome = self._local.apply(judged, now_ms)
        if before and self.touched is not before:
            self.touched = before + self.touched
        if outcome == UNROUTED and cast(PublishPlan, judged.plan).route.foreign:
            return ACCEPTED
        return outcome


def _publish_all(publishes: Sequence[Any], link: Link) -> Answer[None]:
    return link.publish_all(publishes)


class ShardedCommits:
    """As `CommitClient`: what one waits for comes in the order of waiting, whichever shards it is of."""

    def __init__(self, local: CommitClient, publishing: ShardedPublishing, neighbours: Neighbours) -> None:
        self._local = local
        self._publishing = publishing
        self._neighbours = neighbours
        self._gates: dict[Waiter, Gate] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    @property
    def beside(self) -> CommitClient:
        """See `CommitClient`: what is durable here."""
        return self._local

    def wait(self, waiter: Waiter, token: int) -> None:
        """See `CommitClient`."""
        self.wait_for(waiter, [token])

    def wait_for(self, waiter: Waiter, tokens: list[int]) -> None:
        """See `CommitClient`."""
        touched = self._touched()
        if not touched and waiter not in self._gates:
            self._local.wait_for(waiter, tokens)
            return
        self._enter(waiter, tokens[:], tokens)

    def wait_up_to(self, waiter: Waiter, token: int) -> bool:
        """See `CommitClient`."""
        touched = self._touched()
        if not touched and waiter not in self._gates:
            return self._local.wait_up_to(waiter, token)
        gate = self._gates.get(waiter)
        count = max([last - first + 1 for _, first, last in touched], default=1)
        spans = range(token - count + 1, token + 1)
        if gate is not None and touched and gate.entries[-1].turn == _turn(touched):
            entry = gate.entries[-1]
            entry.tokens[-1] = token
            self._await(entry, spans)
            return False
        self._enter(waiter, [token], spans)
        return True

    def _touched(self) -> Touched:
        """Return what the last publish went to; for that of an earlier turn nobody waits."""
        publishing = self._publishing
        touched = publishing.touched
        if touched and touched[0][2] <= touched[0][0].flushed_count:
            publishing.touched = touched = []
            publishing.is_here = True
        return touched

    def _enter(self, waiter: Waiter, tokens: list[int], spans: Sequence[int]) -> None:
        gate = self._gates.get(waiter)
        if gate is None:
            gate = self._gates[waiter] = Gate(waiter, self._gates)
            if self._local.owes(waiter):  # that comes first
                self._publishing.is_here = True
        entry = Entry(gate, tokens, _turn(self._publishing.touched))
        gate.entries.append(entry)
        self._await(entry, spans)

    def _await(self, entry: Entry, spans: Sequence[int]) -> None:
        """Have an entry wait for what the last publish went to, this shard among it.

        What one token stands for as a whole, as a transaction, is refused with any part of it.
        """
        publishing = self._publishing
        touched, publishing.touched = publishing.touched, []
        is_here, publishing.is_here = publishing.is_here, True
        whole = entry.tokens if len(entry.tokens) == 1 else ()
        for link, first, last in touched:
            count = last - first + 1
            known = spans if len(spans) == count else [*whole] * count
            link.wait(Part(entry, first, last, known))
        if is_here or not hasattr(entry.gate.waiter, "refused"):  # not for a publish
            entry.open_count += 1
            self._local.wait(entry, 0)

    async def durable(self) -> None:
        """Wait as `CommitClient`, also for what was said to the other workers."""
        links = self._neighbours.links()
        answers: list[Answer[None]] = []
        for link in links:
            answer: Answer[None] = Answer()
            entry = Entry(Gate(_Resolving(answer), {}), [0], -1)
            entry.gate.entries.append(entry)
            number = link.barrier()
            link.wait(Part(entry, number, number, (0,)))
            answers.append(answer)
        await self._local.durable()
        for answer in answers:
            await answer


class _Resolving:
    """A waiter that resolves an answer."""

    def __init__(self, answer: Answer[None]) -> None:
        self._answer = answer

    def committed(self, tokens: list[int]) -> None:
        self._answer.resolve(None)


def _turn(touched: Touched) -> int:
    return touched[0][0].flush_count if touched else -1


class ShardedConsuming:
    """As `ConsumingClient`."""

    def __init__(
        self, local: ConsumingClient, shard: Shard, neighbours: Neighbours, first_uses: FirstUses
    ) -> None:
        self._local = local
        self._first_uses = first_uses
        self._context = shard.manager.context
        self._neighbours = neighbours
        self._directory = neighbours.directory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def _foreign(self, name: str) -> ForeignQueue | None:
        queue = self._directory.get(name)
        if queue is not None and queue.is_exclusive:
            raise ResourceLocked(name)
        return queue

    def find(self, name: Name, caller: str = OPERATOR) -> traffic.Source:
        """See `ConsumingClient`."""
        return self._foreign(name) or self._local.find(name, caller)

    def find_or_create(self, name: Name, caller: str, now_ms: int) -> traffic.Source:
        """See `ConsumingClient`."""
        return self._foreign(name) or self._first_uses.make(
            name, lambda: self._local.find_or_create(name, caller, now_ms)
        )

    def is_stream(self, name: Name) -> bool:
        """See `ConsumingClient`."""
        queue = self._directory.get(name)
        return self._local.is_stream(name) if queue is None else queue.policy.stream

    def credit(self, credit_max: int) -> traffic.Credit:
        """See `ConsumingClient`."""
        return SharedCredit(credit_max)

    def link_credit(self, dried: Callable[[], None]) -> traffic.LinkCredit:
        """See `ConsumingClient`."""
        credit = SharedLinkCredit(self._context, dried)
        credit.consumer, credit.remote = None, []
        return credit

    def places(
        self, window: traffic.Window, fill: Callable[[], None], session: session_traffic.Session | None
    ) -> traffic.Places:
        """See `ConsumingClient`."""
        places = SharedPlaces(self._context, window, fill, cast("Session | None", session))
        places.remote = []
        return places

    def share(self, consumer: traffic.Consumer, credit: traffic.Credit) -> None:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            cast(SharedCredit, credit).adopt_remote(consumer)
        else:
            self._local.share(consumer, credit)

    def subscribe(
        self, queue: traffic.Source, group_name: str, pattern: str, sink: traffic.Sink, **options: Any
    ) -> Any:
        """See `ConsumingClient`."""
        if not isinstance(queue, ForeignQueue):
            if (decided := self._first_uses.decided(queue.name)) is not None:
                begin = partial(self._subscribe_decided, queue, group_name, pattern, sink, options)
                return decided.chain(begin)
            return self._local.subscribe(queue, group_name, pattern, sink, **options)
        on_activity = options.pop("on_activity", None)
        pool = options.pop("pool", None)
        consumer = RemoteConsumer(
            self._neighbours.link(queue.shard),
            0,
            queue,
            sink,
            no_ack=options["no_ack"],
            exclusive=options["exclusive"],
            lease_ms=options["lease_ms"],
            credit_max=options["credit_max"],
            priority=options.get("priority", 0),
            pool=pool,
            on_activity=on_activity,
        )
        group_id = group_id_of(group_name, pattern)
        consumer.group = RemoteGroup(group_name, group_id, queue.name, "", queue.durable)
        if isinstance(pool, SharedLinkCredit):
            pool.consumer = consumer
        if pool is not None:
            pool.remote.append(consumer)
        options["is_activity_told"] = on_activity is not None
        options["has_link_credit"] = isinstance(pool, SharedLinkCredit)

        def ask(link: Link) -> Answer[RemoteConsumer]:
            consumer.link = link
            return link.subscribe(consumer, f.SUBSCRIBE, queue.name, group_name, pattern, options)

        answer = self._neighbours.reach(queue.shard).chain(ask)
        answer.then(partial(self._note_refusal, consumer))
        return answer

    def _note_refusal(self, consumer: RemoteConsumer, answer: Answer[RemoteConsumer]) -> None:
        """Have a consumer that is not made be under no limit."""
        try:
            answer.result()
        except QueueManagerError as error:
            pool = consumer.pool
            if pool is not None:
                leave(pool, consumer)
            if isinstance(pool, SharedLinkCredit):
                pool.consumer = None
            if type(error) is QueueNotFound:  # one whose worker is lost is still there
                self._directory.note_gone(consumer.queue)

    def _subscribe_decided(
        self,
        queue: traffic.Source,
        group_name: str,
        pattern: str,
        sink: traffic.Sink,
        options: dict[str, Any],
        _: None,
    ) -> Answer[traffic.Consumer]:
        """Subscribe to a queue wherever it is now."""
        found = self.find(queue.name)
        if found.policy.stream != queue.policy.stream:
            raise InvalidArgument(f"queue {queue.name!r} was just declared as a stream: ask again")
        answer: Answer[traffic.Consumer] = self.subscribe(found, group_name, pattern, sink, **options)
        return answer

    def puller(
        self, queue: traffic.Source, sink: traffic.Sink, consumer_id: str, *, lease_ms: int, **options: Any
    ) -> traffic.Consumer:
        """See `ConsumingClient`."""
        if not isinstance(queue, ForeignQueue):
            return self._local.puller(queue, sink, consumer_id, lease_ms=lease_ms, **options)
        if queue.policy.stream:
            raise InvalidArgument(f"queue {queue.name!r} is a stream: it is consumed, not pulled from")
        link = self._neighbours.link(queue.shard)
        consumer = RemoteConsumer(
            link,
            0,
            queue,
            sink,
            no_ack=False,
            exclusive=False,
            lease_ms=lease_ms,
            credit_max=traffic.UNLIMITED,
        )
        name = options.get("group_name", "")
        consumer.group = RemoteGroup(name, name, queue.name, "", queue.durable)

        def begin(link: Link) -> None:
            consumer.link = link
            link.subscribe(consumer, f.PULLER, queue.name, consumer_id, {"lease_ms": lease_ms, **options})

        consumer.begin = begin
        if link.is_up:
            begin(link)
        return consumer

    def pull(self, consumer: traffic.Consumer, no_ack: bool, now_ms: int, count: int = 1) -> Any:
        """See `ConsumingClient`."""
        if not isinstance(consumer, RemoteConsumer):
            if (decided := self._first_uses.decided(consumer.group.queue_name)) is not None:
                return decided.chain(lambda _: self._pull_decided(consumer, no_ack, now_ms, count))
            return self._local.pull(consumer, no_ack, now_ms, count)
        consumer.no_ack = no_ack
        link = cast(Link, consumer.link)
        if link.is_up and consumer.number:
            return link.pull(consumer, count, no_ack=no_ack)

        def ask(link: Link) -> Answer[int]:
            if consumer.is_over:  # its client went meanwhile
                return Answer.given(0)
            if consumer.begin is not None and (consumer.link is not link or not consumer.number):
                consumer.begin(link)
            return link.pull(consumer, count, no_ack=no_ack)

        return self._neighbours.reach(consumer.queue.shard).chain(ask)

    def _pull_decided(self, consumer: traffic.Consumer, no_ack: bool, now_ms: int, count: int) -> Answer[int]:
        """Pull, unless the queue turned out to be elsewhere: there it is asked next time."""
        if self._local.is_gone(consumer) or not cast(Consumer, consumer).active:
            return Answer.given(0)
        return self._local.pull(consumer, no_ack, now_ms, count)

    def unsubscribe(self, consumer: traffic.Consumer, now_ms: int, *, keep_claims: bool = False) -> None:
        """See `ConsumingClient`."""
        if not isinstance(consumer, RemoteConsumer):
            self._local.unsubscribe(consumer, now_ms, keep_claims=keep_claims)
            return
        if consumer.pool is not None:
            leave(consumer.pool, consumer)
        if not consumer.is_over:
            cast(Link, consumer.link).end(consumer, keep_claims=keep_claims)

    def wake(self, consumer: traffic.Consumer) -> None:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            consumer.link.tell(consumer.number, f.WAKE)
            if consumer.pool is not None:
                consumer.room_grew(consumer.pool)
        else:
            self._local.wake(consumer)

    def set_credit(self, consumer: traffic.Consumer, credit_max: int) -> None:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            consumer.credit_max, consumer.told_credit = credit_max, -1
            consumer.link.tell(consumer.number, f.CREDIT, credit_max)
        else:
            self._local.set_credit(consumer, credit_max)

    def ready_count(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            return consumer.ready
        return self._local.ready_count(consumer)

    def failed_attempts(self, consumer: traffic.Consumer, claim: traffic.Claim) -> int | None:
        """See `ConsumingClient`."""
        if isinstance(claim, RemoteClaim):
            return None if claim.failed < 0 else claim.failed
        return self._local.failed_attempts(consumer, claim)

    def ends_late(self, consumer: traffic.Consumer) -> bool:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            return consumer.ends_late
        return self._local.ends_late(consumer)

    def is_gone(self, consumer: traffic.Consumer) -> bool:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            known = self._directory.get(consumer.queue.name)
            return consumer.is_over or known is None or known.shard != consumer.queue.shard
        return self._local.is_gone(consumer)

    def primary_group(self, consumer: traffic.Consumer) -> str:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            return consumer.group.primary_group
        return self._local.primary_group(consumer)

    def gap(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        return consumer.gap if isinstance(consumer, RemoteConsumer) else self._local.gap(consumer)

    def take_gap(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        if not isinstance(consumer, RemoteConsumer):
            return self._local.take_gap(consumer)
        gap, consumer.gap = consumer.gap, 0
        return gap

    def reads_stream(self, consumer: traffic.Consumer, name: Name, caller: str) -> bool:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            return consumer.queue.policy.stream and consumer.queue.name == name
        return self._foreign(name) is None and self._local.reads_stream(consumer, name, caller)

    def position(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        return consumer.position if isinstance(consumer, RemoteConsumer) else self._local.position(consumer)

    def primary_committed(self, consumer: traffic.Consumer) -> int:
        """See `ConsumingClient`."""
        if isinstance(consumer, RemoteConsumer):
            return consumer.committed
        return self._local.primary_committed(consumer)


class ShardedSettling:
    """As `SettlingClient`. Of other workers' claims it is not known yet how many came too late: 0."""

    def __init__(self, local: SettlingClient, publishing: ShardedPublishing, neighbours: Neighbours) -> None:
        self._local = local
        self._ack_here = local.ack
        self._publishing = publishing
        self._neighbours = neighbours

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def _split(
        self,
        claims: Iterable[traffic.Claim],
        how: int,
        here: Callable[[list[traffic.Claim]], int],
        **named: Any,
    ) -> int:
        taken = claims if isinstance(claims, list) else list(claims)
        remote = [claim for claim in taken if type(claim) is RemoteClaim]
        if not remote:
            return here(taken)
        by_link: dict[Link, list[RemoteClaim]] = {}
        for claim in remote:
            if claim.is_in_flight:
                by_link.setdefault(cast(Link, claim.consumer.link), []).append(claim)
        for link, some in by_link.items():
            link.settle(how, some, **named)
        if len(remote) == len(taken):
            return 0
        return here([claim for claim in taken if type(claim) is not RemoteClaim])

    def ack(self, claims: Iterable[traffic.Claim], now_ms: int) -> int:
        """See `SettlingClient`."""
        return self._split(claims, f.DONE, lambda some: self._ack_here(some, now_ms))

    def requeue(
        self,
        claims: Iterable[traffic.Claim],
        now_ms: int,
        *,
        delay_ms: int | None = None,
        is_spared: bool = False,
    ) -> int:
        """See `SettlingClient`."""
        named: dict[str, Any] = {"delay_ms": delay_ms, "is_spared": is_spared}
        return self._split(
            claims, f.REQUEUE, lambda some: self._local.requeue(some, now_ms, **named), **named
        )

    def reject(self, claims: Iterable[traffic.Claim], now_ms: int) -> int:
        """See `SettlingClient`."""
        return self._split(claims, f.REJECT, lambda some: self._local.reject(some, now_ms))

    def release(self, claims: Iterable[traffic.Claim], now_ms: int, *, delay_ms: int | None = None) -> int:
        """See `SettlingClient`."""
        return self._split(
            claims,
            f.RELEASE,
            lambda some: self._local.release(some, now_ms, delay_ms=delay_ms),
            delay_ms=delay_ms,
        )

    def amend(
        self,
        claims: Iterable[traffic.Claim],
        change: Callable[[EnvelopeTemplate], EnvelopeTemplate],
    ) -> None:
        """See `SettlingClient`."""
        taken = list(claims)
        by_link: dict[Link, list[RemoteClaim]] = {}
        for claim in taken:
            if isinstance(claim, RemoteClaim):
                by_link.setdefault(cast(Link, claim.consumer.link), []).append(claim)
        for link, some in by_link.items():
            link.amend(some, [change(claim.message.template) for claim in some])
        here = [claim for claim in taken if not isinstance(claim, RemoteClaim)]
        if here:
            self._local.amend(here, change)

    def unclaim(self, claims: Iterable[traffic.Claim], now_ms: int) -> None:
        """See `SettlingClient`."""

        def here(some: list[traffic.Claim]) -> int:
            self._local.unclaim(some, now_ms)
            return 0

        self._split(claims, f.UNCLAIM, here)

    def extend(self, claim: traffic.Claim, lease_ms: int, now_ms: int) -> bool:
        """See `SettlingClient`."""
        if not isinstance(claim, RemoteClaim):
            return self._local.extend(claim, lease_ms, now_ms)
        if claim.is_in_flight:
            cast(Link, claim.consumer.link).settle(f.EXTEND, [claim], delay_ms=lease_ms)
        return claim.is_in_flight

    def find_claim(self, queue: traffic.Source, group_id: str, offset: int) -> Any:
        """See `SettlingClient`."""
        if not isinstance(queue, ForeignQueue):
            return self._local.find_claim(queue, group_id, offset)
        link = self._neighbours.link(queue.shard)
        holder = RemoteConsumer(
            link, 0, queue, _NO_SINK, no_ack=False, exclusive=False, lease_ms=0, credit_max=0
        )
        return link.find_claim(queue.name, group_id, offset, holder)

    def durable_group_of(self, claim: traffic.Claim) -> traffic.Group | None:
        """See `SettlingClient`."""
        if isinstance(claim, RemoteClaim):
            group = claim.consumer.group
            return group if claim.is_in_flight and group.durable else None
        return self._local.durable_group_of(claim)

    def holder(self, claim: traffic.Claim) -> traffic.Consumer | None:
        """See `SettlingClient`."""
        return claim.consumer if isinstance(claim, RemoteClaim) else self._local.holder(claim)

    def is_claim_of(self, claim: traffic.Claim, queue: traffic.Source) -> bool:
        """See `SettlingClient`."""
        if isinstance(claim, RemoteClaim):
            return claim.is_in_flight and claim.consumer.queue.name == queue.name
        return not isinstance(queue, ForeignQueue) and self._local.is_claim_of(claim, queue)

    def write_soon(self, group: traffic.Group) -> None:
        """See `SettlingClient`."""
        if not isinstance(group, RemoteGroup):
            self._local.write_soon(group)
            return
        queue = self._neighbours.directory.get(group.queue_name)
        if queue is not None:
            link = self._neighbours.link(queue.shard)
            if link.is_up:
                number = link.barrier(link.consumer_of(group))
                self._publishing.touched.append((link, number, number))


class _NoSink:
    """The sink of what is given nothing. Implements `Sink`."""

    def deliver(self, consumer: Any, messages: Any, claims: Any) -> bool:
        return False

    def revoked(self, consumer: Any, claims: Any) -> None:
        """See `Sink`."""

    def cancelled(self, consumer: Any, reason: str) -> None:
        """See `Sink`."""


_NO_SINK = _NoSink()


class ShardedTurns:
    """As `TurnClient`: what other workers have not confirmed counts with what is not durable here."""

    def __init__(self, local: TurnClient, neighbours: Neighbours) -> None:
        self.announce = local.announce
        self.settle = local.settle
        self.has_work = local.has_work
        self._uncommitted_here = local.uncommitted_bytes
        self._neighbours = neighbours

    def uncommitted_bytes(self) -> int:
        """Return the memory of what is not durable yet, here and on its way to others."""
        return self._uncommitted_here() + sum(link.unanswered_bytes for link in self._neighbours.links())
