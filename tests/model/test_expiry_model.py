"""Random lives of queues whose messages expire, beside a simple oracle; crashes go back to the last commit.

Per group and message the oracle knows one of: waiting, held, done, expired, dropped. Who has not got hold of
a message when it expires gives it up, once, with a copy in the dead-letter queue. While there is no group,
retention lets go of messages without one.
"""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from broker.engine.client.messages import MessageClient
from broker.properties.readers import install_readers
from config import limits
from protocols.amqp091.content import Properties, decode_headers, encode_properties
from queue_manager.errors import LimitReached
from queue_manager.options import PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_IN_PART
from queue_manager.policy import DROP_HEAD, QueuePolicy
from queue_manager.spec_records import QueueDefinition
from queue_manager.stage_tags import EpochPart, StageTag
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate
from storage.records import expiry, payload, queue_account
from tests.memory_store import MemoryStore
from tests.model.harness import run
from tests.model.leaks import all_rows
from tests.model.shard_model import ShardModel, Taker

LEASE_MS = 1 << 40  # leases are not what this is about
TIGHT = {
    "EXPIRY_WINDOW_MESSAGES": 4,
    "EXPIRY_STEP_MESSAGES": 3,
    "LOAD_MESSAGES_MAX": 2,
    "LOADED_LOW_WATER": 3,
    "PLACED_MESSAGES_PER_GROUP_MAX": 3,
    "PLACED_STEP_MESSAGES_MAX": 2,
    "STAGE_STEP_RECORDS": 2,
    "STAGED_RECORD_ROWS_MAX": 2,
}
EXACT = {"EXPIRY_READ_INTERVAL_MS": 0}  # so that what expires does so at once, also what is read for that
TTLS = st.sampled_from([None, None, 1, 900, 1_000, 5_000, 5_000, 1 << 33])


class Item:
    """What should be known of one message: its state in each group ("" if there is no group)."""

    def __init__(self, body: bytes, number: int, at_ms: int, end_ms: int, states: dict[str, str]) -> None:
        self.body = body
        self.number = number
        self.at_ms = at_ms
        self.end_ms = end_ms  # 0: never
        self.states = states


class Draft:
    """A message to be published, all that is special about it given by its number."""

    def __init__(self, number: int, ttl_ms: int | None, *, is_sized_alike: bool = False) -> None:
        self.number = number
        self.ttl_ms = ttl_ms
        self.is_even = number % 2 == 0
        self.priority = number // 2 % 3
        self.key = ("a", "b", "_")[number * 5 % 3] + ("!" if number % 7 == 0 else "")
        self.body = b"%d" % number + b" " * (number * 7 % 30)
        if is_sized_alike:
            self.body = b"%-20d" % number
        self.topic = f"$queue/work/{'even' if self.is_even else 'odd'}/{self.key}"
        self.properties = encode_properties(Properties(), [("k", "even" if self.is_even else "odd")])


def key_of(template: EnvelopeTemplate) -> tuple[str, bool]:
    """The key in the last level of a topic, and whether the message closes it."""
    key = template.topic.rsplit("/", 1)[-1]
    return key[0] if key in ("a", "a!", "b", "b!") else "", key.endswith("!")


class ExpiryModel(ShardModel):
    """Publish with and without TTL, claim, settle, let time pass, commit, crash."""

    auto_create = False
    lease_ms = LEASE_MS

    @initialize(
        tight=st.booleans(),
        durable=st.booleans(),
        queue_ttl=st.sampled_from([0, 0, 1_000, 3_000]),
        has_dlq=st.booleans(),
        shared=st.booleans(),
        retention=st.sampled_from([0, 60_000]),
        backs_off=st.booleans(),
        groups=st.sampled_from([[], ["a"], ["a", "b"]]),
        bound=st.sampled_from([(0, 0, ""), (0, 0, ""), (5, 0, DROP_HEAD), (0, 100, DROP_HEAD), (6, 120, "")]),
        pattern=st.booleans(),
        selects=st.booleans(),
        keyed=st.booleans(),
        lanes=st.booleans(),
        kept=st.sampled_from([(0, 0, 0)] * 4 + [(2_000, 0, 0), (0, 90, 0), (0, 0, 4), (4_500, 110, 5)]),
    )
    def begin(
        self,
        tight: bool,
        durable: bool,
        queue_ttl: int,
        has_dlq: bool,
        shared: bool,
        retention: int,
        backs_off: bool,
        groups: list[str],
        bound: tuple[int, int, str],
        pattern: bool,
        selects: bool,
        keyed: bool,
        lanes: bool,
        kept: tuple[int, int, int],
    ) -> None:
        if any(kept):  # which ends with the first group
            groups = []
            if bound[2]:  # whichever comes first drops what is too much for both
                bound = (0, 0, "")
        # else it matters for what is least urgent whether it was dropped one by one
        self.is_sized_alike = lanes and bound[1] + kept[1] > 0
        self.tighten({limits: TIGHT | EXACT if tight else EXACT})
        self.is_tight = tight
        self.queue_ttl = queue_ttl
        self.has_dlq = has_dlq
        self.is_durable = durable
        self.topic = "$queue/both" if shared else ""
        self.groups: list[str] = []
        self.items: list[Item] = []
        self.dead: list[tuple[bytes, str]] = []
        self.other: list[tuple[bytes, int]] = []
        self.number = 0
        self.late: set[str] = set()
        self.may_leak = False  # a crash while shared payloads were being let go of
        self.claims: dict[tuple[str, bytes], Any] = {}
        self.backoff_ms = 2_000 if backs_off else 0
        self.waits: dict[tuple[str, bytes], int] = {}
        self.policy = QueuePolicy(
            visibility_timeout_ms=LEASE_MS,
            message_bytes_max=1_000,
            done_retention_ms=retention,
            bucket_size=1,
            dead_letter="dead" if has_dlq else "",
            message_ttl_ms=queue_ttl,
            retry_initial_ms=self.backoff_ms,
            retry_max_ms=self.backoff_ms,
            retry_multiplier=1.0 if backs_off else 0.0,
            depth_max=bound[0],
            bytes_max=bound[1],
            overflow=bound[2],
            message_groups="sticky" if keyed else "",
            priority_max=2 if lanes else 0,
            retention_age_ms=kept[0],
            retention_bytes=kept[1],
            retention_count=kept[2],
        )
        self.keyed = keyed
        self.lanes = lanes
        self.epoch = 0
        self.later: list[tuple[int, Draft]] = []
        self.selects = (
            selects and not keyed
        )  # group "a" has a consumer that wants every other message, and no other
        self.has_patterns = pattern and not shared and not bound[0] + bound[1]
        self.attach(MemoryStore())
        for group in groups:
            self.groups.append(group)
            self.consume(group)
        self.commit()

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        install_readers(self.manager)
        self.manager.queues.maker.find_group_keys_by(key_of)
        plain = QueuePolicy(visibility_timeout_ms=LEASE_MS, message_bytes_max=1_000, done_retention_ms=0)
        for definition in (
            QueueDefinition(
                "work", durable=self.is_durable, policy=self.policy, topics=("$queue/work/#", "$queue/both")
            ),
            QueueDefinition("dead", durable=True, policy=plain),
            QueueDefinition("other", durable=True, policy=plain, topics=("$queue/other", "$queue/both")),
        ):
            if definition.name not in self.manager.queues:
                self.manager.queues.declare(definition, self.clock.ms)
        self.queue = self.manager.queues.find("work")
        self.consumers: dict[str, list[Any]] = {}
        for group in self.groups:
            self.consume(group)
        self.rest()

    def consume(self, name: str) -> None:
        """Give the group its consumers: two, if it matters which of them gets what."""
        self.consumers[name] = [self.subscribe(name) for _ in range(2 if self.keyed else 1)]

    def subscribe(self, name: str, *, no_ack: bool = False, refuses: bool = False) -> Any:
        taker = Taker(refuses=refuses)
        pattern = "even/#" if self.is_patterned(name) else "#"
        selector = "k = 'even'" if self.is_selecting(name) else ""
        consumer = self.add_consumer(
            self.queue, taker, name, pattern=pattern, credit_max=0, no_ack=no_ack, selector=selector
        )
        return consumer, taker

    def group(self, name: str) -> Any:
        return self.queue.groups.find(f"{name}@even/#" if self.is_patterned(name) else name)

    # oracle

    def is_patterned(self, name: str) -> bool:
        """Whether that group takes every other message only."""
        return self.has_patterns and name == "b"

    def is_selecting(self, name: str) -> bool:
        """Whether that group has a filter."""
        return self.selects and name == "a"

    def drop(self) -> None:
        """What is too much goes: the least urgent, of it the oldest first."""
        policy = self.policy
        if policy.overflow == DROP_HEAD:
            for group in self.groups or [""]:
                for item in self.too_many(group, policy.depth_max, policy.bytes_max):
                    item.states[group] = "dropped"
                    self.waits.pop((group, item.body), None)
                    if self.has_dlq:
                        self.dead.append((item.body, group))
        if not self.groups:
            for item in self.too_many("", policy.retention_count, policy.retention_bytes):
                item.states[""] = "gone"

    def too_many(self, group: str, count_max: int, bytes_max: int) -> list[Item]:
        """What has to go so that no more waits than that; 0: no limit."""
        waiting = self.waiting(group, least_urgent_first=True)
        found = []
        size = sum(len(item.body) for item in waiting)
        while 0 < count_max < len(waiting) or 0 < bytes_max < size:
            found.append(waiting.pop(0))
            size -= len(found[-1].body)
        return found

    def is_full(self, count: int, size: int) -> bool:
        policy = self.policy
        if policy.overflow == DROP_HEAD:
            return False
        for group in self.groups or [""]:
            waiting = self.waiting(group)
            if 0 < policy.depth_max < len(waiting) + count:
                return True
            if policy.bytes_max and sum(len(item.body) for item in waiting) + size > policy.bytes_max:
                return True
        return False

    def expire(self) -> None:
        now_ms = self.clock.ms
        self.other = [item for item in self.other if not 0 < item[1] <= now_ms]
        for item in self.items:
            if 0 < item.end_ms <= now_ms:
                for group, state in item.states.items():
                    if state == "waiting":
                        item.states[group] = "expired"
                        self.waits.pop((group, item.body), None)
                        if self.has_dlq:
                            self.dead.append((item.body, group))
        age_ms = self.policy.retention_age_ms
        if age_ms and not self.groups:
            for item in self.waiting(""):
                if item.at_ms + age_ms <= now_ms:
                    item.states[""] = "gone"

    def waiting(self, group: str, *, least_urgent_first: bool = False) -> list[Item]:
        """What waits there, in the order it would be given or (`least_urgent_first`) dropped."""
        found = [item for item in self.items if item.states.get(group) == "waiting"]
        if self.lanes:
            found.sort(key=lambda item: Draft(item.number, None).priority, reverse=not least_urgent_first)
        return found

    def is_of(self, item: Item, key: str, urgency: int | None) -> bool:
        draft = Draft(item.number, None)
        return draft.key[0] == key and urgency in (None, draft.priority)

    def draft(self, ttl_ms: int | None) -> Draft:
        self.number += 1
        return Draft(self.number, ttl_ms, is_sized_alike=self.is_sized_alike)

    def appended(self, draft: Draft) -> None:
        """A message entered the queue now."""
        ends = [t for t in (draft.ttl_ms, self.queue_ttl) if t]
        end_ms = self.clock.ms + min(ends) if ends else 0
        states = dict.fromkeys(self.groups or [""], "waiting")
        for group in self.groups:
            if self.is_patterned(group) and not draft.is_even:
                states[group] = "done"
        self.items.append(Item(draft.body, draft.number, self.clock.ms, end_ms, states))
        self.drop()

    def send(self, draft: Draft, topic: str = "", **options: Any) -> int:
        options["priority"] = draft.priority if self.lanes else 4
        plan = self.plan(
            topic or draft.topic,
            PublishOptions(ttl_ms=draft.ttl_ms, **options),
            kind=PROPERTIES_AMQP,
            properties=draft.properties,
        )
        return self.manager.publish(plan, [draft.body], self.clock.ms)

    # what may happen

    @rule(ttls=st.lists(TTLS, min_size=1, max_size=8))
    def publish(self, ttls: list[int | None]) -> None:
        for ttl_ms in ttls:
            draft = self.draft(ttl_ms)
            outcome = self.send(draft, self.topic)
            refused = REFUSED_IN_PART if self.topic else REFUSED_DEPTH
            assert outcome == (refused if self.is_full(1, len(draft.body)) else ACCEPTED)
            if self.topic:
                self.other.append((draft.body, self.clock.ms + ttl_ms if ttl_ms else 0))
            if outcome == ACCEPTED:
                self.rest()
                self.appended(draft)
        self.rest()

    @rule(ttl_ms=TTLS, delay_ms=st.sampled_from([500, 1_000, 4_000]))
    def publish_later(self, ttl_ms: int | None, delay_ms: int) -> None:
        draft = self.draft(ttl_ms)
        assert self.send(draft, delay_ms=delay_ms) == ACCEPTED
        self.later.append((self.clock.ms + delay_ms, draft))

    @rule(ttls=st.lists(TTLS, min_size=1, max_size=8))
    def commit_epoch(self, ttls: list[int | None]) -> None:
        if not self.is_durable:
            return
        self.epoch += 1
        drafts = [self.draft(ttl_ms) for ttl_ms in ttls]
        for draft in drafts:
            assert self.send(draft, stage=StageTag("job", self.epoch, 0, "x")) == ACCEPTED
        self.commit()
        stage = self.queue.rules.stage
        parts = [EpochPart(0, "x", len(drafts))]
        if self.is_full(len(drafts), sum(len(draft.body) for draft in drafts)):
            with pytest.raises(LimitReached):
                stage.commit("job", self.epoch, parts, self.clock.ms)
            assert stage.abort("job", self.epoch, self.clock.ms) == 1
            drafts = []
        else:
            stage.commit("job", self.epoch, parts, self.clock.ms)
        while any(stage.sweeps.pending()):
            self.commit()
        for draft in drafts:
            self.appended(draft)
        self.commit()

    @rule(name=st.sampled_from(["a", "b", "c"]))
    def make_group(self, name: str) -> None:
        is_bounded = self.policy.depth_max + self.policy.bytes_max > 0
        if name in self.groups or (self.groups and (is_bounded or self.lanes or not self.is_durable)):
            return
        first = not self.groups
        if first and self.is_patterned(name):
            return  # what it does not want would be kept for groups to come (`group/test_keeper.py`)
        if not first:
            self.sweep()  # before it, what is gone since before a start is not known to be
            self.late.add(name)
        self.groups.append(name)
        self.consume(name)
        cursor = self.group(name).cursors[0]
        for offset, item in enumerate(self.items):
            if first:
                item.states[name] = item.states.pop("", "waiting")
            else:
                # it begins at the oldest message kept
                is_gone = offset < cursor.position or cursor.progress.released.contains(offset)
                item.states[name] = "done" if is_gone else "waiting"
            if self.is_patterned(name) and item.number % 2:
                item.states[name] = "done"
        self.rest()
        self.expire()
        self.drop()

    @rule()
    def delete_last_group(self) -> None:
        """What it had not done stays with the queue, for groups to come, and is retained as before."""
        if len(self.groups) != 1 or not self.is_durable or self.has_patterns:
            return
        name = self.groups[0]
        self.sweep()
        self.queue.groups.delete(self.group(name).group_id, self.clock.ms, force=True)
        self.groups.clear()
        del self.consumers[name]
        self.late.discard(name)
        self.claims.clear()
        self.waits.clear()
        for item in self.items:
            item.states = {"": "waiting" if item.states[name] in ("waiting", "held") else "gone"}
        if self.policy.counts_bytes():
            self.queue._levels.waiting_bytes()  # begins to count
        self.expire()
        self.rest()
        self.drop()

    @rule(pick=st.integers(0, 5), count=st.integers(1, 6))
    def claim(self, pick: int, count: int) -> None:
        if not self.groups:
            return
        name = self.groups[pick % len(self.groups)]
        consumer, taker = self.consumers[name][pick % len(self.consumers[name])]
        expected = [i for i in self.waiting(name) if self.waits.get((name, i.body), 0) <= self.clock.ms]
        if self.is_selecting(name):
            expected = [item for item in expected if item.number % 2 == 0]
        consumer.set_credit(len(consumer.in_flight) + count)
        taker.taken = []
        consumer.group.want_dispatch()
        self.rest()
        consumer.set_credit(0)
        taken = taker.bodies()
        if self.keyed:  # some wait for the other consumer
            assert len(taken) <= count
            assert set(taken) <= {item.body for item in expected}
            # where no more may be placed, something more urgent can come after what was placed before it
            urgencies = range(3) if self.lanes and self.is_tight else [None]
            for key, urgency in product("ab", urgencies):
                of_key = [i.body for i in expected if self.is_of(i, key, urgency)]
                first = [body for body in taken if body in of_key]
                assert self.topic or first == of_key[: len(first)]
        else:
            assert sorted(taken) == sorted(item.body for item in expected[:count])
        for item in expected:
            if item.body in taken:
                item.states[name] = "held"
                self.waits.pop((name, item.body), None)
        for message, claim in taker.taken:
            self.claims[name, message.body] = claim

    @rule(pick=st.integers(0, 5), refuses=st.booleans())
    def read(self, pick: int, refuses: bool) -> None:
        """A consumer without acknowledgements comes, takes or refuses what it can have, and goes."""
        if not self.groups:
            return
        name = self.groups[pick % len(self.groups)]
        waiting = [i for i in self.waiting(name) if self.waits.get((name, i.body), 0) <= self.clock.ms]
        if self.is_selecting(name):
            waiting = [item for item in waiting if item.number % 2 == 0]
        consumer, taker = self.subscribe(name, no_ack=True, refuses=refuses)
        self.rest()
        read = taker.bodies()
        if self.keyed:  # some wait for who has their key
            assert set(read) <= {item.body for item in waiting}
        else:
            assert sorted(read) == sorted(item.body for item in waiting)
        for item in waiting:
            if item.body in read and not refuses:
                item.states[name] = "done"
                self.waits.pop((name, item.body), None)
        self.remove_consumer(consumer)
        self.rest()
        self.drop()

    @rule(pick=st.integers(0, 5))
    def leave(self, pick: int) -> None:
        """A consumer goes, and another comes."""
        if not self.groups:
            return
        name = self.groups[pick % len(self.groups)]
        which = pick % len(self.consumers[name])
        consumer = self.consumers[name][which][0]
        held = {claim.message.body for claim in consumer.in_flight.values()}
        self.remove_consumer(consumer)
        for item in self.items:
            if item.states.get(name) == "held" and item.body in held:
                item.states[name] = "waiting"
        self.expire()
        self.rest()
        self.drop()
        self.consumers[name][which] = self.subscribe(name)
        self.rest()

    @rule(pick=st.integers(0, 50), how=st.sampled_from(["ack", "requeue", "requeue", "reject"]))
    def settle(self, pick: int, how: str) -> None:
        held = [(g, i) for i in self.items for g, s in i.states.items() if s == "held"]
        if not held:
            return
        group, item = held[pick % len(held)]
        claim = self.claims[group, item.body]
        now_ms = self.clock.ms
        if how == "ack":
            assert self.manager.ack([claim], now_ms) == 0
            item.states[group] = "done"
        elif how == "reject":
            assert self.manager.reject([claim], now_ms) == 0
            item.states[group] = "done" if self.has_dlq or not self.is_durable else "failed"
            if self.has_dlq:
                self.dead.append((item.body, group))
        else:
            assert self.manager.requeue([claim], now_ms) == 0
            item.states[group] = "waiting"
            if self.backoff_ms:
                self.waits[group, item.body] = now_ms + self.backoff_ms
            self.expire()
        self.rest()
        self.drop()

    @rule(pick=st.integers(0, 2))
    def redrive(self, pick: int) -> None:
        """What failed is tried again, unless its time has passed."""
        if not self.groups or not self.is_durable:
            return
        name = self.groups[pick % len(self.groups)]
        failed = [item for item in self.items if item.states.get(name) == "failed"]
        self.sweep()
        count = run(MessageClient(self.shard).redrive("work", self.group(name).group_id))
        assert count == len(failed)
        for item in failed:
            item.states[name] = "waiting"
        self.expire()
        self.rest()
        self.drop()
        self.commit()

    @rule(ms=st.sampled_from([1, 500, 1_000, 4_000, 10_000]))
    def advance(self, ms: int) -> None:
        self.advance_to(self.clock.ms + ms)

    def advance_to(self, now_ms: int) -> None:
        """Let time pass, with a stop whenever something scheduled is due."""
        for due_ms in sorted({due_ms for due_ms, _ in self.later if due_ms <= now_ms}):
            self.clock.ms = due_ms
            self.arrive()
        self.clock.ms = now_ms
        self.expire()
        self.rest()

    def arrive(self) -> None:
        """What is due enters the queue."""
        self.expire()
        self.rest()
        due = sorted((item for item in self.later if item[0] <= self.clock.ms), key=lambda item: item[0])
        self.later = [item for item in self.later if item[0] > self.clock.ms]
        for _, draft in due:
            self.appended(draft)

    @rule()
    def commit(self) -> None:
        self.rest()
        self.commit_all()
        self.durable = copy.deepcopy((self.groups, self.items, self.dead, self.other, self.waits, self.later))

    @rule()
    def sweep(self) -> None:
        self.commit()
        self.sweep_once()
        self.commit()

    @rule(commit=st.booleans(), ms=st.sampled_from([0, 1_500]))
    def crash(self, commit: bool, ms: int) -> None:
        if commit:
            self.commit()
        if not self.is_durable:
            return
        self.groups, self.items, self.dead, self.other, self.waits, self.later = copy.deepcopy(self.durable)
        for item in self.items:
            for group, state in item.states.items():
                if state == "held":
                    item.states[group] = "waiting"
        self.clock.ms += ms
        self.claims = {}
        self.may_leak |= self.topic == "$queue/both"
        self.expire()
        self.attach(self.store.crash())
        self.drop()
        self.arrive()

    # what must hold

    @invariant()
    def agrees(self) -> None:
        for name in self.groups:
            group = self.group(name)
            count = group.ready_count() + group.delayed_count()
            waiting = self.waiting(name)
            assert count >= len(waiting)
            # one made late, or with a pattern, counts what it will pass over
            assert count == len(waiting) or name in self.late or self.is_patterned(name)
        if self.policy.counts_bytes():
            sizes = [sum(len(item.body) for item in self.waiting(group)) for group in self.groups or [""]]
            counted = self.queue._levels.waiting_bytes()
            assert counted >= max(sizes)
            assert counted == max(sizes) or any(map(self.is_patterned, self.groups))
        if not self.groups:
            assert self.queue.ready_count() == len(self.waiting(""))
        assert self.manager.queues.find("dead").ready_count() == len(self.dead)
        assert self.manager.queues.find("other").ready_count() == len(self.other)

    def finish_group(self, name: str) -> None:
        """Take all that waits; of a key that is closed what comes after that once the rest is settled."""
        bodies: list[bytes] = []
        while True:
            taken: list[Any] = []
            for consumer, taker in self.consumers[name]:
                taker.taken = taken  # both add to it
                consumer.set_credit(100_000)
                consumer.group.want_dispatch()
            self.rest()
            bodies += [message.body for message, _ in taken]
            self.manager.ack([claim for _, claim in taken], self.clock.ms)
            if not taken or not self.keyed:
                break
        assert sorted(bodies) == sorted(item.body for item in self.waiting(name))

    def read_all(self, name: str) -> list[Any]:
        taker = Taker()
        self.add_consumer(self.manager.queues.find(name), taker)
        self.rest()
        self.commit_all()  # dead letters tell offsets, so they are given once they are durable
        self.rest()
        self.manager.ack(taker.claims(), self.clock.ms)
        return [message for message, _ in taker.taken]

    def finish(self) -> None:
        """Settle everything; nothing may be left, and every copy be there once."""
        self.advance_to(self.clock.ms + 10_000)
        for claim in self.claims.values():
            self.manager.ack([claim], self.clock.ms)
        self.clock.ms += 1 << 34
        for item in self.items:
            for group, state in item.states.items():
                if state == "held":
                    item.states[group] = "done"
        self.expire()
        self.rest()
        for name in self.groups:
            if self.is_selecting(name):
                self.remove_consumer(self.consumers[name][0][0])
                self.selects = False
                self.consume(name)
            self.finish_group(name)
        found = []
        for message in self.read_all("dead"):
            group = dict(decode_headers(message.template.properties))["x-death"][0]["group"]
            found.append((message.body, str(group).partition("@")[0]))
        assert sorted(found) == sorted(self.dead)
        assert [m.body for m in self.read_all("other")] == [body for body, _ in self.other]
        for _ in range(6):
            self.clock.ms += 61_000
            self.sweep()
        rows = all_rows(self.store)
        kept = set()
        if self.is_durable and not self.groups:
            kept = {item.body for item in self.waiting("")}
        elif self.is_durable:
            kept = {item.body for item in self.items if "failed" in item.states.values()}
            assert all(part.log.head_offset == part.log.next_offset for part in self.queue.parts)
            names = [part.log.name for queue in self.manager.queues for part in queue.parts]
            aheads = tuple(queue_account.prefix(name) + b"\x03" for name in names)
            left = [key for key, _ in rows if key.startswith((expiry.prefix(), *aheads))]
            assert not left, self.describe()
        payloads = {value for key, value in rows if key.startswith(payload.prefix())}
        if self.may_leak:
            assert kept <= payloads
        else:
            assert payloads == kept, (sorted(map(int, payloads)), self.describe())

    def describe(self) -> str:
        return repr(
            [
                (
                    part.log.name,
                    part.log.head_offset,
                    part.log.next_offset,
                    [*part.retention.payloads.released.pairs()],
                    [(c.group_id, c.position, [*c.progress.released.pairs()]) for c in part.cursors.values()],
                    [*part.retention.expired.ranges_from(0).pairs()],
                )
                for queue in self.manager.queues
                for part in queue.parts
            ]
        )


TestExpiryModel = ExpiryModel.TestCase
TestExpiryModel.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)


@pytest.mark.long
class TestExpiryModelLong(ExpiryModel.TestCase):
    settings = settings(max_examples=1_500, stateful_step_count=50, deadline=None)
