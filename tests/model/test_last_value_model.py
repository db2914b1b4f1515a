"""Random lives of queues that keep only the newest message of each value, over crashes, beside an oracle."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from config import limits
from queue_manager.filters.field_access import APPLICATION_PREFIX
from queue_manager.manager import QueueManager
from queue_manager.policy import QueuePolicy
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate
from storage.records import last_value
from tests.memory_store import MemoryStore
from tests.model.leaks import all_rows
from tests.model.shard_model import ShardModel, Taker

POLICY = QueuePolicy(
    visibility_timeout_ms=30_000, message_bytes_max=100, done_retention_ms=0, last_value="device"
)
QUEUES = ("kept", "mem")
GROUPS = ("", "g")
LAST_VALUES_MAX = 3
NAMES = ("kept", "kept", "mem")
SELDOM = st.integers(0, 3)


def fields(template: EnvelopeTemplate) -> dict[str, object]:
    """In this model the properties are the value."""
    return {APPLICATION_PREFIX + "device": template.properties.decode()} if template.properties else {}


@dataclass
class OracleGroup:
    """What waits in a group, and what its consumer holds: the numbers of messages."""

    waiting: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)


class OracleQueue:
    """All messages by number: their values, and the newest of each."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.newest: dict[str, int] = {}
        self.evicted: set[int] = set()
        self.groups = {name: OracleGroup() for name in GROUPS}

    def is_replaced(self, number: int) -> bool:
        value = self.values[number]
        return value != "" and self.newest.get(value, -1) > number

    def publish(self, value: str, count: int) -> list[bytes]:
        bodies = []
        for _ in range(count):
            number = len(self.values)
            bodies.append(b"%d" % number)
            self.values.append(value)
            for group in self.groups.values():
                group.waiting.append(number)
            if value:
                self._renew(value, number)
        return bodies

    def _renew(self, value: str, number: int) -> None:
        gone = self.newest.pop(value, None)
        if gone is None and len(self.newest) >= limits.LAST_VALUES_MAX:
            gone = self.newest.pop(next(iter(self.newest)))
            self.evicted.add(gone)
        self.newest[value] = number
        if gone is not None:
            for group in self.groups.values():
                group.waiting = [each for each in group.waiting if each != gone]

    def is_late(self, number: int) -> bool:
        """Whether it goes only when it is its turn: it was held when its value was forgotten, and waited
        again when that came once more.
        """
        return number in self.evicted and self.is_replaced(number)

    def next_of(self, group: OracleGroup) -> int | None:
        """Take out what is given next, and what goes on the way."""
        while group.waiting:
            number = group.waiting.pop(0)
            if not self.is_late(number):
                return number
        return None

    def give_back(self, group: OracleGroup, numbers: list[int]) -> None:
        """Have what was held wait again, in its place, but for what was replaced."""
        left = [number for number in numbers if not self.is_replaced(number)]
        group.waiting = sorted([*group.waiting, *left])


class LastValueModel(ShardModel):
    """Publish, take, settle, commit, crash."""

    default_policy = POLICY
    auto_create = False

    def __init__(self) -> None:
        super().__init__()
        self.oracle = {name: OracleQueue() for name in QUEUES}
        self.durable = copy.deepcopy(self.oracle)
        self.takers: dict[tuple[str, str], Taker] = {}

    @initialize()
    def begin(self) -> None:
        self.tighten({limits: {"LAST_VALUES_MAX": LAST_VALUES_MAX}})
        self.attach(MemoryStore())
        self.declare()
        self.commit()

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.shard.commits.on_committed(self.committed)
        self.takers = {(queue, group): Taker() for queue in QUEUES for group in GROUPS}

    def install_readers(self, manager: QueueManager) -> None:
        manager.context.fields.read_by(fields)

    def committed(self) -> None:
        self.durable = copy.deepcopy(self.oracle)

    def declare(self) -> None:
        for name in QUEUES:
            if name not in self.manager.queues:
                definition = QueueDefinition(name, durable=name != "mem", policy=POLICY)
                queue = self.manager.queues.declare(definition, self.clock.ms)
                for group in GROUPS:
                    queue.group(group)

    # what may happen

    @rule(seed=st.integers(0, 1 << 32))
    def live(self, seed: int) -> None:
        """Publish, take and settle for a while."""
        random = Random(seed)
        for _ in range(30):
            what = random.choice(["publish", "publish", "take", "take", "settle", "settle", "nothing"])
            if what == "publish":
                value = random.choice(["x", "x", "x", "", "y", "z", "ä"])
                self.publish(random.choice(NAMES), value, random.choice([1, 1, 1, 2, 3]))
            elif what == "take":
                self.take(random.randrange(4))
            elif what == "settle":
                self.settle(random.randrange(4), random.randrange(4), acks=random.random() < 0.4)
            else:
                self.take_of_nothing(random.choice(NAMES), random.choice(GROUPS))
            self.counts()

    def publish(self, name: str, value: str, count: int) -> None:
        bodies = self.oracle[name].publish(value, count)
        self.manager.publish(
            self.plan(f"$queue/{name}", kind=int(value != ""), properties=value.encode()),
            bodies,
            self.clock.ms,
        )
        self.rest()

    def _place(self, pick: int, attribute: str) -> tuple[str, str] | None:
        """A queue and group in which something waits, or is held."""
        places = [
            (name, group)
            for name, oracle in self.oracle.items()
            for group in GROUPS
            if getattr(oracle.groups[group], attribute)
        ]
        return places[pick % len(places)] if places else None

    def take(self, pick: int) -> None:
        place = self._place(pick, "waiting")
        if place is None:
            return
        name, group = place
        oracle, taker = self.oracle[name].groups[group], self.takers[place]
        queue = self.manager.queues.find(name)
        before = len(taker.taken)
        number = self.oracle[name].next_of(oracle)
        assert self.pull_one(self.add_puller(queue, taker, queue.group(group))) == (number is not None)
        self.rest()
        if number is None:
            return
        assert taker.bodies()[before:] == [b"%d" % number]
        oracle.held.append(number)

    def take_of_nothing(self, name: str, group: str) -> None:
        queue = self.manager.queues.find(name)
        if not self.oracle[name].groups[group].waiting:
            assert not self.pull_one(self.add_puller(queue, Taker(), queue.group(group)))

    def settle(self, pick: int, place: int, *, acks: bool) -> None:
        found = self._place(pick, "held")
        if found is None:
            return
        queue, taker = self.oracle[found[0]], self.takers[found]
        oracle = queue.groups[found[1]]
        number = oracle.held.pop(place % len(oracle.held))
        [index] = [i for i, (message, _) in enumerate(taker.taken) if message.body == b"%d" % number]
        claim = taker.taken.pop(index)[1]
        assert claim is not None
        if acks:
            assert self.manager.ack([claim], self.clock.ms) == 0
        else:
            self.manager.requeue([claim], self.clock.ms)
            queue.give_back(oracle, [number])
        self.rest()

    @rule(name=st.sampled_from(QUEUES), seldom=SELDOM)
    def purge(self, name: str, seldom: int) -> None:
        if seldom:
            return
        self.manager.queues.find(name).purge(self.clock.ms)
        for group in self.oracle[name].groups.values():
            group.waiting = []
        self.rest()

    @rule()
    def commit(self) -> None:
        self.commit_all()

    @rule()
    def sweep(self) -> None:
        self.sweep_once()
        self.rest()

    @rule(seldom=SELDOM)
    def crash(self, seldom: int) -> None:
        if seldom > 1:
            return
        self.attach(self.store.crash())
        self.oracle = copy.deepcopy(self.durable)
        self.oracle["mem"] = OracleQueue()
        for group in self.oracle["kept"].groups.values():
            self.oracle["kept"].give_back(group, group.held)
            group.held = []
        self.declare()
        self.rest()

    @rule(seldom=SELDOM)
    def delete(self, seldom: int) -> None:
        if seldom:
            return
        self.manager.queues.delete(self.manager.queues.find("kept"), self.clock.ms)
        self.oracle["kept"] = OracleQueue()
        for group in GROUPS:
            self.takers["kept", group] = Taker()
        for _ in range(5):
            self.commit()
            self.sweep_once()
        assert not [key for key, _ in all_rows(self.store) if key.startswith(last_value.prefix("kept"))]
        self.declare()
        self.commit()

    # what must hold

    @invariant()
    def counts(self) -> None:
        for name, oracle in self.oracle.items():
            queue = self.manager.queues.get(name)
            if queue is None:
                continue
            for group, of_group in oracle.groups.items():
                count = queue.group(group).ready_count()
                late_count = sum(map(oracle.is_late, of_group.waiting))
                assert len(of_group.waiting) - late_count <= count <= len(of_group.waiting), (name, group)


TestLastValueModel = LastValueModel.TestCase
TestLastValueModel.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestLastValueModelLong(LastValueModel.TestCase):
    settings = settings(max_examples=1_000, stateful_step_count=30, deadline=None)
