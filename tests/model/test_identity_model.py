"""Random lives of publishes with identities: sent again, refused, late, over crashes, beside an oracle."""

from __future__ import annotations

import copy

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from config import limits
from queue_manager.options import PublishOptions
from queue_manager.outcomes import (
    ACCEPTED,
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_ORDER,
    REFUSED_WINDOW,
)
from queue_manager.policy import QueuePolicy
from queue_manager.spec_records import QueueDefinition
from storage.records import identified, producer
from tests.memory_store import MemoryStore
from tests.model.leaks import all_rows
from tests.model.shard_model import ShardModel

WINDOW_MS = 1_000
DEPTH_MAX = 4
TIGHT = {
    "DEDUPLICATION_IDS_MAX": 4,
    "DEDUPLICATION_STEP_IDS": 1,
    "PRODUCERS_PER_QUEUE_MAX": 2,
    "PRODUCER_IDLE_MS_MIN": 900,
}
POLICY = QueuePolicy(
    visibility_timeout_ms=30_000,
    message_bytes_max=100,
    depth_max=DEPTH_MAX,
    expires_ms=0,
    deduplication_window_ms=WINDOW_MS,
)
QUEUES = {"a": ("$queue/a", "$queue/both"), "b": ("$queue/b", "$queue/both"), "mem": ("$queue/mem",)}
TOPICS = ("$queue/a", "$queue/a", "$queue/b", "$queue/both", "$queue/mem")


class OracleQueue:
    """What one queue holds and remembers."""

    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.seen: dict[str, tuple[int, bytes]] = {}
        self.producers: dict[str, tuple[int, bytes, int]] = {}  # -1: nothing taken yet
        self.refused: dict[str, int] = {}

    def judge(self, options: PublishOptions, body: bytes, now_ms: int) -> str:
        name, sequence = options.producer_id, options.producer_sequence
        if name:
            if name in self.producers:
                last, last_body, _ = self.producers[name]
                if sequence == last:
                    return "repeated" if body == last_body else "identity"
                if sequence < last:
                    return "repeated"
            if name not in self.producers and len(self.producers) == limits.PRODUCERS_PER_QUEUE_MAX:
                idle_ms = now_ms - min(used for _, _, used in self.producers.values())
                if idle_ms < limits.PRODUCER_IDLE_MS_MIN:
                    return "window"
            if name in self.refused and sequence > self.refused[name]:
                return "order"
        self.seen = {key: value for key, value in self.seen.items() if value[0] + WINDOW_MS > now_ms}
        if options.deduplication_id:
            if options.deduplication_id in self.seen:
                known = self.seen[options.deduplication_id][1]
                return "repeated" if known == body else "identity"
            if len(self.seen) == limits.DEDUPLICATION_IDS_MAX:
                return "window"
        return "new"

    def take(self, options: PublishOptions, body: bytes, now_ms: int) -> None:
        self.log.append(body)
        if options.deduplication_id:
            self.seen[options.deduplication_id] = (now_ms, body)
        if options.producer_id:
            self.note(options.producer_id, (options.producer_sequence, body, now_ms))
            self.refused.pop(options.producer_id, None)

    def refuse(self, options: PublishOptions, now_ms: int) -> None:
        name = options.producer_id
        if name:
            last, body, _ = self.producers.get(name, (-1, b"", 0))
            self.note(name, (last, body, now_ms))
            self.refused[name] = min(options.producer_sequence, self.refused.get(name, 99))

    def note(self, name: str, progress: tuple[int, bytes, int]) -> None:
        if name not in self.producers and len(self.producers) == limits.PRODUCERS_PER_QUEUE_MAX:
            oldest = min(self.producers, key=lambda key: self.producers[key][2])
            del self.producers[oldest]
            self.refused.pop(oldest, None)
        self.producers.pop(name, None)  # of equal times the one heard of first goes first
        self.producers[name] = progress


class IdentityModel(ShardModel):
    """Publish with identities, let time pass, commit, crash."""

    default_policy = POLICY
    auto_create = False

    def __init__(self) -> None:
        super().__init__()
        self.oracle = {name: OracleQueue() for name in QUEUES}
        self.durable = copy.deepcopy(self.oracle)

    @initialize(tight=st.booleans())
    def begin(self, tight: bool) -> None:
        if tight:
            self.tighten({limits: TIGHT})
        self.attach(MemoryStore())
        self.declare()
        self.commit()

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.shard.commits.on_committed(self.committed)

    def committed(self) -> None:
        self.durable = copy.deepcopy(self.oracle)

    def declare(self) -> None:
        for name, topics in QUEUES.items():
            if name not in self.manager.queues:
                definition = QueueDefinition(name, durable=name != "mem", policy=POLICY, topics=topics)
                self.manager.queues.declare(definition, self.clock.ms).group("")

    # what may happen

    @rule(
        topic=st.sampled_from(TOPICS),
        name=st.sampled_from(["", "x", "y", "z", "ä", "v"]),
        who=st.sampled_from(["", "p", "p", "q", "r"]),
        sequence=st.integers(0, 9),
        bodies=st.lists(st.sampled_from([b"1", b"2", b"2"]), min_size=1, max_size=3),
    )
    def publish(self, topic: str, name: str, who: str, sequence: int, bodies: list[bytes]) -> None:
        options = PublishOptions(
            deduplication_id=name, producer_id=who, producer_sequence=sequence if who else 0
        )
        plan = self.plan(topic, options)
        outcome = self.manager.publish(plan, bodies, self.clock.ms)
        assert outcome == self.expected([queue.name for queue in plan.queues], options, bodies)

    def expected(self, names: list[str], options: PublishOptions, bodies: list[bytes]) -> int:
        queues = [self.oracle[name] for name in names]
        if not options.is_identified:
            free = [queue for queue in queues if len(queue.log) + len(bodies) <= DEPTH_MAX]
            if len(free) < len(queues) and (not free or len(bodies) > 1):
                return REFUSED_DEPTH
            for queue in free:
                queue.log += bodies
            return ACCEPTED if len(free) == len(queues) else REFUSED_IN_PART
        if len(set(bodies)) > 1:
            return REFUSED_IDENTITY
        refusals = {"identity": REFUSED_IDENTITY, "window": REFUSED_WINDOW, "order": REFUSED_ORDER}
        verdicts = [queue.judge(options, bodies[0], self.clock.ms) for queue in queues]
        for verdict in verdicts:
            if verdict in refusals:
                return refusals[verdict]
        new = [queue for queue, verdict in zip(queues, verdicts, strict=True) if verdict == "new"]
        full = [queue for queue in new if len(queue.log) == DEPTH_MAX]
        for queue in new:
            if queue in full:
                queue.refuse(options, self.clock.ms)
            else:
                queue.take(options, bodies[0], self.clock.ms)
        if not full:
            return ACCEPTED
        return REFUSED_DEPTH if len(full) == len(queues) else REFUSED_IN_PART

    @rule(ms=st.sampled_from([1, 300, 999, 1_000]))
    def advance(self, ms: int) -> None:
        self.clock.ms += ms
        self.rest()

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def purge(self, name: str) -> None:
        self.manager.queues.find(name).purge(self.clock.ms)
        self.oracle[name].log = []

    @rule()
    def commit(self) -> None:
        self.commit_all()

    @rule()
    def crash(self) -> None:
        self.attach(self.store.crash())
        self.oracle = copy.deepcopy(self.durable)
        self.oracle["mem"] = OracleQueue()
        for queue in self.oracle.values():
            queue.producers = dict(sorted(queue.producers.items(), key=lambda item: (item[1][2], item[0])))
        self.declare()

    @rule(name=st.sampled_from(["a", "b"]))
    def delete(self, name: str) -> None:
        self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
        self.oracle[name] = OracleQueue()
        for _ in range(5):
            self.commit()
            self.sweep_once()
        prefixes = (identified.prefix(name), producer.prefix(name))
        assert not [key for key, _ in all_rows(self.store) if key.startswith(prefixes)]
        self.declare()
        self.commit()

    # what must hold

    @invariant()
    def counts(self) -> None:
        for queue in self.manager.queues:
            assert queue.waiting_count() == len(self.oracle[queue.name].log), queue.name


TestIdentityModel = IdentityModel.TestCase
TestIdentityModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestIdentityModelLong(IdentityModel.TestCase):
    settings = settings(max_examples=2_000, stateful_step_count=60, deadline=None)
