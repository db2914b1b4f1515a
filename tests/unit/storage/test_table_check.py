import os

import pytest
from slatedb.uniffi import FlushOptions, FlushType

from config.settings import StorageSettings
from storage.batch import WriteOps
from storage.open import open_store
from storage.slate_store import SlateStore
from storage.table_check import NewerFormat, table_problem


@pytest.fixture
async def table(tmp_path):
    """A table of several blocks."""
    store = await open_store(StorageSettings(url=str(tmp_path), sync="os"))
    ops = WriteOps()
    for number in range(200):
        ops.put(b"k%03d" % number, os.urandom(300))
    await store.write(ops)
    assert isinstance(store, SlateStore)
    await store._database.flush_with_options(FlushOptions(flush_type=FlushType.MEM_TABLE))
    await store.close()
    (path,) = (tmp_path / "db" / "compacted").iterdir()
    return path


async def test_undamaged_table_has_no_problem(table):
    assert table_problem(table, every_block=False) == ""
    assert table_problem(table, every_block=True) == ""


async def test_undamaged_log_object_has_no_problem(table):
    log = sorted((table.parent.parent / "wal").iterdir())
    assert [table_problem(path, every_block=True) for path in log if path.stat().st_size] == ["", ""]
    assert table_problem(log[0], every_block=True) == "0 bytes long"  # a fence


async def test_every_truncation_is_found(table):
    data = table.read_bytes()
    for size in [*range(0, 40), *range(40, len(data), 997), *range(len(data) - 400, len(data))]:
        table.write_bytes(data[:size])
        assert table_problem(table, every_block=False), size


async def test_page_of_zeros_anywhere_is_found(table):
    data = table.read_bytes()
    for begin in range(0, len(data), 4_096):
        page = data[begin : begin + 4_096]
        table.write_bytes(data[:begin] + bytes(len(page)) + data[begin + len(page) :])
        assert table_problem(table, every_block=True), begin


async def test_newer_table_version_is_refused_and_not_called_torn(table):
    data = bytearray(table.read_bytes())
    data[-2:] = (3).to_bytes(2, "big")
    table.write_bytes(data)
    with pytest.raises(NewerFormat, match="version 3"):
        table_problem(table, every_block=False)
