"""A database in one bucket, its log in another: opened, moved, and read by those who only look."""

from __future__ import annotations

import os

import boto3
import pytest

from config.settings import StorageSettings
from storage import open as opening
from storage.backup.copying import _OF_THE_STORAGE
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.open import open_store
from storage.place import Place
from storage.read_only import open_read_only
from storage.records import LogPlace, log_place
from tests.storage_faults.s3 import BUCKET, s3_endpoint
from tests.unit.storage.store_conformance import batch

LOG = "sluice-log"
OTHER_LOG = "sluice-other-log"


@pytest.fixture(scope="module")
def client():
    with s3_endpoint() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        client = boto3.client("s3", endpoint_url=environment["AWS_ENDPOINT_URL"])
        for bucket in (LOG, OTHER_LOG):
            client.create_bucket(Bucket=bucket)
        yield client


@pytest.fixture
def url(client, request) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def settings(url: str, log: str = "") -> StorageSettings:
    return StorageSettings(url=url, log_url=f"s3://{log}" if log else "")


async def opened(url: str, log: str = ""):
    """Open as a start after a crash: who has the database is fenced, and writes nothing more."""
    return await open_store(settings(url, log), take_over=True)


def wal_objects(client, bucket: str, url: str) -> list[str]:
    listed = client.list_objects_v2(Bucket=bucket, Prefix=url.rpartition("/")[2] + "/wal/")
    return [entry["Key"] for entry in listed.get("Contents", [])]


async def test_log_lies_in_its_bucket_and_is_found_by_a_start_that_does_not_name_it(client, url):
    store = await opened(url, LOG)
    assert store.describe() == f"{url} (log in s3://{LOG})"
    before = len(wal_objects(client, BUCKET, url))
    for number in range(5):
        await store.write(batch({b"k%d" % number: b"v"}))
    assert len(wal_objects(client, LOG, url)) >= 5
    assert len(wal_objects(client, BUCKET, url)) == before
    heir = await opened(url)
    assert heir.describe() == f"{url} (log in s3://{LOG})"
    assert [key for key, _ in await heir.scan(b"k", None, limit=9)] == [b"k%d" % n for n in range(5)]
    await heir.close()
    await store.close()


async def test_log_moves_at_a_start_with_what_only_the_old_one_had(client, url):
    stores = []
    for number, log in enumerate(("", LOG, OTHER_LOG, BUCKET, "")):
        stores.append(await opened(url, log))
        await stores[-1].write(batch({b"k%d" % number: b"v"}))
    assert [key for key, _ in await stores[-1].scan(b"k", None, limit=9)] == [b"k%d" % n for n in range(5)]
    assert stores[-1].describe() == url
    for store in reversed(stores):
        await store.close()


async def test_move_that_was_interrupted_loses_nothing(client, url):
    first = await opened(url)
    await first.write(batch({b"before": b"v"}))
    await opening._write_log_place(first, LogPlace(7, f"s3://{LOG}"))  # and then a crash
    second = await opened(url)
    assert second.describe() == url
    assert await second.get(b"before") == b"v"
    third = await opened(url, LOG)
    assert await third.get(b"before") == b"v"
    await opening._write_log_place(third, LogPlace(7, ""))
    fourth = await opened(url)
    assert fourth.describe() == f"{url} (log in s3://{LOG})"
    assert await fourth.get(b"before") == b"v"
    for store in (fourth, third, second, first):
        await store.close()


async def test_log_of_another_database_is_refused_and_ones_own_taken_again(client, url):
    first = await opened(url, LOG)
    client.create_bucket(Bucket="other")
    elsewhere = url.replace(BUCKET, "other", 1)
    with pytest.raises(StorageError, match=f"s3://{LOG} has the log of another database at "):
        await opened(elsewhere, LOG)
    other = await opened(elsewhere)
    assert other.describe() == elsewhere
    beside = await opened(url, BUCKET)
    again = await opened(url, LOG)
    assert again.describe() == f"{url} (log in s3://{LOG})"
    for store in (again, beside, other, first):
        await store.close()


async def test_who_only_looks_sees_what_is_in_the_log(client, url):
    store = await opened(url, LOG)
    ops = WriteOps()
    ops.put(b"k", b"v")
    await store.write(ops)
    looking = await open_read_only(settings(url))
    assert await looking.get(b"k") == b"v"
    await looking.close()
    await store.close()


def test_backups_do_not_say_where_the_log_was():
    assert log_place.key() in _OF_THE_STORAGE


def test_store_of_the_log_has_variables_of_its_own(client, monkeypatch):
    monkeypatch.setenv("LOG_AWS_ENDPOINT_URL", os.environ["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    place = Place.of(f"s3://{BUCKET}/x").with_log(f"s3://{LOG}")
    assert place.log_url == f"s3://{LOG}"
    assert place.with_log(f"s3://{BUCKET}").log is None


@pytest.mark.parametrize(
    ("url", "log_url", "problem"),
    [
        ("./data", "s3://log", "log_url is for object stores"),
        ("s3://bucket/x", "s3://log/prefix", "must name a bucket alone"),
        ("s3://bucket/x", "/disk", "must name a bucket alone"),
    ],
)
def test_log_url_that_cannot_be_one_is_refused(url, log_url, problem):
    with pytest.raises(ValueError, match=problem):
        StorageSettings(url=url, log_url=log_url)
