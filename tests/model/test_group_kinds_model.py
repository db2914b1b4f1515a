"""Groups made, reset and deleted in queues with priorities or message groups and among consumers with
filters.

What is done is kept for ever here, so it is exact what a reset brings back: everything from the place on
but what every group began behind. A crash goes back to the last commit; one in the middle of a sweep
cuts it in two.
"""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from broker.engine.client.commits import CommitClient
from broker.engine.client.groups import GroupClient
from queue_manager.claims.claim import IN_FLIGHT, Claim, Consumer
from queue_manager.log.removals import RangeRemoval
from queue_manager.options import PublishOptions
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage import layout
from storage.envelope import EnvelopeTemplate
from storage.errors import StorageError
from storage.records import (
    active,
    claimed_bitmap,
    done,
    group_removal,
    payload,
    released_offsets,
    removal,
    skipped_offsets,
)
from tests.memory_store import MemoryStore
from tests.model.failing_store import FailingStore
from tests.model.harness import run
from tests.model.leaks import all_rows, check_memory
from tests.model.shard_model import ShardModel, Taker

LEASE_MS = 1 << 40
GROUPS = ["", "a", "b"]
OPEN, HELD, DONE = "open", "held", "done"
FILTERS = {"n = 0": lambda n: n == 0, "n > 1": lambda n: n > 1}
STARTS = st.sampled_from(["earliest", "latest", "time", "time"])


class Group:
    """What a group should know: the state of each message it is to be given, and what it began behind."""

    def __init__(self, states: dict[int, str], passed: set[int]) -> None:
        self.states = states
        self.passed = passed


class GroupKindsModel(ShardModel):
    """Messages are known by their index; its rank is how urgent it is."""

    store: FailingStore
    lease_ms = LEASE_MS

    @initialize(
        priority_max=st.sampled_from([0, 2]),
        sticky=st.sampled_from([False, False, True]),
        bucket_size=st.integers(0, 1),
        cache=st.sampled_from([0, 1 << 20]),
        bytes_max=st.sampled_from([0, 1 << 20]),
    )
    def begin(self, priority_max: int, sticky: bool, bucket_size: int, cache: int, bytes_max: int) -> None:
        self.tighten()
        self.cache_bytes_max = cache
        self.sticky = sticky
        self.priority_max = priority_max
        self.messages: list[tuple[int, int, int]] = []  # priority, n, when it was published
        self.gone: set[int] = set()
        self.groups: dict[str, Group] = {}
        self.attach(FailingStore())
        policy = QueuePolicy(
            visibility_timeout_ms=LEASE_MS,
            message_bytes_max=1000,
            done_retention_ms=FOREVER,
            bucket_size=bucket_size,
            priority_max=priority_max,
            message_groups="sticky" if sticky else "",
            bytes_max=bytes_max,
        )
        definition = QueueDefinition("work", durable=True, policy=policy, topics=("$queue/work/#",))
        self.manager.queues.declare(definition, self.clock.ms)
        self._commit()
        self.publish([(0, 0), (1, 1), (2, 2), (0, 3)])
        for group in GROUPS[:2]:
            self.create(group, "earliest", 0)
        self._commit()

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.manager.context.fields.read_by(lambda template: {"n": int(template.topic.split("/")[-1])})
        self.manager.queues.maker.find_group_keys_by(_key_of)
        self.takers: dict[str, list[tuple[Taker, Consumer, str]]] = {}
        self.entries: dict[tuple[str, int], Claim] = {}

    @property
    def queue(self) -> Queue:
        return self.manager.queues.find("work")

    def _commit(self) -> None:
        self.commit_all()
        while run(self.shard.commit_once()):
            pass
        self.durable = copy.deepcopy((self.messages, self.gone, self.groups))

    def _rest(self) -> None:
        """Let everything be read and handed out, and look at what came."""
        self.rest()
        for group_id, takers in self.takers.items():
            states = self.groups[group_id].states
            for taker, consumer, text in takers:
                for message, entry in taker.taken:
                    index = int(message.body or b"-1")
                    assert states.get(index) == OPEN, f"{group_id!r} is given {index}: {states.get(index)}"
                    assert not text or FILTERS[text](self.messages[index][1])
                    if taker.refuses:
                        continue
                    if consumer.no_ack:
                        states[index] = DONE
                    else:
                        assert entry is not None
                        states[index] = HELD
                        self.entries[group_id, index] = entry
                taker.taken = []

    def _pick(self, number: int) -> str | None:
        """One of the groups there are."""
        return sorted(self.groups)[number % len(self.groups)] if self.groups else None

    # steps

    @rule(messages=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=8))
    def publish(self, messages: list[tuple[int, int]]) -> None:
        self.clock.ms += 10
        for priority, n in messages:
            index = len(self.messages)
            plan = self.plan(f"$queue/work/{n}", PublishOptions(priority=priority))
            self.manager.publish(plan, [b"%d" % index], self.clock.ms)
            self.messages.append((priority, n, self.clock.ms))
            for group in self.groups.values():
                group.states[index] = OPEN
        self._rest()

    def _passed(self, start: str, at: int) -> tuple[set[int], str]:
        """What a group that begins there passes, and how to say where that is."""
        everything = range(len(self.messages))
        if start == "earliest":
            return set(), start
        if start == "latest":
            return set(everything), start
        at_ms = self.messages[at % len(self.messages)][2]
        return {index for index in everything if self.messages[index][2] < at_ms}, f"timestamp={at_ms}"

    def _begin(self, group_id: str, passed: set[int]) -> None:
        states = {
            index: OPEN
            for index in range(len(self.messages))
            if index not in passed and index not in self.gone
        }
        self.groups[group_id] = Group(states, passed)

    def _client(self) -> GroupClient:
        return GroupClient(self.shard, CommitClient(self.shard))

    def _let_go(self) -> None:
        """What every group began behind is gone."""
        if self.groups:
            self.gone |= set.intersection(*[group.passed for group in self.groups.values()])

    @rule(group=st.sampled_from(GROUPS), start=STARTS, at=st.integers(0, 60))
    def create(self, group: str, start: str, at: int) -> None:
        if group in self.groups:
            return
        passed, text = self._passed(start, at)
        run(self._client().create(self.queue.name, group, start=text))
        self._begin(group, passed)
        self._let_go()
        run(self.shard.done_records.learn())
        self._commit()
        self._rest()

    @rule(number=st.integers(0, 2), start=STARTS, at=st.integers(0, 60))
    def reset(self, number: int, start: str, at: int) -> None:
        group = self._pick(number)
        if group is None:
            return
        passed, text = self._passed(start, at)
        run(self._client().reset(self.queue.name, group, to=text, force=True))
        self._drop_entries(group)
        known = self.groups[group]
        self._begin(group, passed)
        # what a reset passes over stays as what is done does
        self.groups[group].passed = passed & known.passed
        self._let_go()
        self._commit()
        self._rest()

    @rule(number=st.integers(0, 2))
    def delete(self, number: int) -> None:
        group = self._pick(number)
        if group is None:
            return
        run(self._client().delete(self.queue.name, group, force=True))
        self._drop_entries(group)
        for _, consumer, _ in self.takers.pop(group, []):
            assert not consumer.active
        last = self.groups.pop(group)
        if self.groups:
            self._let_go()
        else:
            self.gone |= {i for i in range(len(self.messages)) if last.states.get(i) not in (OPEN, HELD)}
        self._commit()

    def _drop_entries(self, group: str) -> None:
        stale = [key for key in self.entries if key[0] == group]
        entries = [self.entries.pop(key) for key in stale]
        assert self.manager.ack(entries, self.clock.ms) == len(stale)

    @rule(
        number=st.integers(0, 2),
        credit=st.integers(1, 8),
        text=st.sampled_from(["", *FILTERS]),
        no_ack=st.sampled_from([False, False, False, True]),
    )
    def join(
        self, number: int, credit: int, text: str, no_ack: bool = False, *, refuses: bool = False
    ) -> None:
        group = self._pick(number)
        if group is None or len(self.takers.get(group, [])) > 2:
            return
        if self.sticky:
            text = ""
        taker = Taker(refuses=refuses)
        consumer = self.add_consumer(
            self.queue, taker, group, credit_max=credit, no_ack=no_ack, selector=text
        )
        self.takers.setdefault(group, []).append((taker, consumer, text))
        self._rest()

    @rule(number=st.integers(0, 2), text=st.sampled_from(["", *FILTERS]), no_ack=st.booleans())
    def refuse(self, number: int, text: str, no_ack: bool) -> None:
        """A consumer comes that nothing can be sent to, and goes again."""
        group = self._pick(number)
        if group is None or len(self.takers.get(group, [])) > 2:
            return
        self.join(number, 1_000, text, no_ack, refuses=True)
        self.leave(number, len(self.takers[group]) - 1)

    @rule(number=st.integers(0, 2), which=st.integers(0, 2))
    def leave(self, number: int, which: int) -> None:
        group = self._pick(number)
        takers = self.takers.get(group or "", [])
        if which < len(takers):
            assert group is not None
            _, consumer, _ = takers.pop(which)
            for offset_group, index in list(self.entries):
                entry = self.entries[offset_group, index]
                if entry.consumer is consumer:
                    del self.entries[offset_group, index]
                    self.groups[group].states[index] = OPEN
            self.remove_consumer(consumer)
            self._rest()

    @rule(picks=st.lists(st.tuples(st.integers(0, 99), st.booleans()), max_size=12))
    def settle(self, picks: list[tuple[int, bool]]) -> None:
        for pick, is_done in picks:
            if not self.entries:
                break
            key = list(self.entries)[pick % len(self.entries)]
            entry = self.entries.pop(key)
            assert entry.state == IN_FLIGHT
            assert (self.manager.ack if is_done else self.manager.requeue)([entry], self.clock.ms) == 0
            self.groups[key[0]].states[key[1]] = DONE if is_done else OPEN
        self._rest()

    @rule()
    def sweep(self) -> None:
        self._commit()
        self.sweep_once()
        self._rest()
        self._commit()

    @rule(commit=st.booleans(), sweep_writes=st.none() | st.integers(0, 6))
    def crash(self, commit: bool, sweep_writes: int | None) -> None:
        if commit or sweep_writes is not None:
            self._commit()
        if sweep_writes is not None:
            self.store.writes_left = sweep_writes
            try:
                self.sweep_once()
            except StorageError:
                pass
        self.messages, self.gone, self.groups = copy.deepcopy(self.durable)
        for group in self.groups.values():
            for index, state in group.states.items():
                if state == HELD:
                    group.states[index] = OPEN
        self.attach(self.store.crash())
        self._rest()

    @invariant()
    def counts_agree(self) -> None:
        assert set(self.queue.groups.ids()) == set(self.groups)
        for group_id, group in self.groups.items():
            held = sum(state == HELD for state in group.states.values())
            assert self.queue.groups.find(group_id).in_flight_count() == held
            size = sum(len(str(index)) for index, state in group.states.items() if state == OPEN)
            ruled = [part for part in self.queue.parts if part.has_rules]
            if ruled:
                counted = sum(part.rules.bytes.of(part.cursors[group_id]).total() for part in ruled)  # type: ignore[attr-defined]
                assert counted == size, f"{group_id!r} has {size} bytes waiting, not {counted}"

    # the end

    def finish(self) -> None:
        if not self.groups:
            self.create("a", "earliest", 0)
        for number, group_id in enumerate(sorted(self.groups)):
            while self.takers.get(group_id):
                self.leave(number, 0)
            self.join(number, 10_000, "")
            states = self.groups[group_id].states
            assert OPEN not in states.values(), f"{group_id!r} is not given everything"
            assert self.queue.groups.find(group_id).ready_count() == 0
            self.settle([(0, True)] * len(self.entries))
        kept = set(range(len(self.messages))) - self.gone
        self.sweep()
        self.sweep()
        rows = all_rows(self.store)
        stored = {int(value) for key, value in rows if key.startswith(payload.prefix())}
        assert stored == kept, "payloads"
        assert not self.manager.context.removals or isinstance(self.manager.context.removals[0], RangeRemoval)
        left = {key[1] for key, _ in rows if key[0] == layout.VERSION}
        assert not left & {active.number, group_removal.number, removal.number}
        while self.groups:
            self.delete(0)
        self.sweep()
        self.sweep()
        rows = all_rows(self.store)
        types = {key[1] for key, _ in rows if key[0] == layout.VERSION}
        assert not types & {
            payload.number,
            done.number,
            claimed_bitmap.number,
            skipped_offsets.number,
            released_offsets.number,
        }, types
        check_memory(self.manager)


def _key_of(template: EnvelopeTemplate) -> tuple[str, bool]:
    return template.topic.split("/")[-1], False


class TestGroupKindsModel(GroupKindsModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(
        max_examples=60, stateful_step_count=35, deadline=None, suppress_health_check=list(HealthCheck)
    )
