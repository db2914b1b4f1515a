import random

import pytest
from slatedb.uniffi import DbBuilder, KeyRange, ObjectStore, WriteBatch

from storage import fast_batch, fast_rows
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.fast_batch import (
    CffiFiller,
    CompiledFiller,
    enable_fast_batch,
    ensure_fast_batch,
    fast_batch_status,
    fill_batch,
    is_fast_batch_on,
)

ALL = KeyRange(start=None, start_inclusive=False, end=None, end_inclusive=False)


needs_compiled = pytest.mark.skipif(
    fast_batch._fill is None, reason="storage/native/fill.c is not compiled here"
)
FASTEST = "cffi: storage/native/fill.c is not compiled" if fast_batch._fill is None else "compiled"


@pytest.fixture(params=[pytest.param("compiled", marks=needs_compiled), "cffi", "off"])
async def path(request, monkeypatch):
    if request.param != "compiled":
        monkeypatch.setenv(fast_batch.SWITCH, request.param)
    await enable_fast_batch()
    yield request.param
    monkeypatch.undo()
    await enable_fast_batch()


@pytest.fixture
async def database():
    database = await DbBuilder("db", ObjectStore.resolve("memory:///")).build()
    yield database
    await database.shutdown()


async def written(database, ops: WriteOps) -> list[tuple[bytes, bytes]]:
    batch = WriteBatch()
    fill_batch(batch, ops)
    await database.write(batch)
    rows = await database.scan(ALL)
    return [(row.key, row.value) for row in await rows.next_batch(100_000)]


async def test_status_tells_whether_the_fast_path_is_on(path):
    assert fast_batch_status() == (
        "compiled" if path == "compiled" else f"{path}: SLUICEMQ_FAST_BATCH={path}"
    )
    assert is_fast_batch_on() == (path != "off")


@pytest.mark.parametrize("count", [1, 7, 8, 127, 128, 129, 1_000])
async def test_puts_of_any_number_read_back(path, database, count):
    source = random.Random(count)
    ops = WriteOps()
    for number in range(count):
        ops.put(number.to_bytes(4, "big") + source.randbytes(number % 40), source.randbytes(number % 300))
    assert await written(database, ops) == ops.puts


@pytest.mark.parametrize("size", [0, 1, 3, 255, 256, 4_096, 65_535, 4 * 1024 * 1024])
async def test_values_of_any_size_read_back(path, database, size):
    if path == "off" and size > 100_000:
        pytest.skip("half a second of the binding's own byte loop")
    value = random.Random(size).randbytes(size)
    ops = WriteOps()
    for number in range(9):
        ops.put(b"k%d" % number, value)
    assert await written(database, ops) == ops.puts


async def test_long_keys_and_keys_of_all_bytes_read_back(path, database):
    ops = WriteOps()
    ops.put(bytes(range(256)), b"all")
    ops.put(b"k" * 60_000, b"long")
    assert await written(database, ops) == ops.puts


async def test_deletes_beside_puts_remove_their_rows(path, database):
    first = WriteOps()
    for number in range(300):
        first.put(b"k%03d" % number, b"old")
    await written(database, first)
    second = WriteOps()
    for number in range(0, 300, 2):
        second.delete(b"k%03d" % number)
    second.put(b"new", b"1")
    kept = [(b"k%03d" % number, b"old") for number in range(1, 300, 2)]
    assert await written(database, second) == [*kept, (b"new", b"1")]


@pytest.mark.parametrize("others", [0, 50])
async def test_an_empty_key_is_refused(path, others):
    ops = WriteOps()
    for number in range(others):
        ops.put(b"k%d" % number, b"")
    ops.put(b"", b"value")
    with pytest.raises(StorageError, match="refused"):
        fill_batch(WriteBatch(), ops)
    ops = WriteOps()
    ops.delete(b"")
    with pytest.raises(StorageError, match="refused"):
        fill_batch(WriteBatch(), ops)


async def test_filling_a_written_batch_is_refused(path, database):
    batch = WriteBatch()
    batch.put(b"k", b"v")
    await database.write(batch)
    ops = WriteOps()
    ops.put(b"late", b"v")
    with pytest.raises(StorageError):
        fill_batch(batch, ops)


async def test_another_release_of_slatedb_falls_back_to_the_binding(monkeypatch):
    monkeypatch.setattr(fast_batch, "SLATEDB_VERSION", "0.17.1")
    assert await enable_fast_batch() == "off: slatedb 0.17.0 is installed; the C ABI of 0.17.1 is known"
    monkeypatch.undo()
    assert await enable_fast_batch() == FASTEST


def broken(self):
    raise AttributeError("function uniffi_put not found")


async def test_missing_native_function_falls_back_to_the_binding(monkeypatch):
    monkeypatch.setattr(CompiledFiller, "__init__", broken)
    monkeypatch.setattr(CffiFiller, "__init__", broken)
    assert await enable_fast_batch() == "off: function uniffi_put not found"
    monkeypatch.undo()
    assert await enable_fast_batch() == FASTEST


async def test_without_the_loop_in_c_cffi_is_used(monkeypatch):
    monkeypatch.setattr(fast_batch, "_fill", None)
    assert await enable_fast_batch() == "cffi: storage/native/fill.c is not compiled"
    monkeypatch.undo()
    assert await enable_fast_batch() == FASTEST


@pytest.mark.parametrize("filler", [CompiledFiller, CffiFiller])
async def test_fast_path_that_loses_rows_is_not_used(monkeypatch, filler):
    original = filler.fill
    monkeypatch.setattr(
        filler, "fill", lambda self, batch, puts, deletes: original(self, batch, puts[:-1], deletes)
    )
    if filler is CffiFiller:
        monkeypatch.setattr(fast_batch, "_fill", None)
    lost = "a scratch batch did not read back as written"
    not_compiled = filler is CompiledFiller and fast_batch._fill is None
    wanted = FASTEST if not_compiled else f"off: {lost}" if filler is CffiFiller else f"cffi: {lost}"
    assert await enable_fast_batch() == wanted
    monkeypatch.undo()
    assert await enable_fast_batch() == FASTEST


@needs_compiled
@pytest.mark.parametrize("row", [("text", b""), (b"key", None), (b"key",), b"key"])
async def test_what_is_no_bytes_is_an_error_of_the_caller_and_harms_no_later_batch(database, row):
    await enable_fast_batch()
    ops = WriteOps([(b"a", b"1")])
    ops.puts.append(row)
    with pytest.raises((TypeError, IndexError, SystemError)):
        fill_batch(WriteBatch(), ops)
    assert await written(database, WriteOps([(b"b", b"2")])) == [(b"b", b"2")]


async def test_one_proof_is_enough_for_a_process(monkeypatch):
    await enable_fast_batch()
    monkeypatch.setattr(CompiledFiller, "__init__", None)
    monkeypatch.setattr(CffiFiller, "__init__", None)  # a second proof would fail, and switch it off
    await ensure_fast_batch()
    assert fast_batch_status() == FASTEST
    monkeypatch.setenv(fast_batch.SWITCH, "off")
    await ensure_fast_batch()
    assert fast_batch_status().startswith("off")
    monkeypatch.undo()
    await ensure_fast_batch()
    assert fast_batch_status() == FASTEST


async def test_rows_read_back_equal_on_both_paths(path, database):
    source = random.Random(7)
    ops = WriteOps()
    for number in range(700):
        ops.put(number.to_bytes(2, "big"), source.randbytes(source.choice([0, 1, 100, 3_000])))
    await written(database, ops)
    rows = await database.scan(ALL)
    found = []
    while chunk := await fast_rows.next_rows(rows, 256):
        found += chunk
    assert found == ops.puts


def test_rows_with_an_expiry_decode():
    def row(key: bytes, value: bytes, expiry: bytes) -> bytes:
        lengths = [len(part).to_bytes(4, "big") + part for part in (key, value)]
        return b"".join(lengths) + bytes(16) + expiry

    data = (2).to_bytes(4, "big") + row(b"a", b"1", b"\1" + bytes(8)) + row(b"b", b"", b"\0")
    assert fast_rows._decode_large(memoryview(data)) == fast_rows.decode_rows(data)
    assert fast_rows.decode_rows(data) == [(b"a", b"1"), (b"b", b"")]
    with pytest.raises(ValueError):
        fast_rows.decode_rows(data + b"\0")


def encode_rows(rows, expiring=()):
    parts = [len(rows).to_bytes(4, "big")]
    for number, (key, value) in enumerate(rows):
        parts += [len(key).to_bytes(4, "big"), key, len(value).to_bytes(4, "big"), value, bytes(16)]
        parts.append(b"\x01" + bytes(8) if number in expiring else b"\x00")
    return b"".join(parts)


@pytest.mark.parametrize(
    "rows",
    [
        [(b"a1", b"one"), (b"a2", b"two"), (b"a3", b"thr")],
        [(b"a1", b""), (b"a2", b"")],
        [(b"a1", b"12"), (b"a", b"123"), (b"a23", b"1")],  # of one size together, not each
        [(b"a1", b"one"), (b"a2", b"four")],
        [(b"a1", b"one")],
        [],
    ],
)
@pytest.mark.parametrize("expiring", [(), (0,)])
def test_rows_of_equal_and_of_different_sizes_decode(rows, expiring):
    assert fast_rows.decode_rows(encode_rows(rows, expiring)) == rows
