"""What may be left, on the store and in memory, when every message is done with."""

from __future__ import annotations

from broker.engine.ownership import Ownership
from queue_manager.cursor.cursor import Cursor
from queue_manager.manager import QueueManager
from queue_manager.policy import FOREVER
from storage import layout, metadata_log
from storage.envelope import read_head
from storage.records import (
    active,
    attempts,
    claim_state,
    done,
    failed,
    group_position,
    log_cursor,
    metadata,
    payload,
    payload_refs,
    queue_meta,
    queue_spec,
    removal,
    settlements,
)
from tests.memory_store import MemoryStore
from tests.model.oracle import FAILED, Oracle

SHARED = 0x10


def check_store(rows: list[tuple[bytes, bytes]], oracle: Oracle, *, may_leak: bool = False) -> None:
    """Compare the rows of a drained store with what the queues are there to keep.

    `may_leak`: a crash came while payloads were to be let go of that only memory knew of.
    """
    keeps = {name: queue for name, queue in oracle.queues.items() if queue.durable}
    holders: dict[int, set[str]] = {}
    attempts_of: set[tuple[str, int]] = set()
    failed_of: dict[str, set[int]] = {}
    for key, value in rows:
        record_type = key[1] if key[0] == layout.VERSION else -1
        if record_type == done.number:
            storage_id, _ = done.parse_key(key)
            name = layout.split_group_queue_id(storage_id)[0]
            assert name in keeps, f"done record of a deleted queue: {key!r}"
            assert keeps[name].policy.done_retention_ms == FOREVER, f"done record left over: {key!r}"
            for message in done.decode(value):
                holders.setdefault(message.message_id, set()).add(name)
                attempts_of.add((storage_id, message.message_id))
        elif record_type == settlements.number:
            storage_id, _, _ = settlements.parse_key(key)
            name = layout.split_group_queue_id(storage_id)[0]
            assert name in keeps, f"settlements of a deleted queue: {key!r}"
            kept = settlements.decode(value).done  # the others go when their bucket closes
            assert not kept or keeps[name].policy.done_retention_ms == FOREVER, f"left over: {key!r}"
            for message in kept:
                holders.setdefault(message.message_id, set()).add(name)
                attempts_of.add((storage_id, message.message_id))
        elif record_type == failed.number:
            storage_id, _ = failed.parse_key(key)
            name = layout.split_group_queue_id(storage_id)[0]
            assert name in keeps, f"failed record of a deleted queue: {key!r}"
            for message in failed.decode(value):
                holders.setdefault(message.message_id, set()).add(name)
                attempts_of.add((storage_id, message.message_id))
                failed_of.setdefault(storage_id, set()).add(read_head(message.metadata)[1])
    references: dict[int, int] = {}
    payloads: set[int] = set()
    shared_left: set[int] = set()
    forever = any(queue.policy.done_retention_ms == FOREVER for queue in keeps.values())
    for key, value in rows:
        if key[0] != layout.VERSION:
            _check_log_row(key, value, oracle)
            continue
        record_type = key[1]
        assert record_type not in (active.number, removal.number), f"left over: {key!r}"
        if record_type == payload.number:
            payloads.add(payload.parse_key(key))
        elif record_type == payload_refs.number:
            references[payload_refs.parse_key(key)] = payload_refs.decode(value)
        elif record_type == attempts.number:
            assert attempts.parse_key(key) in attempts_of, f"attempts of nothing: {key!r}"
        elif record_type in (log_cursor.number, claim_state.number, group_position.number):
            name = layout.split_group_queue_id(key[2:].partition(b"\x00")[0].decode())[0]
            assert name in keeps, f"record of a deleted queue: {key!r}"
        elif record_type in (queue_spec.number, queue_meta.number):
            name = layout.split_group_queue_id(key[2:].decode())[0]
            assert name in keeps, f"record of a deleted queue: {key!r}"
    for message_id in payloads - set(holders):
        # a log that is kept for ever is never trimmed, which would find what a purge left behind
        if may_leak and (message_id in references or forever):
            shared_left.add(message_id)
            continue
        raise AssertionError(f"payload {message_id} belongs to nothing")
    assert set(holders) <= payloads, f"payloads lost: {set(holders) - payloads}"
    for message_id, count in references.items():
        if message_id in shared_left:
            continue
        if may_leak:
            assert count >= len(holders.get(message_id, ()))
            continue
        assert count == len(holders.get(message_id, ())), f"{count} references to payload {message_id}"
    _check_failed(oracle, failed_of)


def check_ownership(rows: list[tuple[bytes, bytes]], *, may_leak: bool = False) -> None:
    """Whatever crashes, nothing that is needed is gone, and nothing is left that belongs to nothing.

    `may_leak`: as for `check_store`; then payloads may be left, and counts may be too high.
    """
    ownership = Ownership()
    for key, value in rows:
        ownership.note(key, value)
    found = [(problem.key.hex(), problem.what) for problem in ownership.problems()]
    if may_leak:
        found = [each for each in found if "that nothing holds" not in each[1] and "hold it" not in each[1]]
    assert not found


def _check_log_row(key: bytes, value: bytes, oracle: Oracle) -> None:
    tag = key[6]
    if tag == metadata_log.TAG_ENTRY:
        offsets = [read_head(envelope)[1] for _, envelope in metadata.decode(value)]
        forever = [q for q in oracle.queues.values() if q.policy.done_retention_ms == FOREVER]
        assert forever, f"log entry left over: {key!r} with offsets {offsets}"


def _check_failed(oracle: Oracle, stored: dict[str, set[int]]) -> None:
    for queue in oracle.queues.values():
        if not queue.durable:
            continue
        for group in queue.groups.values():
            storage_id = layout.group_queue_id(queue.name, group.group_id)
            expected = {offset for offset, item in group.items.items() if item.state == FAILED}
            possible = {offset for offset, item in group.items.items() if item.may_have_failed}
            found = stored.pop(storage_id, set())
            assert expected <= found <= expected | possible, f"failed messages of {storage_id!r}"
    assert not stored


def check_memory(manager: QueueManager) -> None:
    """What the manager still holds when nothing waits and nothing is in flight."""
    assert not manager.context.commit.puts
    assert not manager.context.commit.deletes
    context = manager.context
    for table in (
        context.loads,
        context.removals,
        manager.queues.removing,
        context.skipping,
        context.trimmable,
        context.state_writes,
        context.dispatchable,
        context.appended,
    ):
        assert not table, table
    for queue in manager.queues:
        if queue.policy.done_retention_ms == FOREVER:
            continue
        for part in queue.parts:
            tail = part.log.tail
            assert len(tail) == 0, f"{part.log.name} keeps {len(tail)} messages in memory"
            assert part.log.head_offset == tail.next_offset
            assert not part.retention.payloads.released.starts
            for cursor in part.cursors.values():
                _check_cursor(cursor)


def _check_cursor(cursor: Cursor) -> None:
    claims = cursor.claims
    assert not cursor.done_purges
    assert not claims.returned.heap
    assert not cursor.reader._loaded
    assert not cursor.progress.released.starts
    assert not claims.buckets.records._unwritten
    assert len(claims.buckets) <= 1, f"{cursor.storage_id} keeps {len(claims.buckets)} buckets"
    assert len(claims.buckets.attempt_log._logs) <= claims.buckets.failed_count


def all_rows(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    """Everything in the store."""
    step = store.scan(b"", None, limit=1 << 40)
    try:
        step.send(None)
    except StopIteration as end:
        return list(end.value)
    raise AssertionError("the store waits")
