"""What the models that drive one shard have in common: how it is opened, used, brought to rest and ended."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from queue_manager.claims.claim import UNLIMITED, Claim, Consumer
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.group.group import Group
from queue_manager.manager import QueueManager
from queue_manager.model import Message
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import REFUSED_PAUSED, REFUSED_SIZE
from queue_manager.policy import Pause, QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from tests.memory_store import MemoryStore
from tests.model.harness import DEFAULT_POLICY, FakeClock, has_to_go_on, load, open_shard, run
from tests.model.leaks import all_rows, check_ownership
from tests.model.tight_limits import TIGHT, Limits, TightLimits

ROUNDS_MAX = 10_000


class QuietSink:
    """A sink that is not interested in how claims and consumers end."""

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class Taker(QuietSink):
    """Keeps messages with their claims; None: it got no claim. `refuses`: nothing can be sent to it."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.taken: list[tuple[Message, Claim | None]] = []
        self.refuses = refuses

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        self.taken += zip(messages, claims or [None] * len(messages), strict=True)
        return not self.refuses

    def bodies(self) -> list[bytes]:
        """What it was given."""
        return [message.body or b"" for message, _ in self.taken]

    def claims(self) -> list[Claim]:
        """What it holds, or held."""
        return [claim for _, claim in self.taken if claim is not None]


class Reader(Taker):
    """A taker that stays to the end, with all it was given."""

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        raise AssertionError("leases end")

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        raise AssertionError("its queue is gone")


class ShardModel(RuleBasedStateMachine):
    """A shard on a store in memory, and its time. A model attaches it as it begins, and after each crash.

    `default_policy`, `auto_create` and `cache_bytes_max` are what it is opened with.
    """

    default_policy: ClassVar[QueuePolicy] = DEFAULT_POLICY
    auto_create: ClassVar[bool] = True
    lease_ms: ClassVar[int] = 30_000  # of consumers
    cache_bytes_max = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self._changed_limits: list[TightLimits] = []

    def tighten(self, values_of: Limits = TIGHT) -> None:
        """Set limits for the rest of this life."""
        self._changed_limits.append(TightLimits(values_of))

    def relax(self) -> None:
        """Set them back."""
        while self._changed_limits:
            self._changed_limits.pop().undo()

    def attach(self, store: MemoryStore) -> None:
        """Begin a process on what is in `store`."""
        check_ownership(all_rows(store), may_leak=True)
        self.store = store
        self.shard = open_shard(
            store,
            self.clock,
            default_policy=self.default_policy,
            auto_create=self.auto_create,
            cache_bytes_max=self.cache_bytes_max,
            readers=self.install_readers,
        )
        self.manager = self.shard.manager

    def install_readers(self, manager: QueueManager) -> None:
        """Have properties mean something to the core."""

    # the loops of the broker

    def rest(self) -> None:
        """Let timers, deliveries and loads run until nothing is left to do now."""
        context = self.manager.context
        for _ in range(ROUNDS_MAX):
            self.manager.fire_timers(self.clock.ms)
            due_ms = context.timers.next_ms()
            if has_to_go_on(self.shard):
                load(self.shard)
            elif due_ms is None or due_ms > self.clock.ms:
                return
        raise AssertionError("it never comes to rest")

    def commit_all(self) -> None:
        """Write everything that was done."""
        run(self.shard.commit_once(everything=True))

    def sweep_once(self) -> None:
        """Clean up."""
        run(self.shard.sweep_once())

    # publishing, consuming

    def plan(
        self, topic: str, options: PublishOptions = PLAIN, *, kind: int = 0, properties: bytes = b""
    ) -> PublishPlan:
        """A plan for the queues that take the topic now."""
        plan = self.manager.plan(topic, kind, properties, True, options)
        plan.aim(self.manager.publisher.route(topic, self.clock.ms))
        return plan

    def add_consumer(
        self,
        queue: Queue,
        sink: Any,
        group: str = "",
        *,
        pattern: str = "#",
        credit_max: int = UNLIMITED,
        no_ack: bool = False,
        selector: str = "",
        **options: Any,
    ) -> Consumer:
        """Subscribe `sink`, which takes what its `selector` matches."""
        return self.manager.consumption.subscribe(
            queue,
            group,
            pattern,
            sink,
            consumer_id="c",
            credit_max=credit_max,
            no_ack=no_ack,
            exclusive=False,
            lease_ms=self.lease_ms,
            wanted=consumer_filter(selector, {}),
            **options,
        )

    def add_puller(self, queue: Queue, sink: Any, group: Group | None = None) -> Consumer:
        """A consumer for `pull_one`, of the default group unless told otherwise."""
        return self.manager.consumption.puller(queue, sink, "p", lease_ms=self.lease_ms, group=group)

    def pull_one(self, consumer: Consumer, *, no_ack: bool = False) -> bool:
        """Take one message as AMQP `basic.get` does; whether there was one."""
        for _ in range(ROUNDS_MAX):
            answer = self.manager.consumption.pull(consumer, no_ack, self.clock.ms)
            if answer is not None:
                return answer  # type: ignore[return-value]
            if has_to_go_on(self.shard):
                load(self.shard)
            else:
                self.commit_all()  # what there is has to be durable first
        raise AssertionError("a pull waits for ever")

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let it go; what it holds comes back."""
        self.manager.consumption.unsubscribe(consumer, self.clock.ms)

    # what leaves no trace, whatever there is

    def _pick_queue(self, pick: int) -> Queue | None:
        queues = sorted(self.manager.queues, key=lambda queue: queue.name) if hasattr(self, "shard") else []
        return queues[pick % len(queues)] if queues else None

    @rule(
        pick=st.integers(0, 20), why=st.sampled_from(["paused", "size"]), delay_ms=st.sampled_from([0, 1_000])
    )
    def be_refused(self, pick: int, why: str, delay_ms: int) -> None:
        """Publishes that no queue takes: nothing of them is anywhere."""
        queue = self._pick_queue(pick)
        topic = "" if queue is None else f"$queue/{queue.name}"
        route = self.manager.queues.bindings.route(topic) if topic else None
        if queue is None or route is None or not route.queues:
            return
        plan = self.manager.plan(topic, 0, b"", True, PublishOptions(delay_ms=delay_ms))
        plan.aim(route)
        taken = [part.log.next_offset for each in route.queues for part in each.parts]
        pauses = [each.pause for each in route.queues]
        bodies = [b"x"]
        if why == "paused":
            for each in route.queues:
                each.set_pause(each.pause.joined(Pause(publish=True)))
            expected = REFUSED_PAUSED
        else:
            bodies = [b"x" * (1 + min(each.policy.message_bytes_max for each in route.queues))]
            expected = REFUSED_SIZE
        assert self.manager.publish(plan, bodies, self.clock.ms) == expected
        assert self.manager.publish(plan, bodies * 2, self.clock.ms) == expected
        for each, pause in zip(route.queues, pauses, strict=True):
            each.set_pause(pause)
        assert taken == [part.log.next_offset for each in route.queues for part in each.parts]

    @rule(pick=st.integers(0, 20), loads=st.booleans())
    def be_held(self, pick: int, loads: bool) -> None:
        """A queue gives nothing for a while, and goes on then."""
        queue = self._pick_queue(pick)
        if queue is None:
            return
        pause = queue.pause
        queue.set_pause(pause.joined(Pause(deliver=True)))
        before = sum(group.in_flight_count() for group in queue.groups)
        self.manager.dispatch(self.clock.ms)
        if loads:
            load(self.shard)
            self.manager.dispatch(self.clock.ms)
        assert sum(group.in_flight_count() for group in queue.groups) <= before
        queue.set_pause(pause)

    # the end

    def teardown(self) -> None:
        """See that nothing is left over, unless the life has failed already."""
        try:
            if hasattr(self, "shard") and sys.exc_info()[0] is None:
                self.finish()
        finally:
            self.relax()

    def finish(self) -> None:
        """Do what is left to do, and look at what there is then."""
