"""Payloads into the open commit, with IDs for their messages, and out of the store again: counted and deleted
by runs of messages with consecutive offsets and IDs.
"""

from __future__ import annotations

from collections.abc import Iterable

from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES
from queue_manager.shard.commit import Commit
from queue_manager.shard.context import Context
from storage.records import payload, payload_keys, payload_refs

Run = tuple[int, int, int]  # first offset, first message ID, count of consecutive ones


def add_to_runs(runs: list[Run], offset: int, message_id: int) -> None:
    """Add one message to runs."""
    if runs:
        first_offset, first_id, count = runs[-1]
        if offset == first_offset + count and message_id == first_id + count:
            runs[-1] = (first_offset, first_id, count + 1)
            return
    runs.append((offset, message_id, 1))


def runs_of(rows: Iterable[tuple[int, int, bool]]) -> tuple[list[Run], list[Run]]:
    """Return the runs of rows (see `removals.Row`): of those whose payload is theirs alone, and that share
    it.
    """
    runs: list[Run] = []
    shared_runs: list[Run] = []
    for offset, message_id, is_shared in rows:
        add_to_runs(shared_runs if is_shared else runs, offset, message_id)
    return runs, shared_runs


def store_payloads(context: Context, bodies: list[bytes], body_bytes: int, durable_count: int) -> int:
    """Give the first of the message IDs, one for each body; store the payloads once for so many queues."""
    count = len(bodies)
    first_id, put = context.message_ids.allocate(count)
    commit = context.commit
    if put is not None:
        commit.puts[put[0]] = put[1]
    if durable_count:
        if count == 1:
            commit.puts[payload.key(first_id)] = bodies[0]
        else:
            commit.puts.update(zip(payload_keys(first_id, count), bodies, strict=True))
        commit.hold(body_bytes + count * MESSAGE_OVERHEAD_BYTES)
        if durable_count > 1:
            value = payload_refs.encode(durable_count)
            for message_id in range(first_id, first_id + count):
                commit.puts[payload_refs.key(message_id)] = value
    return first_id


def delete_payloads(commit: Commit, runs: list[Run]) -> None:
    """Delete payloads that only one queue holds."""
    for _, first_id, count in runs:
        commit.delete_run(payload_keys(first_id, count))


def take_references(commit: Commit, runs: list[Run], references: dict[int, int]) -> None:
    """Take back references to payloads, whose stored counts are `references`."""
    for _, first_id, count in runs:
        for message_id in range(first_id, first_id + count):
            left = references.get(message_id, 1) - 1
            references[message_id] = left
            if left > 0:
                commit.put(payload_refs.key(message_id), payload_refs.encode(left))
            else:
                commit.delete(payload_refs.key(message_id))
                commit.delete(payload.key(message_id))
