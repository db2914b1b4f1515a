"""A store that confirms on a local disk: a journal, and SlateDB behind it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

from config import limits
from storage.batch import WriteOps
from storage.cuts import Cuts
from storage.directory_lock import DirectoryLock
from storage.disk_watch import DiskWatch, Trouble
from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.journal.appender import Append, Appender
from storage.journal.early import Early
from storage.journal.files import JournalFiles
from storage.journal.frames import EndRecord, FrameBody
from storage.journal.handing_over import HandingOver
from storage.journal.waiting_commits import ABSENT, Rows
from storage.records import journal_state
from storage.slate_store import SlateStore
from storage.store import JournalView, Replay


class _Prepared:
    """A commit as the journal wants it."""

    __slots__ = ("body", "count", "rows")

    def __init__(self, ops: WriteOps, encode_body: Callable[[WriteOps], FrameBody]) -> None:
        self.body = encode_body(ops)
        rows: Rows = dict(ops.puts)
        if ops.deletes:
            rows.update(dict.fromkeys(ops.deletes))
        self.rows = rows
        self.count = len(ops)


class Replaying(NamedTuple):
    """The work that an opening leaves to the store: handing over, with `work`, the commits up to `last`, of
    which reads see `early` meanwhile.
    """

    early: Early
    last: int
    work: Coroutine[Any, Any, Replay]


@dataclass(eq=False, repr=False)
class JournaledStore:
    """A Store that confirms what is in the journal, made by `storage.journal.opening.open_journaled`.

    Every call ends within `limits.STORE_CALL_TIMEOUT_S`, with StoreUnavailable or StoreFull at worst. After
    these two the same `WriteOps` may be written again; any other StorageError of a write is final for this
    object. Once it has failed for good nothing is appended, and the journal may be taken over.

    The database holds all of the journal but what `replaying` hands over. The lock keeps others away; it is
    released by `close`, or when this store appends nothing more. `notes`: what an operator should read about
    the opening. `replayed`: what the opening had to hand over. `leave`: gives the journal up once `close` has
    handed everything over. Needs a running event loop.
    Implements `storage.store.Store`.
    """

    _slate: SlateStore
    _files: JournalFiles
    _lock: DirectoryLock
    database_id: InitVar[int]
    _: KW_ONLY
    notes: tuple[str, ...] = ()
    replayed: Replay | None = None
    replaying: InitVar[Replaying | None] = None
    leave: Callable[[], Awaitable[None]] | None = None
    cuts: Cuts | None = field(init=False)
    _handing_over: HandingOver = field(init=False)
    _appender: Appender = field(init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _late: tuple[WriteOps, int, Append] | None = field(default=None, init=False)
    """A write that was not waited for to its end."""
    _failure: StorageError | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _early: Early | None = field(default=None, init=False)
    _tell_replayed: Callable[[Replay], None] = field(init=False)

    def __post_init__(self, database_id: int, replaying: Replaying | None) -> None:
        self._tell_replayed = lambda replayed: None
        slate = self._slate
        self._handing_over = HandingOver(slate, database_id, on_durable=self._release, on_failure=self._fail)
        self._appender = Appender(self._files, self._taken)
        cuts, viewed = slate.cuts, self._handing_over.viewed
        self.cuts = None if cuts is None else cuts.behind(self._hand_over, viewed)
        if replaying is None:
            self._handing_over.start()
        else:
            self._early = replaying.early
            self._handing_over.start(self._replay(replaying))

    def describe(self) -> str:
        """Describe where the data lies and how durable a write is."""
        return self._slate.describe()

    def check(self) -> None:
        """Raise StorageError if the store has failed, or the database was closed under us."""
        if self._closed:
            return
        if self._failure is None:
            try:
                self._slate.check()
            except StorageError as error:
                self._fail(error)
        if self._failure is not None:
            raise self._failure

    @property
    def trouble(self) -> Trouble | None:
        return self._slate.trouble

    @property
    def lease(self) -> None:
        """See `storage.store.Store`; a journal does not move to another machine."""
        return None

    @property
    def is_remote(self) -> bool:
        """Return False: what is written lies in the journal, on a disk."""
        return False

    @property
    def journal(self) -> JournalView:
        held = self._files.held()
        return JournalView(held.segment_count, held.in_use, held.size_bytes, self._handing_over.waiting_bytes)

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None. Raises StorageError."""
        if self._appender.pending_count:
            await self._settle("reading")
        found = self._handing_over.find(key)
        early = self._early
        if found is ABSENT and early is not None:
            found = early.find(key)
            if found is ABSENT and not early.covers(key, key + b"\0"):
                await self._handing_over.replayed()
        if found is not ABSENT and not self._closed:
            return cast("bytes | None", found)
        return await self._slate.get(key)

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of many keys at a time, as `get`. Raises StorageError."""
        return await asyncio.gather(*map(self.get, keys))

    async def scan(
        self, start: bytes, end: bytes | None, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows with `start <= key < end`, as of one moment. Raises StorageError."""
        own = journal_state.key()
        is_own_inside = limit > 0 and start <= own and (end is None or own < end)
        early = self._early
        if early is not None and not self._changed() and early.covers(start, end):
            rows = await early.scan(
                partial(self._scan_database, reverse), start, end, limit + is_own_inside, reverse=reverse
            )
            if self._early is early and not self._changed():
                return [row for row in rows if row[0] != own][:limit]
        with self._handing_over.viewed():
            if self._appender.pending_count or not self._handing_over.is_empty:
                await self._settle("scanning")
            # the journal's own record is nothing that was written to this store
            rows = await self._slate.scan(start, end, limit=limit + is_own_inside, reverse=reverse)
        return [row for row in rows if row[0] != own][:limit] if is_own_inside else rows

    async def _scan_database(
        self, reverse: bool, start: bytes, end: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        return await self._slate.scan(start, end, limit=limit, reverse=reverse)

    def _changed(self) -> bool:
        """Return whether anything was written that the database has not, but for what was left to be
        replayed.
        """
        return self._appender.pending_count > 0 or self._handing_over.has_waiting

    def prepare(self, ops: WriteOps) -> None:
        """Encode the commit, while an earlier one may be waiting for the disk."""
        if (ops.puts or ops.deletes) and not ops.is_large:
            ops.keep_prepared(self._encode(ops))

    def write_now(self, ops: WriteOps) -> bool:
        """Write within this call, if the disk is quick, and nothing before or beside it; whether it was done.

        Raises StorageError.
        """
        self._check_open()
        if not ops.puts and not ops.deletes:
            return True
        if ops.is_large or self._turn.locked() or self._late is not None or self._handing_over.is_crowded:
            return False
        if self._slate.is_syncing:
            return False  # the loop is not to wait for that
        prepared = self._prepared(ops)
        try:
            done = self._appender.append_now(prepared.body, prepared.rows)
        except StoreFull:
            raise
        except StorageError as error:
            self._fail(error)
            raise
        if done:
            ops.drop_prepared()
        return done

    async def write(self, ops: WriteOps) -> None:
        """Write `ops` atomically and return once they are on disk. Raises StorageError.

        Calls take their turn in the order they were made. A call that was cancelled or came late may take
        effect all the same.
        """
        self._check_open()
        if not ops.puts and not ops.deletes:
            return
        late, self._late = self._late, None
        job = late[2] if late is not None and late[0] is ops and late[1] == len(ops) else None
        watch = None
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S) as deadline:
                watch = DiskWatch(self._lock.directory, deadline)
                if job is None:
                    async with self._turn:
                        job = await self._begin(ops)
                await asyncio.shield(job.done)
        except TimeoutError:
            if job is not None:
                self._late = (ops, len(ops), job)
            raise self._too_late("writing", began, None if watch is None else watch.trouble) from None
        except (StoreFull, StoreUnavailable):
            raise
        except StorageError as error:
            self._fail(error)
            raise
        finally:
            if watch is not None:
                watch.stop()

    async def close(self) -> None:
        """Hand everything over to the database and let go of it; a second call does nothing.

        Every write that returned is durable already, so a StorageError from here loses nothing.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(limits.STORE_CLOSE_TIMEOUT_S):
                await self._appended()
                await self._handing_over.close()
                if self.leave is not None and self._failure is None:
                    await self.leave()
        except TimeoutError:
            self._handing_over.fail(StorageError("the store is closed"))
        finally:
            try:
                await self._slate.close()
            finally:
                if await self._appender.stop():
                    self._files.close()
                    self._lock.release()

    def tell_replayed(self, tell: Callable[[Replay], None]) -> None:
        """Have `tell` called with what the opening found only in the journal, once the database has it:
        now, if that is so already. Not at all if there was nothing.
        """
        if self.replayed is not None:
            tell(self.replayed)
        self._tell_replayed = tell

    # inside

    async def _replay(self, replaying: Replaying) -> int:
        self.replayed = await replaying.work
        self._early = None
        self._tell_replayed(self.replayed)
        return replaying.last

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("writing: the store is closed")
        if self._failure is not None:
            raise self._failure

    def _encode(self, ops: WriteOps) -> _Prepared:
        try:
            return _Prepared(ops, self._files.encode_body)
        except ValueError as error:
            raise StorageError(f"writing: {error}") from error

    def _prepared(self, ops: WriteOps) -> _Prepared:
        prepared = ops.prepared
        if not isinstance(prepared, _Prepared) or prepared.count != len(ops):
            prepared = self._encode(ops)
            ops.keep_prepared(prepared)
        return prepared

    async def _begin(self, ops: WriteOps) -> Append:
        """Give the commit to the thread once there is room for it."""
        if ops.is_large:
            prepared = await asyncio.get_running_loop().run_in_executor(None, self._prepared, ops)
        else:
            prepared = self._prepared(ops)
        while self._handing_over.is_crowded or not (
            self._files.fits(prepared.body.size) or self._files.has_free_segment
        ):
            self._handing_over.hurry()
            await self._handing_over.progress()
        ops.drop_prepared()
        return self._appender.append(prepared.body, prepared.rows)

    def _taken(self, commit: EndRecord, body: FrameBody, rows: Rows) -> None:
        """Note that a commit is on disk in the journal."""
        if self._failure is None:
            self._handing_over.add(commit, rows, body.size)

    async def _release(self, sequence: int) -> None:
        """Release the commits up to `sequence`: the database has them on disk."""
        await asyncio.get_running_loop().run_in_executor(None, self._files.sync_end)
        self._files.release(sequence)

    def _fail(self, failure: StorageError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._handing_over.fail(failure)
        # behind what it is just appending: who takes the lock reads a journal that stays as it is
        self._appender.after(self._lock.release)

    async def _appended(self) -> None:
        """Wait for what the thread was given so far."""
        done = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def tell() -> None:
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

        self._appender.after(tell)
        await done

    async def _hand_over(self) -> None:
        await self._appended()
        await self._handing_over.catch_up()

    async def _settle(self, doing: str) -> None:
        """Wait until SlateDB has every write that was begun. Raises StorageError."""
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limits.STORE_CALL_TIMEOUT_S):
                if self._appender.pending_count:
                    await self._appended()
                if doing == "scanning":
                    await self._handing_over.catch_up()
        except TimeoutError:
            raise self._too_late(doing, began) from None

    def _too_late(self, doing: str, began: float, trouble: Trouble | None = None) -> StorageError:
        trouble = trouble or self._slate.trouble
        if trouble is not None:
            return type(trouble)(f"{doing}: {trouble.reason}")
        if not self._files.has_free_segment:
            return StoreFull(f"{doing}: the journal is full, and the database does not take it over")
        waited_s = asyncio.get_running_loop().time() - began
        return StoreUnavailable(f"{doing}: no answer from {self.describe()} in {waited_s:.0f} s")
