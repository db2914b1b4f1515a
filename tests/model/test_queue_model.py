"""Random lives of a broker's queues, every step compared with `tests.model.oracle`."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queue_manager.claims.claim import UNLIMITED
from queue_manager.policy import FOREVER, NOT_PAUSED, Pause, QueuePolicy
from tests.model.drain import drain
from tests.model.harness import Harness
from tests.model.oracle import OraclePool, OracleQueue
from tests.model.tight_limits import TightLimits

MINUTE_MS = 60_000
TOPICS = {  # bindings overlap on purpose
    "orders": ("$queue/orders/#", "shop/+/new"),
    "audit": ("$queue/audit/#", "shop/#"),
    "jobs": (),
    "temp": ("$queue/temp/#", "shop/eu/#"),
    "reply": (),
}
EPHEMERAL = {"temp", "reply"}
PUBLISHED = (
    "shop/eu/new",
    "shop/us/new",
    "shop/eu/old",
    "$queue/orders",
    "$queue/orders/eu",
    "$queue/orders/eu/1",
    "$queue/audit/x",
    "$queue/jobs/eu",
    "$queue/jobs/us/1",
    "$queue/temp/eu",
    "$queue/reply",
    "$queue/auto/eu",
)
PATTERNS = ("#", "#", "#", "eu/#", "+", "shop/#", "shop/+/new")
GROUPS = ("", "", "billing")
policies = st.builds(
    QueuePolicy,
    visibility_timeout_ms=st.just(30_000),
    message_bytes_max=st.sampled_from([1 << 20, 1 << 20, 1_000]),
    depth_max=st.sampled_from([0, 0, 0, 3, 50]),
    done_retention_ms=st.sampled_from([0, 0, MINUTE_MS, FOREVER]),
    bucket_size=st.integers(0, 2),
    attempts_max=st.sampled_from([0, 0, 0, 2]),
    expires_ms=st.sampled_from([0, 300_000]),
)
SHARED = [topic for topic in PUBLISHED if topic.startswith("shop")]
steps = st.lists(
    st.sampled_from(["dispatch", "step", "load", "commit", "commit all", "sweep", "sleep 30", "sleep 61000"]),
    max_size=4,
)
picks = st.lists(st.integers(0, 10_000), min_size=1, max_size=30)
dispatching = st.booleans()


class QueueModel(RuleBasedStateMachine):
    """Every operation of the queue manager's public door, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: TightLimits | None = None

    @initialize(
        tight=st.integers(0, 3),
        cache_bytes_max=st.sampled_from([0, 0, 100_000]),
        first=policies,
        second=policies,
    )
    def begin(self, tight: int, cache_bytes_max: int, first: QueuePolicy, second: QueuePolicy) -> None:
        if tight:
            self.limits = TightLimits()
        self.h = Harness(cache_bytes_max=cache_bytes_max)
        self.h.declare("orders", first, TOPICS["orders"])
        self.h.declare("audit", second, TOPICS["audit"])

    def pick_queue(self, pick: int) -> OracleQueue:
        queues = list(self.h.oracle.queues.values())
        return queues[pick % len(queues)]

    def after(self, dispatch: bool) -> None:
        if dispatch:
            self.h.quiesce()

    def take(self, steps: list[str]) -> None:
        """Steps of the broker's background tasks."""
        for step in steps:
            if step == "dispatch":
                self.h.manager.dispatch(self.h.clock.ms)
            elif step == "step":
                self.h.manager.take_step(self.h.clock.ms)
            elif step == "load":
                self.h.load()
            elif step == "sweep":
                self.h.sweep()
            elif step.startswith("sleep"):
                self.h.advance(int(step.split()[1]))
            else:
                self.h.commit(everything=step == "commit all")

    # queues

    @rule(name=st.sampled_from(sorted(TOPICS)), policy=policies, auto_delete=st.integers(0, 9))
    def declare(self, name: str, policy: QueuePolicy, auto_delete: int) -> None:
        if name not in self.h.oracle.queues:
            durable = name not in EPHEMERAL
            self.h.declare(
                name, policy, TOPICS[name], durable=durable, auto_delete=not durable and auto_delete == 9
            )

    @precondition(lambda self: self.h.oracle.queues)
    @rule(pick=st.integers(0, 100), delete=st.booleans())
    def purge_or_delete(self, pick: int, delete: bool) -> None:
        if delete:
            self.h.delete(self.pick_queue(pick))
        else:
            self.h.purge(self.pick_queue(pick))

    # publishing and consuming

    @rule(
        topic=st.sampled_from(PUBLISHED),
        count=st.one_of(st.integers(1, 4), st.integers(1, 40), st.integers(1, 300)),
        size=st.sampled_from([0, 0, 10, 1_300]),
        delay_ms=st.sampled_from([0, 0, 0, 1, 1_000, 45_000]),
        dispatch=dispatching,
    )
    def publish(self, topic: str, count: int, size: int, delay_ms: int, dispatch: bool) -> None:
        if not self.h.oracle.routes(topic) and not topic.startswith("$queue"):
            topic = "$queue/orders/eu"
        if not self.h.publish(topic, count, size, delay_ms) and count <= 4:
            for _ in range(count):  # part of them may fit
                self.h.publish(topic, 1, size, delay_ms)
        self.after(dispatch)

    @precondition(lambda self: self.h.oracle.queues)
    @rule(pick=st.integers(0, 100), publish=st.booleans(), deliver=st.booleans(), dispatch=dispatching)
    def pause(self, pick: int, publish: bool, deliver: bool, dispatch: bool) -> None:
        self.h.pause(self.pick_queue(pick), Pause(publish=publish, deliver=deliver))
        self.after(dispatch)

    @precondition(lambda self: any(q.pause != NOT_PAUSED for q in self.h.oracle.queues.values()))
    @rule(dispatch=dispatching)
    def resume(self, dispatch: bool) -> None:
        for queue in self.h.oracle.queues.values():
            self.h.pause(queue, NOT_PAUSED)
        self.after(dispatch)

    @rule(
        count=st.integers(5, 60),
        topics=st.lists(st.sampled_from(SHARED), min_size=1, max_size=3),
        steps=steps,
    )
    def publish_mixed(self, count: int, topics: list[str], steps: list[str]) -> None:
        for topic in topics:
            if self.h.oracle.routes(topic):
                self.h.publish(topic, count)
        self.take(steps)

    @precondition(lambda self: self.h.oracle.queues)
    @rule(
        pick=st.integers(0, 100),
        group=st.sampled_from(GROUPS),
        pattern=st.sampled_from(PATTERNS),
        credit=st.sampled_from([1, 2, 5, 30, 200, UNLIMITED]),
        lease_ms=st.sampled_from([1_000, 30_000]),
        no_ack=st.integers(0, 4),
        exclusive=st.integers(0, 9),
        pooled=st.integers(0, 3),
        told=st.integers(0, 3),
        dispatch=dispatching,
    )
    def subscribe(
        self,
        pick: int,
        group: str,
        pattern: str,
        credit: int,
        lease_ms: int,
        no_ack: int,
        exclusive: int,
        pooled: int,
        told: int,
        dispatch: bool,
    ) -> None:
        pool = None
        if pooled == 0 and no_ack:
            pool = OraclePool(7)
            if len(self.h.pools) and credit > 2:
                pool = next(iter(self.h.pools))
        self.h.subscribe(
            self.pick_queue(pick),
            group,
            pattern,
            credit_max=credit,
            lease_ms=lease_ms,
            no_ack=no_ack == 0,
            exclusive=exclusive == 0,
            pool=pool,
            is_told=told == 0,
        )
        self.after(dispatch)

    @precondition(lambda self: self.h.consumers)
    @rule(pick=st.integers(0, 100), keep_claims=st.booleans(), dispatch=dispatching)
    def unsubscribe(self, pick: int, keep_claims: bool, dispatch: bool) -> None:
        index = pick % len(self.h.consumers)
        if self.h.consumers[index][0].active:
            self.h.unsubscribe(index, keep_claims=keep_claims)
            self.after(dispatch)

    @precondition(lambda self: self.h.oracle.queues)
    @rule(
        pick=st.integers(0, 100),
        group=st.sampled_from(GROUPS),
        pattern=st.sampled_from(PATTERNS),
        no_ack=st.booleans(),
        dispatch=dispatching,
    )
    def refuse(self, pick: int, group: str, pattern: str, no_ack: bool, dispatch: bool) -> None:
        """A consumer comes that nothing can be sent to, and goes again."""
        queue = self.pick_queue(pick)
        if self.h.subscribe(queue, group, pattern, no_ack=no_ack, refuses=True) is not None:
            self.h.quiesce()
            self.h.unsubscribe(len(self.h.consumers) - 1, keep_claims=False)
            self.after(dispatch)

    @precondition(lambda self: self.h.oracle.queues)
    @rule(pick=st.integers(0, 100), count=st.integers(1, 12), no_ack=st.booleans())
    def pull(self, pick: int, count: int, no_ack: bool) -> None:
        queue = self.pick_queue(pick)
        for _ in range(count):
            if not self.h.pull(queue, no_ack=no_ack):
                break

    # settling

    @precondition(lambda self: self.h.held_items())
    @rule(
        kind=st.sampled_from(["ack", "ack", "ack", "requeue", "reject"]),
        picks=picks,
        dispatch=dispatching,
    )
    def settle(self, kind: str, picks: list[int], dispatch: bool) -> None:
        held = self.h.held_items()
        chosen = dict.fromkeys(pick % len(held) for pick in picks)
        self.h.settle(kind, [held[index] for index in chosen])
        self.after(dispatch)

    @precondition(lambda self: self.h.held_items())
    @rule(kind=st.sampled_from(["ack", "ack", "requeue"]), dispatch=dispatching)
    def settle_everything(self, kind: str, dispatch: bool) -> None:
        self.h.settle(kind, self.h.held_items())
        self.after(dispatch)

    @precondition(lambda self: self.h.stale)
    @rule(kind=st.sampled_from(["ack", "requeue", "reject"]), picks=picks)
    def settle_late(self, kind: str, picks: list[int]) -> None:
        stale = self.h.stale
        self.h.settle_late(kind, [stale[pick % len(stale)] for pick in picks])

    @precondition(lambda self: self.h.held_items())
    @rule(pick=st.integers(0, 1_000), lease_ms=st.sampled_from([500, 30_000, 100_000]))
    def extend(self, pick: int, lease_ms: int) -> None:
        held = self.h.held_items()
        self.h.extend(held[pick % len(held)][1], lease_ms)

    # the driver's steps

    @rule(steps=steps, ms=st.sampled_from([0, 700, 5_000, 31_000, 301_000]))
    def background(self, steps: list[str], ms: int) -> None:
        if ms:
            self.h.advance(ms)
        self.take(steps)

    @rule(steps=steps)
    def quiesce(self, steps: list[str]) -> None:
        self.take(steps)
        self.h.quiesce()

    @rule(
        whole=st.booleans(),
        bucket_size=st.one_of(st.none(), st.integers(0, 2)),
        ms=st.sampled_from([0, 1_000, 100_000]),
    )
    def restart(self, whole: bool, bucket_size: int | None, ms: int) -> None:
        if whole:
            self.h.commit(everything=True)
        self.h.clock.ms += ms
        self.h.crash(bucket_size)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "h"):
            self.h.check_counts()

    def teardown(self) -> None:
        try:
            if hasattr(self, "h") and sys.exc_info()[0] is None:  # else it failed already
                drain(self.h)
        finally:
            if self.limits is not None:
                self.limits.undo()


QUICK = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=4_000, stateful_step_count=80)


class TestQueueModel(QueueModel.TestCase):  # type: ignore[misc, name-defined]
    settings = QUICK


@pytest.mark.long
@pytest.mark.timeout(3_600)
class TestQueueModelLong(QueueModel.TestCase):  # type: ignore[misc, name-defined]
    settings = LONG
