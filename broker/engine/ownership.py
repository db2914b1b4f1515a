"""The parts of a store that belong to nothing: payloads without a holder, counts of references that do not
agree with the holders, payloads that are needed and not there, records of queues, sessions and logs that are
gone.

Looked for in one pass over the records in the order of their keys, beside another that reads them. In memory
lies what a start has there of queues, groups and sessions too; what there is for each message is sorted on
disk. A message that a queue has let go of may still stand in its log, so a log entry counts as a holder that
may be, and as one that surely is where no group has come to it yet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from config import limits
from queue_manager.address import VHOST_SEPARATOR
from queue_manager.log.range_set import RangeSet
from queue_manager.queue.queue_record_types import LOG_TYPES, PLACE_TYPES
from queue_manager.shard.record_types import RecordType
from queue_manager.spec_records import AWAITS_HISTORY, StoredQueue
from storage import layout, metadata_log
from storage.batch import WriteOps
from storage.envelope import SHARED, read_head
from storage.errors import CorruptRecord, FormatTooNew
from storage.inspection import Inspection, inspect
from storage.records import (
    NO_LOG,
    TO_EXCHANGE,
    binding,
    claim_state,
    claimed_bitmap,
    exchange,
    failed,
    filter_log,
    filter_log_entry,
    group_position,
    group_removal,
    log_cursor,
    metadata,
    payload,
    payload_refs,
    queue_account,
    queue_meta,
    queue_spec,
    released_offsets,
    removal,
    scheduled,
    session,
    session_progress,
    session_received,
    session_subscription,
)
from storage.records.fields import queue_id_of
from storage.records.special_codecs import EXPIRED, EXPIRED_OFFSETS, PART_OFFSETS
from storage.spilled import SortedOnDisk
from storage.store import Store

Change = tuple[bytes, bytes | None]
"""A key and its new value; None: it is deleted."""


class Problem(NamedTuple):
    """The key of a record, and what is wrong with it. `repair`: what lets go of what nothing needs, where
    that is all; it holds as long as every record could be read.
    """

    key: bytes
    what: str
    repair: tuple[Change, ...] = ()


_ITEM: Final = struct.Struct(">QBII")  # message ID, which of the three below, two numbers
_PAYLOAD: Final = 0  # its bytes
_COUNT: Final = 1  # of references
_HOLDER: Final = 2  # number of the queue, flags
_SHARED: Final = 1
_SURE: Final = 2

_TAG_AT: Final = 6  # in a key of the metadata log, behind the prefix and the segment
_NUMBER: Final = slice(2, 10)  # in a key that begins with the number of a session or a filter log

_HELD: Final[dict[int, RecordType]] = {each.record.number: each for each in (*LOG_TYPES, *PLACE_TYPES)}
"""The types whose keys begin with a queue ID, by their number."""

_PLACES: Final = frozenset({log_cursor.number, claim_state.number, group_position.number})
_SURE_TYPES: Final = frozenset({scheduled.number, failed.number})
_OF_SESSIONS: Final = frozenset(
    {session_subscription.number, session_progress.number, session_received.number}
)


class _Log:
    """The log of a queue, by the queue's number."""

    __slots__ = ("is_stream", "needed_from", "number", "passed")

    def __init__(self, number: int, *, is_stream: bool = False) -> None:
        self.number = number
        self.is_stream = is_stream
        self.needed_from: int | None = None
        """Messages from this offset on are needed; None: not worked out yet."""
        self.passed = RangeSet()
        """Of these some that are not."""

    def need(self, offset: int, passed: RangeSet) -> None:
        """Need what is from an offset on, but for what was `passed`."""
        self.needed_from = offset
        self.passed = passed


class Ownership:
    """Takes every record of a store, in the order of keys, then tells the problems."""

    def __init__(self) -> None:
        self._items = SortedOnDisk(_ITEM.size)
        self._problems: list[Problem] = []
        self._numbers: dict[str, int] = {}  # of queues, those that are gone included
        self._names: list[str] = []  # by number
        self._queues: set[str] = set()  # and groups, by queue ID
        self._going: set[str] = set()  # queue IDs of which a removal is under way
        self._changing: set[int] = set()  # numbers of queues of which that is so, or of a group of them
        self._logs: dict[str, _Log] = {}  # by log ID
        self._groups: dict[str, list[str]] = {}  # queue IDs of groups, by queue name
        self._unclear: set[str] = set()  # groups of which it cannot be told from here what they need
        self._heads: dict[str, int] = {}
        self._positions: dict[str, int] = {}
        self._passed: dict[str, RangeSet] = {}
        self._seen: dict[tuple[int, str], Problem] = {}  # types and queue IDs that records stand under
        self._last_seen: tuple[int, str] = (0, "")
        self._exchanges: set[str] = set()
        self._sessions: set[int] = set()
        self._wanted_logs: dict[int, bytes] = {}
        self._filter_logs: set[int] = set()
        self._last_log: tuple[bytes, _Log | None] = (b"", None)
        self._missing_logs: set[bytes] = set()
        self._notes: dict[int, Callable[[bytes, bytes], None]] = {
            payload.number: self._note_payload,
            payload_refs.number: self._note_count,
            queue_spec.number: self._note_spec,
            group_position.number: self._note_position,
            queue_meta.number: self._note_meta,
            removal.number: self._note_removal,
            group_removal.number: self._note_group_removal,
            queue_account.number: self._note_account,
            claimed_bitmap.number: self._note_bitmap,
            released_offsets.number: self._note_released,
            exchange.number: self._note_exchange,
            binding.number: self._note_binding,
            session.number: self._note_session,
            session_subscription.number: self._note_subscription,
            filter_log.number: self._note_filter_log,
            filter_log_entry.number: self._note_filter_log_entry,
        }

    def note(self, key: bytes, value: bytes) -> None:
        """Take the next record. One that cannot be read is left out: the pass beside this one tells that.

        Raises OSError.
        """
        try:
            if key.startswith(metadata_log.PREFIX):
                self._note_log(key, value)
                return
            number = key[1]
            note = self._notes.get(number)
            if note is not None:
                note(key, value)
            if number in _HELD or number in _PLACES:
                self._note_of_queue(number, key, value)
            elif number in _OF_SESSIONS and int.from_bytes(key[_NUMBER], "big") not in self._sessions:
                self._problems.append(Problem(key, "belongs to a session that is not there"))
        except (CorruptRecord, FormatTooNew, IndexError):
            pass

    def problems(self) -> Iterator[Problem]:
        """Return what was found, once every record was taken. Raises OSError."""
        yield from self._problems
        for (_, queue_id), problem in self._seen.items():
            if queue_id not in self._queues and queue_id not in self._going:
                yield problem
        for number, key in self._wanted_logs.items():
            if number not in self._filter_logs:
                yield Problem(key, f"reads a filter log that is not there ({number})")
        for raw, group in groupby(self._items, key=lambda item: item[:8]):
            yield from self._problems_of(int.from_bytes(raw, "big"), group)
        self._items.close()

    # one message

    def _problems_of(self, message_id: int, items: Iterator[bytes]) -> Iterator[Problem]:
        body_bytes: int | None = None
        count: int | None = None
        holders: dict[int, int] = {}
        for _, what, first, second in map(_ITEM.unpack, items):
            if what == _PAYLOAD:
                body_bytes = first
            elif what == _COUNT:
                count = first
            else:
                holders[first] = holders.get(first, 0) | second
        sure = [number for number, flags in holders.items() if flags & _SURE and number not in self._changing]
        is_shared = any(flags & _SHARED for flags in holders.values())
        own, references = payload.key(message_id), payload_refs.key(message_id)
        if body_bytes is None:
            if sure:
                what = f"is needed by {self._told(sure)} and not there"
                yield Problem(own, f"the payload of message {message_id} {what}")
            elif count is not None:
                what = "counts references to a payload that is not there"
                yield Problem(references, what, ((references, None),))
        elif not holders:
            gone: tuple[Change, ...] = ((own, None),) if count is None else ((own, None), (references, None))
            yield Problem(own, f"a payload of {body_bytes} bytes that nothing holds", gone)
        elif count is not None and count > len(holders):
            what = f"{count} references are counted, {len(holders)} queues hold it"
            lower = ((references, payload_refs.encode(len(holders))),)
            yield Problem(references, f"{what}: {self._told(list(holders))}", lower)
        elif is_shared and (1 if count is None else count) < len(sure):  # what is not counted one queue took
            what = f"{count or 0} references are counted, {len(sure)} queues need it"
            yield Problem(references, f"{what}: {self._told(sure)}")

    def _told(self, numbers: list[int]) -> str:
        return ", ".join([repr(self._names[number]) for number in numbers])

    def _hold(self, message_id: int, owner: int, flags: int) -> None:
        self._items.add(_ITEM.pack(message_id, _HOLDER, owner, flags))

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    # records, type by type

    def _note_payload(self, key: bytes, value: bytes) -> None:
        self._items.add(_ITEM.pack(payload.parse_key(key), _PAYLOAD, len(value), 0))

    def _note_count(self, key: bytes, value: bytes) -> None:
        self._items.add(_ITEM.pack(payload_refs.parse_key(key), _COUNT, payload_refs.decode(value), 0))

    def _note_spec(self, key: bytes, value: bytes) -> None:
        queue_id = queue_spec.parse_key(key)
        spec = queue_spec.decode(value)
        self._queues.add(queue_id)
        name, group = layout.split_group_queue_id(queue_id)
        if not group:
            stored = StoredQueue(spec)
            self._logs[stored.log_id] = _Log(self._number(name), is_stream=stored.policy.stream)
            if not stored.has_default_group:
                return
        self._groups.setdefault(name, []).append(queue_id)
        if AWAITS_HISTORY in spec.extensions:
            self._unclear.add(queue_id)

    def _note_position(self, key: bytes, value: bytes) -> None:
        self._positions[group_position.parse_key(key)] = group_position.decode(value)

    def _note_meta(self, key: bytes, value: bytes) -> None:
        self._heads[queue_meta.parse_key(key)] = queue_meta.decode(value).head_offset

    def _note_removal(self, key: bytes, value: bytes) -> None:
        pending = removal.decode(value)
        self._going.update((pending.queue_name, *pending.queue_ids))
        number = self._number(pending.queue_name)
        self._changing.add(number)
        self._logs[removal.parse_key(key)] = _Log(number)

    def _note_group_removal(self, key: bytes, value: bytes) -> None:
        queue_id = group_removal.parse_key(key).queue_id
        self._going.add(queue_id)
        self._changing.add(self._number(layout.split_group_queue_id(queue_id)[0]))

    def _note_account(self, key: bytes, value: bytes) -> None:
        found = queue_account.parse_key(key)
        if found.kind == EXPIRED:
            first = found.part * PART_OFFSETS
            ranges = EXPIRED_OFFSETS.decode(queue_account.name, value)
            self._pass(found.queue_id).add_pairs([(first + start, first + end) for start, end in ranges])

    def _note_bitmap(self, key: bytes, value: bytes) -> None:
        self._unclear.add(claimed_bitmap.parse_key(key)[0])

    def _note_released(self, key: bytes, value: bytes) -> None:
        self._pass(released_offsets.parse_key(key)).add_pairs(released_offsets.decode(value))

    def _pass(self, name: str) -> RangeSet:
        return self._passed.setdefault(name, RangeSet())

    def _note_exchange(self, key: bytes, value: bytes) -> None:
        self._exchanges.add(exchange.parse_key(key))

    def _note_binding(self, key: bytes, value: bytes) -> None:
        found = binding.parse_key(key)
        ends = [(found.exchange, True), (found.destination, found.kind == TO_EXCHANGE)]
        for name, is_exchange in ends:
            if is_exchange and name.rpartition(VHOST_SEPARATOR)[2].startswith("amq."):
                continue  # always there, without a record
            if name not in (self._exchanges if is_exchange else self._queues):
                self._problems.append(Problem(key, f"binds {name!r}, which is not there"))

    def _note_session(self, key: bytes, value: bytes) -> None:
        self._sessions.add(session.decode(value).number)

    def _note_subscription(self, key: bytes, value: bytes) -> None:
        log = session_subscription.decode(value).log
        if log != NO_LOG:
            self._wanted_logs.setdefault(log, key)

    def _note_filter_log(self, key: bytes, value: bytes) -> None:
        self._filter_logs.add(filter_log.parse_key(key))  # without readers it goes at the next start

    def _note_filter_log_entry(self, key: bytes, value: bytes) -> None:
        if filter_log_entry.parse_key(key)[0] not in self._filter_logs:
            self._problems.append(Problem(key, "belongs to a filter log that is not there"))

    def _note_of_queue(self, number: int, key: bytes, value: bytes) -> None:
        """Note a record under a queue ID, and the payloads it stands for."""
        queue_id = queue_id_of(key)
        seen = (number, queue_id)
        if seen != self._last_seen:
            self._last_seen = seen
            self._seen.setdefault(seen, Problem(key, f"belongs to {queue_id!r}, which is not there"))
        kind = _HELD.get(number)
        for held in () if kind is None else kind.held((key, value)):
            owner = self._number(layout.split_group_queue_id(queue_id)[0])
            flags = _SHARED if held.is_shared else 0
            if number in _SURE_TYPES:
                flags |= _SURE
            for message_id in range(held.first_id, held.first_id + held.message_count):
                self._hold(message_id, owner, flags)

    def _note_log(self, key: bytes, value: bytes) -> None:
        """Note a record of the metadata log; those of queues came before it."""
        if key[_TAG_AT] == metadata_log.TAG_LISTING:
            self._find_log(key, metadata_log.parse_listing_key(key)[1])
            return
        if key[_TAG_AT] != metadata_log.TAG_ENTRY:
            return
        raw = key[_TAG_AT + 1 : key.index(0, _TAG_AT + 1)]  # in no log key is anything that is escaped
        log = self._find_log(key, raw)
        if log is None:
            return
        if log.needed_from is None:
            self._work_out(log)
        for message_id, envelope in metadata.decode(value):
            flags, offset, _ = read_head(envelope)
            needed = offset >= (log.needed_from or 0) and not log.passed.contains(offset)
            self._hold(message_id, log.number, bool(flags & SHARED) | needed << 1)

    def _find_log(self, key: bytes, log_key: bytes) -> _Log | None:
        if self._last_log[0] != log_key:
            log_id = metadata_log.parse_log_key(log_key)[1]
            self._last_log = (log_key, self._logs.get(log_id))
            if self._last_log[1] is None and log_key not in self._missing_logs:
                self._missing_logs.add(log_key)
                self._problems.append(Problem(key, f"belongs to the log {log_id!r} of no queue"))
        return self._last_log[1]

    def _work_out(self, log: _Log) -> None:
        """Work out from where on the log's messages are needed: what some group has yet to come to, or what
        is kept for groups to come.
        """
        name = self._names[log.number]
        head = self._heads.get(name, 0)
        groups = self._groups.get(name, [])
        passed = self._passed.get(name, log.passed)
        if log.is_stream or not groups:
            log.need(head, passed)
            return
        clear = [group for group in groups if group not in self._unclear | self._going]
        positions = [self._positions.get(group, head) for group in clear]
        log.need(max(head, min(positions)) if positions else 1 << 64, passed)


async def repair(store: Store, tell: Callable[[int], None]) -> tuple[Inspection, int]:
    """Delete payloads that nothing holds, and lower counts of references to the queues that hold a message.

    Gives what problems are left, and how many were repaired. Where a record cannot be read, or belongs to
    what is not there, nothing is changed: it may be what holds a payload. `tell` is given the number of
    records seen. Raises StorageError, OSError.
    """
    ownership = Ownership()
    found = await inspect(store, verify=True, tell=tell, beside=ownership.note)
    is_sound = not found.problem_count
    ops = WriteOps()
    repaired_count = 0
    for problem in ownership.problems():  # those of payloads come last
        is_sound = is_sound and problem.key.startswith((payload.prefix(), payload_refs.prefix()))
        if not (is_sound and problem.repair):
            found.complain(problem.key, problem.what)
            continue
        for key, value in problem.repair:
            if value is None:
                ops.delete(key)
            else:
                ops.put(key, value)
        repaired_count += 1
        if len(ops) >= limits.STORE_REPAIRS_PER_WRITE_MAX:
            await store.write(ops)
            ops = WriteOps()
    if len(ops):
        await store.write(ops)
    return found, repaired_count
