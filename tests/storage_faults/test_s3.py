"""SlateDB on an S3 endpoint: moto, reached through a gate that can be shut."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

import boto3
import pytest
from moto.server import ThreadedMotoServer

from config import limits
from config.settings import StorageSettings
from storage import remote_hold
from storage.errors import StorageError, StoreFenced, StoreUnavailable
from storage.open import open_store
from tests.unit.storage.sealing.rings import encrypted
from tests.unit.storage.store_conformance import batch
from tests.waiting import hold_up_task, turns, until_so

BUCKET = "sluice"


class Gate:
    """Forwards connections to `target` while it is open; refuses them while it is shut."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.delay_s = 0.0  # of each request

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def shut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await turns(20)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, other_writer}
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._pump(reader, other_writer, self._hold_up), self._pump(other_reader, writer, turns)
            )
        self._writers -= {writer, other_writer}

    async def _hold_up(self) -> None:
        await hold_up_task(self.delay_s)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hold_up: Callable[[], Awaitable[None]],
    ) -> None:
        while data := await reader.read(65_536):
            await hold_up()
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture(scope="module")
def moto_port():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield port
    server.stop()


@pytest.fixture
async def gate(moto_port, monkeypatch):
    gate = Gate(moto_port)
    await gate.open()
    endpoint = f"http://127.0.0.1:{gate.port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{moto_port}", region_name="us-east-1")
    await asyncio.to_thread(client.create_bucket, Bucket=BUCKET)
    yield gate
    await gate.shut()


def settings(prefix: str) -> StorageSettings:
    return StorageSettings(url=f"s3://{BUCKET}/{prefix}")


async def seconds_of(step: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await step
    return loop.time() - began


async def test_write_reopen_and_takeover(gate, moto_port):
    first = await open_store(settings("a/b"))
    assert first.describe() == "s3://sluice/a/b"
    for number in range(5):
        await first.write(batch({b"k%d" % number: b"v"}))
    second = await open_store(settings("a/b"), take_over=True)
    assert [key for key, _ in await second.scan(b"k", None, limit=10)] == [b"k%d" % n for n in range(5)]
    with pytest.raises(StoreFenced, match="another process has opened"):
        await first.write(batch({b"late": b""}))
    await first.close()
    await second.write(batch({b"k5": b"v"}))
    await second.close()
    third = await open_store(settings("a/b"))
    assert await third.get(b"k5") == b"v"
    assert await third.get(b"late") is None
    await third.close()
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{moto_port}", region_name="us-east-1")
    listed = await asyncio.to_thread(client.list_objects_v2, Bucket=BUCKET)
    assert {entry["Key"].split("/")[1] for entry in listed["Contents"] if entry["Key"][0] == "a"} == {"b"}


async def test_lone_commit_takes_little_longer_than_one_request(gate):
    store = await open_store(settings("lone"))
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{gate.port}", region_name="us-east-1")
    gate.delay_s = 0.04
    commits, requests = [], []
    for number in range(15):
        commits.append(await seconds_of(store.write(batch({b"k%d" % number: b""}))))
        put = partial(client.put_object, Bucket=BUCKET, Key="bare", Body=b"")
        requests.append(await seconds_of(asyncio.to_thread(put)))
    assert gate.delay_s <= median(commits) <= 1.5 * median(requests)
    gate.delay_s = 0
    await store.close()


async def test_an_outage_is_told_in_time_and_survived(gate, monkeypatch):
    store = await open_store(settings("outage"))
    await store.write(batch({b"before": b""}))
    monkeypatch.setattr(limits, "STORE_CALL_TIMEOUT_S", 1)
    await gate.shut()
    pending = batch({b"during": b""})
    for _ in range(2):
        begin = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailable, match="no answer from s3://sluice/outage in 1 s"):
            await store.write(pending)
        assert asyncio.get_running_loop().time() - begin < 3
    await gate.open()
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gate.port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    await store.write(pending)
    await store.close()
    store = await open_store(settings("outage"))
    assert [key for key, _ in await store.scan(b"b", None, limit=9)] == [b"before", b"during"]
    await store.close()


async def test_an_endpoint_that_is_down_at_start(gate, monkeypatch):
    monkeypatch.setattr(limits, "STORE_OPEN_TIMEOUT_S", 1)
    await gate.shut()
    with pytest.raises(StoreUnavailable, match=r"s3://sluice/x does not answer \(waited 1 s\)"):
        await open_store(settings("x"))


async def test_a_bucket_that_is_not_there(gate, monkeypatch):
    monkeypatch.setattr(limits, "STORE_OPEN_TIMEOUT_S", 2)
    with pytest.raises(StorageError, match="s3://missing/x"):
        await open_store(StorageSettings(url="s3://missing/x"))


async def test_second_start_waits_for_the_first_to_stop(gate, monkeypatch):
    monkeypatch.setattr(limits, "HOLD_BEAT_INTERVAL_S", 0.3)
    monkeypatch.setattr(limits, "HOLD_TIMEOUT_S", 3)
    monkeypatch.setattr(remote_hold, "_is_dead", lambda found: False)  # both are this process
    first = await open_store(settings("waited"))
    told: list[str] = []
    waiting = asyncio.create_task(open_store(settings("waited"), tell=told.append))
    await until_so(lambda: len(told) >= 5)  # looked at again and again, for longer than a silent one is
    assert not waiting.done()
    assert f"waiting for process {os.getpid()} on " in told[-1]
    await first.write(batch({b"k": b"v"}))
    await first.close()
    second = await asyncio.wait_for(waiting, 20)
    assert await second.get(b"k") == b"v"
    await second.close()


async def test_second_start_goes_on_when_the_first_falls_silent(gate, monkeypatch):
    monkeypatch.setattr(limits, "HOLD_TIMEOUT_S", 1)
    monkeypatch.setattr(remote_hold, "_is_dead", lambda found: False)
    first = await open_store(settings("silent"))
    second = await asyncio.wait_for(open_store(settings("silent")), 20)
    with pytest.raises(StoreFenced):
        await first.write(batch({b"late": b""}))
    await first.close()
    await second.write(batch({b"k": b"v"}))
    await second.close()


@pytest.mark.parametrize("journal", ["auto", "local"])
async def test_encrypted_database_opens_with_its_key_and_another_fences_nobody(gate, tmp_path, journal):
    def with_key(key_id: str) -> StorageSettings:
        keys = encrypted(tmp_path, key_id).encryption
        update = {"encryption": keys, "journal": journal, "journal_directory": str(tmp_path / "journal")}
        return settings(f"sealed-{journal}").model_copy(update=update)

    first = await open_store(with_key("2026"))
    await first.write(batch({b"k": b"v"}))
    with pytest.raises(StorageError, match="lacks 2026"):
        await open_store(with_key("2025"), take_over=True)
    await first.write(batch({b"k": b"w"}))
    await first.close()
    second = await open_store(with_key("2026"))
    assert await second.get(b"k") == b"w"
    assert await second.scan(b"k", b"l", limit=9) == [(b"k", b"w")]
    assert "encrypted with key 2026" in second.describe()
    await second.close()
