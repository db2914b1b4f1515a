"""A full disk holds writers back, loses nothing, and is over once there is room."""

import subprocess

import pytest

from config import limits
from config.settings import StorageSettings
from storage.errors import StorageError, StoreFull
from storage.open import open_store
from tests.unit.storage.store_conformance import batch

ROW_BYTES = 400_000


@pytest.fixture
def small_disk(tmp_path):
    """A filesystem of 28 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=28m", "tmpfs", str(tmp_path)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"mounting is not permitted: {error}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


async def test_full_and_free_again(small_disk, monkeypatch):
    monkeypatch.setattr(limits, "STORE_ROOM_CHECK_INTERVAL_S", 0.2)
    monkeypatch.setattr(limits, "STORE_CLOSE_TIMEOUT_S", 3)
    monkeypatch.setattr(limits, "JOURNAL_SEGMENT_BYTES", limits.MIB)
    filler = small_disk / "filler"
    filler.write_bytes(bytes(10 * limits.MIB))
    settings = StorageSettings(url=str(small_disk / "data"))
    store = await open_store(settings)
    written = 0
    pending = batch({})

    async def fill() -> None:
        nonlocal pending, written
        while True:
            pending = batch({b"k%04d" % written: bytes(ROW_BYTES)})
            await store.write(pending)
            written += 1

    with pytest.raises(StoreFull, match=r"only \d+ bytes are free|No space left|journal is full"):
        await fill()
    assert written > 10
    with pytest.raises(StoreFull):
        await fill()
    assert len(await store.scan(b"k0000", b"k0001", limit=10)) == 1, "reading goes on"
    filler.unlink()
    await store.write(pending)
    try:
        await store.close()
    except StorageError:
        pass  # no room to write out what the log holds already
    store = await open_store(settings)
    assert [key for key, _ in await store.scan(b"k", b"l", limit=1_000)] == [
        b"k%04d" % number for number in range(written + 1)
    ]
    await store.write(batch({}, *(b"k%04d" % number for number in range(written))))
    await store.close()
