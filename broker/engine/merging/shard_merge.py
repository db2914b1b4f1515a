"""Bringing all that a shard holds into another: everything or nothing, however often it is ended on the way.

Both shards have a `merge` record meanwhile, with which no broker opens them. What is written depends on that
record and on the source alone, which is not changed before all is there: begun anew it is the same again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from broker.engine.log_steps import scan_records
from broker.engine.merging.renumbering import AS_THEY_ARE, Renumbering, Row, Shifts, log_number
from broker.engine.merging.session_joining import SESSION_KINDS, SessionJoining, join_sessions
from config import limits
from queue_manager.address import is_reserved
from queue_manager.log.levels import split_level_name
from queue_manager.quota_accounts import counted_user
from queue_manager.spec_records import StoredQueue
from storage import layout, metadata_log
from storage.batch import WriteOps
from storage.envelope import read_head
from storage.errors import CorruptRecord, StorageError
from storage.metadata_log import SEQ_BLOCK_KEY, SegmentMeta
from storage.records import (
    COPIED,
    COPYING,
    TO_EXCHANGE,
    MergeState,
    ban,
    binding,
    encryption,
    exchange,
    format_marker,
    holder,
    journal_state,
    log_place,
    merge,
    message_ids,
    parameter,
    policy,
    queue_spec,
    removal,
    retained,
    session,
    vhost,
)
from storage.sequence import SeqBlock, decode_block, encode_block
from storage.store import Store

OF_EACH: Final = frozenset(
    kind.number for kind in (encryption, format_marker, holder, journal_state, log_place, merge, message_ids)
)
"""Records that every shard has of its own."""

OF_FIRST: Final = frozenset(kind.number for kind in (ban, exchange, parameter, policy, vhost))
"""Records of what all shards have alike, as the first one says."""

Tell = Callable[[int], None]
"""Is given how many records were gone through."""


@dataclass(slots=True)
class Moved:
    """What was brought over."""

    shard: int
    queues: int = 0
    sessions: int = 0
    retained_messages: int = 0
    records: int = 0

    def note(self, key: bytes) -> None:
        """Count a record."""
        self.records += 1
        if key.startswith(queue_spec.prefix()):
            self.queues += layout.GROUP_SEPARATOR.encode() not in key
        elif key.startswith(session.prefix()):
            self.sessions += 1
        elif key.startswith(retained.prefix()):
            self.retained_messages += 1


async def merge_state(store: Store) -> MergeState | None:
    """Return how far a merge is that has not come to its end, if there is one. Raises StorageError."""
    value = await store.get(merge.key())
    return None if value is None else merge.decode(value)


async def bring_over(target: Store, source: Store, number: int, tell: Tell) -> Moved | None:
    """Have everything in `target` that shard `number` holds; None: it holds nothing. Then `empty`, or what
    takes the shard away, and `end` are next.

    Raises StorageError; before anything was changed if the shard has what cannot be read, or is in both.
    """
    state = await merge_state(target)
    if state is None:
        if not await _holds_anything(source):
            return None
        state = await _new_state(target, source, number)
        await (await _Copying.of(target, source, state)).go_through(None, tell)
        await _begin(target, source, state)
    elif await merge_state(source) != state:
        raise StorageError(f"shard {number} is not the one that a merge was begun with")
    moved = await (await _Copying.of(target, source, state)).go_through(target.write, tell)
    ops = WriteOps()
    ids, sequences = await _block(source, message_ids.key()), await _block(source, SEQ_BLOCK_KEY)
    for key, shift, size in (
        (message_ids.key(), state.ids, ids),
        (SEQ_BLOCK_KEY, state.sequences, sequences),
    ):
        if size:
            ops.put(key, encode_block(SeqBlock(shift, size)))
    ops.put(merge.key(), merge.encode(*state._replace(state=COPIED)))
    await target.write(ops)
    return moved


async def empty(source: Store) -> None:
    """Delete what was brought over. Raises StorageError."""
    ops = WriteOps()
    async for page in _pages(source):
        for key, _ in page:
            if _is_moved(key):
                ops.delete(key)
        await source.write(ops)
        ops = WriteOps()
    ops.delete(merge.key())
    await source.write(ops)


async def end(target: Store) -> None:
    """Have the merge be over: its source is empty, or gone. Raises StorageError."""
    ops = WriteOps()
    ops.delete(merge.key())
    await target.write(ops)


def _is_moved(key: bytes) -> bool:
    """Return whether a record goes with what a shard holds."""
    if key.startswith(metadata_log.PREFIX):
        return key[6] in (metadata_log.TAG_ENTRY, metadata_log.TAG_LISTING)
    return key[1] not in OF_EACH


async def _holds_anything(source: Store) -> bool:
    async for page in _pages(source):
        if any(_is_moved(key) and (key[0] != layout.VERSION or key[1] not in OF_FIRST) for key, _ in page):
            return True
    return False


async def _pages(store: Store) -> AsyncIterator[list[Row]]:
    """Yield all rows, as many at a time as their sizes allow."""
    start, count = b"", 1
    while rows := await store.scan(start, None, limit=count):
        yield rows
        start = rows[-1][0] + b"\0"
        row_bytes = sum([len(key) + len(value) for key, value in rows]) // len(rows) + 1
        count = max(1, min(limits.RESTORE_WRITE_BYTES // row_bytes, limits.STORE_SCAN_ROWS_MAX, 2 * count))


async def _block(store: Store, key: bytes) -> int:
    """Return the first number that is free."""
    value = await store.get(key)
    return 0 if value is None else decode_block(value).end


# before anything is changed


async def _new_state(target: Store, source: Store, number: int) -> MergeState:
    """Return what a merge goes by. Raises StorageError if it cannot be."""
    here, there = await _Names.of(source), await _Names.of(target)
    both = here.queues & there.queues
    if both:
        raise StorageError(
            f"queue {min(both)!r} is in shard {number} and in another, or its deletion has not come to its"
            " end: start the broker once as before, and merge then"
        )
    for name in here.sessions.keys() & there.sessions.keys():
        if not (here.sessions[name] and there.sessions[name]):
            raise StorageError(f"client {name!r} has a session in shard {number} and in another")
    return MergeState(
        shard=number,
        ids=await _block(target, message_ids.key()),
        sequences=await _block(target, SEQ_BLOCK_KEY),
        logs=1 + max([log_number(log_id) for log_id in there.logs], default=-1),
        state=COPYING,
    )


@dataclass(slots=True)
class _Names:
    """The queues of a shard, those that are being deleted included; the IDs of their logs; its sessions, with
    whether each is the broker's own.
    """

    queues: set[str]
    logs: set[str]
    sessions: dict[str, bool]

    @classmethod
    async def of(cls, store: Store) -> _Names:
        found = cls(set(), set(), {})
        async for queue_id, spec in scan_records(store, queue_spec):
            name, group = layout.split_group_queue_id(queue_id)
            if not group:
                found.queues.add(split_level_name(name)[0])
                found.logs.add(StoredQueue(spec).log_id)
        async for log_id, pending in scan_records(store, removal):
            found.queues.add(split_level_name(pending.queue_name)[0])
            found.logs.add(log_id)
        async for client, value in scan_records(store, session):
            found.sessions[client] = counted_user(value.user) is None
        return found


async def _begin(target: Store, source: Store, state: MergeState) -> None:
    """Have no broker open either of them, the source first: alone it may be begun anew."""
    for store in (source, target):
        ops = WriteOps()
        ops.put(merge.key(), merge.encode(*state))
        if store is target and not await _segments(target):
            segment = SegmentMeta(metadata_log.FIRST_SEGMENT, 0, 0)
            ops.put(
                metadata_log.segment_meta_key(segment.segment_id), metadata_log.encode_segment_meta(segment)
            )
        await store.write(ops)


async def _segments(store: Store) -> list[SegmentMeta]:
    rows = await store.scan(*metadata_log.segment_meta_bounds(), limit=100_000)
    return sorted(
        [metadata_log.decode_segment_meta(*row) for row in rows], key=lambda each: each.start_sequence
    )


async def _instance_id(stores: Iterable[Store]) -> str:
    """Return whose logs those of the first store are that has some."""
    for store in stores:
        for segment in await _segments(store):
            for key, _ in await store.scan(*metadata_log.listing_bounds(segment.segment_id), limit=1):
                return metadata_log.parse_log_key(metadata_log.parse_listing_key(key)[1])[0]
    return metadata_log.INSTANCE_ID_DEFAULT


# copying


class _Copying:
    """Goes through the source once."""

    def __init__(
        self,
        number: int,
        queues: Renumbering,
        sessions: SessionJoining,
        exchanges: Collection[str],
        retained_at: dict[str, int],
    ) -> None:
        self._moved = Moved(number)
        self._queues = queues
        self._sessions = sessions
        self._exchanges = exchanges
        self._retained_at = retained_at
        self._source: Store

    @classmethod
    async def of(cls, target: Store, source: Store, state: MergeState) -> _Copying:
        """Return what copies from the source to the target."""
        segments = await _segments(target)
        newest = segments[-1] if segments else SegmentMeta(metadata_log.FIRST_SEGMENT, 0, 0)
        shifts = Shifts(state.ids, state.sequences, state.logs)
        instance_id = await _instance_id((target, source))
        queues = Renumbering(shifts, await _segments(source), newest, instance_id)
        end = state.ids + await _block(source, message_ids.key())
        copying = cls(
            state.shard,
            queues,
            await join_sessions(source, target, state.ids, end),
            {name async for name, _ in scan_records(target, exchange)},
            {topic: read_head(value.envelope)[2] async for topic, value in scan_records(target, retained)},
        )
        copying._source = source
        return copying

    async def go_through(self, write: Callable[[WriteOps], Awaitable[None]] | None, tell: Tell) -> Moved:
        """Write all rows, or only see whether all can be read. Raises StorageError."""
        seen = 0
        async for page in _pages(self._source):
            rows = dict([row for key, value in page for row in self._rows(key, value)])
            for key in rows:
                self._moved.note(key)
            if write is not None and rows:
                await write(WriteOps(rows.items()))
            seen += len(page)
            tell(seen)
        return self._moved

    def _rows(self, key: bytes, value: bytes) -> Iterable[Row]:
        """Return what a row of the source is in the target."""
        if key.startswith(metadata_log.PREFIX):
            row = self._queues.log_row(key, value)
            return () if row is None else (row,)
        number = key[1] if key[0] == layout.VERSION else -1
        if number in AS_THEY_ARE:
            return ((key, value),)
        if number in self._queues.by_number:
            return (self._queues.by_number[number](key, value),)
        if number in SESSION_KINDS:
            return self._sessions.rows(number, key, value)
        if number in OF_EACH or number in OF_FIRST:
            return ()
        if number == binding.number:
            return ((key, value),) if self._is_bound(key) else ()
        if number == retained.number:
            return ((key, value),) if self._is_newer(key, value) else ()
        raise CorruptRecord("unknown", "key", key[:64].hex(" "))

    def _is_bound(self, key: bytes) -> bool:
        """Return whether a binding is that of a queue, to an exchange that is there."""
        found = binding.parse_key(key)
        return found.kind != TO_EXCHANGE and (
            is_reserved(found.exchange) or found.exchange in self._exchanges
        )

    def _is_newer(self, key: bytes, value: bytes) -> bool:
        """Return whether the target has nothing newer retained."""
        received_at = read_head(retained.decode(value).envelope)[2]
        return self._retained_at.get(retained.parse_key(key), received_at) <= received_at
