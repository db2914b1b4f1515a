import json

import pytest
from slatedb.uniffi import ObjectStore

from config import limits
from config.settings import StorageSettings
from storage import slate_settings
from storage.errors import CorruptRecord, FormatTooNew, StorageError
from storage.open import open_database, open_store
from storage.records import format_marker
from storage.records.special_codecs import JOURNALED_VERSION, PLAIN_VERSION, SEALED_VERSION
from storage.slate_settings import broker_settings
from tests.unit.storage.store_conformance import batch


async def test_missing_directory_is_created_and_opens_again(tmp_path):
    settings = StorageSettings(url=str(tmp_path / "a" / "b"))
    store = await open_store(settings)
    assert store.notes == ()
    assert store.describe() == f"{tmp_path}/a/b (fsync before confirm)"
    await store.write(batch({b"k": b"v"}))
    await store.close()
    assert (tmp_path / "a" / "b" / "db" / "manifest").is_dir()
    store = await open_store(settings)
    assert await store.get(b"k") == b"v"
    assert store.notes == ()
    await store.close()


async def test_relative_path_is_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = await open_store(StorageSettings(url="./data"))
    await store.close()
    assert (tmp_path / "data" / "db").is_dir()


async def test_sync_os_is_noted(tmp_path):
    store = await open_store(StorageSettings(url=str(tmp_path), sync="os"))
    assert store.notes == ("storage.sync is os: a power cut may take messages that were confirmed",)
    assert store.describe() == f"{tmp_path} (written by the kernel when it likes)"
    await store.close()


async def test_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="opening: cannot write to .*file"):
        await open_store(StorageSettings(url=str(tmp_path / "file")))
    with pytest.raises(StorageError, match="cannot write"):
        await open_store(StorageSettings(url="/proc/sluicemq"))


async def test_memory_store_is_empty_at_each_start_unless_kept():
    settings = StorageSettings(url="memory:")
    memory = ObjectStore.resolve("memory:///")
    for kept, value in ((None, None), (memory, None), (memory, b"v"), (None, None)):
        store = await open_store(settings, memory=kept)
        assert store.describe() == "memory (nothing survives a restart)"
        assert await store.get(b"k") == value
        await store.write(batch({b"k": b"v"}))
        await store.close()


@pytest.mark.parametrize(
    ("sync", "version"),
    [("always", JOURNALED_VERSION), ("os", PLAIN_VERSION)],
)
async def test_format_marker_says_whether_there_is_a_journal(tmp_path, sync, version):
    for _ in range(2):
        store = await open_store(StorageSettings(url=str(tmp_path), sync=sync))
        assert await store.get(format_marker.key()) == format_marker.encode(version)
        await store.close()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (format_marker.encode(SEALED_VERSION + 1), FormatTooNew),
        (b"\x01\x00\x03\x00abc", CorruptRecord),
        (b"\x01", CorruptRecord),
    ],
)
async def test_database_of_another_format_is_refused(value, error):
    settings = StorageSettings(url="memory:")
    memory = ObjectStore.resolve("memory:///")
    store = await open_database(settings, memory=memory)
    await store.write(batch({format_marker.key(): value}))
    await store.close()
    with pytest.raises(error):
        await open_store(settings, memory=memory)


async def test_database_with_foreign_data_is_refused():
    settings = StorageSettings(url="memory:")
    memory = ObjectStore.resolve("memory:///")
    store = await open_database(settings, memory=memory)
    await store.write(batch({b"someone": b"else"}))
    await store.close()
    with pytest.raises(StorageError, match="data that is not SluiceMQ's"):
        await open_store(settings, memory=memory)


async def test_unknown_storage_scheme_is_refused():
    with pytest.raises(StorageError, match="ftp://host/x"):
        await open_store(StorageSettings.model_construct(url="ftp://host/x", sync="always"))


def test_slatedb_collects_nothing_where_we_fsync():
    found = json.loads(broker_settings(local=True, collects_garbage=False).to_json_string())
    assert found["garbage_collector_options"] is None


@pytest.mark.parametrize("local", [True, False])
def test_slatedb_gets_the_documented_settings(local):
    found = json.loads(broker_settings(local=local).to_json_string())
    assert found["flush_interval"] is None
    assert found["object_store_max_retries"] is None
    assert found["max_unflushed_bytes"] == limits.STORE_UNFLUSHED_BYTES_MAX > found["l0_sst_size_bytes"]
    assert found["l0_max_ssts"] == found["l0_max_ssts_per_key"] == limits.STORE_TABLES_LEVEL0_MAX
    assert found["manifest_poll_interval"] == ("1s" if local else "10s")
    garbage = found["garbage_collector_options"]
    for kind in ("wal_options", "compacted_options", "manifest_options"):
        assert garbage[kind] == {"interval": "15s", "min_age": "30s", "dry_run": False}


def test_setting_that_slatedb_ignores_is_refused():
    actual = json.loads(broker_settings(local=True).to_json_string())
    with pytest.raises(StorageError, match="knows no setting wal.interval"):
        slate_settings._verify(actual, {"wal.interval": "1s"})
    with pytest.raises(StorageError, match="made 96"):
        slate_settings._verify({"l0_max_ssts": 96}, {"l0_max_ssts": 32})
