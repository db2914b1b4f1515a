"""Opening the store that the settings name.

| url | store |
|---|---|
| a path | SlateDB in that directory, made if absent; fsync as `sync` says |
| `memory:` | SlateDB in memory: nothing survives |
| `s3://bucket/prefix` | SlateDB there; credentials, region and AWS_ENDPOINT_URL from the environment |
| `gs://...`, `az://...` | the same with GOOGLE_* and AZURE_STORAGE_* |

With `log_url` the log of an object store's database lies in another one (`storage.place`). With
`journal: local` an object store is behind a journal in `journal_directory` (`storage.journal.apart`).
"""

import asyncio
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from slatedb.uniffi import (
    Db,
    DbBuilder,
    DbCache,
    DbReader,
    Error,
    MokaCacheOptions,
    ObjectStore,
    ObjectStoreBuilder,
    ObjectStoreType,
    SstBlockSize,
)

from config import limits
from config.settings import EncryptionSettings, StorageSettings
from storage.batch import WriteOps
from storage.cuts import open_cut_reader
from storage.directory_lock import DirectoryLock, directory_holder, directory_holder_pid
from storage.disk_watch import file_size_trouble
from storage.errors import StorageError, StoreInUse, StoreUnavailable
from storage.fast_batch import ensure_fast_batch
from storage.fast_rows import value_of
from storage.journal.apart import refuse_without_journal
from storage.journal.journaled_store import JournaledStore
from storage.journal.opening import has_journal, leave_journal, open_journaled
from storage.layout import INDEX_NAME
from storage.local_garbage import LocalGarbage
from storage.local_sync import LocalSync
from storage.place import DATABASE, Place, close_reader, decoded_log_place, log_place_in_tables, open_located
from storage.records import LogPlace, encryption, format_marker, journal_state, log_place
from storage.records.special_codecs import JOURNALED_VERSION, PLAIN_VERSION, SEALED_VERSION
from storage.remote_hold import wait_for_holder
from storage.slate_errors import SLATE_ERRORS, answered, translate
from storage.slate_settings import broker_settings
from storage.slate_store import SlateStore
from storage.torn_files import set_aside_torn

if TYPE_CHECKING:
    from storage.sealing.unlocking import Unlocked

_CACHE_ID: Final = 1
_CLAIM: Final = b"token"

_Result = TypeVar("_Result")
_Get = Callable[[bytes], Awaitable[bytes | None]]
_Opened = Callable[..., SlateStore]
"""Makes the store of an open database, as `SlateStore` does."""
_Unlock = Callable[[Db], Awaitable[_Opened]]


async def open_store(
    settings: StorageSettings,
    *,
    take_over: bool = False,
    lease_ms: int | None = None,
    until: Callable[[], float] | None = None,
    may_write: Callable[[], Awaitable[None]] | None = None,
    memory: ObjectStore | None = None,
    tell: Callable[[str], None] = lambda doing: None,
) -> SlateStore | JournaledStore:
    """Open (or create) the database at `settings.url`.

    What another process has open is left to it: a local directory is refused, in an object store its end is
    waited for. With `take_over` it is fenced instead. `lease_ms`: in an object store the broker has the
    database by a lease (`storage.store_lease`), which ends at `until` if that is earlier. `may_write` is
    awaited once nothing is left to do that only reads. `tell` is given what is being waited for. `memory`
    keeps the contents of a `memory:` store so that a test can open them again. The store's `notes` say what
    an operator should know. Raises StorageError: StoreInUse when a local directory is in use,
    StoreUnavailable when the place does not answer in `limits.STORE_OPEN_TIMEOUT_S`, FormatTooNew when a
    newer SluiceMQ wrote the data.
    """
    await ensure_fast_batch()
    if settings.is_remote:
        return await _open_in_object_store(settings, take_over, lease_ms, until, tell, may_write)
    if may_write is not None:
        await may_write()
    if settings.url == "memory:":
        store = await _in_time(settings.url, _open_memory(memory, _by(settings)))
        await _or_close(store, check_format(store, PLAIN_VERSION))
        return store
    lock = await _in_time(settings.url, _lock_directory(settings.url, take_over))
    if take_over and not lock.is_held:
        await _refuse_before_fencing(settings, lock)
    # without a lock another broker might append to the journal that this one is replaying
    if settings.sync == "always" and not lock.note:
        return await _open_with_journal(settings, lock)
    return await _open_without_journal(settings, lock)


async def open_remote_reader(url: str) -> DbReader | None:
    """Open a reader of the database in an object store, beside its writer; None where there is no database.

    Raises StorageError.
    """
    await ensure_fast_batch()
    return (await _in_time(url, open_located(Place.of(url))))[1]


async def is_remote_database(url: str) -> bool:
    """Return whether there is a database in an object store. Raises StorageError."""
    opening = Place.of(url).open_reader(limits.HOLD_LOOK_INTERVAL_MS, tables_only=True)
    reader = await _in_time(url, opening)
    if reader is not None:
        await close_reader(reader)
    return reader is not None


async def open_cut(url: str, cut_id: str) -> tuple[DbReader, int]:
    """Open a reader of a cut (`storage.cuts`) of the database at `url`; gives also the rough number of
    bytes in it.

    Raises StorageError, also where there is no such cut.
    """
    await ensure_fast_batch()
    place = database_at(url)
    return await _in_time(url, open_cut_reader(place.path, place.store, cut_id))


def absolute_path(path: str) -> Path:
    """Return the path from the root on, without asking the file system."""
    return Path(path).absolute()


def absolute_url(url: str) -> str:
    """Return the same storage for a process that works in another directory."""
    return url if url == "memory:" or "://" in url else str(Path(url).resolve())


async def open_database(settings: StorageSettings, *, memory: ObjectStore | None = None) -> SlateStore:
    """Open as `open_store`, without a look at what is inside, and without a journal: values are written and
    read as they lie there.
    """
    await ensure_fast_batch()
    if settings.url == "memory:":
        return await _in_time(settings.url, _open_memory(memory, _as_it_lies))
    if settings.is_remote:
        return await _in_time(settings.url, _open_remote(Place.of(settings.url), _as_it_lies))
    lock = await _in_time(settings.url, _lock_directory(settings.url, take_over=False))
    return await _open_local(settings, lock, _as_it_lies, keep_lock=True)


def storage_holder(settings: StorageSettings) -> str:
    """Describe the process that has the local directory at `settings.url`; "" when there is none, or that is
    unknown.
    """
    if settings.url == "memory:" or "://" in settings.url:
        return ""
    return directory_holder(Path(settings.url))


def storage_holder_pid(settings: StorageSettings) -> int | None:
    """Return the process of this machine that has the local directory, 0 for none; None: that cannot be
    told.
    """
    if settings.url == "memory:" or "://" in settings.url:
        return None
    return directory_holder_pid(Path(settings.url))


async def open_unjournaled(settings: StorageSettings) -> SlateStore:
    """Open as `open_store`, but without a journal: what is in one is handed over, and the next start makes
    another. Raises StorageError.
    """
    if settings.is_remote:
        store = await open_store(settings.model_copy(update={"journal": "auto"}))
        assert isinstance(store, SlateStore)
        return store
    await ensure_fast_batch()
    lock = await _in_time(settings.url, _lock_directory(settings.url, take_over=False))
    return await _open_without_journal(settings, lock)


async def check_format(store: SlateStore, version: int) -> None:
    """Write the format marker into an empty database, and verify that of any other, or raise it to `version`.

    Raises FormatTooNew, CorruptRecord, or StorageError when the database holds something else.
    """
    version = max(version, store.format_version)
    value = await store.get(format_marker.key())
    ops = WriteOps()
    if value is None and await store.scan(b"", None, limit=1):
        raise StorageError(f"opening: {store.describe()} holds data that is not SluiceMQ's")
    if value is None or format_marker.decode(value) < version:
        ops.put(format_marker.key(), format_marker.encode(version))
    store.introduce(ops)
    await store.write(ops)


async def _as_it_lies(database: Db) -> _Opened:
    """Return what makes a store that neither seals nor opens values."""
    return SlateStore


def _by(settings: StorageSettings) -> _Unlock:
    """Return what has a database unlocked as the settings say; where it fails, the database is closed."""

    async def unlock(database: Db) -> _Opened:
        async def get(key: bytes) -> bytes | None:
            return await value_of(database, key)

        try:
            unlocked = await unlocked_keys(settings.encryption, get)
        except BaseException as error:
            await database.shutdown()
            if isinstance(error, SLATE_ERRORS):
                raise translate(error, "opening") from error
            raise
        if unlocked is None:
            return SlateStore
        from storage.sealing.sealed_store import SealedStore

        return partial(SealedStore, ring=unlocked.ring, record=unlocked.record)

    return unlock


async def _refuse_before_fencing(settings: StorageSettings, lock: DirectoryLock) -> None:
    """Refuse as `_refuse_wrong_key`, the database in a directory that another process has."""
    _, reader = await _in_time(settings.url, open_located(_in_directory(lock.directory)))
    if reader is not None:
        try:
            await _refuse_wrong_key(reader, settings.encryption)
        finally:
            await close_reader(reader)


async def _refuse_wrong_key(reader: DbReader, settings: EncryptionSettings | None) -> None:
    """Raise StorageError if the database is encrypted, and the settings do not open it."""
    async with answered("opening", limits.STORE_OPEN_TIMEOUT_S):
        await unlocked_keys(settings, reader.get, only_reads=True)


async def unlocked_keys(
    settings: EncryptionSettings | None, get: _Get, *, only_reads: bool = False
) -> "Unlocked | None":
    """Return the keys of a database that `get` reads, None if nothing is encrypted. `only_reads`: no new key
    is made.

    Raises StorageError for keys that are wrong or missing.
    """
    marker = await get(format_marker.key())
    is_sealed = marker is not None and format_marker.decode(marker) >= SEALED_VERSION
    if settings is None and not is_sealed:
        return None
    value = await get(encryption.key())
    if is_sealed and value is None:
        raise StorageError("opening: what is stored is encrypted, and the record of its keys is missing")
    if settings is None:
        ids = ", ".join([key.id for key in encryption.decode(value or b"").keys])
        raise StorageError(
            f"opening: what is stored is encrypted with {ids}, and there is no storage.encryption with keys"
        )
    from storage.sealing.unlocking import unlock  # with cryptography

    return await unlock(settings, value, is_new=marker is None, only_reads=only_reads)


async def _open_memory(memory: ObjectStore | None, unlock: _Unlock) -> SlateStore:
    place = Place("memory:", DATABASE, memory or ObjectStore.resolve("memory:///"))
    database = await _build(place, local=True)
    return (await unlock(database))(database, "memory (nothing survives a restart)")


async def _in_time(url: str, step: Awaitable[_Result]) -> _Result:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(limits.STORE_OPEN_TIMEOUT_S):
            return await step
    except TimeoutError:
        raise StoreUnavailable(
            f"opening: {url} does not answer (waited {loop.time() - began:.0f} s)"
        ) from None


async def _open_in_object_store(
    settings: StorageSettings,
    take_over: bool,
    lease_ms: int | None,
    until: Callable[[], float] | None,
    tell: Callable[[str], None],
    may_write: Callable[[], Awaitable[None]] | None,
) -> SlateStore | JournaledStore:
    url = settings.url
    root = absolute_path(settings.journal_directory)
    look_ms = limits.HOLD_LOOK_INTERVAL_MS if lease_ms is None else lease_ms // limits.LEASE_LOOKS
    place = Place.of(url)

    async def opened_reader() -> DbReader | None:
        nonlocal place
        place, reader = await _in_time(url, open_located(place, look_ms))
        return reader

    reader = await opened_reader()
    if reader is not None:
        try:
            await refuse_without_journal(reader, url, root)
            await _refuse_wrong_key(reader, settings.encryption)  # before anybody is fenced
            if not take_over:
                reader = await wait_for_holder(reader, url, tell, opened_reader, look_ms)
                tell(f"opening the database in {url}")
        finally:
            await close_reader(reader)
    if may_write is not None:
        await may_write()
    if settings.journal == "local":
        return await _open_behind_journal(place, await _lock_for_journal(root, take_over), _by(settings))
    unlock = _by(settings)
    store = await _open_leased(place, lease_ms, unlock)
    if settings.log_url and (wanted := place.with_log(settings.log_url)).log_url != place.log_url:
        tell(f"moving the log of {url}")
        await _or_close(store, _move_log(store, wanted))
        store = await _open_leased(wanted, lease_ms, unlock)
    await _or_close(store, _hold_without_journal(store, root, lease_ms, until))
    return store


async def _open_leased(place: Place, lease_ms: int | None, unlock: _Unlock) -> SlateStore:
    store = await _in_time(place.url, _open_remote(place, unlock, is_leased=lease_ms is not None))
    await _or_close(store, _check_log(store, place))
    return store


async def _move_log(store: SlateStore, wanted: Place) -> None:
    """Have the log of a database lie elsewhere from its next opening on: here its tables get everything."""
    await check_format(store, PLAIN_VERSION)
    token = decoded_log_place(await store.get(log_place.key())).token or secrets.randbits(64)
    if wanted.log is not None:
        await _in_time(wanted.log_url, _claim_log(wanted, wanted.log, token.to_bytes(8, "little")))
    await _write_log_place(store, LogPlace(token, wanted.log_url))
    await store.close()  # with all of it in tables, or it raises


async def _claim_log(wanted: Place, log: ObjectStore, token: bytes) -> None:
    """Say, in a small database beside the log, whose it is. Raises StorageError if it is another's: what that
    has written would be taken for this one's.
    """
    beside = Place(wanted.log_url, f"{wanted.path}-log", log)
    claim = SlateStore(await _build(beside, local=False), beside.describe())
    try:
        found = await claim.get(_CLAIM)
        if found is None:
            ops = WriteOps()
            ops.put(_CLAIM, token)
            await claim.write(ops)
        elif found != token:
            raise StorageError(
                f"opening: {wanted.log_url} has the log of another database at {wanted.path}, or an older"
                " one: use another bucket"
            )
    finally:
        await claim.close()


async def _check_log(store: SlateStore, place: Place) -> None:
    """Raise StorageError if the log was moved before the database was opened; a move that did not come to
    its end is taken back.
    """
    value = await store.get(log_place.key())
    if value is None and not place.log_url:
        return
    in_tables = await _in_time(place.url, log_place_in_tables(place))
    if in_tables is None or in_tables.url != place.log_url:
        raise StorageError(f"opening: another broker moved the log of {place.url} meanwhile: start again")
    if decoded_log_place(value) != in_tables:
        await _write_log_place(store, in_tables)


async def _write_log_place(store: SlateStore, lies: LogPlace) -> None:
    ops = WriteOps()
    ops.put(log_place.key(), log_place.encode(*lies))
    await store.write(ops)


async def _open_behind_journal(place: Place, lock: DirectoryLock, unlock: _Unlock) -> JournaledStore:
    try:
        where = f"{place.describe()} (confirmed by the journal in {lock.directory})"
        store = await _in_time(place.url, _open_remote(place, unlock, where))
        try:
            await lock.wait(limits.STORE_TAKE_OVER_TIMEOUT_S)  # who has it is fenced and about to end
            await _check_log(store, place)
            await check_format(store, JOURNALED_VERSION)
            await store.hold()
            return await open_journaled(store, lock, leaves=True)
        except BaseException:
            await store.close()
            raise
    except BaseException:
        lock.release()
        raise


async def _hold_without_journal(
    store: SlateStore, root: Path, lease_ms: int | None, until: Callable[[], float] | None = None
) -> None:
    """Have a database without a journal; one that is in `root` is handed over, and left."""
    await check_format(store, PLAIN_VERSION)
    if await store.get(journal_state.key()) is not None:
        lock = await _lock_for_journal(root, take_over=False)
        try:
            await leave_journal(store, lock.directory)
        finally:
            lock.release()
    await store.hold(lease_ms, until)


async def _lock_for_journal(root: Path, take_over: bool) -> DirectoryLock:
    lock = await _lock_directory(str(root), take_over)
    if lock.note:
        raise StorageError(f"opening: the file system of {root} has no locks, which a journal needs")
    return lock


async def _or_close(store: SlateStore, step: Awaitable[None]) -> None:
    """Have a step of the opening done; the store is closed if that fails."""
    try:
        await step
    except BaseException:
        await store.close()
        raise


async def _open_with_journal(settings: StorageSettings, lock: DirectoryLock) -> JournaledStore:
    store = await _open_local(settings, lock, _by(settings), keep_lock=False)
    try:
        await check_format(store, JOURNALED_VERSION)
        return await open_journaled(store, lock)
    except BaseException:
        try:
            await store.close()
        finally:
            lock.release()
        raise


async def _open_without_journal(settings: StorageSettings, lock: DirectoryLock) -> SlateStore:
    store = await _open_local(settings, lock, _by(settings), keep_lock=True)
    try:
        await check_format(store, PLAIN_VERSION)
        await leave_journal(store, lock.directory)
    except BaseException:
        await store.close()
        raise
    return store


async def _lock_directory(url: str, take_over: bool) -> DirectoryLock:
    return await asyncio.get_running_loop().run_in_executor(None, _locked, Path(url), take_over)


def _locked(path: Path, take_over: bool) -> DirectoryLock:
    """Make the directory if it is absent, and lock it; the lock is not held if another has it and is to be
    taken over from.
    """
    lock = DirectoryLock(_writable_directory(path))
    try:
        lock.take()
    except StoreInUse:
        if not take_over:
            raise
    return lock


async def _open_local(
    settings: StorageSettings, lock: DirectoryLock, unlock: _Unlock, *, keep_lock: bool
) -> SlateStore:
    """Open the database in a directory, the lock held; `keep_lock`: the store releases that when it ends."""
    try:
        opening = _open_directory(lock, settings.sync, unlock, keep_lock=keep_lock)
        store = await _in_time(settings.url, opening)
    except BaseException:
        lock.release()
        raise
    try:
        await lock.wait(limits.STORE_TAKE_OVER_TIMEOUT_S)  # who has it is fenced and about to end
    except StorageError as error:
        await store.close()
        raise StorageError(f"{error.reason}; it cannot write any more, but has not ended: kill it") from error
    return store


async def _open_directory(lock: DirectoryLock, sync: str, unlock: _Unlock, *, keep_lock: bool) -> SlateStore:
    loop = asyncio.get_running_loop()
    root = lock.directory
    place = _in_directory(root)
    directory = root / DATABASE
    synced = sync == "always"
    notes = []
    if lock.is_held:  # whoever else has it is writing what would look torn, and put the rest right before
        strict = synced and not has_journal(root)
        notes = await set_aside_torn(directory, DATABASE, place.store, strict=strict)
    if lock.note:
        notes.append(lock.note)
    database = await _build(place, local=True, collects_garbage=not synced)
    opened = await unlock(database)
    kept_lock = lock if keep_lock else None
    admin = place.admin()
    if not synced:
        notes.append("storage.sync is os: a power cut may take messages that were confirmed")
        return opened(
            database,
            f"{root} (written by the kernel when it likes)",
            admin=admin,
            directory=directory,
            lock=kept_lock,
            notes=tuple(notes),
        )
    try:
        local_sync = await loop.run_in_executor(None, LocalSync, directory)
    except StorageError:
        await database.shutdown()
        raise
    return opened(
        database,
        f"{root} (fsync before confirm)",
        sync=local_sync,
        garbage=LocalGarbage(directory, admin),
        admin=admin,
        directory=directory,
        lock=kept_lock,
        notes=tuple(notes),
    )


async def _open_remote(
    place: Place, unlock: _Unlock, description: str = "", *, is_leased: bool = False
) -> SlateStore:
    database = await _build(place, local=False, is_leased=is_leased)
    return (await unlock(database))(database, description or place.describe(), admin=place.admin())


def database_at(url: str) -> Place:
    """Return the database's place in an object store, or in a directory taken for one.

    Raises StorageError.
    """
    if "://" in url:
        return Place.of(url)
    if not (Path(url) / DATABASE).is_dir():
        raise StorageError(f"opening: there is no database in {url}")
    return _in_directory(Path(url).resolve())


def _in_directory(root: Path) -> Place:
    builder = ObjectStoreBuilder(ObjectStoreType.LOCAL)
    builder.with_config("local_path", str(root))
    return Place(str(root), DATABASE, builder.build())


async def _build(place: Place, *, local: bool, collects_garbage: bool = True, is_leased: bool = False) -> Db:
    builder = DbBuilder(place.path, place.store)
    if place.log is not None:
        builder.with_wal_object_store(place.log)
    settings = broker_settings(local=local, collects_garbage=collects_garbage, is_leased=is_leased)
    builder.with_settings(settings)
    cache = DbCache.new_moka_cache(
        MokaCacheOptions(max_capacity=limits.STORE_BLOCK_CACHE_BYTES, time_to_live=None, time_to_idle=None)
    )
    builder.with_db_cache(cache, _CACHE_ID)
    # four times the default: the index of a table is a quarter, and most reads are scans
    builder.with_sst_block_size(SstBlockSize.BLOCK16_KIB)
    try:
        return await builder.build()
    except SLATE_ERRORS as error:
        if isinstance(error, Error.Data):
            raise StorageError(f"opening: the database is damaged: {error.message}") from error
        raise translate(error, "opening") from error


def refuse_backup(directory: Path) -> None:
    """Raise StorageError if what lies in the directory is a backup."""
    if (directory / INDEX_NAME).exists():
        raise StorageError(
            f"opening: {directory} is a backup, not a storage. `sluicemq restore {directory} --check` reads "
            "all of it, and with `--storage` fills an empty storage with it"
        )


def _writable_directory(path: Path) -> Path:
    """Return `path` as an absolute directory that exists and takes files. Raises StorageError."""
    refuse_backup(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise StorageError(f"opening: cannot write to {path}: {error.strerror}") from error
    limited = file_size_trouble()
    if limited:
        raise StorageError(f"opening: cannot write to {path}: {limited}")
    return path.resolve()
