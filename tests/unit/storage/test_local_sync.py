import errno
import os

import pytest

from storage import local_sync
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


def test_log_object_that_comes_while_others_are_looked_for_is_synced(database, synced, monkeypatch):
    add_wal(database, 1)
    sync = LocalSync(database)

    def look(folder):
        add_wal(database, 2)
        return wal_ids(folder)

    monkeypatch.setattr(local_sync, "wal_ids", look)
    sync.sync_wal_wholly()
    assert synced == [wal_name(2), "wal"]
    sync.close()


def test_log_object_behind_a_missing_one_fails_for_good(database):
    add_wal(database, 1)
    sync = LocalSync(database)
    add_wal(database, 3)
    for _ in range(2):
        with pytest.raises(StorageError, match="write-ahead log object 2 was not found"):
            sync.sync_wal_wholly()
    sync.close()


def test_entry_of_a_new_directory_is_synced(database, synced):
    (database / "compacted").rmdir()
    sync = LocalSync(database)
    (database / "compacted").mkdir()
    (database / "compacted" / "a.sst").touch()
    sync.sweep()
    assert synced == ["a.sst", "compacted", database.name]
    sync.close()


def test_sweep_lists_manifests_before_the_tables_they_name(database, monkeypatch):
    """What it calls on disk has all its tables there: one that came in between does not count."""
    sync = LocalSync(database)
    (database / "compacted" / "a.sst").touch()
    (database / "manifest" / "7.manifest").touch()
    listed = os.listdir

    def list_slowly(folder):
        names = listed(folder)
        if folder == database / "compacted":
            (database / "manifest" / "8.manifest").touch()
        return names

    monkeypatch.setattr(os, "listdir", list_slowly)
    sync.sweep()
    assert sync.on_disk.manifest == 7
    sync.sweep()
    assert sync.on_disk.manifest == 8
    sync.close()


def test_sweep_that_failed_puts_nothing_on_disk(database, monkeypatch):
    sync = LocalSync(database)
    (database / "manifest" / "7.manifest").touch()
    monkeypatch.setattr(os, "fsync", lambda fd: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StorageError):
        sync.sweep()
    assert sync.on_disk.manifest == 0
    sync.close()
