"""Commits that wait for the database in portions, oldest first."""

import random

import pytest

from config import limits
from storage.journal.frames import EndRecord
from storage.journal.waiting_commits import ABSENT, Portion, Waiting

LARGE = bytes(limits.JOURNAL_LARGE_ROW_BYTES * 3)


@pytest.fixture(autouse=True)
def small_portions(monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_PORTION_BYTES", len(LARGE))


def add(waiting: Waiting, *commits: dict[bytes, bytes | None], first: int = 1) -> None:
    for number, rows in enumerate(commits, first):
        size = sum(len(key) + len(value or b"") for key, value in rows.items())
        waiting.add(EndRecord(number, number), rows, size, now_s=float(number))


def taken(waiting: Waiting) -> list[Portion]:
    portions = []
    while (portion := waiting.take()) is not None:
        portions.append(portion)
    return portions


def test_small_commits_are_one_portion():
    waiting = Waiting()
    add(waiting, *[{b"%d" % number: bytes(100)} for number in range(1, 100)])
    (portion,) = taken(waiting)
    assert len(portion.rows) == 99
    assert portion.last == EndRecord(99, 99)
    assert portion.begun_s == 1


def test_large_value_that_a_later_portion_deletes_is_left_out_of_its_own():
    waiting = Waiting()
    add(waiting, {b"k": LARGE, b"s": b"1"}, {b"l": LARGE}, {b"k": None})
    assert waiting.find(b"k") is None
    assert [portion.rows for portion in taken(waiting)] == [{b"s": b"1"}, {b"l": LARGE}, {b"k": None}]


def test_large_value_that_is_written_again_is_handed_over_once_as_it_became():
    waiting = Waiting()
    add(waiting, {b"k": LARGE}, {b"k": LARGE + b"2"})
    assert waiting.find(b"k") == LARGE + b"2"
    assert [portion.rows for portion in taken(waiting)] == [{}, {b"k": LARGE + b"2"}]


def test_nothing_is_left_out_of_what_somebody_looks_at():
    waiting = Waiting()
    add(waiting, {b"k": LARGE, b"l": LARGE})
    with waiting.viewed():
        add(waiting, {b"k": None}, first=2)
    add(waiting, {b"l": None}, first=3)
    assert [portion.rows for portion in taken(waiting)] == [{b"k": LARGE}, {b"k": None, b"l": None}]


def test_writers_wait_for_large_values_that_are_left_only(monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_PENDING_LARGE_BYTES_MAX", 2 * len(LARGE))
    waiting = Waiting()
    for number in range(10):
        add(waiting, {b"%d" % number: LARGE}, {b"%d" % number: None})
        assert not waiting.is_crowded
    add(waiting, {b"k": LARGE}, {b"l": LARGE})
    assert waiting.is_crowded
    waiting.take()
    taken(waiting)
    assert not waiting.is_crowded
    assert waiting.journal_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_after_each_portion_replaying_what_follows_gives_the_newest_state(seed):
    """What is handed over may lack what later commits replace, and they are replayed after a crash."""
    source = random.Random(seed)
    waiting = Waiting()
    commits: list[dict[bytes, bytes | None]] = []
    database: dict[bytes, bytes] = {}
    handed_count = 0

    def apply(state: dict[bytes, bytes], rows: dict[bytes, bytes | None]) -> None:
        for key, value in rows.items():
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value

    for number in range(1, 200):
        rows: dict[bytes, bytes | None] = {}
        for _ in range(source.randint(1, 4)):
            value = b"%d" % number + (LARGE if source.random() < 0.6 else b"")
            rows[b"k%d" % source.randrange(12)] = value if source.random() < 0.6 else None
        add(waiting, rows, first=number)
        commits.append(rows)
        if source.random() < 0.2 and (portion := waiting.take()) is not None:
            apply(database, portion.rows)
            handed_count = portion.last.sequence
        whole: dict[bytes, bytes] = {}
        for each in commits:
            apply(whole, each)
        recovered = dict(database)
        for each in commits[handed_count:]:
            apply(recovered, each)
        assert recovered == whole
        for key in {key for each in commits for key in each}:
            found = waiting.find(key)
            assert (database.get(key) if found is ABSENT else found) == whole.get(key)
    for portion in taken(waiting):
        apply(database, portion.rows)
    assert database == whole
    assert not waiting.journal_bytes
    assert not waiting.is_crowded


def test_large_values_wait_longer_where_they_are_deleted_soon_after_they_were_handed_over():
    waiting = Waiting()
    add(waiting, {b"k": LARGE})
    assert waiting.due_s == 1 + limits.JOURNAL_APPLY_INTERVAL_MS / 1000
    waiting.take()
    add(waiting, {b"k": None, b"l": LARGE}, first=2)
    assert waiting.due_s == 2 + limits.JOURNAL_APPLY_PATIENCE_MS / 1000


def test_large_values_wait_longer_where_they_are_deleted_before_they_are_handed_over():
    waiting = Waiting()
    add(waiting, {b"k": LARGE, b"l": LARGE}, {b"k": None})
    assert waiting.due_s == 1 + limits.JOURNAL_APPLY_PATIENCE_MS / 1000


def test_values_wait_no_longer_when_none_was_deleted_for_a_while():
    waiting = Waiting()
    add(waiting, {b"k": LARGE}, {b"k": None})
    taken(waiting)
    later = 3 + limits.JOURNAL_PATIENT_MS // 1000
    add(waiting, {b"l": LARGE}, first=later)
    assert waiting.due_s == later + limits.JOURNAL_APPLY_INTERVAL_MS / 1000


def test_small_values_wait_no_longer_where_large_ones_are_deleted_soon():
    waiting = Waiting()
    add(waiting, {b"k": LARGE}, {b"k": None, b"s": b"1"})
    taken(waiting)
    add(waiting, {b"t": b"1"}, first=3)
    assert waiting.due_s == 3 + limits.JOURNAL_APPLY_INTERVAL_MS / 1000
