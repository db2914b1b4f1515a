"""Getting SlateDB's files onto a local disk.

SlateDB writes whole objects to a temporary name and links them into place, and never calls fsync. Two things
make up for it:

- `sync_wal`: the WAL objects that appeared since the last call, and their directory.
- `sweep`, every few seconds: new tables, manifests and compaction states. Until then a power cut may spoil
  them, which costs nothing as long as what they replace is still there: `storage.local_garbage` deletes
  only what the last whole sweep has replaced.

An fsync that failed is not tried again: the kernel may have dropped the pages and call the next one a
success. A file that could not be opened for want of descriptors is: nothing has been done to it.
"""

import ctypes
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from storage.errors import StorageError, StoreFull, StoreUnavailable

WAL_DIRECTORY: Final = "wal"
MANIFEST_DIRECTORY: Final = "manifest"
COMPACTIONS_DIRECTORY: Final = "compactions"
TABLE_DIRECTORY: Final = "compacted"
STATE_DIRECTORIES: Final = (MANIFEST_DIRECTORY, COMPACTIONS_DIRECTORY)


class OnDisk(NamedTuple):
    """The files that were there when a sweep began, which is on disk since it ended, with all it refers to.

    The numbers are those of the newest manifest and compaction state, 0 if there was none. `next_wal_id`: the
    first log object that was not synced, and is still to be found by `sync_wal`.
    """

    manifest: int
    compactions: int
    next_wal_id: int
    begun_wall_s: float
    begun_monotonic_s: float


def wall_s() -> float:
    """Return the time by which SlateDB's checkpoints end."""
    return time.time()  # noqa: TID251 - to be compared with SlateDB's own, which no test can set


_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


def wal_name(wal_id: int) -> str:
    """Return the file name of a WAL object."""
    return f"{wal_id:020d}.sst"


def wal_ids(database: Path) -> list[int]:
    """Return the numbers of all WAL objects of the database directory, rising."""
    return sorted(numbers_of(_names(database / WAL_DIRECTORY)))


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of the files that are named by one."""
    stems = [name.partition(".")[0] for name in names]
    return [int(stem) for stem in stems if stem.isdigit()]


class LocalSync:
    """Syncs one database directory. Its methods block: call them in threads, each always in the same one."""

    def __init__(self, database: Path) -> None:
        """Put everything that lies in `database` on disk, then watch for what is new. Raises StorageError."""
        self._database = database
        self._broken = ""
        self._wal_prefix = str(database / WAL_DIRECTORY) + os.sep
        self._swept: set[str] = set()
        self._folders: set[str] = set()  # whose entries in the database's directory are on disk
        self._unlisted_count = 0  # synced WAL objects whose directory is not
        self.wal_synced = 0
        """WAL objects put on disk by `sync_wal` so far."""
        ids = wal_ids(database)
        self._next_wal_id = ids[-1] + 1 if ids else 1
        try:
            self._wal_fd = os.open(self._wal_prefix, os.O_RDONLY | os.O_DIRECTORY)
            self._folders = _names(database)
            on_disk, names = self._look()
            for found in names.values():
                self._swept |= found
            _sync_filesystem(self._wal_fd)
        except OSError as error:
            raise _failure(error) from error
        self.on_disk: OnDisk = on_disk
        """By the last sweep that came to its end."""

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

    def sync_wal_wholly(self) -> None:
        """Call `sync_wal`, and refuse that it left a WAL object that it did not find. Raises StorageError
        like it.
        """
        before = self.wal_synced
        self.sync_wal()
        if self.wal_synced == before and any(found >= self._next_wal_id for found in wal_ids(self._database)):
            self.sync_wal()  # one may have come since
            if self.wal_synced == before:
                self._broken = f"syncing to disk: write-ahead log object {self._next_wal_id} was not found"
                raise StorageError(self._broken)

    def sweep(self) -> int:
        """Fsync what is new in the other directories since the last call; how many files there were.

        Raises StorageError like `sync_wal`.
        """
        if self._broken:
            raise StorageError(self._broken)
        try:
            on_disk, names = self._look()
            present: set[str] = set()
            count = 0
            for folder, found in names.items():
                new = found - self._swept
                for name in sorted(new):
                    _sync_path(self._database / folder / name)
                if new:
                    _sync_path(self._database / folder)
                present |= found
                count += len(new)
            folders = _names(self._database)
            if folders - self._folders:
                _sync_path(self._database)
        except OSError as error:
            raise self._failed(error) from error
        self._swept, self._folders = present, folders
        self.on_disk = on_disk
        return count

    def _look(self) -> tuple[OnDisk, dict[str, set[str]]]:
        """List the files that are there now; gives also those of each folder, in the order to sync them.

        Manifests are listed first: every table they name is there when the tables are listed.
        """
        begun_wall_s, begun_monotonic_s = wall_s(), time.monotonic()
        states = {folder: _names(self._database / folder) for folder in STATE_DIRECTORIES}
        names = {TABLE_DIRECTORY: _names(self._database / TABLE_DIRECTORY), **states}
        newest = [max(numbers_of(states[folder]), default=0) for folder in STATE_DIRECTORIES]
        return OnDisk(newest[0], newest[1], self._next_wal_id, begun_wall_s, begun_monotonic_s), names

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


def sync_filesystem_of(directory: Path) -> None:
    """Put everything on the filesystem of `directory` on disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_filesystem(fd)
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
