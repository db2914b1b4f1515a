"""The store that keeps everything in a SlateDB database."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from pathlib import Path
from typing import ClassVar

from slatedb.uniffi import (
    Admin,
    CloseOptions,
    CloseReason,
    Db,
    DbIterator,
    DurabilityLevel,
    Error,
    FlushOptions,
    FlushType,
    IterationOrder,
    KeyRange,
    ScanOptions,
    WriteBatch,
)

from config import limits
from storage.batch import WriteOps
from storage.cuts import Cuts
from storage.directory_lock import DirectoryLock
from storage.disk_watch import DiskWatch, Trouble
from storage.errors import StorageError, StoreFenced, StoreUnavailable
from storage.fast_batch import fill_batch
from storage.fast_rows import next_rows, value_of
from storage.local_garbage import LocalGarbage
from storage.local_sync import LocalSync
from storage.read_thread import ReadThread
from storage.records import payload
from storage.records.special_codecs import PLAIN_VERSION
from storage.remote_hold import RemoteHold
from storage.seal import Seal
from storage.slate_errors import SLATE_ERRORS, translate
from storage.store import Replay
from storage.store_lease import StoreLease
from storage.used_scans import UsedScans

_FLUSH_WAL = FlushOptions(flush_type=FlushType.WAL)
_FLUSH_TABLES = FlushOptions(flush_type=FlushType.MEM_TABLE)
_PAYLOADS = payload.prefix()
_CLOSE = CloseOptions(flush_type=FlushType.MEM_TABLE)


def _scan_options(order: IterationOrder, read_ahead_bytes: int) -> ScanOptions:
    return ScanOptions(
        durability_filter=DurabilityLevel.MEMORY,
        dirty=False,
        read_ahead_bytes=read_ahead_bytes,
        cache_blocks=False,  # a backlog is read once; it must not push the cache's blocks out
        max_fetch_tasks=2,
        order=order,
    )


_SCAN_UP = _scan_options(IterationOrder.ASCENDING, limits.STORE_READ_AHEAD_BYTES)
_SCAN_DOWN = _scan_options(IterationOrder.DESCENDING, limits.STORE_READ_AHEAD_BYTES)
_LOOK_UP = _scan_options(IterationOrder.ASCENDING, 1)
_LOOK_DOWN = _scan_options(IterationOrder.DESCENDING, 1)
_LOOK_ROWS_MAX = 16  # a scan this short reads block by block
_FIRST_ROWS = 64  # taken before the size of a row is known


async def _take(rows: DbIterator, limit: int) -> list[tuple[bytes, bytes]]:
    """Take the next `limit` rows, some hundred KiB at a time."""
    asked = min(limit, _FIRST_ROWS)
    chunk = await next_rows(rows, asked)
    found = chunk
    while len(chunk) == asked and len(found) < limit:
        row_bytes = sum([len(key) + len(value) for key, value in chunk]) // asked + 1
        fitting = min(limits.STORE_SCAN_BYTES // row_bytes + 1, limits.STORE_SCAN_ROWS_MAX)
        asked = min(limit - len(found), fitting)
        chunk = await next_rows(rows, asked)
        found += chunk
    return found


@dataclass(eq=False, repr=False)
class SlateStore:
    """A Store on an open SlateDB database, made by `storage.open.open_store`.

    Every call ends within `limits.STORE_CALL_TIMEOUT_S`, with StoreUnavailable (or StoreFull) at worst.
    SlateDB keeps trying behind a call that ended so: after these two the same `WriteOps` may be written
    again, and that continues where it stood. Any other StorageError of a write is final for this object.

    With `sync` a write is on disk when it returns (needs a running event loop). `garbage`: collects what
    `sync` has made superfluous. `admin`: of the same database, where others can read it. `directory`: where a
    local database lies; `lock`: what keeps others out of it, released by `close` or when another has taken
    over. `notes`: what an operator should read about the opening.
    """

    format_version: ClassVar[int] = PLAIN_VERSION
    """The format of what is written, at least."""
    _value_of = staticmethod(value_of)
    _database: Db
    _description: str
    _: KW_ONLY
    sync: LocalSync | None = None
    garbage: InitVar[LocalGarbage | None] = None
    admin: InitVar[Admin | None] = None
    directory: Path | None = None
    lock: DirectoryLock | None = None
    notes: tuple[str, ...] = ()
    cuts: Cuts | None = field(init=False)
    _applied: WriteOps | None = field(default=None, init=False)  # written, but not known to be durable
    _applied_count: int = field(default=0, init=False)
    _synced_before: int = field(default=0, init=False)
    _sync_count: int = field(default=0, init=False)  # under way
    _durable_watch: DiskWatch | None = field(default=None, init=False)
    _hold: RemoteHold | None = field(default=None, init=False)
    _log_objects: int = field(default=0, init=False)  # since a table was last written for their number
    _shortening: asyncio.Task[None] | None = field(default=None, init=False)
    _lease: StoreLease | None = field(default=None, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _used_scans: UsedScans = field(default_factory=UsedScans, init=False)
    _reads: ReadThread = field(default_factory=ReadThread, init=False)  # of payloads, which may be large
    _closed: bool = field(default=False, init=False)
    _commit_thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _sweep_thread: ThreadPoolExecutor | None = field(default=None, init=False)
    _sweeper: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self, garbage: LocalGarbage | None, admin: Admin | None) -> None:
        self.cuts = None if admin is None else Cuts(admin, self._flush_tables)
        if self.sync is not None:
            # two threads: a commit does not wait behind the fsync of a whole table
            self._commit_thread = ThreadPoolExecutor(1, "store-sync")
            self._sweep_thread = ThreadPoolExecutor(1, "store-sweep")
            self._sweeper = asyncio.get_running_loop().create_task(
                self._sweep(self.sync, garbage, self._sweep_thread)
            )

    @property
    def seal(self) -> Seal | None:
        """The encryption of what goes to the disk; None: there is none."""
        return None

    async def hold(self, lease_ms: int | None = None, until: Callable[[], float] | None = None) -> None:
        """Say in the database, until `close`, that this process has it open, by a lease if `lease_ms` is
        given, which may end earlier, at `until`. Raises StorageError.
        """
        if lease_ms is None:
            self._hold = RemoteHold(self.write)
        else:
            self._hold = self._lease = StoreLease(self.write, self._description, lease_ms, until=until)
        await self._hold.begin()

    def describe(self) -> str:
        """Describe where the data lies and how durable a write is."""
        return self._description

    @property
    def trouble(self) -> Trouble | None:
        """The cause that keeps `make_durable` from its end, as far as that is known; or that the lease has
        ended.
        """
        if self._lease is not None:
            return self._lease.trouble
        return None if self._durable_watch is None else self._durable_watch.trouble

    @property
    def is_syncing(self) -> bool:
        """Whether files of the database are being put on disk; other syncs may wait behind that."""
        return self._sync_count > 0

    @property
    def lease(self) -> StoreLease | None:
        """The lease by which this process has the database; None: it needs none."""
        return self._lease

    @property
    def is_remote(self) -> bool:
        """Whether each write is a request to another machine."""
        return self.directory is None and self.cuts is not None

    @property
    def journal(self) -> None:
        """See `storage.store.Store`; SlateDB's own log is none of ours."""
        return None

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None. Raises StorageError."""
        began = _now()
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S):
                if key.startswith(_PAYLOADS):
                    return await self._reads.run(self._value_of(self._database, key))
                return await self._value_of(self._database, key)
        except TimeoutError:
            raise self._late("reading", began) from None
        except SLATE_ERRORS as error:
            raise self._failed(error, "reading") from error

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys at a time, as `get`. Raises StorageError."""
        return await asyncio.gather(*map(self.get, keys))

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with `start <= key < end`, as of one moment. Raises StorageError."""
        if limit <= 0 or (end is not None and end <= start):
            return []
        key_range = KeyRange(start=start or None, start_inclusive=True, end=end, end_inclusive=False)
        if limit <= _LOOK_ROWS_MAX:
            options = _LOOK_DOWN if reverse else _LOOK_UP
        else:
            options = _SCAN_DOWN if reverse else _SCAN_UP
        began = _now()
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S):
                rows = self._rows(key_range, options, limit)
                if start.startswith(_PAYLOADS):
                    return await self._reads.run(rows)
                return await rows
        except TimeoutError:
            raise self._late("scanning", began) from None
        except SLATE_ERRORS as error:
            raise self._failed(error, "scanning") from error
        finally:
            if not self._closed:
                self._used_scans.release_soon()

    async def _rows(self, key_range: KeyRange, options: ScanOptions, limit: int) -> list[tuple[bytes, bytes]]:
        rows = await self._database.scan_with_options(key_range, options)
        try:
            return await _take(rows, limit)
        finally:
            self._used_scans.add(rows)

    def check(self) -> None:
        """Raise StorageError if the database was closed under us: another broker opened it, or it broke."""
        if self._closed:
            return
        reason = self._database.status().close_reason
        if reason is not None and reason != CloseReason.CLEAN:
            raise self._failed(Error.Closed(reason, "closed in the background"), "checking")

    def prepare(self, ops: WriteOps) -> None:
        """Fill the batch, which costs the processor, while an earlier one may be waiting for the disk."""
        if ops.puts or ops.deletes:
            batch = WriteBatch()
            self.fill(batch, ops)
            ops.keep_prepared(batch)

    def fill(self, batch: WriteBatch, ops: WriteOps) -> None:
        """Append everything in `ops` to `batch`. Raises StorageError if SlateDB refuses an operation."""
        fill_batch(batch, ops)

    def introduce(self, ops: WriteOps) -> None:
        """Add what has to be in the database before anything else is."""

    def write_now(self, ops: WriteOps) -> bool:
        """Return False: SlateDB works in threads of its own."""
        return False

    async def apply(self, batch: WriteBatch) -> None:
        """Have reads see the rows of a batch, durable or not. Raises StorageError; does not end in time."""
        try:
            await self._database.write(batch)
        except SLATE_ERRORS as error:
            raise self._failed(error, "writing") from error

    async def make_durable(self) -> None:
        """Have everything applied so far on disk. Raises StorageError; does not end in time."""
        if self.directory is not None:
            self._durable_watch = DiskWatch(self.directory)
        try:
            await self._database.flush_with_options(_FLUSH_WAL)
        except SLATE_ERRORS as error:
            raise self._failed(error, "writing") from error
        finally:
            if self._durable_watch is not None:
                self._durable_watch.stop()
                self._durable_watch = None
        if self.sync is not None:
            with self._syncing():
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._commit_thread, self.sync.sync_wal_wholly)

    async def write(self, ops: WriteOps) -> None:
        """Apply `ops` atomically and make it durable as configured. Raises StorageError.

        Calls take their turn in the order they were made. Cancelling one, like an error, leaves open whether
        the batch was stored. Nothing to write is no error.
        """
        if not ops.puts and not ops.deletes:
            return
        watch = None
        began = _now()
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S) as deadline:
                if self.directory is not None:
                    watch = DiskWatch(self.directory, deadline)
                async with self._turn:
                    if self._applied is not ops or self._applied_count != len(ops):
                        await self._apply(ops)
                    await self._database.flush_with_options(_FLUSH_WAL)
                    if self.sync is not None:
                        await self._sync_commit(self.sync)
                    self._applied = None
                    self._shorten_log()
        except TimeoutError:
            raise self._late("writing", began, None if watch is None else watch.trouble) from None
        except SLATE_ERRORS as error:
            raise self._failed(error, "writing") from error
        finally:
            if watch is not None:
                watch.stop()

    def tell_replayed(self, tell: Callable[[Replay], None]) -> None:
        """Do nothing: SlateDB replays its own log, and does not say how much."""

    async def close(self) -> None:
        """Write out what is in memory and let go of the database; a second call does nothing.

        Every write that returned is durable already, so a StorageError from here loses nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._used_scans.release()
        began = _now()
        for task in (self._sweeper, self._shortening):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(limits.STORE_CLOSE_TIMEOUT_S):
                await self._let_go()
                await self._database.shutdown_with_options(_CLOSE)
        except TimeoutError:
            raise self._late("closing", began) from None
        except SLATE_ERRORS as error:
            # a flush that the shutdown overtook reports the shutdown
            if not (isinstance(error, Error.Closed) and error.reason == CloseReason.CLEAN):
                raise translate(error, "closing") from error
        finally:
            await self._reads.stop()
            try:
                if self.sync is not None:
                    await self._finish_sync(self.sync)
            finally:
                if self.lock is not None:
                    self.lock.release()

    @contextmanager
    def _syncing(self) -> Iterator[None]:
        self._sync_count += 1
        try:
            yield
        finally:
            self._sync_count -= 1

    async def _flush_tables(self) -> None:
        await self._database.flush_with_options(_FLUSH_TABLES)

    def _shorten_log(self) -> None:
        """Have a table written behind the commits when the log has so many objects that replaying it would
        hold up whoever takes over.
        """
        self._log_objects += 1
        if self._lease is None or self._log_objects < limits.STORE_LEASED_LOG_OBJECTS_MAX:
            return
        if self._shortening is None or self._shortening.done():
            self._log_objects = 0
            self._shortening = asyncio.get_running_loop().create_task(self._shorten())

    async def _shorten(self) -> None:
        with suppress(*SLATE_ERRORS):  # what is wrong with the database is for its own calls to tell
            await self._flush_tables()

    async def _let_go(self) -> None:
        if self._hold is not None:
            try:
                await self._hold.release()
            except StorageError:
                pass  # the next start waits a little, no more

    async def _apply(self, ops: WriteOps) -> None:
        synced_before = self.sync.wal_synced if self.sync is not None else 0
        batch = ops.prepared
        if not isinstance(batch, WriteBatch):
            batch = WriteBatch()
            self.fill(batch, ops)
        ops.drop_prepared()
        await self._database.write(batch)
        self._applied = ops
        self._applied_count = len(ops)
        self._synced_before = synced_before

    async def _sync_commit(self, sync: LocalSync) -> None:
        await asyncio.get_running_loop().run_in_executor(self._commit_thread, sync.sync_wal)
        if sync.wal_synced == self._synced_before:
            raise StorageError("writing: the write-ahead log object of the commit was not found")

    async def _sweep(self, sync: LocalSync, garbage: LocalGarbage | None, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        collect_at = loop.time()
        while True:
            await asyncio.sleep(limits.STORE_SWEEP_INTERVAL_S)
            try:
                with self._syncing():
                    await loop.run_in_executor(thread, sync.sweep)
            except StoreUnavailable:
                continue
            except StorageError:
                return  # `sync` keeps the reason, and the next commit raises it
            if garbage is not None and loop.time() >= collect_at:
                collect_at = loop.time() + limits.STORE_GARBAGE_INTERVAL_S
                try:
                    await garbage.collect(sync.on_disk)
                except StorageError:
                    continue  # what is wrong with the database is for its own calls to tell

    async def _finish_sync(self, sync: LocalSync) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limits.STORE_CLOSE_TIMEOUT_S):
                await loop.run_in_executor(self._sweep_thread, sync.sweep)
                await loop.run_in_executor(self._commit_thread, sync.close)
        except (TimeoutError, StorageError):
            pass  # what is not swept now is synced when the database is opened
        for thread in (self._commit_thread, self._sweep_thread):
            if thread is not None:
                thread.shutdown(wait=False)

    def _failed(self, error: Exception, doing: str) -> StorageError:
        failure = translate(error, doing)
        if isinstance(failure, StoreFenced) and self.lock is not None:
            self.lock.release()  # whoever took over waits for it
        return failure

    def _late(self, doing: str, began: float, trouble: Trouble | None = None) -> StorageError:
        if trouble is not None:
            return type(trouble)(f"{doing}: {trouble.reason}")
        return StoreUnavailable(f"{doing}: no answer from {self._description} in {_now() - began:.0f} s")


def _now() -> float:
    return asyncio.get_running_loop().time()
