"""storage.object_records on an S3 server."""

import asyncio
from collections.abc import Iterator

import pytest

from storage.errors import StorageError, StoreUnavailable
from storage.object_records import ObjectRecords
from tests.storage_faults.s3 import ANSWERED, BUCKET, s3_endpoint
from tests.storage_faults.store_way import Doubt, StoreWay

TIMEOUT_S = 0.5


@pytest.fixture
def way(monkeypatch) -> Iterator[StoreWay]:
    with s3_endpoint() as environment:
        way = StoreWay(environment["AWS_ENDPOINT_URL"], "/cluster/")
        for name, value in (environment | {"AWS_ENDPOINT_URL": way.endpoint}).items():
            monkeypatch.setenv(name, value)
        yield way
        way.close()


@pytest.fixture
def records(way, tmp_path) -> ObjectRecords:
    return ObjectRecords(f"s3://{BUCKET}/{tmp_path.name}/", "cluster", TIMEOUT_S)


async def test_record_is_made_once_and_replaced_by_who_knows_what_is_there(records):
    assert await records.get("nodes/a") is None
    first = await records.put("nodes/a", b"1", None)
    assert await records.put("nodes/a", b"2", None) is None
    second = await records.put("nodes/a", b"2", first)
    assert second not in (None, first)
    assert await records.put("nodes/a", b"3", first) is None
    assert await records.get("nodes/a") == (b"2", second)


async def test_record_that_was_deleted_is_replaced_by_nobody(records):
    tag = await records.put("map", b"1", None)
    await records.delete("map")
    await records.delete("map")
    assert await records.put("map", b"2", tag) is None
    assert await records.get("map") is None


async def test_of_two_who_replace_a_record_at_the_same_time_one_does(records):
    tag = await records.put("map", b"0", None)
    done = await asyncio.gather(*[records.put("map", b"%d" % number, tag) for number in range(1, 9)])
    assert sum([each is not None for each in done]) == 1


async def test_store_that_does_not_answer_is_not_waited_for(records, way):
    tag = await records.put("map", b"1", None)
    way.cut()
    began = asyncio.get_running_loop().time()
    for call in (records.get("map"), records.put("map", b"2", tag), records.delete("map")):
        with pytest.raises(StoreUnavailable):
            await call
    assert asyncio.get_running_loop().time() - began < 3 * TIMEOUT_S + 1
    way.heal()
    assert await records.put("map", b"3", tag)


async def test_put_whose_answer_is_lost_is_done_all_the_same(records, way):
    tag = await records.put("map", b"1", None)
    way.cut(ANSWERED)
    with pytest.raises(StoreUnavailable):
        await records.put("map", b"2", tag)
    way.heal()
    assert await records.put("map", b"3", tag) is None
    assert (await records.get("map")).content == b"2"


@pytest.mark.parametrize("doubt", Doubt)
async def test_put_of_which_the_store_does_not_say_that_it_did_it_is_done_all_the_same(records, way, doubt):
    tag = await records.put("map", b"1", None)
    way.doubt = doubt
    with pytest.raises(StoreUnavailable):
        await records.put("map", b"2", tag)
    assert await records.put("map", b"3", tag) is None, "what is refused is told"
    way.heal()
    assert (await records.get("map")).content == b"2"
    assert [write.is_done for write in way.writes] == [True, True, False]


async def test_store_without_the_bucket_says_so(way):
    with pytest.raises(StoreUnavailable, match="elsewhere"):
        await ObjectRecords("s3://elsewhere/x", "cluster", TIMEOUT_S).put("map", b"1", None)


def test_unknown_store_is_refused():
    with pytest.raises(StorageError, match="ftp"):
        ObjectRecords("ftp://x/y", "cluster", TIMEOUT_S)
