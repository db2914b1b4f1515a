"""storage.remote_hold, on a reader that tells what it is given."""

import asyncio
import os
import sys

import pytest

from config import limits
from storage.batch import WriteOps
from storage.errors import StoreFenced, StoreUnavailable
from storage.records import Holder, holder
from storage.remote_hold import RemoteHold, wait_for_holder
from tests.memory_store import MemoryStore
from tests.waiting import LoopClock

ELSEWHERE = Holder(1, 1, 7, "elsewhere")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(limits, "HOLD_BEAT_INTERVAL_S", 0.02)
    monkeypatch.setattr(limits, "HOLD_TIMEOUT_S", 0.2)


class Reader:
    """Gives the holder that `look` returns."""

    def __init__(self, look) -> None:
        self._look = look
        self.looks = 0
        self.is_closed = False

    async def get(self, key):
        assert key == holder.key()
        self.looks += 1
        found = self._look(self.looks)
        return None if found is None else holder.encode(*found)

    async def shutdown(self):
        self.is_closed = True


async def waited(reader: Reader) -> list[str]:
    """What the wait told, once it was over."""
    told: list[str] = []

    async def open_again():
        return reader

    await asyncio.wait_for(wait_for_holder(reader, "s3://b/x", told.append, open_again, 20), 5)
    return told


async def test_database_nobody_has_open_is_not_waited_for():
    reader = Reader(lambda look: None)
    assert await waited(reader) == []
    assert reader.looks == 1


async def test_holder_that_beats_is_waited_for_until_it_lets_go():
    reader = Reader(lambda look: ELSEWHERE._replace(beat=look) if look < 30 else None)
    told = await waited(reader)
    assert len(told) == 29
    assert set(told) == {
        "waiting for process 7 on elsewhere, which has s3://b/x open, to stop or fall silent"
    }


async def test_holder_that_stands_still_is_waited_for_only_so_long():
    reader = Reader(lambda look: ELSEWHERE)
    assert 3 <= len(await waited(reader)) <= 15


async def test_reader_that_is_cut_off_from_the_store_is_replaced_before_its_word_is_taken():
    cut_off, fresh = (
        Reader(lambda look: ELSEWHERE),
        Reader(lambda look: ELSEWHERE._replace(beat=look) if look < 30 else None),
    )

    async def open_again():
        return fresh

    waiting = wait_for_holder(cut_off, "s3://b/x", lambda doing: None, open_again, 20)
    assert await asyncio.wait_for(waiting, 5) is fresh
    assert fresh.looks == 30, "who beats is waited for"
    assert cut_off.is_closed


async def test_start_that_does_not_reach_the_store_takes_nothing_over():
    reader = Reader(lambda look: ELSEWHERE if look < 60 else None)
    tries = []

    async def open_again():
        tries.append(reader.looks)
        raise StoreUnavailable("away")

    waiting = wait_for_holder(reader, "s3://b/x", lambda doing: None, open_again, 20)
    assert await asyncio.wait_for(waiting, 10) is reader
    assert reader.looks == 60
    assert len(tries) >= 3


async def test_lease_of_the_holder_is_what_is_waited_for(monkeypatch):
    monkeypatch.setattr(limits, "HOLD_TIMEOUT_S", 3_600)
    assert await waited(Reader(lambda look: ELSEWHERE._replace(lease_ms=200)))


async def test_another_opening_begins_the_wait_anew():
    reader = Reader(lambda look: ELSEWHERE._replace(token=look))
    clock = LoopClock()
    waiting = asyncio.create_task(waited(reader))
    await clock.advance(3 * limits.HOLD_TIMEOUT_S)
    assert not waiting.done()
    waiting.cancel()


async def test_dead_process_of_this_machine_is_not_waited_for():
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    here = os.uname().nodename
    assert await waited(Reader(lambda look: Holder(1, 1, ended.pid, here))) == []
    assert await waited(Reader(lambda look: Holder(1, 1, os.getpid(), here))) == [], "a container again"


async def test_living_process_of_this_machine_is_waited_for():
    here = os.uname().nodename
    assert await waited(Reader(lambda look: Holder(1, look, os.getppid(), here) if look < 9 else None))


async def test_hold_is_written_again_and_again_and_deleted_at_its_end():
    store = MemoryStore()
    clock = LoopClock()
    hold = RemoteHold(store.write)
    await hold.begin()
    first = holder.decode(await store.get(holder.key()))
    assert (first.pid, first.host) == (os.getpid(), os.uname().nodename)
    await clock.advance(0.2)
    later = holder.decode(await store.get(holder.key()))
    assert later.token == first.token
    assert later.beat > first.beat
    await hold.release()
    await hold.release()
    assert await store.get(holder.key()) is None
    await clock.advance(0.2)
    assert await store.get(holder.key()) is None


class Failing:
    """Fails every write but the first with what it is given, one after the other."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.writes = 0

    async def write(self, ops: WriteOps) -> None:
        self.writes += 1
        if self.writes > 1 and self._failures:
            raise self._failures.pop(0)


async def test_hold_outlives_an_outage_and_ends_when_fenced():
    writer = Failing(StoreUnavailable("down"), StoreUnavailable("down"), StoreFenced("another has it"))
    clock = LoopClock()
    hold = RemoteHold(writer.write)
    await hold.begin()
    await clock.advance(0.3)
    assert writer.writes == 4
    await hold.release()
