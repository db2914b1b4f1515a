"""A shard and its oracle side by side: every call goes to both, and what comes out is compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, SupportsIndex, TypeVar

from broker.engine.shard import Shard
from queue_manager.claims.claim import IN_FLIGHT, UNLIMITED, Claim, Consumer, CreditPool
from queue_manager.errors import AccessRefused, QueueBusy
from queue_manager.group.group import Group
from queue_manager.log.levels import split_level_name
from queue_manager.log.removals import QueueRemoval, RangeRemoval
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import (
    ACCEPTED,
    FULL,
    REFUSED_DEPTH,
    REFUSED_IN_PART,
    REFUSED_PAUSED,
    REFUSED_SIZE,
)
from queue_manager.policy import Pause, QueuePolicy
from queue_manager.routing.plan import PublishPlan
from queue_manager.shard.commit import Commit
from queue_manager.shard.loads import Load
from queue_manager.spec_records import QueueDefinition
from storage.batch import WriteOps
from storage.records import payload_refs, queue_spec
from tests.memory_store import MemoryStore
from tests.model import invariants
from tests.model.leaks import all_rows, check_ownership
from tests.model.oracle import (
    DONE,
    FAILED,
    READY,
    Item,
    Oracle,
    OracleConsumer,
    OracleGroup,
    OraclePool,
    OracleQueue,
    Planned,
    Published,
)

T = TypeVar("T")
START_MS = 1_767_225_600_000
ROUNDS_MAX = 2_000
LOADS_MAX = 2_000
STEPS_MAX = 20_000
DEFAULT_POLICY = QueuePolicy(
    visibility_timeout_ms=30_000, message_bytes_max=1 << 20, done_retention_ms=0, expires_ms=300_000
)


def drive(step: Coroutine[Any, Any, T]) -> T:
    """Run a step of a shard whose store never makes it wait."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("the step waits for something")


def run(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but its turn."""
    for _ in range(100_000):
        try:
            assert step.send(None) is None
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for ever")


class BoundedLoads(list[Load]):
    """The loads asked for, until they are no more; beyond `LOADS_MAX` in one go there is no end of them."""

    performed_count = 0

    def pop(self, index: SupportsIndex = -1) -> Load:
        self.performed_count += 1
        assert self.performed_count <= LOADS_MAX, "loading never ends"
        return super().pop(index)


def load(shard: Shard) -> bool:
    """Take what steps are left, then perform the loads that are asked for; whether there was anything.

    Fails if that leads to ever more of it.
    """
    manager = shard.manager
    manager.context.loads = BoundedLoads(manager.context.loads)
    step_count = 0
    while manager.take_step(shard.clock.now_ms()):
        step_count += 1
        assert step_count <= STEPS_MAX, "there is no end of steps"
    return run(shard.load_once()) or step_count > 0


def has_to_go_on(shard: Shard) -> bool:
    """Whether there are loads to perform or steps to take."""
    context = shard.manager.context
    return bool(context.loads or context.awaiting_history) or context.has_steps()


class FakeClock:
    """Time that moves when told to."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


def open_shard(
    store: MemoryStore,
    clock: FakeClock,
    *,
    default_policy: QueuePolicy = DEFAULT_POLICY,
    auto_create: bool = True,
    cache_bytes_max: int = 0,
    readers: Callable[[QueueManager], None] | None = None,
) -> Shard:
    """Begin a process on what is in `store`."""
    return drive(
        Shard.open(
            store,
            clock,  # type: ignore[arg-type]
            default_policy=default_policy,
            auto_create=auto_create,
            cache_bytes_max=cache_bytes_max,
            readers=readers,
        )
    )


def may_take(consumer: Consumer) -> bool:
    """Whether what waits for this consumer has to be given to it."""
    return consumer.credit() > 0 and not stands_back(consumer)


def stands_back(consumer: Consumer) -> bool:
    """Whether the consumer lets others go first."""
    group = consumer.group
    assert isinstance(group, Group)
    return group.consumers.stands_back(consumer)


class ModelSink:
    """Tells the oracle what one consumer is given, and notes what is taken from it."""

    def __init__(self, harness: Harness, consumer: OracleConsumer) -> None:
        self.harness = harness
        self.consumer = consumer
        self.revoked_offsets: set[int] = set()
        self.cancelled_count = 0

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert messages
        self.harness.learn()
        group = self.consumer.group
        if claims is not None:
            assert [entry.message for entry in claims] == messages
            assert {entry.state for entry in claims} == {IN_FLIGHT}
            assert len({entry.attempts > 1 for entry in claims}) == 1, "first and later deliveries mixed"
        for index, message in enumerate(messages):
            assert message.body is not None
            if self.consumer.is_told:
                self.harness.note_shown(consumer, message)
            group.delivered(
                self.consumer,
                message.offset,
                message.body,
                message.template.topic,
                None if claims is None else claims[index],
                self.harness.clock.ms,
            )
        return not self.consumer.refuses

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        self.revoked_offsets |= {entry.message.offset for entry in claims}

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        self.cancelled_count += 1


def _takers(
    plan: PublishPlan,
    queues: list[OracleQueue],
    bodies: list[bytes],
    outcome: int,
    full: set[OracleQueue],
    perhaps: set[OracleQueue],
) -> list[OracleQueue]:
    """The queues that took a publish; sees that this is the outcome it has to have."""
    size = max(map(len, bodies))
    if any(size > queue.policy.message_bytes_max for queue in queues):
        assert outcome == REFUSED_SIZE
        return []
    by_name = {queue.name: queue for queue in queues}
    refused = {by_name[queue.name] for queue in plan.full} if outcome in FULL else set()
    assert full <= refused <= full | perhaps, f"{refused} refused, not {full} and perhaps {perhaps}"
    if not refused:
        assert outcome == ACCEPTED
        return queues
    if len(bodies) == 1 and len(refused) < len(queues):
        assert outcome == REFUSED_IN_PART
        return [queue for queue in queues if queue not in refused]
    are_paused = all(queue.pause.publish for queue in refused)
    assert outcome == (REFUSED_PAUSED if are_paused else REFUSED_DEPTH)
    return []


class Confirmations:
    """A publisher that waits for durability."""

    def __init__(self) -> None:
        self.waiting: dict[int, list[Published] | list[Planned]] = {}
        self.next_token = 0

    def committed(self, tokens: list[int]) -> None:
        for token in tokens:
            for message in self.waiting.pop(token):
                message.confirmed = True


class Harness:
    """Both sides and the operations on them."""

    def __init__(self, *, cache_bytes_max: int = 0, store: MemoryStore | None = None) -> None:
        self.clock = FakeClock()
        self.oracle = Oracle()
        self.cache_bytes_max = cache_bytes_max
        self.body_count = 0
        self.may_leak = False
        self.stale: list[Claim] = []
        self.shown: dict[tuple[str, int], bytes | None] = {}
        self._attach(MemoryStore() if store is None else store)

    def _attach(self, store: MemoryStore) -> None:
        self.store = store
        self.shard = open_shard(store, self.clock, cache_bytes_max=self.cache_bytes_max)
        self.manager = self.shard.manager
        self._commits_everything = False
        self.shard.commits.on_committed(self._committed)
        self.confirmations = Confirmations()
        self.consumers: list[tuple[OracleConsumer, Consumer, ModelSink]] = []
        self.pullers: dict[OracleQueue, tuple[OracleConsumer, Consumer, ModelSink]] = {}
        self.pools: dict[OraclePool, CreditPool] = {}
        self.plans: dict[tuple[str, int], PublishPlan] = {}

    # queues

    def declare(
        self,
        name: str,
        policy: QueuePolicy,
        topics: tuple[str, ...] = (),
        *,
        durable: bool = True,
        auto_delete: bool = False,
    ) -> None:
        """Declare a queue that is not there."""
        definition = QueueDefinition(
            name, durable=durable, policy=policy, topics=topics, auto_delete=auto_delete
        )
        if durable and name in self.oracle.busy:
            try:
                self.manager.queues.declare(definition, self.clock.ms)
            except QueueBusy:
                return
            raise AssertionError(f"{name} was declared while its records are being removed")
        self.manager.queues.declare(definition, self.clock.ms)
        self.oracle.queues[name] = OracleQueue(
            name,
            policy,
            topics or (f"$queue/{name}/#",),
            durable=durable,
            auto_delete=auto_delete,
            now_ms=self.clock.ms,
        )

    def pause(self, queue: OracleQueue, pause: Pause) -> None:
        """Have the queue take nothing from publishers, or give nothing to consumers, or do so again."""
        self.learn()
        queue.pause = pause
        self.manager.queues.find(queue.name).set_pause(pause)

    def delete(self, queue: OracleQueue) -> None:
        self.learn()
        low, high = queue.ready_bounds()
        high += self._returning_count(queue)
        if not self.manager.queues.find(queue.name).parts[0].retention.is_known:
            self.may_leak = True
        count = self.manager.queues.delete(self.manager.queues.find(queue.name), self.clock.ms)
        assert low <= count <= high
        self._forget(queue)

    def _returning_count(self, queue: OracleQueue) -> int:
        """What is on its way back and counts as waiting, though it may be about to fail."""
        groups = self.manager.queues.find(queue.name).groups
        return sum(cursor.returning.count for group in groups for cursor in group.cursors)

    def _forget(self, queue: OracleQueue) -> None:
        for group in queue.groups.values():
            self.stale += [item.entry for item in group.held()]
        told = set(self.oracle.delete(queue))
        for consumer, _, sink in self.consumers:
            if consumer.group.queue is queue:
                assert sink.cancelled_count == (consumer in told)
        self.consumers = [c for c in self.consumers if c[0].group.queue is not queue]
        self.pullers.pop(queue, None)

    def purge(self, queue: OracleQueue) -> None:
        self.learn()
        low, high = queue.ready_bounds()
        high += self._returning_count(queue)
        count = self.manager.queues.find(queue.name).purge(self.clock.ms)
        assert low <= count <= high
        for message in queue.unmatched():
            message.purged = not queue.groups
            message.passed = True
        for group in queue.groups.values():
            group.purge()

    # publishing

    def publish(self, topic: str, count: int, size: int = 0, delay_ms: int = 0) -> bool:
        """Publish to whatever is bound to the topic; an unknown `$queue/<name>` becomes ephemeral.

        Gives whether all of the queues took it.
        """
        self.learn()
        bodies = []
        first = self.body_count
        for _ in range(count):
            self.body_count += 1
            bodies.append(b"%d" % self.body_count + b"." * size)
        plan = self.plans.get((topic, delay_ms))
        if plan is None:
            options = PublishOptions(delay_ms=delay_ms) if delay_ms else PLAIN
            plan = self.plans[topic, delay_ms] = self.manager.plan(topic, 0, b"", True, options)
        queues = self.oracle.routes(topic)
        if not queues:
            name = topic.split("/")[1]
            queues = [
                OracleQueue(
                    name,
                    DEFAULT_POLICY,
                    (f"$queue/{name}/#",),
                    durable=False,
                    auto_delete=False,
                    now_ms=self.clock.ms,
                )
            ]
            self.oracle.queues[name] = queues[0]
        if not plan.is_current:
            plan.aim(self.manager.publisher.route(topic, self.clock.ms))
        assert {queue.name for queue in plan.queues} == {queue.name for queue in queues}
        assert len(plan.queues) == len(queues), "one queue twice"
        assert plan.durable == any(queue.durable for queue in queues)
        full, perhaps = self._without_room(queues, count, is_later=delay_ms > 0)
        outcome = self.manager.publish(plan, bodies, self.clock.ms)
        takers = _takers(plan, queues, bodies, outcome, full, perhaps)
        for queue in takers:
            if delay_ms:
                due_ms = self.clock.ms + delay_ms
                self._confirm_later(queue, queue.plan(bodies, topic, due_ms, first))
            else:
                self._confirm_later(queue, queue.publish(bodies, topic))
        return len(takers) == len(queues)

    def _without_room(
        self, queues: list[OracleQueue], count: int, *, is_later: bool
    ) -> tuple[set[OracleQueue], set[OracleQueue]]:
        """Queues that cannot take so many messages, and those of which it is not sure."""
        full: set[OracleQueue] = set()
        perhaps: set[OracleQueue] = set()
        for queue in queues:
            depth_max = queue.policy.depth_max
            low, high = queue.depth_bounds()
            high += self._returning_count(queue)
            if queue.pause.publish or (depth_max and not is_later and low + count > depth_max):
                full.add(queue)
            elif depth_max and not is_later and high + count > depth_max:
                perhaps.add(queue)
        return full, perhaps

    def _confirm_later(self, queue: OracleQueue, added: list[Published] | list[Planned]) -> None:
        """They are durable when the open commit is."""
        if queue.durable:
            self.confirmations.next_token += 1
            token = self.confirmations.next_token
            self.confirmations.waiting[token] = added
            self.manager.context.commit.wait(self.confirmations, token)

    def learn(self) -> None:
        """Have the oracle know what has come due and entered its queue."""
        for name, queue in self.oracle.queues.items():
            if queue.planned:
                count = self.manager.queues.find(name).log.next_offset - queue.next_offset
                if count:
                    self._confirm_later(queue, queue.come_due(count, self.clock.ms))

    # consuming

    def subscribe(
        self,
        queue: OracleQueue,
        group_name: str = "",
        pattern: str = "#",
        *,
        credit_max: int = UNLIMITED,
        lease_ms: int = 30_000,
        no_ack: bool = False,
        exclusive: bool = False,
        pool: OraclePool | None = None,
        refuses: bool = False,
        is_told: bool = False,
    ) -> OracleConsumer | None:
        """Add a consumer; None if exclusivity forbids it (then on both sides)."""
        self.learn()
        group = queue.group(group_name, pattern)
        active = [c for c in group.consumers if c.active and not c.puller]
        refused = any(c.exclusive for c in active) or (exclusive and bool(active))
        model = OracleConsumer(
            group,
            credit_max,
            lease_ms,
            no_ack=no_ack,
            exclusive=exclusive,
            pool=pool,
            refuses=refuses,
            is_told=is_told,
        )
        sink = ModelSink(self, model)
        real_pool = None
        if pool is not None:
            real_pool = self.pools.setdefault(pool, CreditPool(pool.credit_max))
        try:
            consumer = self.manager.consumption.subscribe(
                self.manager.queues.find(queue.name),
                group_name,
                pattern,
                sink,
                consumer_id=f"c{len(self.consumers)}",
                credit_max=credit_max,
                no_ack=no_ack,
                exclusive=exclusive,
                lease_ms=lease_ms,
                pool=real_pool,
                is_told_offsets=is_told,
            )
        except AccessRefused:
            assert refused, "a consumer was refused"
            return None
        assert not refused, "an exclusive consumer is not alone"
        group.consumers.append(model)
        self.consumers.append((model, consumer, sink))
        return model

    def note_shown(self, consumer: Consumer, message: Message) -> None:
        """Somebody was told the offset of a message: that will never be another one's, whatever crashes."""
        log = consumer.group.log
        if not log.durable:
            return  # its name and number are free again after a start
        assert message.offset < log.durable_offset, "what is not durable was shown"
        body = self.shown.setdefault((log.log_id, message.offset), message.body)
        assert body == message.body, f"offset {message.offset} was shown with {body!r}"

    def waits_for_commit(self, group: OracleGroup) -> bool:
        """Whether messages of a group may have to be durable before they are handed out, and some are not."""
        real = self.manager.queues.find(group.queue.name).groups.find(group.group_id)
        log = real.log
        return real.cursors[0].backlog.waits and log.durable_offset < log.next_offset

    def unsubscribe(self, index: int, *, keep_claims: bool) -> None:
        """Take away the consumer at `index` of `consumers`."""
        model, consumer, _ = self.consumers[index]
        if not keep_claims:
            self.stale += [item.entry for item in model.held.values() if item.entry is not None]
            del self.consumers[index]
        queue = model.group.queue
        goes = self.oracle.unsubscribe(model, self.clock.ms, keep_claims=keep_claims)
        self.manager.consumption.unsubscribe(consumer, self.clock.ms, keep_claims=keep_claims)
        assert (queue.name not in self.manager.queues) == goes
        if goes:
            self._forget(queue)

    def pull(self, queue: OracleQueue, *, no_ack: bool) -> bool:
        """Take a message as AMQP `basic.get` does, also beside an exclusive consumer; whether it got one."""
        self.learn()
        if queue not in self.pullers:
            group = queue.group("")
            model = OracleConsumer(group, UNLIMITED, 30_000, puller=True)
            group.consumers.append(model)
            sink = ModelSink(self, model)
            real = self.manager.consumption.puller(
                self.manager.queues.find(queue.name), sink, "get", lease_ms=30_000
            )
            self.pullers[queue] = (model, real, sink)
        model, real, _ = self.pullers[queue]
        model.no_ack = no_ack
        queue.unused_since_ms = self.clock.ms
        before = len(model.received)
        for _ in range(ROUNDS_MAX):
            answer = self.manager.consumption.pull(real, no_ack, self.clock.ms)
            if answer is not None:
                break
            if not has_to_go_on(self.shard):
                assert self.waits_for_commit(model.group), "a pull waits for nothing"
                self.commit(everything=False)
            load(self.shard)
        else:
            raise AssertionError("a pull waits for ever")
        assert len(model.received) - before == answer
        if not answer:
            assert model.group.ready_bounds()[0] == 0 or queue.pause.deliver, "a pull found nothing"
        return bool(answer)

    # settling

    def settle(self, kind: str, items: list[tuple[OracleGroup, Item]]) -> None:
        """Ack, requeue or reject held items, in this order."""
        claims = [item.entry for _, item in items]
        call = {"ack": self.manager.ack, "requeue": self.manager.requeue, "reject": self.manager.reject}[kind]
        for group, item in items:
            if kind == "requeue":
                group.give_back(item)
            else:
                group.settle(item, DONE if kind == "ack" else FAILED)
        assert call(claims, self.clock.ms) == 0, "a settle of a held message came too late"
        self.stale += claims

    def settle_late(self, kind: str, claims: list[Claim]) -> None:
        """Settle what is not held any more: nothing may happen."""
        call = {"ack": self.manager.ack, "requeue": self.manager.requeue, "reject": self.manager.reject}[kind]
        assert call(claims, self.clock.ms) == len(claims), "a late settle was taken"

    def extend(self, item: Item, lease_ms: int) -> None:
        assert self.manager.consumption.extend(item.entry, lease_ms, self.clock.ms)
        item.deadline_ms = self.clock.ms + lease_ms

    # time, store

    def advance(self, ms: int) -> None:
        """Let time pass and have overdue claims returned."""
        self.clock.ms += ms
        self._expiring(lambda: self.manager.expire(self.clock.ms))

    def sweep(self) -> None:
        self._expiring(lambda: drive(self.shard.sweep_once()))
        if not self.manager.queues.removing:
            self.oracle.busy = set()

    def _expiring(self, call: Any) -> None:
        sinks = {model: sink for model, _, sink in [*self.consumers, *self.pullers.values()]}
        for sink in sinks.values():
            sink.revoked_offsets = set()
        held = [(item, item.entry) for _, item in self.held_items()]
        lost, gone = self.oracle.expire(self.clock.ms)
        self.stale += [entry for item, entry in held if item.entry is not entry]
        told = [model for queue in gone for model in self.oracle.delete(queue)]
        call()
        self.learn()
        for model, sink in sinks.items():
            assert sink.revoked_offsets == lost.get(model, set()), "other leases ended"
            if model in told and not model.puller:
                assert sink.cancelled_count == 1
        for queue in gone:
            assert queue.name not in self.manager.queues, "an unused ephemeral queue stays"
            self.consumers = [c for c in self.consumers if c[0].group.queue is not queue]
            self.pullers.pop(queue, None)
        assert {queue.name for queue in self.manager.queues} == set(self.oracle.queues)

    def quiesce(self) -> None:
        """Dispatch and load until nothing moves; then nobody with credit may be left without a message."""
        for _ in range(ROUNDS_MAX):
            self.manager.dispatch(self.clock.ms)
            if not has_to_go_on(self.shard):
                break
            load(self.shard)
        else:
            raise AssertionError("loading never ends")
        self.learn()
        for queue in self.oracle.queues.values():
            if queue.pause.deliver:
                continue
            self._check_unmatched(queue)
            for group in queue.groups.values():
                if any(c.credit() > 0 for c in group.consumers if not (c.puller or self._stands_back(c))):
                    must = [offset for offset in group.ready if not group.items[offset].optional]
                    if must and self.waits_for_commit(group):
                        continue
                    assert not must, (
                        f"{queue.name}:{group.group_id} keeps {must[:5]} from consumers with credit"
                    )

    def _check_unmatched(self, queue: OracleQueue) -> None:
        """What no group wants is kept, as far as that is known already, and counted as such."""
        real = self.manager.queues.find(queue.name)
        if queue.groups and all(part.retention.is_known for part in real.parts):
            assert real.unwanted_count() == len(queue.unmatched()), f"{queue.name} counts others"

    def _stands_back(self, consumer: OracleConsumer) -> bool:
        return any(model is consumer and stands_back(real) for model, real, _ in self.consumers)

    def commit(self, *, everything: bool) -> None:
        self.learn()
        self._commits_everything = everything
        drive(self.shard.commit_once(everything=everything))
        self._note_everything()

    def _committed(self) -> None:
        """A commit is durable; what is delivered after it is not in it."""
        self.oracle.committed()
        self._note_everything()

    def _note_everything(self) -> None:
        if self._commits_everything:
            self._commits_everything = False
            self.oracle.committed_everything(self._is_coming_back)

    def _is_coming_back(self, group: OracleGroup) -> bool:
        real = self.manager.queues.find(group.queue.name).groups.find(group.group_id)
        return any(cursor.returning.count for cursor in real.cursors)

    def load(self) -> None:
        load(self.shard)
        self.learn()

    def crash(self, bucket_size: int | None = None) -> None:
        """End the process where it is, and start another on what is durable."""
        self.learn()
        self.may_leak |= self.is_releasing()
        store = self.store.crash()
        check_ownership(all_rows(store), may_leak=self.may_leak)
        self.oracle.restart(self.clock.ms)
        self.stale = []
        if bucket_size is not None:
            self._change_bucket_size(store, bucket_size)
        self._attach(store)
        self.oracle.busy = {
            split_level_name(removal.name)[0]
            for removal in self.manager.context.removals
            if isinstance(removal, QueueRemoval)
        }
        assert not self.oracle.busy & set(self.oracle.queues)
        assert {queue.name for queue in self.manager.queues} == set(self.oracle.queues)
        for name, queue in self.oracle.queues.items():
            assert set(self.manager.queues.find(name).groups.ids()) == set(queue.groups)

    def _change_bucket_size(self, store: MemoryStore, bucket_size: int) -> None:
        ops = WriteOps()
        for queue in self.oracle.queues.values():
            queue.policy = QueuePolicy(**{**queue.policy.fields(), "bucket_size": bucket_size})
            key = queue_spec.key(queue.name)
            value = drive(store.get(key))
            assert value is not None
            spec = queue_spec.decode(value)
            fields = {**json.loads(spec.extensions["policy"]), "bucket_size": bucket_size}
            extensions = {**spec.extensions, "policy": json.dumps(fields).encode()}
            ops.put(
                key,
                queue_spec.encode(replace(spec, bucket_exponent=bucket_size, extensions=extensions)),
            )
        if len(ops):
            drive(MemoryStore.write(store, ops))  # not one of the broker's writes

    # comparing

    def check_counts(self) -> None:
        """Waiting and in-flight counts of both sides."""
        self.learn()
        invariants.check(self.manager)
        assert {queue.name for queue in self.manager.queues} == set(self.oracle.queues)
        for name, model in self.oracle.queues.items():
            queue = self.manager.queues.find(name)
            assert set(queue.groups.ids()) == set(model.groups)
            assert queue.consumer_count() == len(model.consumers())
            assert queue.log.next_offset == model.next_offset
            assert queue.pause == model.pause
            for group_id, group in model.groups.items():
                real = queue.groups.find(group_id)
                assert real.in_flight_count() == len(group.held())
                low, high = group.ready_bounds()
                assert real.ready_count() >= low, f"{name}:{group_id} lost messages"
                # what is on its way back may have used up its attempts
                returning = sum(cursor.returning.count for cursor in real.cursors)
                assert real.ready_count() <= high + returning, f"{name}:{group_id} counts too many"
        for pool, real_pool in self.pools.items():
            assert real_pool.in_flight == pool.held
        for consumer, real_consumer, _ in self.consumers:
            held = consumer.held
            assert set(real_consumer.in_flight) == set(held)
            assert real_consumer.bytes_in_flight == sum(len(i.message.body) for i in held.values())

    def is_releasing(self) -> bool:
        """Whether payloads are still to be let go of, and only memory knows."""
        manager = self.manager
        return bool(
            manager.queues.removing
            or any(isinstance(removal, RangeRemoval) for removal in manager.context.removals)
            or manager.context.skipping
            or manager._unread_purges
            or any(
                self._takes_references_back(j) for j in (manager.context.commit, *self.shard.commits._sealed)
            )
        )

    def _takes_references_back(self, commit: Commit) -> bool:
        prefix = payload_refs.prefix()
        counted = [key for key in commit.puts if key.startswith(prefix)]
        return any(key.startswith(prefix) for key in commit.deletes) or any(
            drive(self.store.get(key)) is not None for key in counted
        )

    def held_items(self) -> list[tuple[OracleGroup, Item]]:
        """Everything in flight, in order."""
        return [
            (group, item)
            for queue in self.oracle.queues.values()
            for group in queue.groups.values()
            for item in group.items.values()
            if item.state not in (READY, DONE, FAILED)
        ]
