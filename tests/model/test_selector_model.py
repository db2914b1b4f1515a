"""Random lives of one group whose consumers have selectors, beside a simple oracle.

What a consumer is given must match, must be the oldest that waits for it, and after each step nobody with
credit may lack what waits for him. A second group, with a selector of its own, reads the same queue. A crash
goes back to the last commit on both sides.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.engine.shard import Shard
from queue_manager.consumer import Consumer
from queue_manager.definitions import QueueDefinition
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.filters.fields import Fields
from queue_manager.model import IN_FLIGHT, Entry, Message
from queue_manager.policy import QueuePolicy
from queue_manager.tail import MESSAGE_OVERHEAD_BYTES, RELEASED, RELEASED_BYTES
from storage.envelope import EnvelopeTemplate
from storage.memory_store import MemoryStore
from storage.records import payload, taken_ahead
from tests.model.harness import DEFAULT_POLICY, FakeClock, load, may_take
from tests.model.tight_limits import TightLimits

T = TypeVar("T")
LEASE_MS = 30_000
REGIONS = ("eu", "us", "asia")
SELECTORS = {
    "": lambda item: True,
    "region = 'eu'": lambda item: item.region == "eu",
    "region = 'us' AND qty > 4": lambda item: item.region == "us" and item.qty > 4,
    "qty BETWEEN 3 AND 6": lambda item: 3 <= item.qty <= 6,
    "region <> 'eu'": lambda item: item.region != "eu",
    "JMSXDeliveryCount > 1": lambda item: item.attempts > 0,
    "region = 'mars'": lambda item: False,
}
TEXTS = st.sampled_from(list(SELECTORS))
AUDIT = "qty <> 3"


def run(step: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but its turn."""
    for _ in range(100_000):
        try:
            assert step.send(None) is None
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for ever")


def fields_of(template: EnvelopeTemplate) -> Fields:
    _, _, region, qty = template.topic.split("/")
    return {"region": region, "qty": int(qty)}


class Item:
    """What should be known of one message."""

    def __init__(self, number: int, region: str, qty: int) -> None:
        self.number = number
        self.region = region
        self.qty = qty
        self.attempts = 0
        self.state = "waiting"  # held, done, failed
        self.due_ms = 0
        self.lease_end_ms = 0
        self.is_audited = qty == 3
        self.may_be_gone = False


class Taker:
    """A consumer of the group, and what it holds."""

    def __init__(self, model: SelectorModel, text: str, credit: int, no_ack: bool) -> None:
        self.model = model
        self.text = text
        self.credit = credit
        self.no_ack = no_ack
        self.refuses = False
        self.consumer: Consumer

    def deliver(self, consumer: Consumer, messages: list[Message], entries: list[Entry] | None) -> bool:
        for index, message in enumerate(messages):
            entry = None if entries is None else entries[index]
            self.model.delivered(self, message, entry)
        return not self.refuses

    def revoked(self, consumer: Consumer, entries: list[Entry]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class Auditor:
    """The consumer of the second group."""

    def __init__(self, model: SelectorModel) -> None:
        self.model = model

    def deliver(self, consumer: Consumer, messages: list[Message], entries: list[Entry] | None) -> bool:
        for message in messages:
            item = self.model.items[int(message.body or b"")]
            assert not item.is_audited or item.may_be_gone
            item.is_audited = True
            item.may_be_gone = False
        return True

    def revoked(self, consumer: Consumer, entries: list[Entry]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class SelectorModel(RuleBasedStateMachine):
    """Consumers come and go, messages are published, claimed, settled; the broker crashes."""

    @initialize(
        durable=st.sampled_from([True, True, True, False]),
        audit=st.sampled_from(["", "early", "late"]),
        retention=st.sampled_from([0, 60_000]),
        bucket_size=st.integers(0, 2),
        skip=st.sampled_from([0, 0, 4_090]),
        is_tight=st.sampled_from([True, True, False]),
        group_selector=st.sampled_from(["", "", "qty <> 7"]),
    )
    def begin(
        self,
        durable: bool,
        audit: str,
        retention: int,
        bucket_size: int,
        skip: int,
        is_tight: bool,
        group_selector: str,
    ) -> None:
        self.group_selector = group_selector
        self.tight = TightLimits() if is_tight else None
        self.clock = FakeClock()
        self.is_durable = durable
        self.audit_group = audit
        self.items: list[Item] = []
        self.takers: list[Taker] = []
        self.entries: dict[int, Entry] = {}
        self.policy = QueuePolicy(
            visibility_timeout_ms=LEASE_MS,
            message_bytes_max=10_000,
            done_retention_ms=retention,
            bucket_size=bucket_size,
        )
        self._open(MemoryStore())
        queue = self.manager.declare(
            QueueDefinition("work", durable=durable, policy=self.policy), self.clock.ms
        )
        if skip:
            queue.tail.first_offset = queue.head_offset = queue.durable_offset = skip
        self.first_offset = skip
        self.manager.group(queue, "", "#", group_selector)
        if audit == "early":
            self.manager.group(queue, "audit", "#", AUDIT)
        self._commit()

    def _open(self, store: MemoryStore) -> None:
        self.store = store
        self.shard = run(
            Shard.open(
                store,
                self.clock,  # type: ignore[arg-type]
                default_policy=DEFAULT_POLICY,
                auto_create=True,
                cache_bytes_max=0,
            )
        )
        self.manager = self.shard.manager
        self.manager.fields.of_template = fields_of

    def _commit(self) -> None:
        self._quiesce()
        run(self.shard.commit_once(everything=True))
        self.durable = copy.deepcopy(self.items)

    def _quiesce(self) -> None:
        for _ in range(10_000):
            self.manager.fire_timers(self.clock.ms)
            if self.manager.loads or self.manager.unborn:
                load(self.shard)
            elif (self.manager.timers.next_ms() or self.clock.ms + 1) > self.clock.ms:
                return
        raise AssertionError("it never comes to rest")

    @property
    def group(self) -> Any:
        return self.manager.find("work").groups[""]

    # oracle

    def _waiting(self) -> list[Item]:
        return [i for i in self.items if i.state == "waiting" and i.due_ms <= self.clock.ms]

    def _wanted(self, text: str) -> list[Item]:
        return [item for item in self._waiting() if SELECTORS[text](item)]

    def delivered(self, taker: Taker, message: Message, entry: Entry | None) -> None:
        """A message came to a consumer."""
        item = self.items[int(message.body or b"")]
        wanted = self._wanted(taker.text)
        assert item in wanted, "it does not wait, or does not match"
        assert item is wanted[0], "there was an older one"
        assert message.offset == self.first_offset + item.number
        item.attempts += 1
        item.due_ms = 0
        assert entry is None or (entry.state == IN_FLIGHT and entry.attempts == item.attempts)
        if taker.no_ack and not taker.refuses:
            item.state = "done"
            return
        item.state = "held"
        item.lease_end_ms = self.clock.ms + LEASE_MS
        if not taker.refuses:
            assert entry is not None
            self.entries[item.number] = entry

    def _returned(self, item: Item, wait_ms: int) -> None:
        item.state = "waiting"
        item.due_ms = self.clock.ms + wait_ms if wait_ms else 0

    # steps

    @rule(
        messages=st.lists(st.tuples(st.sampled_from(REGIONS), st.integers(0, 9)), min_size=1, max_size=30),
        commit=st.booleans(),
    )
    def publish(self, messages: list[tuple[str, int]], commit: bool) -> None:
        for region, qty in messages:
            topic = f"$queue/work/{region}/{qty}"
            plan = self.manager.plan(topic, 0, b"", True)
            plan.aim(self.manager, self.manager.route(topic, self.clock.ms))
            self.manager.publish(plan, [b"%0100d" % len(self.items)], self.clock.ms)
            self.items.append(Item(len(self.items), region, qty))
            if self.group_selector and qty == 7:
                self.items[-1].state = "passed"
        if commit:
            run(self.shard.commit_once(everything=True))  # so that the tail lets go of them
        self._commit() if commit else self._quiesce()

    @rule(text=TEXTS, credit=st.sampled_from([1, 2, 5, 1_000]), no_ack=st.sampled_from([False, False, True]))
    def join(self, text: str, credit: int, no_ack: bool, *, refuses: bool = False) -> None:
        if len(self.takers) >= 6:
            return
        taker = Taker(self, text, credit, no_ack)
        taker.refuses = refuses
        taker.consumer = self.manager.subscribe(
            self.manager.find("work"),
            "",
            "#",
            taker,
            consumer_id="t",
            credit_max=credit,
            no_ack=no_ack,
            exclusive=False,
            lease_ms=LEASE_MS,
            wanted=consumer_filter(text, {}),
        )
        self.takers.append(taker)
        self._quiesce()

    @precondition(lambda self: len(self.takers) < 6)
    @rule(text=TEXTS, no_ack=st.booleans())
    def refuse(self, text: str, no_ack: bool) -> None:
        """A consumer comes that nothing can be sent to, and goes again."""
        self.join(text, 1_000, no_ack, refuses=True)
        self.leave(len(self.takers) - 1)

    @rule(index=st.integers(0, 5))
    def leave(self, index: int) -> None:
        if index < len(self.takers):
            taker = self.takers.pop(index)
            for entry in taker.consumer.in_flight.values():
                self._returned(self.items[entry.message.offset - self.first_offset], 0)
            self.manager.unsubscribe(taker.consumer, self.clock.ms)
            self._quiesce()

    @rule(
        kinds=st.lists(
            st.tuples(st.sampled_from(["ack", "ack", "nack", "nack", "delay", "reject"]), st.integers(0, 99)),
            min_size=1,
            max_size=12,
        ),
        commit=st.booleans(),
    )
    def settle(self, kinds: list[tuple[str, int]], commit: bool) -> None:
        for kind, pick in kinds:
            held = [item for item in self.items if item.state == "held"]
            if not held:
                break
            item = held[pick % len(held)]
            entry = self.entries[item.number]
            if kind == "ack":
                item.state = "done"
                assert self.manager.ack([entry], self.clock.ms) == 0
            elif kind == "reject":
                item.state = "failed"
                assert self.manager.reject([entry], self.clock.ms) == 0
            else:
                wait_ms = 5_000 if kind == "delay" else 0
                self._returned(item, wait_ms)
                assert self.manager.requeue([entry], self.clock.ms, delay_ms=wait_ms) == 0
            if pick % 3:
                self._quiesce()  # else several come back at once
        self._commit() if commit else self._quiesce()

    @rule(count=st.integers(1, 6))
    def get(self, count: int) -> None:
        taker = Taker(self, "", 1, True)
        consumer = self.manager.puller(self.manager.find("work"), taker, "get", lease_ms=LEASE_MS)
        for _ in range(count):
            expected = self._wanted("")
            while (answer := self.manager.pull(consumer, True, self.clock.ms)) is None:
                load(self.shard)
            assert answer == bool(expected)
        self.manager.unsubscribe(consumer, self.clock.ms)
        self._quiesce()

    @rule(
        kind=st.sampled_from(
            ["sweep", "sweep", "expire", "due", "pass", "audit", "crash", "lose", "purge", "purge"]
        ),
        then=st.sampled_from(["", "", "", "sweep", "crash"]),
    )
    def trouble(self, kind: str, then: str) -> None:
        """What happens now and then."""
        for name in (kind, then):
            if name in ("expire", "due", "pass"):
                self.wait({"expire": LEASE_MS, "due": 5_000, "pass": 61_000}[name])
            elif name in ("crash", "lose"):
                self.crash(name == "crash")
            elif name:
                getattr(self, name)()

    def wait(self, ms: int) -> None:
        self.clock.ms += ms
        for item in self.items:
            if item.state == "held" and item.lease_end_ms <= self.clock.ms:
                self._returned(item, 0)
        self.manager.expire(self.clock.ms)
        self._quiesce()

    def purge(self) -> None:
        for item in self.items:
            if item.state == "waiting":
                item.state = "done"
            item.is_audited = True
            item.may_be_gone = False
        self.manager.purge(self.manager.find("work"), self.clock.ms)
        self._quiesce()

    def audit(self) -> None:
        """The second group catches up."""
        if not self.audit_group:
            return
        if "audit" not in self.manager.find("work").groups:
            for item in self.items:
                item.is_audited |= item.state != "waiting" or item.attempts > 0  # perhaps it is gone
                item.may_be_gone = item.is_audited and item.qty != 3
        consumer = self.manager.subscribe(
            self.manager.find("work"),
            "audit",
            "#",
            Auditor(self),
            consumer_id="a",
            credit_max=1_000,
            no_ack=True,
            exclusive=False,
            lease_ms=LEASE_MS,
            group_selector=AUDIT,
        )
        self._quiesce()
        assert all(item.is_audited for item in self.items)
        self.manager.unsubscribe(consumer, self.clock.ms)

    def sweep(self) -> None:
        self.wait(0)
        self._commit()
        run(self.shard.sweep_once())
        self._commit()

    def crash(self, commit: bool) -> None:
        if not self.is_durable:
            return
        if commit:
            self._commit()
        self.items = copy.deepcopy(self.durable)
        for item in self.items:
            if item.state == "held":
                self._returned(item, 0)
        self.entries = {}
        takers, self.takers = self.takers, []
        self._open(self.store.crash())
        self._quiesce()
        for taker in takers[:-1]:
            self.join(taker.text, taker.credit, taker.no_ack)

    # what holds after each step

    @invariant()
    def nobody_starves(self) -> None:
        if not hasattr(self, "durable"):
            return
        for taker in self.takers:
            if may_take(taker.consumer):
                assert not self._wanted(taker.text), f"{taker.text!r} starves"

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "durable"):
            return
        group = self.group
        waiting = self._waiting()
        if not self.group_selector:
            assert group.ready_count() == len(waiting)
        assert group.delayed_count() == sum(i.state == "waiting" for i in self.items) - len(waiting)
        assert group.in_flight_count() == sum(item.state == "held" for item in self.items)
        unmatched = [i for i in waiting if not any(SELECTORS[t.text](i) for t in self.takers)]
        if not self.takers:
            assert group.unmatched_count() == 0
        elif all(may_take(taker.consumer) for taker in self.takers):
            assert group.ready_count() == len(waiting)
            assert group.unmatched_count() == len(unmatched)
        else:
            assert group.unmatched_count() <= len(unmatched)

    @invariant()
    def memory_is_accounted_for(self) -> None:
        if not hasattr(self, "durable"):
            return
        queue = self.manager.find("work")
        tail = queue.tail
        if not self.is_durable:
            queue.trim_tail(0)
        held = [message for message in tail.slice(tail.first_offset, len(tail)) if message is not RELEASED]
        places_bytes = (len(tail) - len(held)) * RELEASED_BYTES
        assert tail.memory_bytes - places_bytes == sum(
            len(m.body or b"") + MESSAGE_OVERHEAD_BYTES for m in held
        )
        if not self.is_durable and "audit" not in queue.groups:
            fresh = sum(item.state == "waiting" and not item.attempts for item in self.items)
            passed = sum(item.state == "passed" for item in self.items)  # perhaps not looked at yet
            assert fresh <= len(held) <= fresh + passed

    def teardown(self) -> None:
        try:
            if hasattr(self, "durable") and sys.exc_info()[0] is None:
                self._end()
        finally:
            if getattr(self, "tight", None):
                self.tight.undo()  # type: ignore[union-attr]

    def _end(self) -> None:
        while self.takers:
            self.leave(0)
        self.wait(5_000)
        self.audit()
        self.join("", 1_000, True)
        assert not self._waiting()
        self._commit()
        self._commit()
        assert self.group.selection is None or not self.is_durable
        if not self.is_durable:
            assert self.manager.find("work").tail.memory_bytes == 0
            return
        for _ in range(3):
            self.clock.ms += 61_000
            self.sweep()
        queue = self.manager.find("work")
        assert queue.head_offset == queue.tail.next_offset, "the log is kept"
        rows = run(self.store.scan(payload.PREFIX, None, limit=100_000))
        failed = sum(item.state == "failed" for item in self.items)
        assert sum(key.startswith(payload.PREFIX) for key, _ in rows) == failed, "payloads leak or are lost"
        assert not any(key.startswith(taken_ahead.PREFIX) for key, _ in rows), "bitmaps leak"


SETTINGS = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestSelectorModel(SelectorModel.TestCase):  # type: ignore[misc, name-defined]
    settings = SETTINGS


@pytest.mark.long
@pytest.mark.timeout(900)
class TestSelectorModelLong(SelectorModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(SETTINGS, max_examples=1_500, stateful_step_count=60)
