"""A storage as it lies there, for who only looks: nothing is created, changed, recovered or taken over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, cast

from slatedb.uniffi import DbReader, KeyRange

from config import limits
from config.settings import StorageSettings
from storage.directory_lock import keep_unlocked
from storage.errors import CorruptRecord, StorageError
from storage.fast_batch import ensure_fast_batch
from storage.fast_rows import next_rows, pages_of
from storage.inspection import Unopened
from storage.journal.early import Early
from storage.journal.frames import EndRecord
from storage.journal.journal_survey import read_body_starts, read_commits, survey_journal
from storage.journal.opening import journal_of
from storage.journal.waiting_commits import ABSENT, Rows
from storage.open import absolute_path, database_at, refuse_backup, unlocked_keys
from storage.place import DATABASE, close_reader, open_located
from storage.records import format_marker, journal_state
from storage.remote_hold import wait_for_holder
from storage.seal import BLOCK_START_BYTES, Seal
from storage.slate_errors import answered

_BACKUP_KEY: Final = b"backup/"
_NOTHING: Final = (b"", b"")

Row = tuple[bytes, bytes]
Opened = Callable[[bytes, bytes], bytes]
"""Opens the value of a key. Raises CorruptRecord."""
_Result = TypeVar("_Result")


class _Journal(NamedTuple):
    """The part of a journal that the database has not."""

    rows: Early
    commit_starts: list[bytes]


class ReadOnlyStore:
    """The rows of a database and of the journal before it. Made by `open_read_only`."""

    def __init__(
        self, reader: DbReader, journal: _Journal, release: Callable[[], None], opened: Opened | None
    ) -> None:
        """`journal` has what the database has not; `release` lets others in again; `opened` opens the values
        of the database if they are encrypted.
        """
        self._reader = reader
        self._journal = journal.rows
        self.commit_starts = journal.commit_starts
        """How the commits begin that only the journal has, as they lie there."""
        self._release = release
        self._opened = opened

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, or None. Raises StorageError."""
        found = self._journal.find(key)
        if found is not ABSENT:
            return cast("bytes | None", found)
        value = cast("bytes | None", await _in_time(self._reader.get(key)))
        return value if value is None or self._opened is None else self._opened(key, value)

    async def scan(self, start: bytes, end: bytes | None, *, limit: int) -> list[Row]:
        """Return at most `limit` rows with `start <= key < end`, in order; the values of some may be
        `Unopened`. Raises StorageError.
        """
        own = journal_state.key()  # nothing that was written to the store
        rows = await self._journal.scan(self._scan_database, start, end, limit + 1, reverse=False)
        return [row for row in rows if row[0] != own][:limit]

    async def pages_as_they_lie(self) -> AsyncIterator[list[Row]]:
        """Yield all rows of the database alone, their values not opened. Raises StorageError."""
        everything = KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)
        pages = pages_of(await _in_time(self._reader.scan(everything)), limits.SEALING_FIRST_ROWS)
        while (page := await _in_time(anext(pages, None))) is not None:
            yield page

    async def close(self) -> None:
        """Let go of the storage."""
        await close_reader(self._reader)
        self._release()

    async def _scan_database(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        if end is not None and end <= start:
            return []
        return await _in_time(self._take(start, end, limit))

    async def _take(self, start: bytes, end: bytes | None, limit: int) -> list[Row]:
        bounds = KeyRange(start=start or None, start_inclusive=True, end=end, end_inclusive=False)
        rows = await self._reader.scan(bounds)
        taken = await next_rows(rows, limit)
        return taken if self._opened is None else [(key, self._open(key, value)) for key, value in taken]

    def _open(self, key: bytes, value: bytes) -> bytes:
        assert self._opened is not None
        try:
            return self._opened(key, value)
        except CorruptRecord as error:
            unopened = Unopened(value)
            unopened.reason = error.reason
            return unopened


async def open_read_only(
    settings: StorageSettings, tell: Callable[[str], None] = lambda doing: None
) -> ReadOnlyStore:
    """Open the storage at `settings.url` for reading, what is only in its journal included.

    Of that journal all lies in memory: `limits.JOURNAL_SEGMENTS_MAX` segments. While another process has the
    storage it is refused, or, in an object store, its end waited for; `tell` is given what is waited for.
    Raises StorageError, also where there is no storage, or it lacks its journal, or that is damaged.
    """
    await ensure_fast_batch()
    if settings.is_remote:
        return await _open(settings, absolute_path(settings.journal_directory), lambda: None, tell)
    root = absolute_path(settings.url)
    check_is_storage(root)
    release = await _run(keep_unlocked, root)
    try:
        return await _open(settings, root, release, tell)
    except BaseException:
        release()
        raise


def check_is_storage(directory: Path) -> None:
    """Raise StorageError unless there is a database in the directory."""
    refuse_backup(directory)
    if not any((directory / DATABASE / "manifest").glob("*.manifest")):
        raise StorageError(f"opening: {directory} is no storage: there is no database in it")


async def _open(
    settings: StorageSettings, root: Path, release: Callable[[], None], tell: Callable[[str], None]
) -> ReadOnlyStore:
    url = settings.url

    async def opened_reader() -> DbReader | None:
        return (await _in_time(open_located(database_at(url))))[1]

    reader = await opened_reader()
    if reader is None and "://" in url:
        raise StorageError(f"opening: {url} is no storage: there is no database in it")
    if reader is None:
        raise StorageError(
            f"opening: the database in {url} cannot be read as it lies there. What a power cut left half "
            "written the next start of a broker sets aside; look again then"
        )
    try:
        await _check_format(reader, url)
        if "://" in url:
            reader = await wait_for_holder(reader, url, tell, opened_reader)
        async with answered("opening", limits.STORE_OPEN_TIMEOUT_S):
            unlocked = await unlocked_keys(settings.encryption, reader.get, only_reads=True)
        if unlocked is None:
            return ReadOnlyStore(reader, await _journal(reader, root, url, None), release, None)
        from storage.sealing.sealed_store import opened_value  # with cryptography

        journal = await _journal(reader, root, url, unlocked.ring)
        return ReadOnlyStore(reader, journal, release, partial(opened_value, unlocked.ring))
    except BaseException:
        await close_reader(reader)
        raise


async def _check_format(reader: DbReader, url: str) -> None:
    """Raise FormatTooNew, or StorageError if this is no database of a broker."""
    value = await _in_time(reader.get(format_marker.key()))
    if value is not None:
        format_marker.decode(value)
        return
    rows = await _in_time(reader.scan_prefix(_BACKUP_KEY))
    if await _in_time(next_rows(rows, 1)):
        raise StorageError(f"opening: {url} is a backup: `sluicemq restore {url} --check` reads all of it")
    raise StorageError(f"opening: {url} holds nothing of SluiceMQ's, or was not restored to the end")


async def _journal(reader: DbReader, root: Path, url: str, seal: Seal | None) -> _Journal:
    """Read the operations that only the journal has. Raises StorageError."""
    value = await _in_time(reader.get(journal_state.key()))
    state = None if value is None else journal_state.decode(value)
    directory = journal_of(root, state, is_beside="://" not in url)
    if state is None or directory is None:
        return _Journal(Early({}, _NOTHING), [])
    held = EndRecord(state.sequence, state.checksum)
    journal: _Journal = await _run(_read_journal, directory, state.database_id, held, seal)
    return journal


def _read_journal(directory: Path, database_id: int, held: EndRecord, seal: Seal | None) -> _Journal:
    rows: Rows = {}
    try:
        survey = survey_journal(directory, database_id, held)
        for _, more, _ in read_commits(survey, seal):
            rows.update(more)
        starts = read_body_starts(survey, BLOCK_START_BYTES)
    except OSError as error:
        raise StorageError(f"opening the journal: {error.strerror}: {error.filename}") from error
    return _Journal(Early(rows, _NOTHING), starts)


async def _in_time(step: Awaitable[_Result]) -> _Result:
    async with answered("reading the storage", limits.STORE_OPEN_TIMEOUT_S):
        return await step


async def _run(call: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
