"""What the journal holds back from the database, and for how long."""

import pytest

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError
from storage.journal import filling
from storage.journal.frames import EndRecord
from storage.journal.handing_over import HandingOver
from storage.records import journal_state
from tests.waiting import LoopClock, turns

LARGE = bytes(limits.JOURNAL_LARGE_ROW_BYTES * 3)
DATABASE_ID = 7


class Database:
    """Notes the keys that it is handed, put and deleted; `fill` notes them."""

    def __init__(self) -> None:
        self.puts: list[bytes] = []
        self.flush_count = 0

    def fill(self, batch: object, ops: WriteOps) -> None:
        self.puts += [key for key, _ in ops.puts if key != journal_state.key()]

    async def apply(self, batch: object) -> None:
        pass

    async def make_durable(self) -> None:
        self.flush_count += 1


@pytest.fixture
def database(monkeypatch):
    monkeypatch.setattr(filling, "WriteBatch", lambda: None)
    return Database()


async def handed_over(database: Database, *commits: tuple[dict[bytes, bytes | None], float]) -> list[bytes]:
    """The keys put into the database within half a second of these commits, with a pause behind each."""
    clock = LoopClock()
    hands = HandingOver(database, DATABASE_ID)
    hands.start()
    for number, (rows, pause_s) in enumerate(commits, 1):
        hands.add(EndRecord(number, 0), rows, sum(len(value or b"") for value in rows.values()))
        await clock.advance(pause_s)
    await clock.advance(0.5)
    found = list(database.puts)
    await hands.close()
    return found


async def test_large_value_deleted_soon_is_never_handed_over(database):
    assert await handed_over(database, ({b"k": LARGE, b"s": b"1"}, 0.05), ({b"k": None}, 0)) == [b"s"]


async def test_large_value_that_stays_is_handed_over_after_the_interval(database, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 50)
    assert await handed_over(database, ({b"k": LARGE}, 0.3)) == [b"k"]


@pytest.mark.parametrize(
    ("limit", "key"),
    [
        ("JOURNAL_PENDING_LARGE_BYTES_MAX", b"k"),
        ("JOURNAL_APPLY_BYTES", b"s"),
        ("JOURNAL_WAITING_BYTES", b"k"),
    ],
)
async def test_large_value_is_handed_over_at_once_when_much_waits(database, monkeypatch, limit, key):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 10_000)
    monkeypatch.setattr(limits, limit, 10)
    assert key in await handed_over(database, ({b"k": LARGE, b"s": b"0123456789"}, 0))


async def test_waiting_for_the_database_does_not_wait_for_the_interval(database, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 10_000)
    monkeypatch.setattr(limits, "JOURNAL_PORTION_BYTES", 1)
    hands = HandingOver(database, DATABASE_ID)
    hands.start()
    for number in (1, 2):
        hands.add(EndRecord(number, 0), {b"k%d" % number: LARGE}, len(LARGE))
    assert hands.find(b"k1") == LARGE
    await hands.catch_up()
    assert database.puts == [b"k1", b"k2"]
    await hands.close()


async def test_writers_who_wait_have_the_oldest_portion_handed_over(database, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 10_000)
    monkeypatch.setattr(limits, "JOURNAL_PORTION_BYTES", 1)
    hands = HandingOver(database, DATABASE_ID)
    hands.start()
    for number in (1, 2):
        hands.add(EndRecord(number, 0), {b"k%d" % number: LARGE}, len(LARGE))
    hands.hurry()
    await hands.progress()
    await turns(20)
    assert (database.puts, database.flush_count) == ([b"k1"], 1)
    await hands.close()


async def test_writers_who_wait_have_only_what_was_handed_over_synced_first(database, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_APPLY_INTERVAL_MS", 10_000)
    monkeypatch.setattr(limits, "JOURNAL_FLUSH_INTERVAL_MS", 10_000)
    hands = HandingOver(database, DATABASE_ID)
    hands.start()
    hands.add(EndRecord(1, 0), {b"k1": LARGE}, len(LARGE))
    await hands.catch_up()
    hands.add(EndRecord(2, 0), {b"k2": LARGE}, len(LARGE))
    hands.hurry()
    await turns(20)
    assert (database.puts, database.flush_count) == ([b"k1"], 1)
    hands.hurry()
    await turns(20)
    assert database.puts == [b"k1", b"k2"]
    await hands.close()


async def test_room_in_the_journal_is_freed_for_what_was_never_handed_over(database, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_FLUSH_BYTES", len(LARGE))
    monkeypatch.setattr(limits, "JOURNAL_FLUSH_INTERVAL_MS", 10_000)
    await handed_over(database, ({b"k": LARGE}, 0), ({b"k": None}, 0))
    assert database.flush_count == 1


class SlowDatabase:
    """Takes a while for each batch, which is the list of its operations; refuses the one of that number."""

    def __init__(self, refused: int = -1) -> None:
        self.log: list[object] = []
        self.taking = 0
        self._refused = refused

    def fill(self, batch, ops) -> None:
        batch.append({**dict(ops.puts), **dict.fromkeys(ops.deletes)})

    async def apply(self, batch: list[dict[bytes, bytes | None]]) -> None:
        self.taking += 1
        assert self.taking == 1, "one batch at a time"
        await turns(3)
        self.taking -= 1
        if len(self.log) == self._refused:
            raise StorageError("no")
        self.log.append({key: value for ops in batch for key, value in ops.items()})

    async def make_durable(self) -> None:
        self.log.append("durable")


@pytest.fixture
def batches(monkeypatch):
    monkeypatch.setattr(filling, "WriteBatch", list)
    monkeypatch.setattr(limits, "JOURNAL_REPLAY_BYTES", 2)


def commits(count: int):
    """Commits that all write `k`, and one key of their own."""
    for number in range(1, count + 1):
        yield EndRecord(number, number), {b"k": b"%d" % number, b"own%d" % number: b""}, 1


@pytest.mark.parametrize("count", [0, 1, 2, 7])
async def test_replay_hands_whole_commits_over_in_order_and_makes_them_durable(batches, count):
    database = SlowDatabase()
    await HandingOver(database, DATABASE_ID).replay(commits(count))
    *taken, last = database.log
    assert last == "durable"
    assert len(taken) == (count + 1) // 2
    for index, batch in enumerate(taken):
        newest = min(2 * index + 2, count)
        state = journal_state.decode(batch.pop(journal_state.key()))  # type: ignore[attr-defined]
        own = {b"own%d" % number: b"" for number in range(2 * index + 1, newest + 1)}
        assert batch == {b"k": b"%d" % newest, **own}
        assert (state.sequence, state.checksum) == (newest, newest)


@pytest.mark.parametrize("refused", [0, 1, 3])
async def test_replay_hands_nothing_over_behind_a_batch_that_was_refused(batches, refused):
    database = SlowDatabase(refused)
    with pytest.raises(StorageError):
        await HandingOver(database, DATABASE_ID).replay(commits(8))
    assert len(database.log) == refused
