"""Where the files of a backup lie.

SlateDB's binding gives no access to the objects of a store, only to databases in it. So in an object store a
backup is a small database of its own, with a row for each file: wherever a broker can have its storage, a
backup can lie.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from slatedb.uniffi import DbReader

from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.open import open_database, open_remote_reader
from storage.place import close_reader
from storage.slate_errors import SLATE_ERRORS, translate
from storage.slate_store import SlateStore

_KEY: Final = b"backup/"
_PARTIAL: Final = ".partial"


class FileSink(Protocol):
    """An empty place that takes the files of one backup, the index last."""

    async def put(self, name: str, data: bytes) -> None:
        """Keep a file, on disk when this returns. Raises StorageError."""
        ...

    async def close(self) -> None:
        """Let go of the place. Raises StorageError."""
        ...


class FileSource(Protocol):
    """The files of a backup, to be read."""

    async def get(self, name: str) -> bytes | None:
        """Return a file, or None where it is absent. Raises StorageError."""
        ...

    async def close(self) -> None:
        """Let go of the place."""
        ...


async def open_for_writing(url: str) -> FileSink:
    """Open a place for a new backup: a directory, made if absent, or `s3://bucket/prefix` and its like.

    Raises StorageError where there is something already.
    """
    if url == "memory:":
        raise StorageError("a backup in memory would be none")
    if "://" not in url:
        return await asyncio.get_running_loop().run_in_executor(None, _DirectorySink, Path(url))
    reader = await open_remote_reader(url)
    if reader is not None:
        await reader.shutdown()
        raise StorageError(f"{url} is not empty")
    return _RemoteSink(await open_database(StorageSettings(url=url)))


async def open_for_reading(url: str) -> FileSource:
    """Open a backup that is there. Raises StorageError where nothing is."""
    if "://" not in url:
        return _DirectorySource(Path(url))
    reader = await open_remote_reader(url)
    if reader is None:
        raise StorageError(f"{url} holds no backup")
    return _RemoteSource(reader)


class _DirectorySink:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if any(directory.iterdir()):
                raise StorageError(f"{directory} is not empty")
        except OSError as error:
            raise StorageError(f"cannot write to {directory}: {error.strerror}") from error

    async def put(self, name: str, data: bytes) -> None:
        """See `FileSink.put`."""
        await _run(self._put, name, data)

    async def close(self) -> None:
        """See `FileSink.close`."""

    def _put(self, name: str, data: bytes) -> None:
        path = self._directory / name
        partial = path.with_name(name + _PARTIAL)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise StorageError(f"writing {path}: {error.strerror}") from error


class _DirectorySource:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def get(self, name: str) -> bytes | None:
        """See `FileSource.get`."""
        try:
            data: bytes = await _run((self._directory / name).read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StorageError(f"reading {self._directory / name}: {error.strerror}") from error
        return data

    async def close(self) -> None:
        """See `FileSource.close`."""


class _RemoteSink:
    def __init__(self, store: SlateStore) -> None:
        self._store = store

    async def put(self, name: str, data: bytes) -> None:
        """See `FileSink.put`."""
        ops = WriteOps()
        ops.put(_KEY + name.encode(), data)
        await self._store.write(ops)

    async def close(self) -> None:
        """See `FileSink.close`."""
        await self._store.close()


class _RemoteSource:
    def __init__(self, reader: DbReader) -> None:
        self._reader = reader

    async def get(self, name: str) -> bytes | None:
        """See `FileSource.get`."""
        try:
            data: bytes | None = await self._reader.get(_KEY + name.encode())
        except SLATE_ERRORS as error:
            raise translate(error, f"reading {name}") from error
        return data

    async def close(self) -> None:
        """See `FileSource.close`."""
        await close_reader(self._reader)


async def _run(call: Callable[..., Any], *arguments: object) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)
