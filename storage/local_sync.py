"""Getting SlateDB's files onto a local disk.

SlateDB writes whole objects to a temporary name and links them into place, and never calls fsync. Two things
make up for it:

- `sync_wal`, within every commit: the WAL objects that appeared since the last one, and their directory.
- `sweep`, every few seconds: new tables, manifests and compaction states. Until then a power cut may spoil
  them, which costs nothing as long as the WAL objects they replace are still there; garbage collection leaves
  those alone for `limits.STORE_GARBAGE_AGE_MIN_S`, several sweeps.

An fsync that failed is not tried again: the kernel may have dropped the pages and call the next one a
success. A file that could not be opened for want of descriptors is: nothing has been done to it.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from storage.errors import StorageError, StoreFull, StoreUnavailable

WAL_DIRECTORY: Final = "wal"
SWEPT_DIRECTORIES: Final = ("compacted", "compactions", "manifest")

_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def wal_name(wal_id: int) -> str:
    """The file name of a WAL object."""
    return f"{wal_id:020d}.sst"


def wal_ids(database: Path) -> list[int]:
    """The numbers of all WAL objects of the database directory, rising."""
    try:
        names = os.listdir(database / WAL_DIRECTORY)
    except FileNotFoundError:
        return []
    return sorted(int(name[:-4]) for name in names if name.endswith(".sst") and name[:-4].isdigit())


class LocalSync:
    """Syncs one database directory. Its methods block: call them in threads, each always in the same one."""

    __slots__ = (
        "_broken",
        "_database",
        "_next_wal_id",
        "_swept",
        "_unlisted_count",
        "_wal_fd",
        "_wal_prefix",
        "wal_synced",
    )

    def __init__(self, database: Path) -> None:
        """Put everything that lies in `database` on disk, then watch for what is new. Raises StorageError."""
        self._database = database
        self._broken = ""
        self._wal_prefix = str(database / WAL_DIRECTORY) + os.sep
        self._swept: set[str] = set()
        self._unlisted_count = 0  # synced WAL objects whose directory is not
        self.wal_synced = 0
        """WAL objects put on disk by `sync_wal` so far."""
        ids = wal_ids(database)
        self._next_wal_id = ids[-1] + 1 if ids else 1
        try:
            self._wal_fd = os.open(self._wal_prefix, os.O_RDONLY | os.O_DIRECTORY)
            for directory in SWEPT_DIRECTORIES:
                self._swept |= _names(database / directory)
            _sync_filesystem(self._wal_fd)
        except OSError as error:
            raise _failure(error) from error

    def sync_wal(self) -> None:
        """Fsync the WAL objects that are new since the last call, then their directory.

        Raises StorageError if the disk reports a failure, and from then on always; StoreUnavailable while no
        more files can be opened: the next call goes on where this one stopped.
        """
        if self._broken:
            raise StorageError(self._broken)
        try:
            while True:
                # numbers have no gaps, so the next object is found without listing the directory
                try:
                    fd = os.open(self._wal_prefix + wal_name(self._next_wal_id), os.O_RDONLY)
                except FileNotFoundError:
                    break
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
                self._next_wal_id += 1
                self._unlisted_count += 1
            if self._unlisted_count:
                os.fsync(self._wal_fd)
        except OSError as error:
            raise self._failed(error) from error
        self.wal_synced += self._unlisted_count
        self._unlisted_count = 0

    def sweep(self) -> int:
        """Fsync what is new in the other directories since the last call; how many files there were.

        Raises StorageError like `sync_wal`.
        """
        if self._broken:
            raise StorageError(self._broken)
        count = 0
        present: set[str] = set()
        try:
            for directory in SWEPT_DIRECTORIES:
                folder = self._database / directory
                names = _names(folder)
                present |= names
                new = names - self._swept
                for name in sorted(new):
                    _sync_path(folder / name)
                if new:
                    _sync_path(folder)
                count += len(new)
        except OSError as error:
            raise self._failed(error) from error
        self._swept = present
        return count

    def close(self) -> None:
        """Let go of the directory. No other method may be called afterwards."""
        os.close(self._wal_fd)

    def _failed(self, error: OSError) -> StorageError:
        failure = _failure(error)
        if not isinstance(failure, StoreUnavailable):
            self._broken = failure.reason
        return failure


def _names(folder: Path) -> set[str]:
    try:
        # a name with # is an object still being written
        return {name for name in os.listdir(folder) if "#" not in name}
    except FileNotFoundError:
        return set()


def _sync_path(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # collected as garbage since it was listed
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_filesystem(fd: int) -> None:
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _failure(error: OSError) -> StorageError:
    reason = f"syncing to disk: {error.strerror or error}"
    if error.errno in _OUT_OF_DESCRIPTORS:
        return StoreUnavailable(reason)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(reason)
    return StorageError(reason)
