"""Random lives of one queue with back-off, a delivery limit and a dead-letter queue, beside a simple oracle.

Everything is compared after each step: who is delivered next and at which attempt, what waits, what failed,
what lies in the dead-letter queue with which history. A crash goes back to the last commit on both sides.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from broker.engine.client.messages import MessageClient
from broker.properties.readers import install_readers
from protocols.amqp091.content import decode_headers
from queue_manager.claims.claim import AVAILABLE, Claim, Consumer
from queue_manager.group.group import Group
from queue_manager.model import Message
from queue_manager.policy import FOREVER, QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.spec_records import QueueDefinition
from storage.records import attempts, payload
from tests.memory_store import MemoryStore
from tests.model.harness import run
from tests.model.shard_model import QuietSink, ShardModel, Taker

LEASE_MS = 30_000
MAX_WAIT_MS = 5_000
KINDS = st.sampled_from(["ack", "nack", "nack", "nack", "reject", "delay", "extend"])


class Item:
    """What should be known of one message of the queue."""

    def __init__(self, body: bytes, deaths: list[tuple[str, int]]) -> None:
        self.body = body
        self.deaths = deaths  # (reason, count), newest first
        self.attempts = 0
        self.state = "waiting"  # held, done, failed
        self.due_ms = 0
        self.lease_end_ms = 0

    def died(self, reason: str) -> list[tuple[str, int]]:
        count = dict(self.deaths).get(reason, 0)
        return [(reason, count + 1), *[death for death in self.deaths if death[0] != reason]]


class Drain(QuietSink):
    """A consumer of a second group, done with everything as it comes."""

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        pass

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        pass


class RetryModel(ShardModel):
    """Publish, claim, settle in every way, wait, redrive, crash."""

    lease_ms = LEASE_MS

    @initialize(
        tries=st.sampled_from([0, 2, 3]),
        backs_off=st.booleans(),
        has_dlq=st.booleans(),
        dlq_depth=st.sampled_from([0, 0, 3]),
        retention=st.sampled_from([0, 60_000, FOREVER]),
        bucket_size=st.integers(0, 2),
        second_group=st.booleans(),
    )
    def begin(
        self,
        tries: int,
        backs_off: bool,
        has_dlq: bool,
        dlq_depth: int,
        retention: int,
        bucket_size: int,
        second_group: bool,
    ) -> None:
        self.tries = tries
        self.backs_off = backs_off
        self.has_dlq = has_dlq
        self.dlq_depth = dlq_depth
        self.second_group = second_group
        self.retention = retention
        self.numbers = 0
        self.items: list[Item] = []
        self.dead: list[tuple[bytes, list[tuple[str, int]]]] = []
        self.claims: dict[bytes, Claim] = {}
        self.attach(MemoryStore())
        common: dict[str, Any] = {"visibility_timeout_ms": LEASE_MS, "message_bytes_max": 1000}
        work = QueuePolicy(
            **common,
            done_retention_ms=retention,
            bucket_size=bucket_size,
            attempts_max=tries,
            dead_letter="dead" if has_dlq else "",
            retry_initial_ms=1_000 if backs_off else 0,
            retry_max_ms=MAX_WAIT_MS,
            retry_multiplier=2.0,
        )
        dead = QueuePolicy(**common, done_retention_ms=0, depth_max=dlq_depth)
        self.manager.queues.declare(QueueDefinition("work", durable=True, policy=work), self.clock.ms)
        self.manager.queues.declare(QueueDefinition("dead", durable=True, policy=dead), self.clock.ms)
        self._consume()
        self._commit()
        self.publish(8)

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        install_readers(self.manager)

    def _consume(self) -> None:
        self._pull()
        if self.second_group:
            self.work_queue.group("audit")

    def _pull(self) -> None:
        self.taker = Taker()
        self.consumer = self.add_puller(self.work_queue, self.taker)

    @property
    def work_queue(self) -> Queue:
        return self.manager.queues.find("work")

    @property
    def work_group(self) -> Group:
        return self.work_queue.groups.find("")

    def _commit(self) -> None:
        self.rest()
        self.commit_all()
        self.durable = copy.deepcopy((self.items, self.dead))

    # oracle

    def _comes_back(self, item: Item, wait_ms: int | None) -> None:
        """A claim ends without success."""
        item.lease_end_ms = 0
        if self.tries and item.attempts >= self.tries:
            self._given_up(item, "delivery_limit")
            return
        if wait_ms is None:
            wait_ms = min(1_000 * 2 ** (item.attempts - 1), MAX_WAIT_MS) if self.backs_off else 0
        item.state = "waiting"
        item.due_ms = self.clock.ms + wait_ms if wait_ms else 0

    def _given_up(self, item: Item, reason: str) -> None:
        if self.has_dlq and (not self.dlq_depth or len(self.dead) < self.dlq_depth):
            item.state = "done"
            self.dead.append((item.body, item.died(reason)))
        else:
            item.state = "failed"

    def _due(self) -> list[Item]:
        return [i for i in self.items if i.state == "waiting" and i.due_ms <= self.clock.ms]

    # steps

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        bodies = [b"%d" % (self.numbers + index) for index in range(count)]
        self.numbers += count
        self.manager.publish(self.plan("$queue/work/key"), bodies, self.clock.ms)
        self.items += [Item(body, []) for body in bodies]
        self.rest()

    def claim(self, count: int, *, no_ack: bool = False) -> None:
        for _ in range(count):
            expected = self._due()
            before = len(self.taker.taken)
            assert self.pull_one(self.consumer, no_ack=no_ack) == bool(expected)
            if not expected:
                return
            [(message, claim)] = self.taker.taken[before:]
            item = expected[0]
            item.attempts += 1
            assert message.body == item.body
            assert item.attempts == (1 if claim is None else claim.attempts)
            assert message.template.topic == "$queue/work/key"
            item.due_ms = 0
            if no_ack and not self.taker.refuses:
                item.state = "done"
                continue
            item.state = "held"
            item.lease_end_ms = self.clock.ms + LEASE_MS
            if claim is not None:
                self.claims[item.body] = claim

    @rule(
        count=st.integers(1, 12),
        kinds=st.lists(st.tuples(KINDS, st.integers(0, 99)), min_size=2, max_size=10),
    )
    def work(self, count: int, kinds: list[tuple[str, int]]) -> None:
        """Claim some, and settle some of what is held."""
        self.claim(count)
        for kind, pick in kinds:
            held = [item for item in self.items if item.state == "held"]
            if held:
                self._settle(held[pick % len(held)], kind)

    def _settle(self, item: Item, kind: str) -> None:
        claim = self.claims[item.body]
        now_ms = self.clock.ms
        if kind == "ack":
            assert self.manager.ack([claim], now_ms) == 0
            item.state = "done"
        elif kind == "reject":
            assert self.manager.reject([claim], now_ms) == 0
            self._given_up(item, "rejected")
        elif kind == "extend":
            assert self.manager.consumption.extend(claim, 2 * LEASE_MS, now_ms)
            item.lease_end_ms = now_ms + 2 * LEASE_MS
            return
        else:
            delay_ms = 7_500 if kind == "delay" else None
            assert self.manager.requeue([claim], now_ms, delay_ms=delay_ms) == 0
            self._comes_back(item, delay_ms)
        assert self.manager.ack([claim], now_ms) == 1, "settled twice"
        self.rest()

    @rule(count=st.integers(1, 4), refuses=st.booleans())
    def take(self, count: int, refuses: bool) -> None:
        """Messages without acknowledgements are taken or, since they cannot be sent, come back."""
        self.taker.refuses = refuses
        self.claim(count, no_ack=True)
        if refuses:
            self.leave()

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=4))
    def struggle(self, kinds: list[str]) -> None:
        """Deal with one message again and again, waiting as long as it takes."""
        for kind in kinds:
            self.claim(1)
            held = [item for item in self.items if item.state == "held"]
            if held:
                self._settle(held[0], kind)
            self.wait(MAX_WAIT_MS)

    @rule()
    def leave(self) -> None:
        """The consumer goes: what it holds is back at once."""
        for item in self._in_order([item for item in self.items if item.state == "held"]):
            self._comes_back(item, 0)
        self.remove_consumer(self.consumer)
        self._pull()
        self.rest()

    def _in_order(self, held: list[Item]) -> list[Item]:
        """As the consumer was given them: they end so."""
        bodies = [claim.message.body for claim in self.consumer.in_flight.values()]
        return sorted(held, key=lambda item: bodies.index(item.body))

    @rule(ms=st.sampled_from([1, 999, 1_000, 2_000, 7_500, 30_000, 61_000]))
    def wait(self, ms: int) -> None:
        self.clock.ms += ms
        ended = [i for i in self.items if i.state == "held" and i.lease_end_ms <= self.clock.ms]
        for item in self._in_order(ended):
            self._comes_back(item, None)
        self.manager.expire(self.clock.ms)
        self.rest()

    @rule()
    def audit(self) -> None:
        """The second group, if there is one, catches up: it is done with everything as it comes."""
        if self.second_group:
            consumer = self.add_consumer(self.work_queue, Drain(), "audit", no_ack=True)
            self.rest()
            self.remove_consumer(consumer)

    @rule()
    def sweep(self) -> None:
        self.wait(0)
        self._commit()
        self.sweep_once()
        self._commit()

    @rule(limit=st.sampled_from([None, None, 1, 3]), by_offset=st.booleans())
    def redrive_failed(self, limit: int | None, by_offset: bool) -> None:
        self.sweep()
        returned = self.work_group.cursors[0].claims.returned.heap
        failed_before = [item for item in self.items if item.state == "failed"]
        offsets = None
        if by_offset:
            wanted = {self.items.index(item) for item in failed_before[::2]}
            offsets = sorted(wanted)
            failed_before = failed_before[::2]
        count = run(MessageClient(self.shard).redrive("work", "", limit=limit, offsets=offsets))
        assert count == min(len(failed_before), len(failed_before) if limit is None else limit)
        back = {
            claim.message.offset for _, claim in returned if claim.state == AVAILABLE and not claim.attempts
        }
        for item in failed_before:
            if self.items.index(item) in back:
                item.state, item.attempts, item.due_ms = "waiting", 0, 0
                count -= 1
        assert count == 0
        self._commit()

    @rule(limit=st.sampled_from([None, 1, 2]))
    def redrive_dead_letters(self, limit: int | None) -> None:
        self._commit()
        count = run(MessageClient(self.shard).redrive_dead_letters("dead", limit=limit))
        assert count == min(len(self.dead), len(self.dead) if limit is None else limit)
        self.items += [Item(body, deaths) for body, deaths in self.dead[:count]]
        del self.dead[:count]
        self._commit()

    @rule(commit=st.booleans(), ms=st.sampled_from([0, 1_500, 10_000]))
    def crash(self, commit: bool, ms: int) -> None:
        if commit:
            self._commit()
        self.items, self.dead = copy.deepcopy(self.durable)
        self.clock.ms += ms
        for item in self.items:
            if item.state == "held":
                item.state = "waiting"
                item.due_ms = item.lease_end_ms = 0
        self.claims = {}
        self.attach(self.store.crash())
        self._consume()
        self.rest()

    @invariant()
    def counts_agree(self) -> None:
        group = self.work_group
        waiting = [item for item in self.items if item.state == "waiting"]
        delayed = [item for item in waiting if item.due_ms > self.clock.ms]
        assert group.delayed_count() == len(delayed)
        assert group.ready_count() == len(waiting) - len(delayed)
        assert group.in_flight_count() == sum(item.state == "held" for item in self.items)
        if self.shard.done_records.are_known:
            assert group.failed_count() == sum(item.state == "failed" for item in self.items)
        assert self.manager.queues.find("dead").ready_count() == len(self.dead)

    # the end

    def _drain_dead(self) -> None:
        taker = Taker()
        consumer = self.add_puller(self.manager.queues.find("dead"), taker)
        self._commit()  # dead letters tell offsets, so they are given once they are durable
        while self.pull_one(consumer):
            pass
        found = []
        for message, claim in taker.taken:
            headers = dict(decode_headers(message.template.properties))
            deaths = headers["x-death"]
            assert claim is not None
            assert claim.attempts == 1, "a redrive counted as an attempt"
            assert {death["queue"] for death in deaths} == {"work"}
            assert headers["x-last-death-reason"] == deaths[0]["reason"]
            assert {death.get("topic") for death in deaths} - {None} == {"$queue/work/key"}
            found.append((message.body, [(death["reason"], death["count"]) for death in deaths]))
        assert found == self.dead
        self.manager.ack(taker.claims(), self.clock.ms)
        self.dead = []

    def finish(self) -> None:
        self._drain_dead()
        self.sweep()
        for _ in range(len(self.items) * 2 + 2):
            self.claim(100)
            for item in [item for item in self.items if item.state == "held"]:
                self.manager.ack([self.claims[item.body]], self.clock.ms)
                item.state = "done"
            if all(item.state in ("done", "failed") for item in self.items):
                break
            self.wait(MAX_WAIT_MS + 2_500)
        else:
            raise AssertionError("messages are left")
        if self.retention == FOREVER:
            return
        self.audit()
        for _ in range(3):
            self.clock.ms += 61_000
            self.sweep()
        self.counts_agree()
        rows = run(self.store.scan(payload.prefix(), None, limit=100_000))
        kept = [key for key, _ in rows if key.startswith(payload.prefix())]
        assert len(kept) == sum(item.state == "failed" for item in self.items), "payloads leak or are lost"
        rows = run(self.store.scan(attempts.prefix(), None, limit=100_000))
        histories = [key for key, _ in rows if key.startswith(attempts.prefix())]
        assert len(histories) <= sum(item.state == "failed" for item in self.items), "histories leak"


SETTINGS = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


class TestRetryModel(RetryModel.TestCase):  # type: ignore[misc, name-defined]
    settings = SETTINGS


@pytest.mark.long
@pytest.mark.timeout(900)
class TestRetryModelLong(RetryModel.TestCase):  # type: ignore[misc, name-defined]
    settings = settings(SETTINGS, max_examples=1_500, stateful_step_count=60)
