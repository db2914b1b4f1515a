"""Looking through a database record by record: what there is, and whether all of it can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from config import limits
from storage import layout, metadata_log
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import (
    active,
    attempts,
    binding,
    claim_state,
    claimed_bitmap,
    committed_epoch,
    done,
    epoch,
    exchange,
    expiry,
    failed,
    filter_log,
    filter_log_entry,
    format_marker,
    group_position,
    group_removal,
    holder,
    identified,
    journal_state,
    log_cursor,
    message_ids,
    metadata,
    payload,
    payload_refs,
    producer,
    queue_account,
    queue_meta,
    queue_spec,
    released_offsets,
    removal,
    retained,
    scheduled,
    session,
    session_progress,
    session_received,
    session_subscription,
    session_will,
    settlements,
    skipped_offsets,
    staged_rows,
    stream_chunk,
    vhost,
)


class Rows(Protocol):
    """What is looked through."""

    async def scan(self, start: bytes, end: bytes | None, *, limit: int) -> list[tuple[bytes, bytes]]:
        """As `storage.store.Store.scan`."""
        ...


class Kind(NamedTuple):
    """A type of record; `decode` None: what its value means depends on other records."""

    name: str
    parse_key: Callable[[bytes], Any]
    decode: Callable[[bytes], Any] | None


def _kind(name: str, module: Any) -> Kind:
    return Kind(name, module.parse_key, module.decode)


KINDS: Final[dict[int, Kind]] = {
    layout.PAYLOAD: _kind("payload", payload),
    layout.ACTIVE: _kind("active bucket", active),
    layout.DONE: _kind("done bucket", done),
    layout.FAILED: _kind("failed bucket", failed),
    layout.ATTEMPTS: _kind("attempts", attempts),
    layout.QUEUE_SPEC: _kind("queue", queue_spec),
    layout.MESSAGE_IDS: _kind("message IDs", message_ids),
    layout.LOG_CURSOR: _kind("log cursor", log_cursor),
    layout.CLAIM_STATE: _kind("claim state", claim_state),
    layout.PAYLOAD_REFS: _kind("payload references", payload_refs),
    layout.GROUP_POSITION: _kind("group position", group_position),
    layout.QUEUE_META: _kind("queue, more", queue_meta),
    layout.REMOVAL: _kind("removal", removal),
    layout.SCHEDULED: Kind("scheduled message", scheduled.parse_key, None),
    layout.FORMAT: _kind("format", format_marker),
    layout.IDENTIFIED: _kind("deduplication ID", identified),
    layout.PRODUCER: _kind("producer", producer),
    layout.EXPIRY: _kind("expiry", expiry),
    layout.STREAM_CHUNK: _kind("stream chunk", stream_chunk),
    layout.QUEUE_ACCOUNT: Kind("queue account", queue_account.parse_key, None),
    layout.CLAIMED_BITMAP: _kind("claimed bitmap", claimed_bitmap),
    layout.STAGED_ROWS: _kind("staged rows", staged_rows),
    layout.COMMITTED_EPOCH: _kind("committed epoch", committed_epoch),
    layout.EPOCH: _kind("epoch", epoch),
    layout.EXCHANGE: _kind("exchange", exchange),
    layout.VHOST: _kind("virtual host", vhost),
    layout.BINDING: _kind("binding", binding),
    layout.GROUP_REMOVAL: _kind("group removal", group_removal),
    layout.SKIPPED_OFFSETS: _kind("skipped offsets", skipped_offsets),
    layout.RELEASED_OFFSETS: _kind("released offsets", released_offsets),
    layout.JOURNAL_STATE: _kind("journal", journal_state),
    layout.HOLDER: _kind("holder", holder),
    layout.SETTLEMENTS: _kind("settlements", settlements),
    layout.SESSION: _kind("session", session),
    layout.SESSION_SUBSCRIPTION: _kind("session subscription", session_subscription),
    layout.SESSION_PROGRESS: _kind("session progress", session_progress),
    layout.SESSION_RECEIVED: _kind("session received", session_received),
    layout.FILTER_LOG: _kind("filter log", filter_log),
    layout.FILTER_LOG_ENTRY: Kind("filter log entry", filter_log_entry.parse_key, None),
    layout.RETAINED: _kind("retained message", retained),
    layout.SESSION_WILL: _kind("will", session_will),
}

_LOG: Final = "metadata log"
_UNKNOWN: Final = "unknown"
_LOG_TAG_AT: Final = 6  # behind the prefix and the segment


@dataclass(slots=True)
class Tally:
    """Records of one kind: how many, and their bytes."""

    count: int = 0
    key_bytes: int = 0
    value_bytes: int = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Count one."""
        self.count += 1
        self.key_bytes += len(key)
        self.value_bytes += len(value)


@dataclass(slots=True)
class Inspection:
    """What was found, by the names of kinds. `problems` are the first ones, `problem_count` all."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    def note(self, name: str, key: bytes, value: bytes) -> None:
        """Count a record."""
        self.tallies.setdefault(name, Tally()).add(key, value)

    def complain(self, key: bytes, problem: str) -> None:
        """Something is wrong with a record."""
        self.problem_count += 1
        if len(self.problems) < limits.INSPECTION_PROBLEMS_MAX:
            self.problems.append(f"{key[:64].hex()}: {problem}")


async def inspect(
    store: Rows,
    *,
    verify: bool,
    tell: Callable[[int], None] = lambda seen: None,
    beside: Callable[[bytes, bytes], None] = lambda key, value: None,
) -> Inspection:
    """Look through all records; with `verify` each key and value is decoded.

    `tell` is given the number of records seen, after each step, and `beside` each record. Raises
    StorageError.
    """
    found = Inspection()
    start, seen = b"", 0
    while rows := await store.scan(start, None, limit=limits.STORE_SCAN_ROWS_MAX):
        for key, value in rows:
            _look(found, key, value, verify=verify)
            beside(key, value)
        seen += len(rows)
        tell(seen)
        start = rows[-1][0] + b"\0"
    return found


def _look(found: Inspection, key: bytes, value: bytes, *, verify: bool) -> None:
    if key.startswith(metadata_log.PREFIX):
        found.note(_LOG, key, value)
        if verify and key[_LOG_TAG_AT : _LOG_TAG_AT + 1] == bytes((metadata_log.TAG_ENTRY,)):
            _check(found, key, lambda: metadata.decode(value))
        return
    kind = KINDS.get(key[1]) if len(key) > 1 and key[0] == layout.VERSION else None
    if kind is None:
        found.note(_UNKNOWN, key, value)
        found.complain(key, "no record of this version begins so")
        return
    found.note(kind.name, key, value)
    if verify:
        _check(found, key, lambda: kind.parse_key(key))
        decode = kind.decode
        if decode is not None:
            _check(found, key, lambda: decode(value))


def _check(found: Inspection, key: bytes, read: Callable[[], object]) -> None:
    try:
        read()
    except (CorruptRecord, FormatTooNew) as error:
        found.complain(key, error.reason)
