"""Random lives of a queue with message groups and several consumers, beside a simple oracle.

At each delivery: nobody else holds a message of the same key, what is delivered is the oldest of its key
that waits, and its key is this consumer's or nobody's. After each step: nothing waits that somebody could
have. A crash goes back to the last commit on both sides; at the end nothing is lost.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from broker.properties.readers import install_readers
from config import limits
from protocols.amqp091.content import Properties, encode_properties
from queue_manager.claims.claim import IN_FLIGHT, UNLIMITED, Claim, Consumer, CreditPool
from queue_manager.dispatch.by_key.binding_table import BindingTable
from queue_manager.model import Message
from queue_manager.options import PublishOptions
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.envelope import PROPERTIES_AMQP
from storage.records import payload
from tests.memory_store import MemoryStore
from tests.model.harness import may_take, run
from tests.model.shard_model import QuietSink, ShardModel

LEASE_MS = 30_000
AT_ONCE = (-9, -1)
NEVER = (9, 0)
KEYS = ["a", "", "a", "b", "c"]


class Item:
    """What should be known of one message."""

    def __init__(self, body: bytes, key: str, closes: bool, rank: tuple[int, int]) -> None:
        self.body = body
        self.rank = rank  # -priority, number
        self.key = key
        self.closes = closes and key != ""
        self.attempts = 0
        self.state = "waiting"  # held, done, failed
        self.due_ms = 0
        self.lease_end_ms = 0
        self.holder = -1


class Bond:
    """Whose a key is. Not `sure`: it is that member's or, if nothing of it is in flight, nobody's.

    What ranks beyond `ends_at` is not for that member: it waits until the bond has ended.
    """

    def __init__(self, owner: int, ends_at: tuple[int, int] = NEVER) -> None:
        self.owner = owner
        self.ends_at = ends_at
        self.sure = True


class Member(QuietSink):
    """A consumer of the group, and its sink: the machine checks each delivery as it comes.

    `refuses`: nothing can be sent to it.
    """

    def __init__(self, machine: StickyModel, number: int) -> None:
        self.machine = machine
        self.number = number
        self.consumer: Consumer
        self.pulls = False
        self.refuses = False

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        assert claims is None or len({entry.attempts > 1 for entry in claims}) <= 1
        for index, message in enumerate(messages):
            self.machine.delivered(self, message, None if claims is None else claims[index])
        return not self.refuses


class StickyModel(ShardModel):
    """Publish by key, consume, settle in every way, come and go, crash."""

    lease_ms = LEASE_MS

    @initialize(
        mode=st.sampled_from(["sticky", "sticky", "rebalance"]),
        durable=st.sampled_from([True, True, True, False]),
        tries=st.sampled_from([0, 0, 3]),
        retention=st.sampled_from([0, 60_000]),
        bucket_size=st.integers(0, 2),
        tight=st.booleans(),
        priority_max=st.sampled_from([0, 0, 2]),
        crashes=st.booleans(),
        credits=st.lists(st.sampled_from([1, 1, 2, UNLIMITED]), min_size=2, max_size=3),
    )
    def begin(
        self,
        mode: str,
        durable: bool,
        tries: int,
        retention: int,
        bucket_size: int,
        tight: bool,
        priority_max: int,
        crashes: bool,
        credits: list[int],
    ) -> None:
        self.is_tight = tight
        if tight:
            self.tighten()
        self.items: list[Item] = []
        self.claims: dict[bytes, Claim] = {}
        self.members: list[Member] = []
        self.gone: list[Member] = []  # cancelled, with claims perhaps
        self.bonds: dict[str, Bond] = {}
        self.numbers = 0
        self.member_numbers = 0
        self.is_durable = durable
        self.crashes = crashes and durable
        self.tries = tries
        self.mode = mode
        self.policy: dict[str, Any] = {
            "visibility_timeout_ms": LEASE_MS,
            "message_bytes_max": 1_000,
            "done_retention_ms": retention,
            "bucket_size": bucket_size,
            "attempts_max": tries,
            "priority_max": priority_max,
        }
        self.attach(MemoryStore())
        self.manager.queues.declare(self._definition(), self.clock.ms)
        self._reopen_puller()
        self._commit()
        self.credits = credits
        self._join_again()

    def _join_again(self) -> None:
        for credit in self.credits:
            self.join(credit, no_ack=False, priority=0, pooled=False)

    def _definition(self) -> QueueDefinition:
        policy = QueuePolicy(**self.policy, message_groups="" if self.mode == "off" else self.mode)
        return QueueDefinition("work", durable=self.is_durable, policy=policy)

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        install_readers(self.manager)

    @property
    def work(self) -> Queue:
        return self.manager.queues.find("work")

    @property
    def table(self) -> BindingTable | None:
        """Which key is whose, while keys are bound."""
        by_key = self.work.groups.find("").serving.by_key
        return None if by_key is None else by_key._table

    def _reopen_puller(self) -> None:
        self.puller = self._member()
        self.puller.pulls = True
        self.puller.consumer = self.add_puller(self.work, self.puller)

    def _member(self) -> Member:
        self.member_numbers += 1
        return Member(self, self.member_numbers)

    def _commit(self) -> None:
        self.rest()
        self.commit_all()
        self.committed = copy.deepcopy(self.items)

    # oracle

    def delivered(self, member: Member, message: Message, entry: Claim | None) -> None:
        assert message.body is not None
        item = next(item for item in self.items if item.body == message.body)
        assert self._is_ready(item)
        item.attempts += 1
        assert entry is None or (entry.state == IN_FLIGHT and entry.attempts == item.attempts)
        if not item.key and self.mode != "off" and not self.is_tight:
            urgent = [o for o in self.items if self._is_ready(o) and not o.key and o.rank[0] < item.rank[0]]
            assert not urgent, "a more urgent one waits"
        if item.key and self.mode != "off":
            same = [other for other in self.items if other.key == item.key and other is not item]
            assert {o.holder for o in same if o.state == "held"} <= {member.number}, "two hold one key"
            older = [other for other in same if other.rank < item.rank]
            if self.is_tight:  # what is urgent may not be taken yet
                older = [other for other in older if other.rank[0] == item.rank[0]]
            assert not [o for o in older if self._is_ready(o)], "an older one waits"
            self._check_bond(member, item, older)
        item.state = "held"
        item.holder = member.number
        item.due_ms = 0
        item.lease_end_ms = self.clock.ms + LEASE_MS
        if member.consumer.no_ack and not member.refuses:
            item.state = "done"
            self._settled(item.key)
        elif entry is not None:
            self.claims[item.body] = entry

    def _check_bond(self, member: Member, item: Item, older: list[Item]) -> None:
        """`member` gets `item`: may it, and whose is the key now?"""
        bond = self.bonds.get(item.key)
        if bond is not None and bond.sure and not self.is_tight:  # tight limits may make it forget
            assert bond.owner == member.number, "the key is another's"
        if member.pulls:
            self.bonds.pop(item.key, None)
            return
        assert not [o for o in older if o.closes and o.state == "held"], "the key was closed"
        if bond is None or bond.owner != member.number or item.rank > bond.ends_at:
            bond = self.bonds[item.key] = Bond(member.number)
        if item.closes:
            bond.ends_at = item.rank
        bond.sure = bond.sure or item.closes or bond.ends_at == NEVER

    def _settled(self, key: str) -> None:
        """Something of a key is in flight no longer: its bond may have ended."""
        bond = self.bonds.get(key)
        same = [item for item in self.items if item.key == key]
        if bond is None or bond.ends_at == NEVER or any(item.state == "held" for item in same):
            return
        if not bond.sure or any(self._is_ready(item) and item.rank <= bond.ends_at for item in same):
            bond.sure = False  # what came back may have been before the end, or not
        else:
            del self.bonds[key]

    def _is_ready(self, item: Item) -> bool:
        return item.state == "waiting" and item.due_ms <= self.clock.ms

    def _comes_back(self, item: Item, wait_ms: int = 0) -> None:
        item.holder = -1
        item.lease_end_ms = 0
        if self.tries and item.attempts >= self.tries:
            item.state = "failed"
        else:
            item.state = "waiting"
            item.due_ms = self.clock.ms + wait_ms if wait_ms else 0
        self._settled(item.key)

    def _rebalanced(self) -> None:
        """Somebody joined: idle keys are nobody's, and who keeps which of the others is not known."""
        busy = {item.key for item in self.items if item.state == "held" or self._is_ready(item)}
        self.bonds = {key: bond for key, bond in self.bonds.items() if key in busy}
        for bond in self.bonds.values():
            bond.sure = False

    def _held(self) -> list[Item]:
        return [item for item in self.items if item.state == "held"]

    def _free(self, member: Member) -> None:
        shared = {item.key for item in self._held() if item.holder != member.number}  # from when it was off
        self.bonds = {
            key: bond for key, bond in self.bonds.items() if bond.owner != member.number or key in shared
        }

    # steps

    @rule(
        kinds=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 7)), min_size=2, max_size=12),
        quiesce=st.booleans(),
    )
    def publish_many(self, kinds: list[tuple[str, int]], quiesce: bool) -> None:
        self.publish(kinds, quiesce)

    @rule(
        kinds=st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 7)), min_size=1, max_size=3),
        quiesce=st.booleans(),
    )
    def publish(self, kinds: list[tuple[str, int]], quiesce: bool) -> None:
        for key, chance in kinds:
            body = b"%d" % self.numbers
            priority = min(chance, self.policy["priority_max"])
            headers: list[tuple[str, Any]] = [("JMSXGroupID", key)] if key else [("other", 1)]
            if chance == 0:
                headers.append(("JMSXGroupSeq", -1))
            raw = encode_properties(Properties(), headers)
            options = PublishOptions(priority=priority)
            plan = self.plan("$queue/work/key", options, kind=PROPERTIES_AMQP, properties=raw)
            self.manager.publish(plan, [body], self.clock.ms)
            self.items.append(Item(body, key, chance == 0, (-priority, self.numbers)))
            self.numbers += 1
        if quiesce:
            self.rest()

    @precondition(lambda self: len(self.members) < 4)
    @rule(
        credit=st.sampled_from([1, 1, 2, 3, UNLIMITED]),
        no_ack=st.sampled_from([False, False, False, True]),
        priority=st.sampled_from([0, 0, 0, 5]),
        pooled=st.sampled_from([False, False, True]),
    )
    def join(self, credit: int, no_ack: bool, priority: int, pooled: bool, *, refuses: bool = False) -> None:
        member = self._member()
        member.refuses = refuses
        pool = None
        if pooled and not no_ack:
            pool = next((m.consumer.pool for m in self.members if m.consumer.pool is not None), CreditPool(2))
        self.members.append(member)
        if self.mode == "rebalance":
            self._rebalanced()
        member.consumer = self.add_consumer(
            self.work, member, credit_max=credit, no_ack=no_ack, pool=pool, priority=priority
        )
        self.rest()

    @precondition(lambda self: len(self.members) < 4)
    @rule(no_ack=st.booleans())
    def refuse(self, no_ack: bool) -> None:
        """A member comes that nothing can be sent to, and goes again."""
        self.join(UNLIMITED, no_ack, 0, False, refuses=True)
        self.leave(len(self.members) - 1, keeps=False)

    @rule(pick=st.integers(0, 9), keeps=st.booleans())
    def leave(self, pick: int, keeps: bool) -> None:
        if not self.members:
            return
        member = self.members.pop(pick % len(self.members))
        self._free(member)
        if keeps:
            self.gone.append(member)
        else:
            for item in [item for item in self._held() if item.holder == member.number]:
                self._comes_back(item)
        self.manager.consumption.unsubscribe(member.consumer, self.clock.ms, keep_claims=keeps)
        self.rest()

    @rule(pick=st.integers(0, 9))
    def close_cancelled(self, pick: int) -> None:
        if not self.gone:
            return
        member = self.gone.pop(pick % len(self.gone))
        for item in [item for item in self._held() if item.holder == member.number]:
            self._comes_back(item)
        self.remove_consumer(member.consumer)
        self.rest()

    @rule(pick=st.integers(0, 9), ms=st.sampled_from([0, 1]))
    def pause(self, pick: int, ms: int) -> None:
        if self.members:
            member = self.members[pick % len(self.members)]
            if member.consumer.paused:
                member.consumer.resume()
            else:
                member.consumer.pause()
            self.manager.consumption.wake(member.consumer)
            self.rest()

    @rule(count=st.integers(1, 4), no_ack=st.sampled_from([False, False, True]))
    def pull(self, count: int, no_ack: bool) -> None:
        for _ in range(count):
            is_due = any(self._is_ready(item) and self._must_be_pulled(item) for item in self.items)
            answer = self.pull_one(self.puller.consumer, no_ack=no_ack)
            assert answer or not is_due or self.is_tight
            self.rest()

    def _must_be_pulled(self, item: Item) -> bool:
        if not item.key or self.mode == "off":
            return True
        holders = {other.holder for other in self._held() if other.key == item.key}
        return holders <= {self.puller.number} and item.key not in self.bonds

    @rule(
        kinds=st.lists(
            st.tuples(
                st.sampled_from(["ack", "ack", "ack", "nack", "reject", "delay", "extend"]),
                st.integers(0, 99),
            ),
            min_size=1,
            max_size=12,
        )
    )
    def settle(self, kinds: list[tuple[str, int]]) -> None:
        for kind, pick in kinds:
            held = self._held()
            if held:
                self._settle(held[pick % len(held)], kind)

    def _settle(self, item: Item, kind: str) -> None:
        entry = self.claims[item.body]
        now_ms = self.clock.ms
        if kind == "extend":
            assert self.manager.consumption.extend(entry, 2 * LEASE_MS, now_ms)
            item.lease_end_ms = now_ms + 2 * LEASE_MS
            return
        if kind == "ack":
            item.state = "done"
            self._settled(item.key)
            assert self.manager.ack([entry], now_ms) == 0
        elif kind == "reject":
            item.state = "failed"
            self._settled(item.key)
            assert self.manager.reject([entry], now_ms) == 0
        else:
            wait_ms = 7_500 if kind == "delay" else 0
            self._comes_back(item, wait_ms)
            assert self.manager.requeue([entry], now_ms, delay_ms=wait_ms or None) == 0
        item.holder = -1
        assert self.manager.ack([entry], now_ms) == 1, "settled twice"
        self.rest()

    @rule(ms=st.sampled_from([1, 7_500, 30_000, 61_000]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms
        for item in [item for item in self._held() if item.lease_end_ms <= self.clock.ms]:
            self._comes_back(item)
        self.manager.expire(self.clock.ms)
        self.rest()

    @precondition(lambda self: sum(item.state == "waiting" for item in self.items) > 3)
    @rule()
    def purge(self) -> None:
        self.work.purge(self.clock.ms)
        for item in self.items:
            if item.state == "waiting":
                bond = self.bonds.get(item.key)
                if bond is not None and item.closes:  # it may have ended the bond, or not
                    bond.sure = False
                    bond.ends_at = min(bond.ends_at, item.rank)
                item.state = "done"
        self.rest()

    @precondition(lambda self: self.mode == "off" or any(item.state == "waiting" for item in self.items))
    @rule(mode=st.sampled_from(["off", "sticky", "rebalance"]))
    def redefine(self, mode: str) -> None:
        if "off" in (mode, self.mode):
            self.bonds = {item.key: Bond(item.holder, AT_ONCE) for item in self._held() if item.key}
        self.mode = mode
        self.manager.queues.redefine(self.work, self._definition())
        self.rest()

    @rule()
    def sweep(self) -> None:
        self.wait(0)
        self._commit()
        self.sweep_once()
        self._commit()

    @precondition(lambda self: self.crashes)
    @rule(commit=st.booleans(), ms=st.sampled_from([0, 10_000]))
    def crash(self, commit: bool, ms: int) -> None:
        if commit:
            self._commit()
        self.items = copy.deepcopy(self.committed)
        self.clock.ms += ms
        for item in self._held():
            item.state = "waiting"
            item.due_ms = item.lease_end_ms = 0
            item.holder = -1
        self.claims = {}
        self.members = []
        self.gone = []
        self.bonds = {}
        self.attach(self.store.crash())
        mode = self.work.policy.message_groups or "off"
        self.mode = mode
        self._reopen_puller()
        self.manager.fire_timers(self.clock.ms)
        self._join_again()

    @invariant()
    def counts_agree(self) -> None:
        group = self.work.groups.find("")
        ready = [item for item in self.items if self._is_ready(item)]
        assert group.ready_count() == len(ready)
        assert group.delayed_count() == sum(i.state == "waiting" for i in self.items) - len(ready)
        assert group.in_flight_count() == len(self._held())
        table = self.table
        assert (table is None) == (self.mode == "off")
        if table is not None:
            held = self._held()
            for key, binding in table.bindings.items():
                assert binding.in_flight == sum(item.key == key for item in held)
            if not self.is_tight:
                assert table.placed_count <= limits.PLACED_MESSAGES_PER_GROUP_MAX

    @invariant()
    def nothing_waits_that_somebody_could_have(self) -> None:
        self.rest()
        table = self.table
        if table is not None and (
            table.placed_count >= limits.PLACED_MESSAGES_PER_GROUP_MAX
            or table.placed_bytes >= limits.PLACED_BYTES_PER_GROUP_MAX
        ):
            return
        for member in self.members:
            if may_take(member.consumer):
                for item in self.items:
                    if self._is_ready(item):
                        assert self._must_wait_for(item, member), (item.body, item.key, member.number)

    def _must_wait_for(self, item: Item, member: Member) -> bool:
        """Whether there may be a reason that `member`, who has credit, does not get `item`."""
        if not item.key or self.mode == "off":
            return False
        bond = self.bonds.get(item.key)
        holders = {other.holder for other in self._held() if other.key == item.key}
        if holders - {member.number}:
            return True
        if bond is None:
            return False
        if holders:
            return not bond.sure or item.rank > bond.ends_at
        return bond.owner != member.number and any(m.number == bond.owner for m in self.members)

    # the end

    def finish(self) -> None:
        self.relax()
        if not self.members:
            self.join(3, False, 0, False)
        for member in self.members:
            member.consumer.resume()
            self.manager.consumption.wake(member.consumer)
        for _ in range(10 * len(self.items) + 10):
            self.rest()
            for item in self._held():
                self._settle(item, "ack")
            if all(item.state in ("done", "failed") for item in self.items):
                break
            self.wait(7_500)
        else:
            raise AssertionError("messages are left")
        if not self.is_durable:
            return
        for _ in range(3):
            self.clock.ms += 61_000
            self.sweep()
        rows = run(self.store.scan(payload.prefix(), None, limit=100_000))
        kept = [key for key, _ in rows if key.startswith(payload.prefix())]
        assert len(kept) == sum(item.state == "failed" for item in self.items), "payloads leak or are lost"


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestStickyModel(StickyModel.TestCase):  # type: ignore[misc, name-defined]
    settings = SETTINGS


@pytest.mark.long
@pytest.mark.timeout(900)
class TestStickyModelLong(StickyModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(SETTINGS, max_examples=1_500, stateful_step_count=60)
