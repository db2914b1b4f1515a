"""storage.store_lease, by a clock of the test's."""

from time import CLOCK_BOOTTIME, clock_gettime

import pytest

from config import limits
from config.cluster_settings import ClusterSettings
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.records import holder
from storage.store_lease import RENEWABLE_LEASES, StoreLease
from tests.memory_store import MemoryStore
from tests.waiting import until_so

LEASE_S = 5.0


class Time:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def lease(store: MemoryStore, time: Time) -> StoreLease:
    lease = StoreLease(store.write, "s3://b/x", int(1000 * LEASE_S), time)
    await lease.begin()
    lease.keep_by_commits()
    return lease


async def test_record_tells_those_who_wait_how_long_the_lease_is(lease, store):
    assert holder.decode(await store.get(holder.key())).lease_ms == 5_000


async def test_lease_lasts_from_before_its_record_was_written(lease, time):
    assert lease.is_valid()
    assert lease.due_s() == pytest.approx(LEASE_S / limits.LEASE_BEATS)
    time.now_s += 2
    assert not lease.due_s()
    lease.next_row()
    time.now_s += 2  # until that was durable
    lease.renewed()
    time.now_s += LEASE_S - 2 - 0.01
    assert lease.is_valid()
    assert lease.trouble is None
    time.now_s += 0.01
    assert not lease.is_valid()


async def test_row_that_is_not_known_to_be_durable_renews_nothing(lease, time):
    time.now_s += 4
    lease.next_row()
    time.now_s += 1
    assert not lease.is_valid()
    assert lease.trouble.reason == (
        "the lease of 5 s on s3://b/x was not renewed and ended 0.0 s ago; until it is, nothing is delivered"
        " or confirmed"
    )


async def test_lease_that_ended_is_had_again_by_a_row_that_took_less_than_a_lease(lease, time):
    lease.next_row()
    time.now_s += LEASE_S + 1
    lease.renewed()
    assert not lease.is_valid(), "the row is too old"
    lease.next_row()
    time.now_s += 1
    lease.renewed()
    assert lease.is_valid()


async def test_lease_that_ended_long_ago_is_lost_even_if_a_row_becomes_durable(lease, store, time):
    lease.next_row()
    time.now_s += RENEWABLE_LEASES * LEASE_S
    for call in (lease.renewed, lease.check_renewable):
        with pytest.raises(
            StorageError, match=r"ended 45.0 s ago, too long to be renewed: another broker may"
        ):
            call()
    time.now_s -= LEASE_S
    with pytest.raises(StorageError):
        lease.renewed()
    await lease.release()
    assert await store.get(holder.key()) is not None, "the record may be another's"


async def test_release_lets_others_in_at_once(lease, store):
    await lease.release()
    assert await store.get(holder.key()) is None


async def test_start_keeps_the_lease_but_not_for_ever(store, time, monkeypatch):
    monkeypatch.setattr(limits, "LEASE_START_S_MAX", 0.0)
    lease = StoreLease(store.write, "s3://b/x", 1_000, time)
    await lease.begin()
    assert lease._task is not None
    await until_so(lease._task.done)
    await lease.release()


def test_fence_outlives_every_lease_that_can_be_renewed():
    longest_s = 11
    ClusterSettings(lease_ms=1_000 * longest_s)
    assert longest_s * RENEWABLE_LEASES < limits.STORE_LEASED_GARBAGE_AGE_MIN_S
    with pytest.raises(ValueError, match="10 leases must be shorter than 120 s"):
        ClusterSettings(lease_ms=12_000)


async def test_writer_that_is_fenced_keeps_nothing(time):
    async def write(ops: WriteOps) -> None:
        raise StorageError("fenced")

    lease = StoreLease(write, "s3://b/x", 5_000, time)
    with pytest.raises(StorageError, match="fenced"):
        await lease.begin()
    await lease.release()


async def test_lease_is_over_with_that_of_its_node_though_it_would_last(store, time):
    node_ends = Time()
    node_ends.now_s = time.now_s + 2
    lease = StoreLease(store.write, "s3://b/x", int(1000 * LEASE_S), time, until=node_ends)
    await lease.begin()
    lease.keep_by_commits()
    assert lease.is_valid()
    assert lease.trouble is None
    time.now_s += 2
    assert not lease.is_valid()
    assert "the lease of this node was not renewed and ended 0.0 s ago" in str(lease.trouble)
    node_ends.now_s += 3
    assert lease.is_valid()
    assert lease.trouble is None


async def test_lease_ends_while_its_machine_is_suspended(store, monkeypatch):
    lease = StoreLease(store.write, "s3://b/x", int(1000 * LEASE_S))
    await lease.begin()
    lease.keep_by_commits()
    assert lease.is_valid()
    suspended_s = {CLOCK_BOOTTIME: LEASE_S}
    monkeypatch.setattr(
        "storage.lease_clock.time.clock_gettime",
        lambda clock: clock_gettime(clock) + suspended_s.get(clock, 0),
    )
    assert not lease.is_valid()
