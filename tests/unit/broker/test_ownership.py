"""What belongs to nothing is found, what belongs to something is not told; in little memory."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from broker.engine.ownership import Ownership, repair
from broker.engine.shard import Shard
from config import limits
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_IN_PART
from queue_manager.policy import Pause
from queue_manager.spec_records import QueueDefinition
from storage import metadata_log
from storage.records import (
    TO_QUEUE,
    attempts,
    binding,
    filter_log_entry,
    log_cursor,
    payload,
    payload_refs,
    scheduled,
    session_progress,
    session_received,
)
from storage.spilled import SortedOnDisk
from tests.memory_store import MemoryStore
from tests.model.harness import FakeClock, open_shard
from tests.model.leaks import all_rows
from tests.unit.queue_manager import managers

Rows = dict[bytes, bytes]
NOWHERE = 1 << 40
"""A message ID that no message has."""


async def stored_rows() -> Rows:
    """Two durable queues: three messages in each alone, three in both, one of these scheduled; a group that
    failed one, and one that is in flight."""
    store = MemoryStore()
    clock = FakeClock()
    shard = await Shard.open(
        store,
        clock,  # type: ignore[arg-type]
        default_policy=managers.make_policy(),
        auto_create=False,
        cache_bytes_max=0,
    )
    manager = shard.manager
    one, _ = (
        manager.queues.declare(
            QueueDefinition(
                name, durable=True, policy=managers.make_policy(), topics=("shop/#", f"{name}/#")
            ),
            clock.ms,
        )
        for name in ("one", "two")
    )
    _, sink = managers.consume(manager, one, "workers", credit_max=2)

    def publish(topic: str, count: int, options: PublishOptions = PLAIN) -> None:
        plan = manager.plan(topic, 0, b"", True, options=options)
        plan.aim(manager.publisher.route(topic, clock.ms))
        assert manager.publish(plan, [b"body"] * count, clock.ms) == ACCEPTED

    publish("one/x", 3)
    publish("two/x", 3)
    publish("shop/x", 2)
    publish("shop/x", 1, PublishOptions(delay_ms=60_000))
    manager.dispatch(clock.ms)
    manager.reject(sink.claims[:1], clock.ms)
    await shard.commit_once(everything=True)
    return dict(all_rows(store))


def problems_in(rows: Rows) -> dict[bytes, str]:
    ownership = Ownership()
    for key in sorted(rows):
        ownership.note(key, rows[key])
    return {problem.key: problem.what for problem in ownership.problems()}


def shared(rows: Rows) -> int:
    """A message that both queues have."""
    return min(payload_refs.parse_key(key) for key in rows if key.startswith(payload_refs.prefix()))


async def test_what_belongs_to_something_is_not_told() -> None:
    assert problems_in(await stored_rows()) == {}


async def test_a_payload_that_nothing_holds_is_told() -> None:
    rows = await stored_rows()
    rows[payload.key(NOWHERE)] = b"12345"
    assert problems_in(rows) == {payload.key(NOWHERE): "a payload of 5 bytes that nothing holds"}


async def test_more_references_than_holders_are_told() -> None:
    rows = await stored_rows()
    message_id = shared(rows)
    rows[payload_refs.key(message_id)] = payload_refs.encode(3)
    told = "3 references are counted, 2 queues hold it: 'one', 'two'"
    assert problems_in(rows) == {payload_refs.key(message_id): told}


@pytest.mark.parametrize("left", [0, 1])
async def test_fewer_references_than_queues_that_need_it_are_told(left: int) -> None:
    """The first queue to let go of it would take it from the other."""
    rows = await stored_rows()
    message_id = shared(rows)
    if left:
        rows[payload_refs.key(message_id)] = payload_refs.encode(left)
    else:
        del rows[payload_refs.key(message_id)]
    told = f"{left} references are counted, 2 queues need it: 'one', 'two'"
    assert problems_in(rows) == {payload_refs.key(message_id): told}


async def test_references_to_a_payload_that_is_not_there_are_told() -> None:
    rows = await stored_rows()
    rows[payload_refs.key(NOWHERE)] = payload_refs.encode(2)
    assert problems_in(rows) == {
        payload_refs.key(NOWHERE): "counts references to a payload that is not there"
    }


async def test_payloads_that_are_needed_and_gone_are_told() -> None:
    """One that waits, one that failed, one that is scheduled."""
    rows = await stored_rows()
    [due] = {scheduled.parse_key(key).message_id for key in rows if key.startswith(scheduled.prefix())}
    ids = sorted(payload.parse_key(key) for key in rows if key.startswith(payload.prefix()))
    gone = {ids[0]: "'one'", ids[2]: "'one'", ids[3]: "'two'", due: "'one', 'two'"}
    for message_id in gone:
        del rows[payload.key(message_id)]
    assert problems_in(rows) == {
        payload.key(message_id): f"the payload of message {message_id} is needed by {who} and not there"
        for message_id, who in gone.items()
    }


def planted_bindings() -> dict[bytes, tuple[bytes, str]]:
    from_none = binding.key("gone", TO_QUEUE, "one", "k", b"")
    to_none = binding.key("amq.topic", TO_QUEUE, "gone", "k", b"")
    none = binding.encode({})
    told = "binds 'gone', which is not there"
    return {from_none: (none, told), to_none: (none, told)}


PLANTED: dict[str, Callable[[], dict[bytes, tuple[bytes, str]]]] = {
    "attempts of a queue": lambda: {
        attempts.key("gone", 1): (attempts.encode([]), "belongs to 'gone', which is not there")
    },
    "place of a group": lambda: {
        log_cursor.key("one\x1fgone", "q1"): (
            log_cursor.encode(0),
            "belongs to 'one\\x1fgone', which is not there",
        )
    },
    "bindings": planted_bindings,
    "progress of a session": lambda: {
        session_progress.key(7): (b"", "belongs to a session that is not there")
    },
    "publish of a session": lambda: {
        session_received.key(7, 1): (
            session_received.encode(0),
            "belongs to a session that is not there",
        )
    },
    "entry of a filter log": lambda: {
        filter_log_entry.key(7, 1): (b"", "belongs to a filter log that is not there")
    },
    "listing of a log": lambda: {
        metadata_log.listing_key(1, metadata_log.log_key("i1", "gone")): (
            b"",
            "belongs to the log 'gone' of no queue",
        )
    },
}


@pytest.mark.parametrize("planted", PLANTED)
async def test_records_without_an_owner_are_told(planted: str) -> None:
    rows = await stored_rows()
    found = PLANTED[planted]()
    rows |= {key: value for key, (value, _) in found.items()}
    assert problems_in(rows) == {key: told for key, (_, told) in found.items()}


async def test_a_queue_deleted_right_before_a_crash_is_no_problem() -> None:
    store = MemoryStore()
    clock = FakeClock()
    shard = await Shard.open(
        store,
        clock,  # type: ignore[arg-type]
        default_policy=managers.make_policy(),
        auto_create=False,
        cache_bytes_max=0,
    )
    queue = managers.make_queue(shard.manager, "one")
    managers.publish(shard.manager, 5, "$queue/one")
    await shard.commit_once(everything=True)
    shard.manager.queues.delete(queue, clock.ms)
    await shard.commit_once(everything=True)
    assert problems_in(dict(all_rows(store))) == {}


def test_what_does_not_fit_into_memory_is_sorted_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SORTED_IN_MEMORY_MAX", 1_000)
    source = random.Random(7)
    items = [source.randbytes(6) for _ in range(25_500)]
    sorted_on_disk = SortedOnDisk(6)
    for item in items:
        sorted_on_disk.add(item)
        assert len(sorted_on_disk._items) < 1_000
    assert list(sorted_on_disk) == sorted(items)
    sorted_on_disk.close()


async def test_a_large_store_is_compared_with_runs_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = await stored_rows()
    for message_id in range(NOWHERE, NOWHERE + 1_000):
        rows[payload.key(message_id)] = b"x"
    in_memory = problems_in(rows)
    monkeypatch.setattr(limits, "SORTED_IN_MEMORY_MAX", 7)
    assert problems_in(rows) == in_memory
    assert len(in_memory) == 1_000


async def test_what_one_of_two_queues_took_needs_no_count() -> None:
    """The other was paused: what is not counted is held once, though its envelope says it may be shared."""
    store = MemoryStore()
    clock = FakeClock()
    shard = open_shard(store, clock)
    manager = shard.manager
    now_ms = clock.now_ms()
    for name in ("one", "two"):
        policy = managers.make_policy()
        manager.queues.declare(QueueDefinition(name, durable=True, policy=policy, topics=("shop/#",)), now_ms)
    manager.queues.find("one").set_pause(Pause(publish=True))
    plan = manager.plan("shop/x", 0, b"", True)
    plan.aim(manager.publisher.route("shop/x", now_ms))
    assert manager.publish(plan, [b"body"], now_ms) == REFUSED_IN_PART
    await shard.commit_once(everything=True)
    assert problems_in(dict(all_rows(store))) == {}


async def repaired(rows: Rows) -> tuple[int, int, Rows]:
    """How many problems were repaired, how many are left, and what the store has then."""
    store = MemoryStore(rows=rows)
    found, repaired_count = await repair(store, lambda seen: None)
    return repaired_count, found.problem_count, dict(all_rows(store))


async def test_payloads_that_nothing_holds_and_high_counts_are_repaired(monkeypatch) -> None:
    monkeypatch.setattr(limits, "STORE_REPAIRS_PER_WRITE_MAX", 1)
    rows = await stored_rows()
    leaked = dict(rows)
    for message_id in range(NOWHERE, NOWHERE + 3):
        leaked[payload.key(message_id)] = b"12345"
        leaked[payload_refs.key(message_id)] = payload_refs.encode(2)
    leaked[payload_refs.key(NOWHERE + 3)] = payload_refs.encode(2)
    leaked[payload_refs.key(shared(rows))] = payload_refs.encode(7)
    assert await repaired(leaked) == (5, 0, rows)
    assert await repaired(rows) == (0, 0, rows)


async def test_what_is_needed_and_gone_cannot_be_repaired() -> None:
    rows = await stored_rows()
    gone = dict(rows)
    del gone[payload.key(shared(rows))]
    assert await repaired(gone) == (0, 1, gone)


async def test_nothing_is_repaired_beside_a_record_that_cannot_be_read_or_belongs_to_nothing() -> None:
    rows = {**await stored_rows(), payload.key(NOWHERE): b"12345"}
    unread = {**rows, payload_refs.key(shared(rows)): b""}
    repaired_count, left, after = await repaired(unread)
    assert (repaired_count, after) == (0, unread)
    assert left >= 2
    homeless = {**rows, session_progress.key(7): b"\0" * 8}
    repaired_count, left, after = await repaired(homeless)
    assert (repaired_count, after) == (0, homeless)
    assert left >= 2
