"""Random lives of one group whose consumers have selectors, beside a simple oracle.

What a consumer is given must match, must be the oldest that waits for it, and after each step nobody with
credit may lack what waits for him. A second group, with a selector of its own, reads the same queue. A crash
goes back to the last commit on both sides.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from queue_manager.claims.claim import IN_FLIGHT, Claim, Consumer
from queue_manager.filters.field_access import Fields
from queue_manager.group.group import Group
from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES, RELEASED, RELEASED_BYTES
from queue_manager.model import Message
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate
from storage.records import claimed_bitmap, payload
from tests.memory_store import MemoryStore
from tests.model.harness import may_take, run
from tests.model.shard_model import QuietSink, ShardModel

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
        self.is_unmatched = False


class Taker(QuietSink):
    """A consumer of the group, and what it holds."""

    def __init__(self, model: SelectorModel, text: str, credit: int, no_ack: bool) -> None:
        self.model = model
        self.text = text
        self.credit = credit
        self.no_ack = no_ack
        self.refuses = False
        self.consumer: Consumer

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        for index, message in enumerate(messages):
            entry = None if claims is None else claims[index]
            self.model.delivered(self, message, entry)
        return not self.refuses


class Auditor(QuietSink):
    """The consumer of the second group."""

    def __init__(self, model: SelectorModel) -> None:
        self.model = model

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        for message in messages:
            item = self.model.items[int(message.body or b"")]
            assert not item.is_audited or item.may_be_gone
            item.is_audited = True
            item.may_be_gone = False
        return True


class Latecomer(QuietSink):
    """The consumer of a group that comes last: of what no group wanted, all is there."""

    def __init__(self, model: SelectorModel) -> None:
        self.model = model
        self.left = {i.number for i in model.items if i.is_unmatched}

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        for message in messages:
            item = self.model.items[int(message.body or b"")]
            assert item.state != "waiting", "the group has not taken it yet"
            self.left.discard(item.number)
        return True


class SelectorModel(ShardModel):
    """Consumers come and go, messages are published, claimed, settled; the broker crashes."""

    lease_ms = LEASE_MS

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
        if is_tight:
            self.tighten()
        self.is_durable = durable
        self.audit_group = audit
        self.items: list[Item] = []
        self.takers: list[Taker] = []
        self.claims: dict[int, Claim] = {}
        self.policy = QueuePolicy(
            visibility_timeout_ms=LEASE_MS,
            message_bytes_max=10_000,
            done_retention_ms=retention,
            bucket_size=bucket_size,
        )
        self.attach(MemoryStore())
        queue = self.manager.queues.declare(
            QueueDefinition("work", durable=durable, policy=self.policy), self.clock.ms
        )
        if skip:
            queue.log.extend_to(skip)
            queue.log.head_offset = skip
        self.first_offset = skip
        queue.group("", "#", group_selector)
        if audit == "early":
            queue.group("audit", "#", AUDIT)
        self._commit()

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.manager.context.fields.read_by(fields_of)

    def _commit(self) -> None:
        self.rest()
        self.commit_all()
        self.durable = copy.deepcopy(self.items)

    @property
    def queue(self) -> Queue:
        return self.manager.queues.find("work")

    @property
    def group(self) -> Group:
        return self.queue.groups.find("")

    # oracle

    def _waiting(self) -> list[Item]:
        return [i for i in self.items if i.state == "waiting" and i.due_ms <= self.clock.ms]

    def _wanted(self, text: str) -> list[Item]:
        return [item for item in self._waiting() if SELECTORS[text](item)]

    def delivered(self, taker: Taker, message: Message, entry: Claim | None) -> None:
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
            self.claims[item.number] = entry

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
            plan = self.plan(f"$queue/work/{region}/{qty}")
            self.manager.publish(plan, [b"%0100d" % len(self.items)], self.clock.ms)
            self.items.append(Item(len(self.items), region, qty))
            if self.group_selector and qty == 7:
                self.items[-1].state = "passed"
                self.items[-1].is_unmatched = not self.audit_group
        if commit:
            self.commit_all()  # so that the tail lets go of them
        self._commit() if commit else self.rest()

    @rule(text=TEXTS, credit=st.sampled_from([1, 2, 5, 1_000]), no_ack=st.sampled_from([False, False, True]))
    def join(self, text: str, credit: int, no_ack: bool, *, refuses: bool = False) -> None:
        if len(self.takers) >= 6:
            return
        taker = Taker(self, text, credit, no_ack)
        taker.refuses = refuses
        taker.consumer = self.add_consumer(self.queue, taker, credit_max=credit, no_ack=no_ack, selector=text)
        self.takers.append(taker)
        self.rest()

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
            self.remove_consumer(taker.consumer)
            self.rest()

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
            entry = self.claims[item.number]
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
                self.rest()  # else several come back at once
        self._commit() if commit else self.rest()

    @rule(count=st.integers(1, 6))
    def get(self, count: int) -> None:
        taker = Taker(self, "", 1, True)
        consumer = self.add_puller(self.queue, taker)
        for _ in range(count):
            expected = self._wanted("")
            assert self.pull_one(consumer, no_ack=True) == bool(expected)
        self.remove_consumer(consumer)
        self.rest()

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
        self.rest()

    def purge(self) -> None:
        for item in self.items:
            if item.state == "waiting":
                item.state = "done"
            item.is_audited = True
            item.may_be_gone = False
            item.is_unmatched = False
        self.queue.purge(self.clock.ms)
        self.rest()

    def audit(self) -> None:
        """The second group catches up."""
        if not self.audit_group:
            return
        if "audit" not in self.queue.groups:
            for item in self.items:
                item.is_audited |= item.state != "waiting" or item.attempts > 0  # perhaps it is gone
                item.may_be_gone = item.is_audited and item.qty != 3
        consumer = self.add_consumer(self.queue, Auditor(self), "audit", no_ack=True, group_selector=AUDIT)
        self.rest()
        assert all(item.is_audited for item in self.items)
        self.remove_consumer(consumer)

    def sweep(self) -> None:
        self.wait(0)
        self._commit()
        self.sweep_once()
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
        self.claims = {}
        takers, self.takers = self.takers, []
        self.attach(self.store.crash())
        self.rest()
        for taker in takers[:-1]:
            self.join(taker.text, taker.credit, taker.no_ack)

    # what holds after each step

    @invariant()
    def nobody_starves(self) -> None:
        for taker in self.takers:
            if may_take(taker.consumer):
                assert not self._wanted(taker.text), f"{taker.text!r} starves"

    @invariant()
    def counts_agree(self) -> None:
        group = self.group
        waiting = self._waiting()
        if not self.group_selector:
            assert group.ready_count() == len(waiting)
        assert group.delayed_count() == sum(i.state == "waiting" for i in self.items) - len(waiting)
        assert group.in_flight_count() == sum(item.state == "held" for item in self.items)
        unmatched = [i for i in waiting if not any(SELECTORS[t.text](i) for t in self.takers)]
        if not self.takers:
            assert group.serving.unmatched_count() == 0
        elif all(may_take(taker.consumer) for taker in self.takers):
            assert group.ready_count() == len(waiting)
            assert group.serving.unmatched_count() == len(unmatched)
        else:
            assert group.serving.unmatched_count() <= len(unmatched)

    @invariant()
    def memory_is_accounted_for(self) -> None:
        part = self.queue.parts[0]
        tail = part.log.tail
        if not self.is_durable:
            part.retention.trim_tail(0)
        held = [message for message in tail.slice(tail.first_offset, len(tail)) if message is not RELEASED]
        places_bytes = (len(tail) - len(held)) * RELEASED_BYTES
        assert tail.memory_bytes - places_bytes == sum(
            len(m.body or b"") + MESSAGE_OVERHEAD_BYTES for m in held
        )
        if not self.is_durable and "audit" not in self.queue.groups:
            fresh = sum(item.state == "waiting" and not item.attempts for item in self.items)
            passed = sum(item.state == "passed" for item in self.items)  # perhaps not looked at yet
            assert fresh <= len(held) <= fresh + passed

    def finish(self) -> None:
        while self.takers:
            self.leave(0)
        self.wait(5_000)
        self.audit()
        self.join("", 1_000, True)
        assert not self._waiting()
        self.sweep()  # what was let go of before a start is known by then, and so what is unwanted
        assert self.queue.unwanted_count() == sum(item.is_unmatched for item in self.items)
        if self.group_selector and not self.audit_group:
            late = Latecomer(self)
            consumer = self.add_consumer(self.queue, late, "late", no_ack=True)
            self.rest()
            self.remove_consumer(consumer)
            assert not late.left, late.left
        self._commit()
        self._commit()
        assert self.group.cursors[0].progress.claimed is None or not self.is_durable
        if not self.is_durable:
            assert self.queue.log.tail.memory_bytes == 0
            return
        for _ in range(3):
            self.clock.ms += 61_000
            self.sweep()
        log = self.queue.log
        assert log.head_offset == log.next_offset, "the log is kept"
        rows = run(self.store.scan(payload.prefix(), None, limit=100_000))
        failed = sum(item.state == "failed" for item in self.items)
        assert sum(key.startswith(payload.prefix()) for key, _ in rows) == failed, "payloads leak or are lost"
        assert not any(key.startswith(claimed_bitmap.prefix()) for key, _ in rows), "bitmaps leak"


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestSelectorModel(SelectorModel.TestCase):  # type: ignore[misc, name-defined]
    settings = SETTINGS


@pytest.mark.long
@pytest.mark.timeout(900)
class TestSelectorModelLong(SelectorModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(SETTINGS, max_examples=1_500, stateful_step_count=60)
