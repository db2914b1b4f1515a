"""Random lives of queues with priorities: whatever waits, the most urgent and oldest goes first."""

from __future__ import annotations

from bisect import insort
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from config import limits
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.group.group import Group
from queue_manager.model import Message
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import QueuePolicy
from queue_manager.spec_records import QueueDefinition
from tests.memory_store import MemoryStore
from tests.model.leaks import all_rows
from tests.model.shard_model import Reader, ShardModel

PRIORITY_MAX = 3
LEASE_MS = 10_000
POLICY = QueuePolicy(
    visibility_timeout_ms=LEASE_MS,
    message_bytes_max=100,
    done_retention_ms=0,
    expires_ms=0,
    attempts_max=4,
    priority_max=PRIORITY_MAX,
)
QUEUES = {"a": ("$queue/a", "$queue/both"), "b": ("$queue/b", "$queue/both"), "mem": ("$queue/mem",)}
TOPICS = ("$queue/a", "$queue/a", "$queue/both", "$queue/mem")
GROUPS = ("", "g")
Place = tuple[int, int]  # most urgent first, then oldest


class OracleGroup:
    """What one group has still to do, in the order it will; what is held, with its attempts."""

    def __init__(self) -> None:
        self.waiting: list[Place] = []
        self.held: dict[Place, Claim] = {}
        self.attempts: dict[Place, int] = {}
        self.credit = 0
        self.came: list[tuple[bytes, Claim]] = []
        self.consumer: Consumer | None = None

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert claims is not None
        self.came += [(message.body or b"", entry) for message, entry in zip(messages, claims, strict=True)]
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        self.give_back([place for place, entry in self.held.items() if entry in claims])

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """The queue is deleted at the end."""

    def give_back(self, places: list[Place]) -> None:
        for place in places:
            del self.held[place]
            if self.attempts[place] < POLICY.attempts_max:
                insort(self.waiting, place)

    def check(self) -> None:
        """What came is what was to come."""
        expected = self.waiting[: max(0, self.credit - len(self.held))]
        assert [body for body, _ in self.came] == [b"%d" % number for _, number in expected]
        for place, (_, entry) in zip(expected, self.came, strict=True):
            self.attempts[place] = self.attempts.get(place, 0) + 1
            assert entry.attempts == self.attempts[place]
            self.held[place] = entry
        del self.waiting[: len(expected)]
        self.came = []


class PriorityModel(ShardModel):
    """Publish, claim, settle, let leases end, purge, crash."""

    default_policy = POLICY
    auto_create = False
    lease_ms = LEASE_MS

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.groups = {(name, group): OracleGroup() for name in QUEUES for group in GROUPS}

    @initialize(tight=st.booleans())
    def begin(self, tight: bool) -> None:
        if tight:
            self.tighten({limits: {"LOAD_MESSAGES_MAX": 3}})
        self.attach(MemoryStore())
        self.declare(tuple(QUEUES))
        self.commit()

    def declare(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.manager.queues:
                definition = QueueDefinition(name, durable=name != "mem", policy=POLICY, topics=QUEUES[name])
                queue = self.manager.queues.declare(definition, self.clock.ms)
                for group in GROUPS:
                    queue.group(group)

    def settle(self) -> None:
        self.rest()
        for group in self.groups.values():
            group.check()

    def real(self, name: str, group: str) -> Group:
        return self.manager.queues.find(name).groups.find(group)

    # what may happen

    @rule(topic=st.sampled_from(TOPICS), priorities=st.lists(st.integers(0, 5), min_size=1, max_size=8))
    def publish(self, topic: str, priorities: list[int]) -> None:
        for priority in priorities:
            self.number += 1
            plan = self.plan(topic, PublishOptions(priority=priority))
            assert self.manager.publish(plan, [b"%d" % self.number], self.clock.ms) == ACCEPTED
            for queue in plan.queues:
                for group in GROUPS:
                    place = (-min(priority, PRIORITY_MAX), self.number)
                    insort(self.groups[queue.name, group].waiting, place)
        self.settle()

    @rule(which=st.sampled_from(sorted((n, g) for n in QUEUES for g in GROUPS)), credit=st.integers(0, 6))
    def consume(self, which: tuple[str, str], credit: int) -> None:
        name, group = which
        oracle = self.groups[which]
        if oracle.consumer is not None:
            self.remove_consumer(oracle.consumer)
            oracle.give_back(list(oracle.held))
            oracle.consumer = None
            oracle.credit = 0
        if credit:
            queue = self.manager.queues.find(name)
            oracle.consumer = self.add_consumer(queue, oracle, group, credit_max=credit)
            oracle.credit = credit
        self.settle()

    @rule(which=st.sampled_from(sorted((n, g) for n in QUEUES for g in GROUPS)), refuses=st.booleans())
    def read(self, which: tuple[str, str], refuses: bool) -> None:
        """A consumer without acknowledgements takes, or refuses, what the others have no credit for."""
        name, group = which
        oracle = self.groups[which]
        reader = Reader(refuses=refuses)
        queue = self.manager.queues.find(name)
        consumer = self.add_consumer(queue, reader, group, credit_max=1, no_ack=True)
        self.settle()
        assert reader.bodies() == [b"%d" % number for _, number in oracle.waiting]
        for place, (_, claim) in zip(oracle.waiting, reader.taken, strict=True):
            attempts = 1 if claim is None else claim.attempts
            assert attempts == oracle.attempts.get(place, 0) + 1
            oracle.attempts[place] = attempts
        oracle.waiting = [
            place for place in oracle.waiting if refuses and oracle.attempts[place] < POLICY.attempts_max
        ]
        self.remove_consumer(consumer)
        self.settle()

    @precondition(lambda self: any(group.held for group in self.groups.values()))
    @rule(
        kind=st.sampled_from(["ack", "ack", "requeue", "reject"]),
        picks=st.lists(st.integers(0, 9), max_size=5),
    )
    def give_answer(self, kind: str, picks: list[int]) -> None:
        held = [(group, place) for group in self.groups.values() for place in group.held]
        chosen = list(dict.fromkeys(held[pick % len(held)] for pick in picks))
        claims = [group.held[place] for group, place in chosen]
        for group, place in chosen:
            if kind == "requeue":
                group.give_back([place])
            else:
                del group.held[place]
        getattr(self.manager, kind)(claims, self.clock.ms)
        self.settle()

    @rule(ms=st.sampled_from([100, 4_000, LEASE_MS]))
    def advance(self, ms: int) -> None:
        self.clock.ms += ms
        self.manager.expire(self.clock.ms)
        self.settle()

    @rule(name=st.sampled_from(sorted(QUEUES)))
    def purge(self, name: str) -> None:
        self.manager.queues.find(name).purge(self.clock.ms)
        for group in GROUPS:
            self.groups[name, group].waiting = []
        for _ in range(3):  # a crash before would leave payloads of several queues behind
            self.sweep()

    @rule()
    def commit(self) -> None:
        self.commit_all()

    @rule()
    def sweep(self) -> None:
        self.sweep_quietly()
        self.settle()

    @rule()
    def crash(self) -> None:
        self.commit()
        self.attach(self.store.crash())
        for (name, _), oracle in self.groups.items():
            oracle.consumer = None
            oracle.credit = 0
            oracle.waiting = sorted([*oracle.waiting, *oracle.held])
            oracle.held = {}
            if name == "mem":
                oracle.waiting = []
        self.declare(("mem",))
        self.settle()

    @rule(name=st.sampled_from(["a", "b"]))
    def delete(self, name: str) -> None:
        for group in GROUPS:
            self.consume((name, group), 0)
            self.groups[name, group] = OracleGroup()
        self.sweep_quietly()  # before it shared payloads of a log are left alone
        self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
        for _ in range(6):
            self.sweep_quietly()
        self.declare((name,))
        self.commit()

    def sweep_quietly(self) -> None:
        self.commit_all()
        self.sweep_once()

    # what must hold

    @invariant()
    def counts(self) -> None:
        for (name, group), oracle in self.groups.items():
            assert self.real(name, group).ready_count() == len(oracle.waiting), (name, group)
        for name in QUEUES:
            depths = [len(self.groups[name, group].waiting) for group in GROUPS]
            assert self.manager.queues.find(name).depth() == max(depths)

    def finish(self) -> None:
        self.sweep_quietly()
        for name in ("a", "b"):
            self.manager.queues.delete(self.manager.queues.find(name), self.clock.ms)
        for _ in range(8):
            self.sweep_quietly()
        left: dict[Any, int] = {}
        for key, _ in all_rows(self.store):
            if key[:2] in (b"\x01\x01", b"\x01\x02", b"\x01\x03", b"\x01\x06", b"\x01\x0b", b"\x01\x0c"):
                left[key] = 1
        assert not left


TestPriorityModel = PriorityModel.TestCase
TestPriorityModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestPriorityModelLong(PriorityModel.TestCase):
    settings = settings(max_examples=2_000, stateful_step_count=60, deadline=None)
