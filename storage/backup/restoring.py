"""From the files of a backup to a storage that a broker can open."""

from collections.abc import Callable
from pathlib import Path

from config import limits
from config.settings import StorageSettings
from storage.backup.archive import BackupDamaged, Index, check_part, decode_index, decode_rows
from storage.backup.backup_places import FileSource
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.layout import INDEX_NAME
from storage.open import open_database, open_remote_reader
from storage.records import encryption, format_marker
from storage.records.special_codecs import PLAIN_VERSION, SEALED_VERSION
from storage.shards import is_shard
from storage.slate_store import SlateStore

Tell = Callable[[int], None]
"""Is given how many bytes are done."""


async def check_backup(source: FileSource, tell: Tell = lambda done: None) -> Index:
    """Read every file and compare it with the index, which is given.

    Raises BackupDamaged, naming the file, for what is missing or differs; FormatTooNew; StorageError.
    """
    index = decode_index(await source.get(INDEX_NAME))
    done = 0
    for file in index.files:
        data = check_part(file, await source.get(file.name))
        if sum(1 for _ in decode_rows(file.name, data)) != file.rows:
            raise BackupDamaged(file.name, f"does not have {file.rows} rows")
        done += file.bytes
        tell(done)
    return index


async def restore_backup(
    source: FileSource, index: Index, settings: StorageSettings, tell: Tell = lambda done: None
) -> None:
    """Fill the empty storage at `settings.url` with a backup that was checked. Raises StorageError.

    If it does not come to its end, the storage is one that no broker opens.
    """
    await check_empty(settings.url)
    store = await open_database(settings)
    try:
        done = 0
        for file in index.files:
            await _write_rows(store, file.name, check_part(file, await source.get(file.name)))
            done += file.bytes
            tell(done)
        await _finish(store)
    finally:
        await store.close()


async def check_empty(url: str) -> None:
    """Raise StorageError if there is something at `url`, but for storages of other shards."""
    if url == "memory:":
        raise StorageError("what is restored into memory is gone at once")
    if "://" in url:
        reader = await open_remote_reader(url)
        if reader is not None:
            await reader.shutdown()
            raise StorageError(f"{url} is not empty")
        return
    try:
        if not all(map(is_shard, Path(url).iterdir())):  # noqa: ASYNC240 - nobody else waits for this loop
            raise StorageError(f"{url} is not empty")
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(f"{url}: {error.strerror}") from error


async def _write_rows(store: SlateStore, name: str, data: bytes) -> None:
    ops, ops_bytes = WriteOps(), 0
    for key, value in decode_rows(name, data):
        ops.put(key, value)
        ops_bytes += len(key) + len(value)
        if ops_bytes >= limits.RESTORE_WRITE_BYTES:
            await store.write(ops)
            ops, ops_bytes = WriteOps(), 0
    if ops.puts:
        await store.write(ops)


async def _finish(store: SlateStore) -> None:
    """Say that this is a storage; whatever is in it, nothing opened it before."""
    ops = WriteOps()
    is_sealed = await store.get(encryption.key()) is not None
    ops.put(format_marker.key(), format_marker.encode(SEALED_VERSION if is_sealed else PLAIN_VERSION))
    await store.write(ops)
