"""Shards merged: every record has its place, numbers go on where those of the other end, and a merge that was
ended on the way comes to the same."""

from __future__ import annotations

import json

import pytest

from broker.engine.merging.renumbering import AS_THEY_ARE, Renumbering, Shifts
from broker.engine.merging.session_joining import SESSION_KINDS
from broker.engine.merging.shard_merge import OF_EACH, OF_FIRST, bring_over, empty, end
from broker.engine.ownership import Ownership
from broker.engine.shard import Shard
from config import limits
from queue_manager.manager import QueueManager
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED
from queue_manager.sessions.filter_log import ENDED, OWN
from queue_manager.spec_records import QueueDefinition
from storage import metadata_log
from storage.batch import WriteOps
from storage.envelope import EnvelopeTemplate
from storage.errors import CorruptRecord, StorageError
from storage.metadata_log import SEQ_BLOCK_KEY, SegmentMeta
from storage.records import (
    COPYING,
    NEVER_S,
    RECORDS,
    TO_EXCHANGE,
    TO_QUEUE,
    PendingGroupRemoval,
    QueueSpec,
    Released,
    SubscriptionValue,
    active,
    attempts,
    binding,
    done,
    exchange,
    expiry,
    failed,
    filter_log,
    filter_log_entry,
    group_removal,
    last_value,
    log_cursor,
    merge,
    message_ids,
    payload,
    payload_refs,
    policy,
    queue_meta,
    queue_spec,
    removal,
    retained,
    scheduled,
    session,
    session_progress,
    session_subscription,
    settlements,
    staged_rows,
    stream_chunk,
)
from storage.records.bucket_values import pack_available, pack_in_flight, pack_settled
from storage.records.filter_log_entries import NO_PUBLISHER, Kept, decode_entry_head, encode_entry
from storage.records.special_codecs import SENT_QOS_1, Sent, pack_sent
from storage.records.staged_values import StagedRun
from storage.sequence import SeqBlock, encode_block
from tests.memory_store import MemoryStore
from tests.model.failing_store import FailingStore
from tests.model.harness import FakeClock
from tests.model.leaks import all_rows
from tests.unit.queue_manager import managers

SHIFTS = Shifts(ids=1_000, sequences=100, logs=10)
MINE = SegmentMeta(1, 5, 0)
THEIRS = SegmentMeta(2, 40, 0)


def renumbering() -> Renumbering:
    return Renumbering(SHIFTS, [MINE], THEIRS, "theirs")


def rows_of(store: MemoryStore) -> dict[bytes, bytes]:
    return dict(all_rows(store))


async def opened(store: MemoryStore) -> Shard:
    return await Shard.open(
        store,
        FakeClock(),  # type: ignore[arg-type]
        default_policy=managers.make_policy(),
        auto_create=False,
        cache_bytes_max=0,
        instance_id="mine",
    )


def publish(manager: QueueManager, topic: str, bodies: list[bytes], options: PublishOptions = PLAIN) -> None:
    plan = manager.plan(topic, 0, b"", True, options=options)
    plan.aim(manager.publisher.route(topic, FakeClock().ms))
    assert manager.publish(plan, bodies, FakeClock().ms) == ACCEPTED


async def filled(*names: str) -> FailingStore:
    """A shard with queues: each with messages of its own, one scheduled, some that all of them have, and a
    group that failed one and is given another."""
    store = FailingStore()
    shard = await opened(store)
    manager, now_ms = shard.manager, FakeClock().ms
    for name in names:
        topics = ("shop/#", f"{name}/#")
        queue = manager.queues.declare(
            QueueDefinition(name, durable=True, policy=managers.make_policy(), topics=topics), now_ms
        )
        _, sink = managers.consume(manager, queue, "workers", credit_max=2)
        publish(manager, f"{name}/x", [b"%s %d" % (name.encode(), number) for number in range(5)])
        publish(manager, f"{name}/x", [b"later"], PublishOptions(delay_ms=60_000))
        manager.dispatch(now_ms)
        manager.reject(sink.claims[:1], now_ms)
    publish(manager, "shop/x", [b"all"] * 3)
    await shard.commit_once(everything=True)
    return store


def problems_of(store: MemoryStore) -> list[str]:
    ownership = Ownership()
    for key, value in sorted(all_rows(store)):
        ownership.note(key, value)
    return [problem.what for problem in ownership.problems()]


async def merged(target: MemoryStore, source: MemoryStore) -> None:
    await bring_over(target, source, 1, lambda seen: None)
    await empty(source)
    await end(target)


def summary(shard: Shard) -> dict[str, tuple[int, ...]]:
    queues = {queue.name: queue for queue in shard.manager.queues}
    return {
        name: (queue.depth(), *[group.failed_count() for group in queue.groups])
        for name, queue in queues.items()
    }


# every record


def test_every_record_has_its_place() -> None:
    kinds = [AS_THEY_ARE, renumbering().by_number.keys(), SESSION_KINDS, OF_EACH, OF_FIRST]
    numbers = [number for kind in kinds for number in kind] + [binding.number, retained.number]
    assert sorted(numbers) == sorted(RECORDS)


def test_entry_of_a_log_goes_to_the_newest_segment_behind_what_is_there() -> None:
    entry = metadata_log.entry_prefix(1, metadata_log.log_key("mine", "q3")) + b"\x07"
    value = bytes.fromhex("0100 0500000000000000 01000000 78")
    log_key = metadata_log.log_key("theirs", "q13")
    there = metadata_log.MetadataLog("theirs", segments=[THEIRS], stored_block=SeqBlock(0, 1_000))
    assert renumbering().log_row(entry, value) == (
        there.entry_key("q13", 5 + 7 + 100),
        bytes.fromhex("0100 ed03000000000000 01000000 78"),
    )
    listing = metadata_log.listing_key(1, metadata_log.log_key("mine", "q3"))
    assert renumbering().log_row(listing, b"") == (metadata_log.listing_key(2, log_key), b"")
    assert renumbering().log_row(SEQ_BLOCK_KEY, b"") is None
    with pytest.raises(CorruptRecord):
        renumbering().log_row(entry[:2] + b"\0\0\0\x09" + entry[6:], value)


def renumbered(number: int, ids: int, sequences: int, log: str) -> tuple[bytes, bytes]:
    """A record of a kind in which numbers of the shard are counted from these."""
    spec = QueueSpec(extensions={"policy": json.dumps({"a": 1, "log": log}, separators=(",", ":")).encode()})
    pending = PendingGroupRemoval(log, 1, 4, 0, 0, [(1, 2)], [(5, 6)])
    released = Released(4, [(5, 6)], [(ids + 7, ids + 8)])
    settled = [pack_settled(ids + 3, 4, 5, 6, b"e")]
    runs = [StagedRun(b"e", -1, ids + 7, [b"a", b"bc"])]
    here = [pack_available(ids + 1, 2, 3, b"e")], [pack_in_flight(ids + 2, 3, 4, 5, 6, b"e")]
    return {
        payload.number: (payload.key(ids + 1), b"body"),
        payload_refs.number: (payload_refs.key(ids + 1), payload_refs.encode(2)),
        expiry.number: (expiry.key("q", 5, 6), expiry.encode(ids + 1, 7, b"e")),
        scheduled.number: (scheduled.key("q", 5, ids + 1), b"e"),
        last_value.number: (last_value.key("q", "h", "v"), last_value.encode(ids + 1, 7, b"e")),
        queue_spec.number: (queue_spec.key("q"), queue_spec.encode(spec)),
        queue_meta.number: (queue_meta.key("q"), queue_meta.encode(3, sequences + 4)),
        removal.number: (removal.key(log), removal.encode("q", ("q",), released)),
        stream_chunk.number: (stream_chunk.key("q", 5), stream_chunk.encode(sequences + 8, 1, 2, 3, 4)),
        active.number: (active.key("q", 0), active.encode(*here)),
        done.number: (done.key("q", 0), done.encode(settled)),
        failed.number: (failed.key("q", 0), failed.encode(settled)),
        settlements.number: (settlements.key("q", 0, 4), settlements.encode(settled, [9])),
        attempts.number: (attempts.key("q", ids + 1), attempts.encode([(5, "c")], 1)),
        log_cursor.number: (log_cursor.key("q", log), log_cursor.encode(sequences + 4)),
        group_removal.number: (group_removal.key("q", ids + 9), group_removal.encode(*pending)),
        staged_rows.number: (staged_rows.key("q", "p", 1, 2, "a", 3), staged_rows.encode(3, 44, runs)),
    }[number]


@pytest.mark.parametrize("number", sorted(renumbering().by_number), ids=lambda number: RECORDS[number].name)
def test_numbers_of_a_shard_go_on_where_those_of_the_other_end(number: int) -> None:
    key, value = renumbered(number, 0, 0, "q3")
    assert RECORDS[number].parse_key(key) is not None
    assert renumbering().by_number[number](key, value) == renumbered(
        number, SHIFTS.ids, SHIFTS.sequences, f"q{3 + SHIFTS.logs}"
    )


# whole shards


async def test_queues_of_both_shards_are_there_with_what_they_had() -> None:
    target, source = await filled("one", "two"), await filled("three", "four")
    expected = summary(await opened(MemoryStore(rows=rows_of(target))))
    expected |= summary(await opened(MemoryStore(rows=rows_of(source))))
    await merged(target, source)
    assert problems_of(target) == []
    shard = await opened(target)
    assert summary(shard) == expected
    publish(shard.manager, "shop/x", [b"new"])  # with numbers of its own
    await shard.commit_once(everything=True)
    again = await opened(MemoryStore(rows=rows_of(target)))
    assert {name: counts[0] for name, counts in summary(again).items()} == {
        name: counts[0] + 1 for name, counts in expected.items()
    }
    assert problems_of(target) == []


async def test_a_shard_that_was_emptied_holds_nothing_and_gives_out_no_number_again() -> None:
    target, source = await filled("one"), await filled("two")
    kept = (message_ids.key(), SEQ_BLOCK_KEY, metadata_log.segment_meta_key(1))
    before = rows_of(source)
    await merged(target, source)
    assert rows_of(source) == {key: before[key] for key in kept}
    assert await bring_over(target, source, 1, lambda seen: None) is None


async def test_merge_that_was_ended_anywhere_comes_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RESTORE_WRITE_BYTES", 1_000)
    whole = await filled("one")
    await merged(whole, await filled("two", "three"))
    for writes in range(100):
        target, source = await filled("one"), await filled("two", "three")
        target.writes_left = writes
        try:
            await bring_over(target, source, 1, lambda seen: None)
        except StorageError:
            assert writes < 50
        else:
            assert writes > 5
            break
        target.writes_left = None
        for store in (target, source):
            if merge.key() in rows_of(store):
                with pytest.raises(StorageError, match="`sluicemq store merge` again"):
                    await opened(store)
        assert merge.key() in rows_of(source)
        await merged(target, source)
        assert rows_of(target) == rows_of(whole)


async def test_shard_that_a_merge_was_not_begun_with_is_refused() -> None:
    target, source = await filled("one"), await filled("two")
    await target.write(WriteOps([(merge.key(), merge.encode(1, 2, 3, 4, COPYING))]))
    with pytest.raises(StorageError, match="not the one that a merge was begun with"):
        await bring_over(target, source, 1, lambda seen: None)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (
            removal.key("q7"),
            removal.encode("one", ("one",), None),
            "queue 'one' is in shard 1 and in another",
        ),
        (session.key("c"), session.encode(1, 0, 0, "u"), "client 'c' has a session in shard 1"),
        (b"\x01\xf0", b"", "unknown"),
        (stream_chunk.key("two", 0), b"x", "stream chunk"),
    ],
)
async def test_what_cannot_be_merged_is_refused_before_anything_changes(
    key: bytes, value: bytes, reason: str
) -> None:
    target, source = await filled("one"), await filled("two")
    await target.write(WriteOps([(session.key("c"), session.encode(2, 0, 0, "u"))]))
    await source.write(WriteOps([(key, value)]))
    before = rows_of(target), rows_of(source)
    with pytest.raises(StorageError, match=reason):
        await bring_over(target, source, 1, lambda seen: None)
    assert (rows_of(target), rows_of(source)) == before


async def test_bindings_come_without_those_that_all_shards_have() -> None:
    target, source = await filled("one"), await filled("two")
    await target.write(WriteOps([(exchange.key("x"), exchange.encode("topic", False, False, False, {}))]))
    bindings = {
        name: binding.key(name, kind, "two", "key", b"")
        for name, kind in (("x", TO_QUEUE), ("amq.topic", TO_QUEUE), ("gone", TO_QUEUE), ("y", TO_EXCHANGE))
    }
    value = binding.encode({})
    await source.write(WriteOps([(key, value) for key in bindings.values()]))
    policies = policy.key(0, "/", "p"), policy.encode(0, "", "all", b"{}", b"{}")
    await source.write(WriteOps([policies]))
    await merged(target, source)
    found = rows_of(target)
    assert {name for name, key in bindings.items() if key in found} == {"x", "amq.topic"}
    assert policies[0] not in found


# sessions


def kept(message_id: int, body: bytes = b"m", publisher: int = NO_PUBLISHER) -> Kept:
    return Kept(message_id, 1, publisher, EnvelopeTemplate("a/b"), 0, body)


def reading(log: int, from_id: int = 1, read_count: int = 0) -> bytes:
    return session_subscription.encode(*SubscriptionValue(log, 1, 0, from_id, read_count, read_count, b""))


SHARE = "$share/g/a/b"
SHARE_USER = "\x1fshare"


def session_store(client: str, user: str, name: str) -> FailingStore:
    """A session of number 1 that reads log 2, with messages 3 to 6 of it; of these 3 is done with, 4 is in
    flight."""
    entry = encode_entry(0, 0, [kept(3), kept(4, publisher=1), kept(5)])
    rows = {
        message_ids.key(): encode_block(SeqBlock(0, 100)),
        session.key(client): session.encode(1, NEVER_S, 0, user),
        session_subscription.key(1, name): reading(2),
        session_progress.key(1): session_progress.encode(5, [pack_sent(Sent(4, 9, SENT_QOS_1))]),
        filter_log.key(2): filter_log.encode(name),
        filter_log_entry.key(2, 3): entry,
        filter_log_entry.key(2, 6): encode_entry(3, 3, [kept(6, b"last")]),
    }
    return FailingStore(rows=rows)


def subscriptions(store: MemoryStore) -> dict[tuple[int, str], SubscriptionValue]:
    prefix = session_subscription.prefix()
    return {
        tuple(session_subscription.parse_key(key)): session_subscription.decode(value)  # type: ignore[misc]
        for key, value in all_rows(store)
        if key.startswith(prefix)
    }


def entries(store: MemoryStore, log: int) -> list[tuple[int, int, int]]:
    """First ID of each entry of a log, what came before it, and how many messages it has."""
    found = []
    for key, value in sorted(all_rows(store)):
        if key.startswith(filter_log_entry.prefix(log)):
            head = decode_entry_head(value)
            found.append((filter_log_entry.parse_key(key)[1], head.first_count, head.message_count))
    return found


async def test_session_reads_the_log_of_its_filter_that_is_there_behind_its_own() -> None:
    target, source = session_store("here", "", "a/b"), session_store("there", "", "a/b")
    await merged(target, source)
    assert subscriptions(target) == {
        (1, "a/b"): SubscriptionValue(2, 1, 0, 1, 0, 0, b""),
        (101, "a/b"): SubscriptionValue(2, 1, 0, 200, 4, 7, b""),
        (101, f"{ENDED}102{OWN}200"): SubscriptionValue(102, 1, 0, 101, 0, 0, b""),
    }
    rows = rows_of(target)
    assert filter_log.decode(rows[filter_log.key(102)]) == f"{OWN}102"
    assert entries(target, 102) == [(103, 0, 3), (106, 3, 1)]
    assert session_progress.decode(rows[session_progress.key(101)]) == (105, [Sent(104, 9, SENT_QOS_1)])
    assert problems_of(target) == []
    await opened(target)


async def test_session_whose_filter_only_it_has_reads_on() -> None:
    target, source = session_store("here", "", "a/b"), session_store("there", "", "a/c")
    await merged(target, source)
    assert subscriptions(target)[101, "a/c"] == SubscriptionValue(102, 1, 0, 101, 0, 0, b"")
    assert len(subscriptions(target)) == 2


async def test_share_group_that_both_have_is_given_what_waits_for_it_once() -> None:
    target, source = session_store(SHARE, SHARE_USER, SHARE), session_store(SHARE, SHARE_USER, SHARE)
    await merged(target, source)
    assert subscriptions(target) == {
        (1, SHARE): SubscriptionValue(2, 1, 0, 1, 0, 0, b""),
        (1, f"{ENDED}102{OWN}200"): SubscriptionValue(102, 1, 0, 101, 0, 0, b""),
    }
    assert entries(target, 102) == [(104, 0, 2), (106, 2, 1)], "3 was done with"
    assert session_progress.key(101) not in rows_of(target)
    assert problems_of(target) == []
    await opened(target)


async def test_names_of_own_logs_and_ended_subscriptions_have_the_new_numbers() -> None:
    target, source = await filled("one"), session_store("there", "", "a/b")
    more = {
        session_subscription.key(1, f"{OWN}a/b"): reading(7),
        filter_log.key(7): filter_log.encode(f"{OWN}1{OWN}a/b"),
        session_subscription.key(1, f"{ENDED}8{OWN}6"): reading(8),
        filter_log.key(8): filter_log.encode(f"{OWN}8"),
    }
    await source.write(WriteOps(list(more.items())))
    await merged(target, source)
    ids = 4096
    assert {(number - ids, name) for number, name in subscriptions(target)} == {
        (1, "a/b"),
        (1, f"{OWN}a/b"),
        (1, f"{ENDED}{8 + ids}{OWN}{6 + ids}"),
    }
    rows = rows_of(target)
    assert filter_log.decode(rows[filter_log.key(7 + ids)]) == f"{OWN}{1 + ids}{OWN}a/b"
    assert filter_log.decode(rows[filter_log.key(8 + ids)]) == f"{OWN}{8 + ids}"
    assert payload.key(0) in rows
    await opened(target)


@pytest.mark.parametrize(("here", "there"), [(5, 9), (9, 5)])
async def test_newer_of_two_retained_messages_stays(here: int, there: int) -> None:
    def of(received_at: int) -> tuple[bytes, bytes]:
        envelope = kept(0).template.head + bytes(8) + received_at.to_bytes(8, "little") + b"\0\0"
        return retained.key("t"), retained.encode(1, envelope, b"%d" % received_at)

    target, source = FailingStore(rows=dict([of(here)])), FailingStore(rows=dict([of(there)]))
    await merged(target, source)
    assert retained.decode(rows_of(target)[retained.key("t")]).body == b"9"
