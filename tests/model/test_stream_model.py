"""Random lives of streams: groups that read, share, seek, commit and filter; retention, crashes, deletion."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from config import limits
from queue_manager.claims.claim import IN_FLIGHT
from queue_manager.errors import GroupNotFound, InvalidArgument, PreconditionFailed
from queue_manager.filters.consumer_filter import consumer_filter
from queue_manager.filters.field_access import Fields
from queue_manager.group.stream_group import StreamGroup
from queue_manager.log.stream_start import FIRST, LAST, NEXT, OFFSET, TIMESTAMP, StreamStart
from queue_manager.outcomes import ACCEPTED
from queue_manager.policy import QueuePolicy
from queue_manager.queue.stream import Stream
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate
from storage.records import payload, payload_refs, stream_chunk
from tests.memory_store import MemoryStore
from tests.model.harness import may_take, run
from tests.model.leaks import all_rows
from tests.model.shard_model import ShardModel

TIGHT = {
    "STREAM_CHUNK_BYTES": 12,
    "STREAM_CHUNK_MESSAGES": 4,
    "STREAM_READ_BYTES_MAX": 2_000,
    "STREAM_IDLE_TAIL_BYTES": 900,
    "STREAM_RETURNED_MESSAGES_MAX": 3,
    "TAIL_BYTES_PER_QUEUE_MIN": 1_500,
    "LOAD_MESSAGES_MAX": 5,
    "LOG_ENTRY_MESSAGES_MAX": 3,
    "PATTERN_SCAN_MESSAGES_MAX": 4,
}
RETENTION = {
    "kept": {},
    "aged": {"retention_age_ms": 20_000},
    "counted": {"retention_count": 20},
    "sized": {"retention_bytes": 48},
}
LEASE_MS = 30_000
SELECTORS = {"": None, "k = 'a'": "a", "k = 'b'": "b"}
SELECTED_GROUP = "s"  # it has the selector k = 'b' for good


def fields_of(template: EnvelopeTemplate) -> Fields:
    """What selectors see of a message: the last level of its topic."""
    return {"k": template.topic.rsplit("/", 1)[1]}


def policy(**fields: Any) -> QueuePolicy:
    return QueuePolicy(visibility_timeout_ms=LEASE_MS, message_bytes_max=1 << 20, stream=True, **fields)


class Published:
    """One message of a stream, as the oracle knows it."""

    def __init__(self, body: bytes, key: str, level: str, at_ms: int) -> None:
        self.body = body
        self.key = key
        self.level = level  # the last one
        self.at_ms = at_ms


class Reader:
    """A consumer, its sink, and what its group has to give it next. `refuses`: nothing can be sent to it."""

    def __init__(self, model: StreamModel, group: OracleGroup, *, no_ack: bool, refuses: bool) -> None:
        self.model = model
        self.group = group
        self.no_ack = no_ack
        self.refuses = refuses
        self.held: dict[int, Any] = {}
        self.consumer: Any = None

    def deliver(self, consumer: Any, messages: list[Any], entries: Any) -> bool:
        log = self.model.logs[self.group.stream]
        for index, message in enumerate(messages):
            offset = message.offset
            assert message.body == log[offset].body
            if entries is not None and entries[index].attempts > 1:
                assert offset == self.group.back.pop(0), "what came back goes first, in order"
            else:
                assert not self.group.back
                assert offset == self.group.next_wanted(), (offset, self.group.position)
                self.group.position = offset + 1
            assert entries is None or entries[index].state == IN_FLIGHT
            if self.refuses or not self.no_ack:
                self.held[offset] = None if entries is None else entries[index]
        return not self.refuses

    def revoked(self, consumer: Any, entries: list[Any]) -> None:
        for entry in entries:
            del self.held[entry.message.offset]
        self.group.give_back(*[entry.message.offset for entry in entries])

    def cancelled(self, consumer: Any, reason: str) -> None:
        self.held = {}
        self.group.readers.remove(self)


class OracleGroup:
    """Where a group is and what came back to it."""

    def __init__(self, model: StreamModel, stream: str, name: str, pattern: str) -> None:
        self.model = model
        self.stream = stream
        self.name = name
        self.pattern = pattern
        self.selector = ""  # of who reads it
        self.position = 0
        self.since_ms = 0
        self.readers: list[Reader] = []
        self.leavers: list[Reader] = []  # cancelled; they may hold something
        self.back: list[int] = []
        self.auto_commit = True
        self.committed = 0  # by `$commit`
        self.durable = 0  # at least from here it goes on after a crash
        self.highest = 0  # where it was before it was moved, which may have been written

    @property
    def group_id(self) -> str:
        return self.name if self.pattern == "#" else f"{self.name}@{self.pattern}"

    def wants(self, message: Published) -> bool:
        if self.name == SELECTED_GROUP and message.level != "b":
            return False
        if self.selector and message.level != SELECTORS[self.selector]:
            return False
        return message.at_ms >= self.since_ms and (self.pattern == "#" or message.key == self.pattern)

    def next_wanted(self) -> int | None:
        log = self.model.logs[self.stream]
        end = min(len(log), self.model.durable_ends[self.stream])  # nobody is given what may be lost
        for offset in range(max(self.position, self.model.head(self.stream)), end):
            if self.wants(log[offset]):
                return offset
        return None

    def give_back(self, *offsets: int) -> None:
        """These wait again, if they are wanted; too many for nobody are read again instead."""
        log = self.model.logs[self.stream]
        if self.name or self.readers:
            self.back = sorted([*self.back, *[offset for offset in offsets if self.wants(log[offset])]])
        if self.name and not self.readers and len(self.back) > limits.STREAM_RETURNED_MESSAGES_MAX:
            self.move(self.floor())

    def move(self, position: int) -> None:
        """Go on there; nothing handed out before counts any more."""
        self.position = position
        self.back = []
        for reader in self.leavers:
            reader.held = {}
        self.leavers = []

    def floor(self) -> int:
        held = [offset for reader in [*self.readers, *self.leavers] for offset in reader.held]
        return min([self.position, *self.back[:1], *held])


class StreamModel(ShardModel):
    """Publish, read, settle, commit, let time pass, crash."""

    lease_ms = LEASE_MS
    default_policy = policy()
    auto_create = False

    def __init__(self) -> None:
        super().__init__()
        self.logs: dict[str, list[Published]] = {name: [] for name in RETENTION}
        self.durable_ends = dict.fromkeys(RETENTION, 0)
        self.durable_heads = dict.fromkeys(RETENTION, 0)
        self.groups: dict[tuple[str, str], OracleGroup] = {}
        self.nameless: list[OracleGroup] = []
        self.number = 0

    @initialize(
        tight=st.booleans(),
        counts=st.lists(st.integers(1, 9), max_size=3),
        readers=st.lists(
            st.tuples(st.sampled_from(sorted(RETENTION)), st.sampled_from([1, 3, 6])), max_size=3
        ),
    )
    def begin(self, tight: bool, counts: list[int], readers: list[tuple[str, int]]) -> None:
        if tight:
            self.tighten({limits: TIGHT})
        self.attach(MemoryStore())
        self.declare()
        self.commit()
        for count in counts:
            self.publish("all", "a", count)
        for name, credit in readers:
            self.subscribe(name, "g", "#", "", 0, True, credit, False, "")

    def declare(self) -> None:
        for name, fields in RETENTION.items():
            if name not in self.manager.queues:
                topics = (f"$queue/{name}/#", "$queue/all/#")
                definition = QueueDefinition(name, durable=True, policy=policy(**fields), topics=topics)
                self.manager.queues.declare(definition, self.clock.ms)

    def attach(self, store: MemoryStore) -> None:
        super().attach(store)
        self.shard.commits.on_committed(self.committed)
        self.manager.context.fields.read_by(fields_of)

    def stream(self, name: str) -> Stream:
        queue = self.manager.queues.find(name)
        assert isinstance(queue, Stream)
        return queue

    def real(self, oracle: OracleGroup) -> StreamGroup:
        """The group as the broker has it."""
        group = self.stream(oracle.stream).known_group(oracle.group_id)
        assert group is not None
        return group

    def head(self, name: str) -> int:
        return self.stream(name).log.head_offset

    def committed(self) -> None:
        for name, log in self.logs.items():
            self.durable_ends[name] = len(log)
            if name in self.manager.queues:
                self.durable_heads[name] = self.head(name)

    # what may happen

    @rule(
        target_name=st.sampled_from([*RETENTION, "all"]),
        key=st.sampled_from(["a", "b"]),
        count=st.integers(1, 9),
    )
    def publish(self, target_name: str, key: str, count: int) -> None:
        topic = f"$queue/{target_name}/{key}"
        plan = self.plan(topic)
        bodies = [b"%d" % (self.number + index) for index in range(count)]
        self.number += count
        for queue in plan.queues:
            # the key of a message of another queue's topic is the whole topic
            seen = queue.log.routing_key(topic)
            self.logs[queue.name] += [Published(body, seen, key, self.clock.ms) for body in bodies]
        assert self.manager.publish(plan, bodies, self.clock.ms) == ACCEPTED
        self.rest()

    @rule(
        name=st.sampled_from(sorted(RETENTION)),
        group=st.sampled_from(["", "g", "h", SELECTED_GROUP]),
        pattern=st.sampled_from(["#", "#", "a"]),
        kind=st.sampled_from(["", "", "", FIRST, FIRST, LAST, NEXT, OFFSET, TIMESTAMP]),
        value=st.integers(0, 60),
        auto_commit=st.booleans(),
        credit=st.sampled_from([1, 3, 100]),
        no_ack=st.booleans(),
        selector=st.sampled_from(["", "", *SELECTORS]),
    )
    def subscribe(
        self, name: str, group: str, pattern: str, kind: str, value: int, auto_commit: bool, credit: int,
        no_ack: bool, selector: str, *, refuses: bool = False,
    ) -> None:  # fmt: skip
        oracle = OracleGroup(self, name, group, pattern)
        oracle.position = self.head(name)
        if group:
            oracle = self.groups.setdefault((name, oracle.group_id), oracle)
        else:
            self.nameless.append(oracle)
        start = None
        if kind:
            start = StreamStart(kind, self.clock.ms - value * 500 if kind == TIMESTAMP else value)
        is_first = not oracle.readers
        known = self.stream(name).known_group(oracle.group_id) if group else None
        position = 0 if known is None else known.position
        reader = Reader(self, oracle, no_ack=no_ack, refuses=refuses)
        try:
            reader.consumer = self.manager.consumption.subscribe_stream(
                self.stream(name), group, pattern, reader, start=start, auto_commit=auto_commit,
                consumer_id="c", credit_max=credit, no_ack=no_ack, exclusive=False, lease_ms=LEASE_MS,
                wanted=consumer_filter(selector, {}),
                group_selector="k = 'b'" if group == SELECTED_GROUP else None,
            )  # fmt: skip
        except PreconditionFailed:
            assert not is_first
            assert (oracle.auto_commit, oracle.selector) != (auto_commit, selector)
            return
        assert is_first or (oracle.auto_commit, oracle.selector) == (auto_commit, selector)
        oracle.readers.append(reader)
        if is_first:
            oracle.auto_commit = auto_commit
            if oracle.selector != selector and known is not None:
                assert self.skips(position, oracle), "what the others did not want is passed"
                oracle.highest = max(oracle.highest, oracle.floor(), position)
                oracle.position = position
            oracle.selector = selector
            log = self.logs[name]
            oracle.back = [offset for offset in oracle.back if oracle.wants(log[offset])]
            if start is not None:
                oracle.highest = max(oracle.highest, oracle.floor(), position)
                self.seek(oracle, start)
        self.rest()

    @rule(
        name=st.sampled_from(sorted(RETENTION)),
        group=st.sampled_from(["", "g", "h", SELECTED_GROUP]),
        kind=st.sampled_from(["", "", FIRST, OFFSET]),
        auto_commit=st.booleans(),
        no_ack=st.booleans(),
    )
    def refuse(self, name: str, group: str, kind: str, auto_commit: bool, no_ack: bool) -> None:
        """A reader comes that nothing can be sent to, and goes again."""
        before = self.all_readers()
        self.subscribe(name, group, "#", kind, 5, auto_commit, 100, no_ack, "", refuses=True)
        for index, reader in enumerate(self.all_readers()):
            if reader not in before:
                self.leave(index, keeps=False)

    def seek(self, oracle: OracleGroup, start: StreamStart) -> None:
        log = self.logs[oracle.stream]
        head = self.head(oracle.stream)
        oracle.since_ms = 0
        if start.kind == TIMESTAMP:
            oracle.since_ms = start.value
        places = {FIRST: head, LAST: max(head, len(log) - 1), NEXT: len(log), TIMESTAMP: head}
        oracle.move(places.get(start.kind, min(start.value, len(log))))
        oracle.committed = oracle.durable = 0
        if start.kind == TIMESTAMP:
            oracle.position = self.real(oracle).position if oracle.name else head

    def all_readers(self) -> list[Reader]:
        return [reader for group in [*self.groups.values(), *self.nameless] for reader in group.readers]

    def all_holders(self) -> list[Reader]:
        groups = [*self.groups.values(), *self.nameless]
        return [reader for group in groups for reader in [*group.readers, *group.leavers] if reader.held]

    @precondition(lambda self: self.all_holders())
    @rule(
        verdicts=st.lists(
            st.tuples(
                st.integers(0, 1_000), st.sampled_from(["ack", "ack", "nack", "reject"]), st.integers(1, 511)
            ),
            min_size=1,
            max_size=5,
        )
    )
    def verdicts(self, verdicts: list[tuple[int, str, int]]) -> None:
        """Some readers settle some of what they hold: that of the bits set, in any order."""
        for pick, verdict, bits in verdicts:
            readers = self.all_holders()
            if not readers:
                return
            reader = readers[pick % len(readers)]
            held = list(reader.held)
            offsets = [offset for index, offset in enumerate(held) if bits >> index & 1] or held[:1]
            entries = [reader.held.pop(offset) for offset in offsets]
            manager = self.manager
            settle = {"ack": manager.ack, "nack": manager.requeue, "reject": manager.reject}[verdict]
            assert settle(entries, self.clock.ms) == 0
            if verdict == "nack" and reader.group.name:
                reader.group.give_back(*offsets)
            self.rest()

    @precondition(lambda self: self.all_readers())
    @rule(pick=st.integers(0, 1_000), keeps=st.booleans())
    def leave(self, pick: int, keeps: bool) -> None:
        """A consumer goes, or is cancelled only and keeps what it holds."""
        readers = self.all_readers()
        reader = readers[pick % len(readers)]
        oracle = reader.group
        oracle.readers.remove(reader)
        if keeps:
            oracle.leavers.append(reader)
        else:
            held = sorted(reader.held)
            reader.held = {}
            oracle.give_back(*held)
        was_held = list(reader.held.values())
        self.manager.consumption.unsubscribe(reader.consumer, self.clock.ms, keep_claims=keeps)
        if not oracle.readers and oracle.name:
            group = self.real(oracle)
            if not oracle.auto_commit:
                assert group.position == group.cursor.committed_offset() >= oracle.committed
                oracle.move(group.position)
                assert self.manager.ack(was_held, self.clock.ms) == len(was_held), "read again"
            assert (
                group.position == oracle.position
                or oracle.next_wanted() is None
                or self.skips(group.position, oracle)
            )
        self.rest()

    def skips(self, position: int, oracle: OracleGroup) -> bool:
        """Whether between `position` and the oracle's there is nothing the group wants."""
        low, high = sorted((position, oracle.position))
        log = self.logs[oracle.stream]
        head = self.head(oracle.stream)
        return not any(oracle.wants(log[offset]) for offset in range(max(low, head), high))

    @precondition(lambda self: self.groups)
    @rule(pick=st.integers(0, 1_000), offset=st.integers(0, 60))
    def commit_offset(self, pick: int, offset: int) -> None:
        oracle = list(self.groups.values())[pick % len(self.groups)]
        stream = self.stream(oracle.stream)
        position = self.real(oracle).position
        try:
            self.manager.commit_offset(stream, oracle.group_id, offset)
        except InvalidArgument:
            end = self.real(oracle).position if oracle.readers else len(self.logs[oracle.stream])
            assert (oracle.auto_commit and oracle.readers) or offset >= end
            return
        except GroupNotFound:
            raise AssertionError from None
        assert not (oracle.auto_commit and oracle.readers)
        oracle.committed = offset + 1
        oracle.durable = min(oracle.durable, offset + 1)
        oracle.highest = max(oracle.highest, oracle.floor(), position)  # it passes what it does not want
        if not oracle.readers:
            oracle.move(offset + 1)
        self.rest()

    @rule(ms=st.sampled_from([1, 500, 5_000, 10_000, LEASE_MS]))
    def advance(self, ms: int) -> None:
        self.clock.ms += ms
        self.manager.expire(self.clock.ms)
        self.rest()
        for name, fields in RETENTION.items():
            age_ms = fields.get("retention_age_ms")
            log = self.logs[name][self.head(name) :]
            if age_ms:
                # a chunk may span a 16th of the age, and goes when its newest message is old enough
                assert all(m.at_ms + age_ms + age_ms // 8 > self.clock.ms for m in log)

    @rule(everything=st.booleans())
    def commit(self, everything: bool = True) -> None:
        floors = {oracle: oracle.floor() for oracle in self.groups.values()}
        run(self.shard.commit_once(everything=everything))
        if everything:
            for oracle, floor in floors.items():
                oracle.durable = floor if oracle.auto_commit else oracle.committed
                oracle.highest = 0
        self.rest()

    @rule()
    def sweep(self) -> None:
        self.sweep_once()
        self.rest()

    @rule(
        what=st.sampled_from(["crash", "crash", "purge", "delete"]), name=st.sampled_from(sorted(RETENTION))
    )
    def disturb(self, what: str, name: str) -> None:
        """Together, so that most of the time something else happens."""
        if what == "crash":
            self.crash()
        elif what == "purge":
            self.purge(name)
        else:
            self.delete(name)

    def purge(self, name: str) -> None:
        self.stream(name).purge(self.clock.ms)
        assert self.head(name) == len(self.logs[name])
        self.rest()

    def crash(self) -> None:
        floors = {key: oracle.floor() for key, oracle in self.groups.items()}
        heads = {name: self.head(name) for name in RETENTION}
        self.attach(self.store.crash())
        self.declare()
        self.nameless = []
        for name, log in self.logs.items():
            del log[self.durable_ends[name] :]
            stored = self.stream(name).log
            assert stored.next_offset == len(log)
            assert self.durable_heads[name] <= stored.head_offset
            assert stored.head_offset <= max(heads[name], len(log))
            if not RETENTION[name]:
                assert stored.chunks.count == len(log) - stored.head_offset
                assert stored.chunks.payload_bytes == sum(len(m.body) for m in log[stored.head_offset :])
        for key, oracle in list(self.groups.items()):
            group = self.stream(oracle.stream).known_group(oracle.group_id)
            if group is None:
                del self.groups[key]  # never written
                continue
            assert oracle.durable <= max(group.position, self.head(oracle.stream)) or oracle.since_ms
            if oracle.auto_commit:
                # what was below the head is passed, wanted or not
                low = max(floors[key], heads[oracle.stream])
                highest = max(low, oracle.highest, self.head(oracle.stream))
                assert group.position <= highest or self.skips_to(group.position, oracle, low)
            oracle.position = oracle.committed = group.position
            oracle.since_ms = 0
            oracle.selector = ""
            oracle.auto_commit = True
            oracle.highest = 0
            oracle.back = []
            oracle.readers = []
            oracle.leavers = []
        self.rest()

    def skips_to(self, position: int, oracle: OracleGroup, low: int) -> bool:
        """Whether the group wants nothing from `low` to `position`."""
        return not any(oracle.wants(message) for message in self.logs[oracle.stream][low:position])

    def delete(self, name: str) -> None:
        self.manager.queues.delete(self.stream(name), self.clock.ms)
        self.logs[name] = []
        self.groups = {key: oracle for key, oracle in self.groups.items() if oracle.stream != name}
        self.nameless = [oracle for oracle in self.nameless if oracle.stream != name]
        for _ in range(5):
            self.commit_all()
            self.sweep_once()
        self.declare()
        self.commit()
        self.rest()

    # what must hold

    @invariant()
    def limits_hold(self) -> None:
        for name, fields in RETENTION.items():
            chunks = self.stream(name).log.chunks
            kept = self.logs[name][self.head(name) :]
            assert chunks.count == len(kept), name
            assert chunks.payload_bytes == sum(len(m.body) for m in kept)
            count_max, bytes_max = fields.get("retention_count"), fields.get("retention_bytes")
            newest = chunks.newest()
            if count_max and newest is not None:
                assert len(kept) <= max(count_max, newest.count)
            if bytes_max and newest is not None:
                assert chunks.payload_bytes <= max(bytes_max, newest.payload_bytes)

    @invariant()
    def nobody_waits(self) -> None:
        """A reader with credit has been given all there is for it."""
        for reader in self.all_readers():
            group = reader.group
            if reader.no_ack or may_take(reader.consumer):
                assert not group.back, group.group_id
                assert group.next_wanted() is None, (group.group_id, group.position)

    def finish(self) -> None:
        for _ in range(3):
            self.commit_all()
            self.sweep_once()
        rows = all_rows(self.store)
        held = {m.body for name, log in self.logs.items() for m in log[self.head(name) :]}
        assert {value for key, value in rows if key.startswith(payload.prefix())} == held
        for key, value in rows:
            if key.startswith(payload_refs.prefix()):
                assert payload_refs.decode(value) >= 1
        chunks = [key for key, _ in rows if key.startswith(stream_chunk.prefix())]
        assert len(chunks) == sum(len(self.stream(name).log.chunks) for name in RETENTION)


TestStreamModel = StreamModel.TestCase
TestStreamModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestStreamModelLong(StreamModel.TestCase):
    settings = settings(max_examples=1_500, stateful_step_count=50, deadline=None)
