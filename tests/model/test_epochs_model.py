"""Random lives of staged epochs: attempts, commits, aborts, purges and crashes against a simple oracle."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from config import limits
from queue_manager.errors import PreconditionFailed
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.rules.staging.attempt import Attempt
from queue_manager.rules.staging.sweeps import Sweep
from queue_manager.rules.stored_window import EVERYTHING
from queue_manager.spec_records import QueueDefinition
from queue_manager.stage_tags import EpochPart, StageTag
from storage.records import committed_epoch, epoch, payload, staged_rows
from tests.memory_store import MemoryStore
from tests.model.harness import load
from tests.model.leaks import all_rows
from tests.model.shard_model import Reader, ShardModel

POLICY = QueuePolicy(
    visibility_timeout_ms=30_000, message_bytes_max=1 << 20, done_retention_ms=FOREVER, expires_ms=0
)
TIGHT = {
    "STAGED_RECORD_ROWS_MAX": 3,
    "STAGED_RECORD_BYTES_MAX": 9,
    "STAGE_READ_RECORDS": 5,
    "STAGE_STEP_RECORDS": 2,
    "STAGED_LIFETIME_MS": 60_000,
    "STAGE_CHECK_INTERVAL_MS": 1_000,
    "SCHEDULE_WINDOW_MESSAGES": 4,
    "SCHEDULE_STEP_MESSAGES": 3,
}
DELAYS_MS = (0, 0, 0, 400, 20_000)
QUEUES = ("a", "b")
names = st.sampled_from(["a", "a", "a", "b"])
producers = st.sampled_from(["p", "p", "p", "r"])
delays = st.sampled_from(DELAYS_MS)
aheads = st.sampled_from([1, 1, 1, 1, 2, 0, -1])  # of the last epoch
attempts = st.sampled_from(["x", "x", "y"])
Attempts = dict[tuple[str, StageTag], list[bytes]]


def due_ms_of(body: bytes) -> int:
    """When a row may enter its queue, which its body tells; 0: with the commit."""
    return int(body.partition(b"@")[2] or 0)


class OracleState:
    """What each queue's log holds in the end, in the order of each producer's epochs; what is staged, and the
    last epoch of each producer.

    `later` are committed rows that are not due at once, also once they are in the log: in any order.
    """

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.later: dict[str, list[bytes]] = {name: [] for name in QUEUES}
        self.plain = dict.fromkeys(QUEUES, 0)  # published without staging
        self.staged: Attempts = {}
        self.at_ms: dict[tuple[str, StageTag], int] = {}
        self.last: dict[tuple[str, str], tuple[int, int]] = {}

    def drop(self, keys: list[tuple[str, StageTag]]) -> Attempts:
        for key in keys:
            del self.at_ms[key]
        return {key: self.staged.pop(key) for key in keys}

    def of(self, name: str, who: str) -> list[tuple[str, StageTag]]:
        return [key for key in self.staged if key[0] == name and key[1].producer == who]


class EpochsModel(ShardModel):
    """Stage, publish, commit, abort, let time pass, crash between any two steps."""

    default_policy = POLICY
    auto_create = False

    def __init__(self) -> None:
        super().__init__()
        self.oracle = OracleState()
        self.durable = copy.deepcopy(self.oracle)
        self.number = 0
        self.producer_of: dict[bytes, str] = {}
        self.given_up: Attempts = {}  # if no sweep has begun with them, a crash brings them back

    @initialize(tight=st.booleans())
    def begin(self, tight: bool) -> None:
        if tight:
            self.tighten({limits: TIGHT})
        self.attach(MemoryStore())
        for name in QUEUES:
            self.declare(name)
        self.commit_all()

    def declare(self, name: str) -> None:
        queue = self.manager.queues.declare(QueueDefinition(name, durable=True, policy=POLICY), self.clock.ms)
        queue.group("")  # keeps the log

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.shard.commits.on_committed(self.committed)

    def staged_in(self, name: str) -> dict[StageTag, Attempt]:
        """What the broker has staged in a queue."""
        queue = self.manager.queues.find(name)
        return queue.rules.stage._attempts if queue.rules.has_stage else {}

    def moving_in(self, name: str) -> Sequence[Sweep]:
        """What is on its way in a queue."""
        queue = self.manager.queues.find(name)
        return list(queue.rules.stage.sweeps.pending()) if queue.rules.has_stage else ()

    def committed(self) -> None:
        self.durable = copy.deepcopy(self.oracle)

    def body(self, delay_ms: int) -> bytes:
        self.number += 1
        return b"%d@%d" % (self.number, self.clock.ms + delay_ms) if delay_ms else b"%d" % self.number

    def epoch(self, name: str, who: str, ahead: int) -> int:
        return max(0, self.oracle.last.get((name, who), (-1, 0))[0] + ahead)

    # what may happen

    @rule(
        name=names,
        who=producers,
        ahead=aheads,
        part=st.integers(0, 1),
        attempt=attempts,
        count=st.integers(1, 7),
        topic=st.sampled_from(["", "/k"]),
        delay_ms=delays,
    )
    def stage(
        self, name: str, who: str, ahead: int, part: int, attempt: str, count: int, topic: str, delay_ms: int
    ) -> None:
        tag = StageTag(who, self.epoch(name, who, ahead), part, attempt)
        manager = self.manager
        plan = self.plan(f"$queue/{name}{topic}", PublishOptions(stage=tag, delay_ms=delay_ms))
        bodies = [self.body(delay_ms) for _ in range(count)]
        self.producer_of |= dict.fromkeys(bodies, who)
        known = self.oracle.last.get((name, who))
        attempts = self.staged_in(name)
        ending = tag in attempts and attempts[tag].is_ending
        if ending or (known is not None and tag.epoch <= known[0]):
            with pytest.raises(PreconditionFailed):
                manager.publish(plan, bodies, self.clock.ms)
            return
        assert manager.publish(plan, bodies, self.clock.ms) == ACCEPTED
        self.oracle.staged.setdefault((name, tag), []).extend(bodies)
        self.oracle.at_ms[name, tag] = self.clock.ms

    @rule(name=names)
    def publish(self, name: str) -> None:
        """Between the rows of an epoch on their way others may come: they are not to disturb their order."""
        plan = self.plan(f"$queue/{name}")
        assert self.manager.publish(plan, [b"plain"], self.clock.ms) == ACCEPTED
        self.oracle.plain[name] += 1

    @rule(
        name=names,
        who=producers,
        attempt=attempts,
        ahead=aheads,
        wrong=st.sampled_from([0, 0, 0, 1]),
    )
    def commit_epoch(self, name: str, who: str, attempt: str, ahead: int, wrong: int) -> None:
        known = self.oracle.last.get((name, who))
        number = self.epoch(name, who, ahead)
        parts = []
        rows: list[bytes] = []
        for part in range(2):
            tag = StageTag(who, number, part, attempt)
            bodies = self.oracle.staged.get((name, tag), [])
            rows += bodies
            parts.append(EpochPart(part, attempt, len(bodies) + wrong))
        manager = self.manager
        queue = manager.queues.find(name)
        if known is not None and number == known[0]:
            done, before = queue.rules.stage.commit(who, number, parts, self.clock.ms)
            assert before
            assert (done.epoch, done.row_count) == known
            return
        if wrong or (known is not None and number < known[0]):
            with pytest.raises(PreconditionFailed):
                queue.rules.stage.commit(who, number, parts, self.clock.ms)
            return
        done, before = queue.rules.stage.commit(who, number, parts, self.clock.ms)
        assert not before
        self.oracle.last[name, who] = (number, len(rows))
        self.oracle.logs[name] += [body for body in rows if not due_ms_of(body)]
        self.oracle.later[name] += [body for body in rows if due_ms_of(body)]
        self.given_up |= self.oracle.drop(
            [key for key in self.oracle.of(name, who) if key[1].epoch <= number]
        )

    @rule(
        name=names,
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=2),
        cut=st.integers(0, 3),
        delay_ms=delays,
    )
    def job(self, name: str, counts: list[int], cut: int, delay_ms: int) -> None:
        """A whole epoch, perhaps with a crash behind one of its steps."""
        for part, count in enumerate(counts):
            self.stage(name, "p", 1, part, "x", count, "", delay_ms)
            self.commit_all()
            if cut == 1:
                self.crash()
        self.commit_epoch(name, "p", "x", 1, 0)
        if cut:
            self.commit_all()
        if cut == 2:
            self.crash()
        elif cut == 3:
            self.work(2)
            self.crash()

    @rule(name=names, who=producers, ahead=aheads)
    def abort(self, name: str, who: str, ahead: int) -> None:
        number = self.epoch(name, who, ahead)
        keys = [key for key in self.oracle.of(name, who) if key[1].epoch == number]
        manager = self.manager
        assert manager.queues.find(name).rules.stage.abort(who, number, self.clock.ms) == len(keys)
        self.given_up |= self.oracle.drop(keys)

    @rule(name=names, who=producers)
    def forget(self, name: str, who: str) -> None:
        manager = self.manager
        if any(sweep.producer == who for sweep in self.moving_in(name)):
            with pytest.raises(PreconditionFailed):
                manager.queues.find(name).rules.stage.forget(who, self.clock.ms)
            return
        keys = self.oracle.of(name, who)
        known = self.oracle.last.pop((name, who), None) is not None or bool(keys)
        assert manager.queues.find(name).rules.stage.forget(who, self.clock.ms) == known
        self.given_up |= self.oracle.drop(keys)

    @rule(ms=st.sampled_from([1, 500, 31_000]))
    def advance(self, ms: int) -> None:
        """What is to happen in time happens, but the commits it waits for are taken one by one."""
        self.clock.ms += ms
        self.tick()

    def tick(self) -> None:
        manager = self.manager
        manager.fire_timers(self.clock.ms)
        if limits.STAGED_LIFETIME_MS > 100_000:
            return
        gone = [
            key
            for key in self.oracle.staged
            if (attempt := self.staged_in(key[0]).get(key[1])) is not None and attempt.is_ending
        ]
        for key in gone:
            assert self.oracle.at_ms[key] + limits.STAGED_LIFETIME_MS <= self.clock.ms
        self.given_up |= self.oracle.drop(gone)

    @rule()
    def commit(self) -> None:
        self.commit_all()

    @rule()
    def load(self) -> None:
        load(self.shard)

    @rule(steps=st.integers(1, 12))
    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.tick()
            self.commit_all()
            self.load()

    @rule()
    def crash(self) -> None:
        self.attach(self.store.crash())
        self.oracle = copy.deepcopy(self.durable)
        for name in QUEUES:
            for tag, attempt in self.staged_in(name).items():
                if (name, tag) not in self.oracle.staged and not attempt.is_ending:
                    last = self.oracle.last.get((name, tag.producer))
                    assert last is None or tag.epoch > last[0], "it can never be committed any more"
                    self.oracle.staged[name, tag] = self.given_up[name, tag][: attempt.row_count]
                    self.oracle.at_ms[name, tag] = attempt.staged_at_ms
        for (name, tag), bodies in self.oracle.staged.items():
            assert self.staged_in(name)[tag].row_count == len(bodies)

    @rule(name=names)
    def purge(self, name: str) -> None:
        """What is in the log goes, and committed rows on their way; what is scheduled stays."""
        due: list[bytes] = []
        if self.oracle.later[name]:
            self.settle()
            due = [body for body in self.oracle.later[name] if due_ms_of(body) <= self.clock.ms]
        count = self.manager.queues.find(name).purge(self.clock.ms)
        assert count == self.oracle.plain[name] + len(self.oracle.logs[name]) + len(due)
        self.oracle.later[name] = [body for body in self.oracle.later[name] if body not in due]
        self.oracle.logs[name] = []
        self.oracle.plain[name] = 0
        for _ in range(3):
            self.commit_all()
            self.sweep_once()
            self.tick()
        self.commit_all()

    @rule(name=names, cut=st.integers(0, 3))
    def delete(self, name: str, cut: int) -> None:
        for _ in range(cut):
            self.tick()
            self.commit_all()
            self.load()
        self.commit_all()
        self.sweep_once()  # before it shared payloads of a log are left alone
        self.tick()
        self.commit_all()
        self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
        self.oracle.logs[name] = []
        self.oracle.later[name] = []
        self.oracle.plain[name] = 0
        self.oracle.drop([key for key in self.oracle.staged if key[0] == name])
        self.oracle.last = {key: last for key, last in self.oracle.last.items() if key[0] != name}
        for _ in range(5):
            self.commit_all()
            self.sweep_once()
            self.tick()
        self.load()
        self.declare(name)
        self.commit_all()

    # what must hold

    @invariant()
    def counts(self) -> None:
        for queue in self.manager.queues:
            name = queue.name
            if not queue.rules.has_stage:
                assert not [key for key in self.oracle.staged if key[0] == name]
                continue
            stage, attempts, sweeps = queue.rules.stage, self.staged_in(name), self.moving_in(name)
            live = {tag for tag, attempt in attempts.items() if not attempt.is_ending}
            assert live == {tag for owner, tag in self.oracle.staged if owner == name}
            assert stage.sweeps.unmoved_count == sum(sweep.left for sweep in sweeps)
            assert stage.sweeps.unmoved_bytes == sum(sweep.left_bytes for sweep in sweeps)
            assert stage._byte_count == sum(attempt.byte_count for attempt in attempts.values())
            last = {who: (e.epoch, e.row_count) for who, e in stage._producers.items()}
            assert last == {who: at for (owner, who), at in self.oracle.last.items() if owner == name}

    def settle(self) -> None:
        for _ in range(500):
            self.tick()
            self.commit_all()
            self.load()
            if not any(self.moving_in(name) or self.has_due(name) for name in QUEUES):
                self.commit_all()
                stages = [queue.rules.stage for queue in self.manager.queues if queue.rules.has_stage]
                assert not any(stage.sweeps.unmoved_count or stage.sweeps.unmoved_bytes for stage in stages)
                return
        raise AssertionError("the rows never arrive")

    def has_due(self, name: str) -> bool:
        """Whether the schedule of a queue has something to hand over, or reads on."""
        schedule = self.manager.queues.find(name).rules._schedule
        if schedule is None:
            return False
        first = schedule.first()
        is_due = first is not None and first[0] <= self.clock.ms
        return is_due or schedule._is_scanning or schedule._counted_to != EVERYTHING

    def read_all(self, reader: Reader) -> list[bytes]:
        for _ in range(50):
            self.manager.dispatch(self.clock.ms)
            self.load()
        return reader.bodies()

    def finish(self) -> None:
        self.settle()
        readers = {name: Reader() for name in QUEUES}
        for name, reader in readers.items():
            queue = self.manager.queues.find(name)
            self.add_consumer(queue, reader, "all", no_ack=True)
            later = [body for body in self.read_all(reader) if due_ms_of(body)]
            due = [body for body in self.oracle.later[name] if due_ms_of(body) <= self.clock.ms]
            assert sorted(later) == sorted(due), name
            assert queue.rules.scheduled_count() == len(self.oracle.later[name]) - len(due), name
        self.advance(max(DELAYS_MS))
        self.settle()
        for name, reader in readers.items():
            bodies = self.read_all(reader)
            assert bodies.count(b"plain") == self.oracle.plain[name]
            at_once = [body for body in bodies if body != b"plain" and not due_ms_of(body)]
            for who in ("p", "r"):  # producers take turns
                found, wanted = (
                    [body for body in rows if self.producer_of[body] == who]
                    for rows in (at_once, self.oracle.logs[name])
                )
                assert found == wanted, (name, who)
            later = [body for body in bodies if due_ms_of(body)]
            assert sorted(later) == sorted(self.oracle.later[name]), name
        rows = all_rows(self.store)
        staged = [value for key, value in rows if key.startswith(staged_rows.prefix())]
        held = sorted(body for value in staged for run in staged_rows.decode(value) for body in run.bodies)
        assert held == sorted(body for bodies in self.oracle.staged.values() for body in bodies)
        assert not [key for key, _ in rows if key.startswith(epoch.prefix())]
        assert len([key for key, _ in rows if key.startswith(committed_epoch.prefix())]) == len(
            self.oracle.last
        )
        oracle = self.oracle
        in_logs = [*oracle.plain.values(), *map(len, (*oracle.logs.values(), *oracle.later.values()))]
        payloads = [key for key, _ in rows if key.startswith(payload.prefix())]
        assert len(payloads) == sum(in_logs) + len(held)


TestEpochsModel = EpochsModel.TestCase
TestEpochsModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestEpochsModelLong(EpochsModel.TestCase):
    settings = settings(max_examples=1_500, stateful_step_count=50, deadline=None)
