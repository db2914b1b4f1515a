"""A store in memory with the manners of the real one: what is written and what is durable are two things.

For tests and for brokers that need to keep nothing.
"""

import asyncio
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from storage.batch import WriteOps
from storage.errors import StorageError
from storage.store_lease import StoreLease

_CHUNK_KEYS: Final = 1_000


class MemoryStore:
    """A `Store` in a dictionary.

    With `deferred`, a write is seen by reads at once but returns only when `make_durable` reaches it, and
    `crash` loses what it has not reached; from `catch_up` on, until `is_stuck` is set again, each is durable
    at once. Without, every write is durable when it returns.
    """

    def __init__(self, *, deferred: bool = False, rows: Mapping[bytes, bytes] | None = None) -> None:
        self._deferred = self.is_stuck = deferred
        self._rows: dict[bytes, bytes] = dict(rows or {})
        self._keys = _SortedKeys(sorted(self._rows))
        self._durable_rows = dict(self._rows) if deferred else self._rows
        self._waiting: deque[tuple[WriteOps, asyncio.Future[None] | None]] = deque()
        self._failures: deque[tuple[Exception, bool]] = deque()
        self._closed = False
        self.cuts = None
        self.lease: StoreLease | None = None

    async def get(self, key: bytes) -> bytes | None:
        self._check_open()
        return self._rows.get(key)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [await self.get(key) for key in keys]

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        self._check_open()
        rows = self._rows
        result: list[tuple[bytes, bytes]] = []
        if limit <= 0:
            return result
        keys = self._keys.falling(start, end) if reverse else self._keys.rising(start, end)
        for key in keys:
            result.append((key, rows[key]))
            if len(result) == limit:
                break
        return result

    def check(self) -> None:
        """Do nothing: nothing happens here by itself."""

    def prepare(self, ops: WriteOps) -> None:
        """Do nothing: there is nothing to prepare."""

    def write_now(self, ops: WriteOps) -> bool:
        """Return False: a write may be told to fail or to wait."""
        return False

    async def write(self, ops: WriteOps) -> None:
        self._check_open()
        failure = self._failures.popleft() if self._failures else None
        if failure is None or failure[1]:
            self._apply(ops)
        if failure is not None:
            if failure[1] and self._deferred:
                self._waiting.append((_copy(ops), None))
            raise failure[0]
        if self._deferred and not self.is_stuck:
            _apply_rows(self._durable_rows, ops)
        elif self._deferred:
            durable = asyncio.get_running_loop().create_future()
            self._waiting.append((_copy(ops), durable))
            await durable

    async def close(self) -> None:
        if not self._closed:
            self.make_durable()
            self._closed = True

    @property
    def trouble(self) -> StorageError | None:
        return None

    @property
    def is_remote(self) -> bool:
        return False

    @property
    def journal(self) -> None:
        return None

    def describe(self) -> str:
        return "memory, durability by hand" if self._deferred else "memory, lost when the process ends"

    @property
    def pending_writes(self) -> int:
        """How many writes wait for `make_durable`."""
        return len(self._waiting)

    def make_durable(self, count: int | None = None) -> None:
        """Make the `count` oldest pending writes durable (all without a count) and let them return, in
        order.
        """
        for _ in range(len(self._waiting) if count is None else min(count, len(self._waiting))):
            ops, durable = self._waiting.popleft()
            _apply_rows(self._durable_rows, ops)
            if durable is not None and not durable.done():
                durable.set_result(None)

    def catch_up(self) -> None:
        """Make durable what waits, and at once what comes."""
        self.is_stuck = False
        self.make_durable()

    def fail_next_write(self, error: Exception, *, applied: bool = False) -> None:
        """Let the next write raise `error`; calls add up.

        With `applied` its operations are done all the same, as when the answer of an object store is lost.
        """
        self._failures.append((error, applied))

    def crash(self) -> "MemoryStore":
        """End this store as a power cut would, and give what the next start finds: only what was durable.

        Writes still pending raise StorageError. After `close` it gives everything.
        """
        self._closed = True
        while self._waiting:
            _, durable = self._waiting.popleft()
            if durable is not None and not durable.done():
                durable.set_exception(StorageError("the store crashed"))
        return MemoryStore(deferred=self._deferred, rows=self._durable_rows)

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("the store is closed")

    def _apply(self, ops: WriteOps) -> None:
        rows = self._rows
        for key, value in ops.puts:
            if key not in rows:
                self._keys.add(key)
            rows[key] = value
        for key in ops.deletes:
            if rows.pop(key, None) is not None:
                self._keys.remove(key)


def _copy(ops: WriteOps) -> WriteOps:
    """Copy the operations: the caller may go on to use its lists."""
    return WriteOps(ops.puts, ops.deletes)


def _apply_rows(rows: dict[bytes, bytes], ops: WriteOps) -> None:
    rows.update(ops.puts)
    for key in ops.deletes:
        rows.pop(key, None)


class _SortedKeys:
    """Sorted keys in chunks, so that adding and removing one stays cheap with a million of them."""

    __slots__ = ("_chunks", "_lasts")

    def __init__(self, keys: list[bytes]) -> None:
        self._chunks = [keys[at : at + _CHUNK_KEYS] for at in range(0, len(keys), _CHUNK_KEYS)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def add(self, key: bytes) -> None:
        """Add a key that is not there."""
        if not self._chunks:
            self._chunks.append([key])
            self._lasts.append(key)
            return
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * _CHUNK_KEYS:
            self._chunks.insert(at + 1, chunk[_CHUNK_KEYS:])
            self._lasts.insert(at + 1, chunk[-1])
            del chunk[_CHUNK_KEYS:]
        self._lasts[at] = chunk[-1]

    def remove(self, key: bytes) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at]
            del self._lasts[at]

    def rising(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield the keys from `start` up to but not including `end`."""
        first = bisect_left(self._lasts, start)
        for at in range(first, len(self._chunks)):
            chunk = self._chunks[at]
            for index in range(bisect_left(chunk, start) if at == first else 0, len(chunk)):
                if end is not None and chunk[index] >= end:
                    return
                yield chunk[index]

    def falling(self, start: bytes, end: bytes | None) -> Iterator[bytes]:
        """Yield the same keys, last first."""
        last = len(self._chunks) - 1
        if end is not None:
            last = min(bisect_left(self._lasts, end), last)
        for at in range(last, -1, -1):
            chunk = self._chunks[at]
            stop = len(chunk) if end is None else bisect_left(chunk, end)
            for index in range(stop - 1, -1, -1):
                if chunk[index] < start:
                    return
                yield chunk[index]
