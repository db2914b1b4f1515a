"""Random lives of a queue's groups, made at offsets, reset and deleted, beside a simple oracle.

The oracle knows for each group which messages must still come to it, which may (every group has let go of
them, but perhaps not their retention), and which must never. A crash goes back to the last commit on both
sides; one in the middle of a sweep cuts a removal in two. At the end everything is drained: nothing that
somebody needed is lost, nothing that nobody needs is kept.
"""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.engine.client.messages import MessageClient
from queue_manager.claims.claim import IN_FLIGHT, Claim, Consumer
from queue_manager.cursor.cursor import Cursor
from queue_manager.group.keeper import KEPT
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.retention import Retention
from queue_manager.patterns import compile_pattern
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage import layout
from storage.errors import StorageError
from storage.records import active, done, group_removal, payload, payload_refs, removal, skipped_offsets
from tests.model.failing_store import FailingStore
from tests.model.harness import DEFAULT_POLICY, load, run
from tests.model.leaks import all_rows, check_memory
from tests.model.shard_model import ShardModel, Taker

LEASE_MS = 30_000
MUST, MAY, HELD, DONE, FAILED = "must", "may", "held", "done", "failed"
PASS = "pass"  # does not match the pattern, but has to be looked at
GROUPS = ["", "a", "b", "c"]
KINDS = st.sampled_from(["ack", "ack", "ack", "nack", "reject", "delay"])


class Item:
    """What a group should know of one message."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.attempts = 0
        self.due_ms = 0
        self.kept_ms = 0  # a reset passed over it, and brings it back before that time

    @property
    def is_open(self) -> bool:
        return self.state in (MUST, HELD)


Items = dict[int, Item]


class GroupModel(ShardModel):
    """Publish, claim, settle; create, reset and delete groups; sweep, crash."""

    lease_ms = LEASE_MS
    store: FailingStore

    @initialize(
        retention=st.sampled_from([0, 60_000]),
        bucket_size=st.integers(0, 2),
        shared=st.booleans(),
        deleted_at_end=st.sampled_from([False, False, False, True]),
        cache=st.sampled_from([0, 1 << 20]),
    )
    def begin(self, retention: int, bucket_size: int, shared: bool, deleted_at_end: bool, cache: int) -> None:
        self.tighten()
        self.deleted_at_end = deleted_at_end
        self.shared = shared
        self.retention = retention
        self.cache_bytes_max = cache
        self.crashed = False
        self.bodies: list[tuple[bytes, str]] = []  # body and routing key, by offset
        self.gone: set[int] = set()  # offsets that nobody must be given any more
        self.perhaps: set[int] = set()  # of what the last group left: offsets that may be gone
        self.groups: dict[str, Items] = {}
        self.claims: dict[tuple[str, int], Claim] = {}
        self.takers: dict[str, tuple[Taker, Consumer]] = {}
        self.attach(FailingStore())
        policy = QueuePolicy(
            visibility_timeout_ms=LEASE_MS,
            message_bytes_max=1000,
            done_retention_ms=retention,
            bucket_size=bucket_size,
        )
        for name in ("work", "copy"):
            topics = (f"$queue/{name}/#", "$queue/both/#")
            definition = QueueDefinition(name, durable=True, policy=policy, topics=topics)
            self.manager.queues.declare(definition, self.clock.ms)
        self.manager.create_group(self.manager.queues.find("copy"), "", "#")
        self._commit()
        self.publish(8)

    def _commit(self) -> None:
        self.commit_all()
        while run(self.shard.commit_once()):
            pass
        self.durable = copy.deepcopy((self.bodies, self.gone, self.perhaps, self.groups))

    @property
    def queue(self) -> Queue:
        return self.manager.queues.find("work")

    @property
    def log(self) -> QueueLog:
        return self.queue.log

    @property
    def ledger(self) -> Retention[Cursor]:
        return self.queue.parts[0].retention

    def _real(self, group_id: str) -> Cursor:
        return self.ledger.members[group_id]

    # oracle

    def _id(self, group: str) -> str:
        """Group c has a pattern: every other message."""
        if group != "c":
            return group
        return "c@$queue/both/1" if self.shared else "c@1"

    def _matches(self, group_id: str, offset: int) -> bool:
        pattern = group_id.partition("@")[2] or "#"
        return compile_pattern(pattern)(self.bodies[offset][1])

    def _need(self, offset: int) -> str | None:
        """Whether a group that begins now has to be given the message."""
        if offset in self.gone:
            return None
        if not self.groups:
            return MAY if offset in self.perhaps else MUST
        for group_id, items in self.groups.items():
            if offset not in items:
                continue
            if items[offset].is_open:
                return MUST
            if items[offset].state == PASS and not self._real(group_id).progress.has_taken(offset):
                return MUST
        return MAY

    # what no group wants is the keeper's, which is one of the groups here while it is there

    def _group_ids(self) -> list[str]:
        """The groups that can be asked for."""
        return [group_id for group_id in self.groups if group_id != KEPT]

    def _is_unmatched(self, offset: int) -> bool:
        return not any(self._matches(group_id, offset) for group_id in self._group_ids())

    def _follow_keeper(self, needs: dict[int, str | None]) -> None:
        """The groups are others; `needs`: what a group was to be given that began before that."""
        group_ids = self._group_ids()
        if group_ids and all("@" in group_id for group_id in group_ids):
            if KEPT not in self.groups:
                unmatched = [offset for offset in needs if self._is_unmatched(offset)]
                self.groups[KEPT] = {o: Item(need) for o in unmatched if (need := needs[o]) is not None}
        elif KEPT in self.groups:
            self.groups[KEPT] = {}  # it goes once it is known what was let go of
            self._forget_keeper()

    def _forget_keeper(self) -> None:
        if KEPT in self.groups and not self.groups[KEPT] and self.queue.groups.keeper is None:
            del self.groups[KEPT]

    def _needs(self) -> dict[int, str | None]:
        return {offset: self._need(offset) for offset in range(self.log.head_offset, len(self.bodies))}

    def _back(self, offset: int) -> None:
        """A group has a failed message again; the log may show it to others that had not come so far."""
        self.gone.discard(offset)
        for group_id, items in self.groups.items():
            is_behind = offset >= self._real(group_id).position and offset not in items
            if is_behind and self._matches(group_id, offset):
                items[offset] = Item(MAY)

    def _nobody_else(self, group_id: str, offset: int) -> None:
        """The group lets go of a message for good."""
        if all(self._let_go(other, offset) for other in self.groups if other != group_id):
            self.gone.add(offset)

    def _let_go(self, group_id: str, offset: int) -> bool:
        items = self.groups[group_id]
        if offset in items and items[offset].state in (MUST, HELD, MAY):
            return False
        if offset in items and items[offset].state == DONE:
            return False  # its retention may last
        real = self._real(group_id)
        skipped = [offset for offset, _, _ in real.skipped._rows]  # let go of with the next commit
        return offset < real.position and offset not in skipped

    # steps

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        root = "$queue/both/" if self.shared else "$queue/work/"
        for number in range(len(self.bodies), len(self.bodies) + count):
            body, key = b"%d" % number, str(number % 2)
            self.manager.publish(self.plan(root + key), [body], self.clock.ms)
            # patterns see the whole topic where it is not below the queue's own
            self.bodies.append((body, root + key if self.shared else key))
        for group_id, items in self.groups.items():
            for offset in range(len(self.bodies) - count, len(self.bodies)):
                if group_id == KEPT:
                    if "" in self.groups or not self._is_unmatched(offset):
                        continue
                    items[offset] = Item(MUST)
                    continue
                items[offset] = Item(MUST if self._matches(group_id, offset) else PASS)
        self.rest()

    @rule(group=st.sampled_from(GROUPS), start=st.sampled_from([None, None, 0, 3, 9, 10_000]))
    def create(self, group: str, start: int | None) -> None:
        group_id = self._id(group)
        if group_id in self.groups:
            return
        if start is not None and not self.ledger.is_known:
            self.sweep()
        name, _, pattern = group_id.partition("@")
        items = {}
        first = self.log.head_offset
        end = len(self.bodies)
        if not self.groups:
            lost = [offset for offset in range(first) if self._need(offset) == MUST]
            assert not lost, f"{lost} are gone that no group had done"
        if start is not None:
            first = max(first, min(start, end))
        for offset in range(first, end):
            need = self._need(offset)
            if self._matches(group_id, offset):
                if need is not None:
                    items[offset] = Item(need)
            elif need == MUST:
                items[offset] = Item(PASS)
        lone = not self.groups
        needs = self._needs()
        self.manager.create_group(self.queue, name, pattern or "#", None if start is None else [(start, 0)])
        if lone and self.ledger.is_known and "@" not in group_id:
            self.gone |= set(range(first))
        self.groups[group_id] = items
        self._follow_keeper(needs)
        self.rest()

    @rule(group=st.sampled_from(GROUPS), to=st.integers(0, 40))
    def reset(self, group: str, to: int) -> None:
        group_id = self._id(group)
        if group_id not in self.groups or not self.ledger.is_known:
            return
        head_offset = self.log.head_offset
        items = self.groups[group_id]
        for offset, item in items.items():
            assert item.kept_ms <= self.clock.ms or offset >= head_offset
        to = min(max(to, head_offset), len(self.bodies))
        again: Items = {}
        for offset in range(to, len(self.bodies)):
            if not self._matches(group_id, offset):
                if self._need(offset) == MUST:
                    again[offset] = Item(PASS)
                continue
            old = items.get(offset)
            if old is not None and (old.state in (MUST, HELD, FAILED) or old.kept_ms > self.clock.ms):
                again[offset] = Item(MUST)
                if old.state == FAILED:
                    self._back(offset)
                continue
            need = self._need(offset)
            if need is not None:
                again[offset] = Item(need)
        for offset, item in items.items():
            if offset < to and item.state in (FAILED, DONE):
                again[offset] = item
                if item.state == DONE:
                    del again[offset]
        if self.retention:
            for offset in range(head_offset, to):
                if offset not in again and offset not in self.gone:
                    again[offset] = self._passed_over(items.get(offset))
        self.manager.reset_group(self.queue, group_id, [(to, 0)], self.clock.ms, force=True)
        self.groups[group_id] = again
        for offset in range(to):
            if offset not in again:
                self._nobody_else(group_id, offset)
        self._drop_entries(group_id)
        self.rest()

    def _passed_over(self, item: Item | None) -> Item:
        """A message as a reset forward leaves it: kept as if the group had done it."""
        passed = Item(DONE)
        if item is not None and (item.is_open or item.kept_ms > self.clock.ms):
            passed.kept_ms = self.clock.ms + self.retention
        return passed

    @rule(
        group=st.sampled_from(GROUPS),
        to=st.integers(1, 40),
        back=st.integers(0, 20),
        ms=st.sampled_from([0, 0, 29_000, 61_000]),
        crash=st.booleans(),
    )
    def there_and_back(self, group: str, to: int, back: int, ms: int, crash: bool) -> None:
        self.reset(group, to)
        self.wait(ms)
        if crash:
            self.crash(True, None)
            self.sweep()
        self.reset(group, back)

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        group_id = self._id(group)
        if group_id not in self.groups or not self.ledger.is_known:
            return
        items = self.groups[group_id]
        position = self._real(group_id).position
        self.queue.groups.delete(group_id, self.clock.ms, force=True)
        if len(self._group_ids()) == 1:
            kept = self.groups.pop(KEPT, {})
            for offset in range(position):
                if offset not in kept and (offset not in items or not items[offset].is_open):
                    self.gone.add(offset)
            rest = set(range(position, len(self.bodies)))
            self.perhaps = {o for o in rest if o not in items or items[o].state == MAY}
            self.perhaps -= {o for o, item in kept.items() if item.is_open}
            self.perhaps |= {o for o, item in kept.items() if item.state == MAY}
        else:
            for offset in range(len(self.bodies)):
                self._nobody_else(group_id, offset)
        del self.groups[group_id]
        self._follow_keeper(self._needs())
        self._drop_entries(group_id)
        self.takers.pop(group_id, None)

    @precondition(lambda self: len(self._group_ids()) < 2)
    @rule(group=st.sampled_from(GROUPS), count=st.integers(1, 6), heir=st.sampled_from(GROUPS))
    def inherit(self, group: str, count: int, heir: str) -> None:
        """The only group goes while it has something in flight, and another comes."""
        if not self.groups:
            self.create(group, None)
        [last] = self._group_ids()
        self.claim(last, count)
        self.delete(last.partition("@")[0])
        self.create(heir, None)

    def _drop_entries(self, group_id: str) -> None:
        stale = [key for key in self.claims if key[0] == group_id]
        assert self.manager.ack([self.claims.pop(key) for key in stale], self.clock.ms) == len(stale)

    def _consumer(self, group_id: str) -> tuple[Taker, Consumer]:
        if group_id not in self.takers:
            taker = Taker()
            consumer = self.add_puller(self.queue, taker, self.queue.groups.find(group_id))
            self.takers[group_id] = (taker, consumer)
        return self.takers[group_id]

    def claim(self, group_id: str, count: int, *, no_ack: bool = False) -> int:
        items = self.groups[group_id]
        taker, consumer = self._consumer(group_id)
        for number in range(count):
            before = len(taker.taken)
            for _ in range(1_000):
                answer = self.manager.consumption.pull(consumer, no_ack, self.clock.ms)
                if answer is not None:
                    break
                if not load(self.shard):
                    self.sweep()
            else:
                raise AssertionError("a pull waits for ever")
            due = [o for o in sorted(items) if items[o].state == MUST and items[o].due_ms <= self.clock.ms]
            if not answer:
                assert not due, f"group {group_id!r} is not given {due}"
                return number
            [(message, claim)] = taker.taken[before:]
            offset = message.offset
            assert message.body == self.bodies[offset][0]
            item = items.get(offset)
            assert item is not None, f"group {group_id!r} is given {offset}"
            assert item.state in (MUST, MAY), f"group {group_id!r} is given {offset}, {item.state}"
            assert not due or offset <= due[0]
            item.attempts += 1
            assert item.attempts == (1 if claim is None else claim.attempts)
            for other, passed in list(items.items()):
                if other < offset and passed.state == MAY:
                    del items[other]
            if no_ack:
                item.state = DONE
            else:
                assert claim is not None
                item.state = HELD
                self.claims[group_id, offset] = claim
        return count

    @rule(
        group=st.sampled_from(GROUPS),
        count=st.integers(1, 12),
        kinds=st.lists(st.tuples(KINDS, st.integers(0, 99)), max_size=10),
        no_ack=st.sampled_from([False, False, False, True]),
    )
    def work(self, group: str, count: int, kinds: list[tuple[str, int]], no_ack: bool) -> None:
        group_id = self._id(group)
        if group_id not in self.groups:
            return
        self.claim(group_id, count, no_ack=no_ack)
        for kind, pick in kinds:
            held = [offset for name, offset in self.claims if name == group_id]
            if held:
                self._settle(group_id, held[pick % len(held)], kind)
        self.rest()

    def _settle(self, group_id: str, offset: int, kind: str) -> None:
        claim = self.claims.pop((group_id, offset))
        item = self.groups[group_id][offset]
        now_ms = self.clock.ms
        if kind == "ack":
            assert self.manager.ack([claim], now_ms) == 0
            item.state = DONE
        elif kind == "reject":
            assert self.manager.reject([claim], now_ms) == 0
            item.state = FAILED
        else:
            delay_ms = 7_500 if kind == "delay" else 0
            assert self.manager.requeue([claim], now_ms, delay_ms=delay_ms) == 0
            item.state = MUST
            item.due_ms = now_ms + delay_ms if delay_ms else 0

    @rule(ms=st.sampled_from([1, 7_500, 29_000, 61_000]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms
        self.manager.expire(self.clock.ms)
        for (group_id, offset), claim in list(self.claims.items()):
            if claim.state != IN_FLIGHT:
                del self.claims[group_id, offset]
                self.groups[group_id][offset].state = MUST
                self.groups[group_id][offset].due_ms = 0
        self.rest()

    @rule()
    def sweep(self) -> None:
        self.wait(0)
        self._commit()
        self.sweep_once()
        self._commit()

    @rule(group=st.sampled_from(GROUPS))
    def redrive(self, group: str) -> None:
        group_id = self._id(group)
        if group_id not in self.groups:
            return
        self.sweep()
        failed = {o: item for o, item in self.groups[group_id].items() if item.state == FAILED}
        count = run(MessageClient(self.shard).redrive("work", group_id))
        assert count == len(failed)
        for offset, item in failed.items():
            item.state, item.attempts, item.due_ms = MUST, 0, 0
            self._back(offset)
        self._commit()

    @rule(commit=st.booleans(), sweep_writes=st.none() | st.integers(0, 6))
    def crash(self, commit: bool, sweep_writes: int | None) -> None:
        unborn = {group.group_id for group in self.manager.context.awaiting_history}  # type: ignore[attr-defined]
        if commit:
            self._commit()
        if sweep_writes is not None:
            self.wait(0)
            self._commit()
            self.store.writes_left = sweep_writes
            try:
                self.sweep_once()
            except StorageError:
                pass
        self.crashed = True
        self.bodies, self.gone, self.perhaps, self.groups = copy.deepcopy(self.durable)
        for items in self.groups.values():
            for item in items.values():
                if item.state == HELD:
                    item.state, item.due_ms = MUST, 0
        self.claims = {}
        self.takers = {}
        self.attach(self.store.crash())
        for group_id in unborn - {*self.queue.groups.ids(), KEPT}:  # it had seen nothing
            self.groups.pop(group_id, None)
            self.durable[3].pop(group_id, None)
        self.rest()

    @invariant()
    def counts_agree(self) -> None:
        queue = self.queue
        assert set(queue.groups.ids()) == set(self._group_ids())
        self._forget_keeper()
        for group_id, items in self.groups.items():
            if group_id == KEPT:
                continue
            group = queue.groups.find(group_id)
            assert group.in_flight_count() == sum(item.state == HELD for item in items.values())
            if self.shard.done_records.are_known:
                assert group.failed_count() == sum(item.state == FAILED for item in items.values())

    # the end

    def _drain(self) -> None:
        if not self.groups or KEPT in self.groups:
            self.create("a", None)
        self.wait(30_000)
        for group_id in self._group_ids():
            while self.claim(group_id, 20) == 20:
                pass
            for name, offset in list(self.claims):
                if name == group_id:
                    self._settle(group_id, offset, "ack")
            items = self.groups[group_id]
            assert not [offset for offset, item in items.items() if item.is_open]
        taker = Taker()
        consumer = self.add_puller(self.manager.queues.find("copy"), taker)
        while self.pull_one(consumer):
            pass
        assert len(taker.taken) == (len(self.bodies) if self.shared else 0)
        self.manager.ack(taker.claims(), self.clock.ms)

    def finish(self) -> None:
        if self.deleted_at_end:
            self.manager.queues.delete(self.queue, self.clock.ms)
            self.groups, self.claims = {}, {}
            self.sweep()
            work = QueueDefinition("work", durable=True, policy=DEFAULT_POLICY)
            self.manager.queues.declare(work, self.clock.ms)
            bodies, self.bodies = self.bodies, []
            self.gone = set()
            self._commit()
            self.bodies = bodies if self.shared else []
            self._drain_copy()
        else:
            self._drain()
        for _ in range(4):
            self.sweep()
            self.clock.ms += 61_000
        kept: set[object] = {
            self.bodies[offset][0]
            for items in self.groups.values()
            for offset, item in items.items()
            if item.state == FAILED
        }
        rows = all_rows(self.store)
        bodies = [value for key, value in rows if key.startswith(payload.prefix())]
        assert kept <= set(bodies), "payloads are lost"
        if not (self.crashed and self.shared):
            assert kept == set(bodies), "payloads leak"
            references = [key for key, _ in rows if key.startswith(payload_refs.prefix())]
            assert len(references) == (len(kept) if self.shared else 0)
        left = {key[1] for key, _ in rows if key[0] == layout.VERSION}
        assert not left & {
            active.number,
            done.number,
            group_removal.number,
            skipped_offsets.number,
            removal.number,
        }
        check_memory(self.manager)

    def _drain_copy(self) -> None:
        groups, self.groups = self.groups, {"x": {}}
        self.manager.create_group(self.queue, "x", "#")
        self._drain()
        self.groups = groups


class TestGroupAdminModel(GroupModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(
        max_examples=80, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
