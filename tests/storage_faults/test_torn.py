"""What a power cut leaves in a database without a journal: what was not synced is empty, cut short, or zeros.

So releases before the journal left it; the first start puts one before it.
"""

import shutil
from pathlib import Path

import pytest
from slatedb.uniffi import AdminBuilder, CompactionSpec, ObjectStoreBuilder, ObjectStoreType, SourceId

from config.settings import StorageSettings
from storage.errors import FormatTooNew, StorageError
from storage.local_sync import wal_name
from storage.open import open_store
from storage.torn_files import BOOT_FILE
from tests.storage_faults.children import Writer, check_rows
from tests.unit.storage.store_conformance import batch

CONFIRMED = 30
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A database with tables and log objects, left without a close after a number of confirmed commits."""
    directory = tmp_path_factory.mktemp("written")
    writer = Writer(str(directory), sync="no journal", commits=CONFIRMED + 1, value_bytes=100_000)
    writer.start()
    writer.wait()
    return directory


@pytest.fixture
def database(written, tmp_path):
    shutil.copytree(written / "db", tmp_path / "db")
    (tmp_path / "db" / BOOT_FILE).unlink(missing_ok=True)  # the machine was started anew
    return tmp_path / "db"


def newest(folder, back: int = 0):
    return sorted(folder.iterdir())[-1 - back]


def tear(path, how: str) -> None:
    data = path.read_bytes()
    if how == "empty":
        path.write_bytes(b"")
    elif how == "half":
        path.write_bytes(data[: len(data) // 2])
    elif how == "zeros":
        path.write_bytes(bytes(len(data)))
    elif how == "hole":
        path.write_bytes(
            data[:10] + bytes(min(4_096, len(data) - 20)) + data[10 + min(4_096, len(data) - 20) :]
        )


async def reopen(database, sync: str = "always"):
    return await open_store(StorageSettings(url=str(database.parent), sync=sync))


async def test_untouched(database):
    store = await reopen(database)
    assert store.notes == ()
    await check_rows(store, CONFIRMED)
    await store.close()


@pytest.mark.parametrize("how", ["half", "zeros", "hole"])
async def test_commit_that_was_not_confirmed(database, how):
    """The newest log object here stands for a commit whose fsync the power cut came before."""
    log = newest(database / "wal")
    tear(log, how)
    store = await reopen(database)
    assert len(store.notes) == 1
    assert f"wal/{log.name}" in store.notes[0]
    assert (database / "torn" / f"wal-{log.name}").exists()
    await check_rows(store, CONFIRMED - 1)
    await store.close()
    store = await reopen(database)
    assert store.notes == ()
    await check_rows(store, CONFIRMED - 1)
    await store.close()


async def test_empty_log_object_is_like_a_fence(database):
    tear(newest(database / "wal"), "empty")
    store = await reopen(database)
    await check_rows(store, CONFIRMED - 1)
    await store.close()


async def test_a_torn_end_may_have_a_fence_behind_it(database):
    """A start that failed behind it has left an empty object."""
    log = newest(database / "wal")
    tear(log, "half")
    (database / "wal" / wal_name(int(log.stem) + 1)).touch()
    store = await reopen(database)
    assert len(store.notes) == 2
    await check_rows(store, CONFIRMED - 1)
    await store.close()


async def test_a_missing_object_of_the_log_is_refused(database):
    newest(database / "wal", back=2).unlink()
    with pytest.raises(StorageError, match="is missing, and later ones are there"):
        await reopen(database)
    assert not (database / "torn").exists()


@pytest.mark.parametrize("how", ["empty", "half", "zeros", "hole"])
async def test_manifest(database, how):
    manifest = newest(database / "manifest")
    tear(manifest, how)
    store = await reopen(database)
    assert [f"manifest/{manifest.name}" in note for note in store.notes] == [True]
    assert (database / "torn" / f"manifest-{manifest.name}").exists()
    await check_rows(store, CONFIRMED)
    await store.close()
    store = await reopen(database)
    assert store.notes == ()
    await check_rows(store, CONFIRMED)
    await store.close()


@pytest.mark.parametrize("how", ["empty", "half", "zeros", "hole"])
async def test_table_of_the_newest_manifest(database, how):
    """The manifest reached the disk and its table did not: the log still has everything."""
    table = newest(database / "compacted")
    tear(table, how)
    store = await reopen(database)
    assert any(f"its table {table.name} is not whole" in note for note in store.notes)
    await check_rows(store, CONFIRMED)
    await store.close()


async def test_all_at_once(database):
    for folder in ("manifest", "compacted", "compactions"):
        tear(newest(database / folder), "half")
    store = await reopen(database)
    assert len(store.notes) >= 1
    await check_rows(store, CONFIRMED)
    await store.close()


@pytest.mark.parametrize("how", ["empty", "half", "zeros", ""])
async def test_what_was_being_compacted_is_forgotten(database, how):
    """Whole or not: a state newer than the manifest would have tables dropped that were never compacted."""
    state = newest(database / "compactions")
    tear(state, how)
    later = state.with_name("00000000000000000999.compactions")
    shutil.copy(state, later)
    store = await reopen(database)
    assert store.notes == ()
    assert not later.exists()
    await check_rows(store, CONFIRMED)
    await store.close()


async def test_a_torn_manifest_whose_log_is_gone_is_not_given_up(database):
    for log in sorted((database / "wal").iterdir())[:-5]:
        log.unlink()
    tear(newest(database / "manifest"), "half")
    with pytest.raises(StorageError, match="could lose confirmed messages"):
        await reopen(database)
    assert not (database / "torn").exists()


async def test_damage_in_the_middle_of_a_synced_log_is_refused(database):
    """It was synced before the next commit began, so this is not the work of a power cut."""
    tear(newest(database / "wal", back=2), "half")
    with pytest.raises(StorageError, match="damaged"):
        await reopen(database)
    assert not (database / "torn").exists()


async def test_a_log_that_was_never_synced_is_cut_at_the_first_tear(database):
    tear(newest(database / "wal", back=2), "half")
    store = await reopen(database, sync="os")
    assert len([note for note in store.notes if "torn/wal-" in note]) == 3
    await check_rows(store, CONFIRMED - 3)
    await store.close()


@pytest.mark.parametrize("folder", ["manifest", "compactions"])
async def test_a_newer_slatedb_is_not_called_torn(database, folder):
    path = newest(database / folder)
    path.write_bytes(b"\x00\x09" + path.read_bytes()[2:])
    with pytest.raises(FormatTooNew, match="version 9"):
        await reopen(database)
    assert not (database / "torn").exists()


async def test_what_was_set_aside_before_is_kept(database):
    manifest = newest(database / "manifest")
    (database / "torn").mkdir()
    (database / "torn" / f"manifest-{manifest.name}").write_bytes(b"earlier")
    tear(manifest, "half")
    store = await reopen(database)
    assert (database / "torn" / f"manifest-{manifest.name}").read_bytes() == b"earlier"
    assert (database / "torn" / f"manifest-{manifest.name}.2").exists()
    await store.close()


async def test_reading_whole_tables_is_left_out_while_the_machine_runs(database):
    store = await reopen(database)
    await store.close()
    assert (database / BOOT_FILE).read_text() == BOOT_ID
    table = newest(database / "compacted", back=1)  # the last one has what the opening itself reads
    tear(table, "hole")  # would be found after a power cut
    store = await reopen(database)
    assert store.notes == ()
    await store.close()


async def test_compaction_of_newer_tables_alone_is_not_gone_on_with(tmp_path):
    """A state newer than the manifest: gone on with, it has the older tables dropped, as if compacted."""
    store = await reopen(tmp_path / "db", "os")
    for number in range(3):
        await store.write(batch({b"k%d" % number: b"v"}))
        await store._flush_tables()
    await store.close()
    local = ObjectStoreBuilder(ObjectStoreType.LOCAL)
    local.with_config("local_path", str(tmp_path))
    admin = AdminBuilder("db", local.build()).build()
    manifest = await admin.read_manifest(None)
    assert len(manifest.l0) == 3
    newest_alone = CompactionSpec.TIERED(b"", [SourceId.SST_VIEW(manifest.l0[0].id)], 0)
    submitted = await admin.submit_compaction(newest_alone)
    store = await reopen(tmp_path / "db", "os")
    left = (await admin.read_compactor_state_view()).compactions
    assert left is None or submitted.id not in [one.id for one in left.recent_compactions]
    assert len(await store.scan(b"k", None, limit=9)) == 3
    await store.close()
