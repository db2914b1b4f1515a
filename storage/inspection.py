"""Looking through a database record by record: what there is, and whether all of it can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from config import limits
from storage import layout, metadata_log
from storage.errors import CorruptRecord, FormatTooNew
from storage.records import RECORDS, metadata


class Unopened(bytes):
    """A value that is encrypted and does not open, as it lies there; `reason` says why."""

    reason = ""


class Rows(Protocol):
    """The rows of a storage that is inspected."""

    async def scan(self, start: bytes, end: bytes | None, *, limit: int) -> list[tuple[bytes, bytes]]:
        """See `storage.store.Store.scan`; values may be `Unopened`."""
        ...


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
    """The findings, by the names of kinds. `problems` are the first ones, `problem_count` all."""

    tallies: dict[str, Tally] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    problem_count: int = 0

    def note(self, name: str, key: bytes, value: bytes) -> None:
        """Count a record."""
        self.tallies.setdefault(name, Tally()).add(key, value)

    def complain(self, key: bytes, problem: str) -> None:
        """Note a problem of a record."""
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
            if isinstance(value, Unopened):
                found.complain(key, value.reason)
            else:
                beside(key, value)
        seen += len(rows)
        tell(seen)
        start = rows[-1][0] + b"\0"
    return found


def _look(found: Inspection, key: bytes, value: bytes, *, verify: bool) -> None:
    if key.startswith(metadata_log.PREFIX):
        found.note(_LOG, key, value)
        if (
            verify
            and not isinstance(value, Unopened)
            and key[_LOG_TAG_AT : _LOG_TAG_AT + 1] == bytes((metadata_log.TAG_ENTRY,))
        ):
            _check(found, key, lambda: metadata.decode(value))
        return
    kind = RECORDS.get(key[1]) if len(key) > 1 and key[0] == layout.VERSION else None
    if kind is None:
        found.note(_UNKNOWN, key, value)
        found.complain(key, "no record of this version begins so")
        return
    found.note(kind.name, key, value)
    if verify:
        _check(found, key, lambda: kind.parse_key(key))
        if not isinstance(value, Unopened):
            _check(found, key, lambda: kind.decode(value))


def _check(found: Inspection, key: bytes, read: Callable[[], object]) -> None:
    try:
        read()
    except (CorruptRecord, FormatTooNew) as error:
        found.complain(key, error.reason)
