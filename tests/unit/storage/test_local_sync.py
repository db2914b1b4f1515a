import errno
import os

import pytest

from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.local_sync import LocalSync, wal_ids, wal_name


@pytest.fixture
def database(tmp_path):
    for folder in ("wal", "manifest", "compacted", "compactions"):
        (tmp_path / folder).mkdir()
    return tmp_path


@pytest.fixture
def synced(monkeypatch):
    """Names of the files and directories that fsync was called for, in order."""
    names = []
    original = os.fsync

    def record(fd: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        original(fd)

    monkeypatch.setattr(os, "fsync", record)
    return names


def add_wal(database, wal_id: int) -> str:
    (database / "wal" / wal_name(wal_id)).write_bytes(b"rows")
    return wal_name(wal_id)


def test_log_object_names_match_slatedb(database):
    assert wal_name(17) == "00000000000000000017.sst"
    for wal_id in (3, 17, 5):
        add_wal(database, wal_id)
    (database / "wal" / "00000000000000000018.sst#1").touch()
    assert wal_ids(database) == [3, 5, 17]
    assert wal_ids(database / "absent") == []


def test_only_new_objects_are_synced_and_then_their_directory(database, synced):
    add_wal(database, 1)
    sync = LocalSync(database)
    assert synced == []
    second, third = add_wal(database, 2), add_wal(database, 3)
    sync.sync_wal()
    assert synced == [second, third, "wal"]
    assert sync.wal_synced == 2
    sync.sync_wal()
    assert synced == [second, third, "wal"]
    fourth = add_wal(database, 4)
    sync.sync_wal()
    assert synced[3:] == [fourth, "wal"]
    sync.close()


def test_sweep_syncs_new_files_beside_the_log(database, synced):
    (database / "manifest" / "1.manifest").touch()
    sync = LocalSync(database)
    assert sync.sweep() == 0
    (database / "manifest" / "2.manifest").touch()
    (database / "compacted" / "a.sst").touch()
    (database / "compacted" / "b.sst#1").touch()
    assert sync.sweep() == 2
    assert sorted(synced) == ["2.manifest", "a.sst", "compacted", "manifest"]
    (database / "compacted" / "a.sst").unlink()
    assert sync.sweep() == 0
    sync.close()


def test_directory_created_later_is_swept(database, synced):
    (database / "compacted").rmdir()
    sync = LocalSync(database)
    assert sync.sweep() == 0
    (database / "compacted").mkdir()
    (database / "compacted" / "a.sst").touch()
    assert sync.sweep() == 1
    sync.close()


@pytest.mark.parametrize(("number", "kind"), [(errno.EIO, StorageError), (errno.ENOSPC, StoreFull)])
def test_sync_after_a_failed_fsync_fails_too(database, monkeypatch, number, kind):
    sync = LocalSync(database)
    add_wal(database, 1)

    def fail(fd: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(kind, match="syncing to disk"):
        sync.sync_wal()
    monkeypatch.undo()
    with pytest.raises(StorageError, match="syncing to disk"):
        sync.sync_wal()
    with pytest.raises(StorageError, match="syncing to disk"):
        sync.sweep()
    assert sync.wal_synced == 0
    sync.close()


def test_database_without_a_log_is_refused(tmp_path):
    with pytest.raises(StorageError, match="syncing to disk"):
        LocalSync(tmp_path)


def test_want_of_descriptors_passes_and_the_next_sync_goes_on(database, synced, monkeypatch):
    sync = LocalSync(database)
    opened = os.open

    def no_more_than_one(path, flags, *rest):
        if synced:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(path, flags, *rest)

    first = add_wal(database, 1)
    monkeypatch.setattr(os, "open", no_more_than_one)
    with pytest.raises(StoreUnavailable, match="Too many open files"):
        sync.sync_wal()
    assert synced == [first]
    assert sync.wal_synced == 0, "its directory is not on disk"
    monkeypatch.setattr(os, "open", opened)
    sync.sync_wal()
    assert synced == [first, "wal"]
    assert sync.wal_synced == 1
    sync.close()


def test_sweep_that_had_no_descriptors_is_made_up_for(database, synced, monkeypatch):
    sync = LocalSync(database)
    (database / "manifest" / "2.manifest").touch()
    opened = os.open

    def none_left(path, flags, *rest):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(StoreUnavailable):
        sync.sweep()
    monkeypatch.setattr(os, "open", opened)
    assert sync.sweep() == 1
    assert synced == ["2.manifest", "manifest"]
    sync.close()
