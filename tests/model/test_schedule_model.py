"""Random lives of scheduled messages: due order, horizon, cancelling and crashes against a simple oracle."""

from __future__ import annotations

import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.engine.client.scheduled import cancel_scheduled, list_scheduled
from config import limits
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.rules.stored_window import EVERYTHING
from queue_manager.spec_records import QueueDefinition
from storage.records import payload, scheduled
from tests.memory_store import MemoryStore
from tests.model.harness import drive
from tests.model.leaks import all_rows
from tests.model.shard_model import Reader, ShardModel

POLICY = QueuePolicy(
    visibility_timeout_ms=30_000, message_bytes_max=1 << 20, done_retention_ms=FOREVER, expires_ms=0
)
TIGHT = {"SCHEDULE_WINDOW_MESSAGES": 4, "SCHEDULE_STEP_MESSAGES": 3, "SCHEDULE_NEAR_MS": 50}
QUEUES = {"a": ("$queue/a", "$queue/both"), "b": ("$queue/b", "$queue/both"), "mem": ("$queue/mem",)}
TOPICS = ("$queue/a", "$queue/a", "$queue/b", "$queue/both", "$queue/mem")
YEARS_MS = 3 * 365 * 86_400_000


class OracleState:
    """What each queue has in its log, and what it will have: (due_ms, number, body) in order."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.pending: dict[str, list[tuple[int, int, bytes]]] = {name: [] for name in QUEUES}

    def come_due(self, now_ms: int) -> None:
        for name, pending in self.pending.items():
            pending.sort()
            while pending and pending[0][0] <= now_ms:
                self.logs[name].append(pending.pop(0)[2])


class ScheduleModel(ShardModel):
    """Publish now and later, let time pass, cancel, commit, crash."""

    default_policy = POLICY
    auto_create = False

    def __init__(self) -> None:
        super().__init__()
        self.oracle = OracleState()
        self.durable = copy.deepcopy(self.oracle)
        self.number = 0

    @initialize(tight=st.booleans())
    def begin(self, tight: bool) -> None:
        if tight:
            self.tighten({limits: TIGHT})
        self.attach(MemoryStore())
        self.declare()
        self.commit()

    def declare(self) -> None:
        for name, topics in QUEUES.items():
            if name not in self.manager.queues:
                definition = QueueDefinition(name, durable=name != "mem", policy=POLICY, topics=topics)
                queue = self.manager.queues.declare(definition, self.clock.ms)
                queue.group("")  # keeps the log

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.shard.commits.on_committed(self.committed)
        self.shard.wake = self.fire_due  # type: ignore[method-assign]

    def fire_due(self) -> None:
        """Timers fire between one load and the next, too."""
        timers = self.manager.context.timers
        for _ in range(2_000):
            due_ms = timers.next_ms()
            if due_ms is None or due_ms > self.clock.ms:
                return
            self.manager.fire_timers(self.clock.ms)
        raise AssertionError("a timer spins")

    def committed(self) -> None:
        self.durable = copy.deepcopy(self.oracle)

    def settle(self) -> None:
        """Let timers and loads run until nothing is left to do now."""
        self.rest()
        self.oracle.come_due(self.clock.ms)

    # what may happen

    @rule(
        topic=st.sampled_from(TOPICS),
        delays=st.lists(st.sampled_from([0, 1, 40, 60, 1_000, 1_000, 5_000, YEARS_MS]), max_size=6),
        absolute=st.booleans(),
    )
    def publish(self, topic: str, delays: list[int], absolute: bool) -> None:
        for delay_ms in delays:
            self.number += 1
            body = b"%d" % self.number
            options = PublishOptions(delay_ms=delay_ms)
            if absolute:
                options = PublishOptions(deliver_at_ms=self.clock.ms + delay_ms)
            plan = self.plan(topic, options)
            assert self.manager.publish(plan, [body], self.clock.ms) == ACCEPTED
            for queue in plan.queues:
                if delay_ms:
                    self.oracle.pending[queue.name].append((self.clock.ms + delay_ms, self.number, body))
                else:
                    self.oracle.logs[queue.name].append(body)
        self.settle()

    @rule(ms=st.sampled_from([1, 20, 100, 900, 5_000, YEARS_MS]))
    def advance(self, ms: int) -> None:
        self.clock.ms += ms
        self.settle()

    @rule()
    def commit(self) -> None:
        self.commit_all()

    @rule()
    def crash(self) -> None:
        self.attach(self.store.crash())
        self.oracle = copy.deepcopy(self.durable)
        self.oracle.logs["mem"] = []
        self.oracle.pending["mem"] = []
        self.declare()
        self.settle()

    @precondition(lambda self: any(self.oracle.pending.values()))
    @rule(pick=st.integers(0, 1_000))
    def cancel(self, pick: int) -> None:
        name = sorted(name for name, pending in self.oracle.pending.items() if pending)[0]
        wanted = sorted(self.oracle.pending[name])[pick % len(self.oracle.pending[name])]
        rows = drive(list_scheduled(self.shard, name, limit=1_000))
        key = [(row.due_ms, row.message_id) for row in rows][sorted(self.oracle.pending[name]).index(wanted)]
        self.oracle.pending[name].remove(wanted)
        assert drive(cancel_scheduled(self.shard, name, *key))
        self.settle()
        assert not drive(cancel_scheduled(self.shard, name, *key)), "cancelled twice"

    @rule(name=st.sampled_from(sorted(QUEUES)), page=st.integers(1, 5))
    def look(self, name: str, page: int) -> None:
        after = (0, 0)
        found = []
        while rows := drive(list_scheduled(self.shard, name, after=after, limit=page)):
            found += [row.due_ms for row in rows]
            after = (rows[-1].due_ms, rows[-1].message_id)
        assert found == sorted(due_ms for due_ms, _, _ in self.oracle.pending[name])

    @rule(name=st.sampled_from(["a", "b"]))
    def delete(self, name: str) -> None:
        self.commit()
        self.sweep_once()  # before it shared payloads of a log are left alone
        self.commit()
        self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
        self.oracle.logs[name] = []
        self.oracle.pending[name] = []
        for _ in range(5):
            self.commit()
            self.sweep_once()
        self.declare()
        self.commit()
        self.settle()

    # what must hold

    @invariant()
    def counts(self) -> None:
        for queue in self.manager.queues:
            name = queue.name
            assert queue.rules.scheduled_count() == len(self.oracle.pending[name]), name
            assert queue.log.next_offset == len(self.oracle.logs[name]), name
            schedule = queue.rules._schedule
            if schedule is not None and schedule.horizon != EVERYTHING:
                assert len(schedule.rows) <= 2 * limits.SCHEDULE_WINDOW_MESSAGES

    def finish(self) -> None:
        self.advance(10 * YEARS_MS)
        self.commit()
        for name in QUEUES:
            reader = Reader()
            self.add_consumer(self.manager.queues.find(name), reader, "all", no_ack=True)
            self.settle()
            assert reader.bodies() == self.oracle.logs[name], name
        rows = all_rows(self.store)
        assert not [key for key, _ in rows if key.startswith(scheduled.prefix())]
        held = {body for name in ("a", "b") for body in self.oracle.logs[name]}
        assert {value for key, value in rows if key.startswith(payload.prefix())} == held


TestScheduleModel = ScheduleModel.TestCase
TestScheduleModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestScheduleModelLong(ScheduleModel.TestCase):
    settings = settings(max_examples=1_500, stateful_step_count=50, deadline=None)


def test_reading_on_stays_within_the_window() -> None:
    model = ScheduleModel()
    model.begin(tight=True)
    for delays in ([1], [60, 60, 60, 60], None, [1], [40], [40], [1, 40, 40, 40]):
        if delays is None:
            model.commit()
        else:
            model.publish(absolute=False, delays=delays, topic="$queue/a")
    model.advance(ms=1)
    model.counts()
    model.teardown()
