import errno
import os

import pytest

from config import limits
from storage.errors import StorageError, StoreFull
from storage.journal import files, frames
from storage.journal.files import JournalFiles, segment_paths
from storage.journal.frames import encode_body, seed_of
from tests.unit.storage.journal.journals import (
    DATABASE_ID,
    SEGMENT_BYTES,
    Written,
    generations,
    ops_of,
)

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def journal(tmp_path):
    journal = Written(tmp_path / "journal")
    yield journal
    journal.close()


def rows(number: int, size: int = 400) -> dict[bytes, bytes | None]:
    return {b"k%d" % number: b"v" * size}


def fail_with(number: int):
    def fail(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_commit_goes_into_a_segment_that_is_there_already(journal):
    journal.add(rows(1))
    (path,) = segment_paths(journal.directory)
    assert path.stat().st_size == SEGMENT_BYTES
    assert path.stat().st_blocks * 512 >= SEGMENT_BYTES
    journal.add(rows(2))
    assert segment_paths(journal.directory) == [path]
    assert not journal.files.fits(400)
    journal.add(rows(3))
    assert len(segment_paths(journal.directory)) == 2
    journal.check(0)


def test_a_segment_is_written_anew_only_when_it_was_let_go(journal, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 3)
    assert journal.files.has_free_segment
    for number in range(6):
        journal.add(rows(number))
    assert not journal.files.has_free_segment
    for durable in (0, 1):
        journal.release(durable)
        with pytest.raises(StoreFull, match="the journal is full, and the database does not take it over"):
            journal.add(rows(6))
        journal.check(0)
    journal.release(2)
    assert journal.files.has_free_segment
    journal.add(rows(6))
    assert len(segment_paths(journal.directory)) == 3
    journal.check(2)


def test_the_segment_with_the_oldest_commits_is_taken_first(journal, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 3)
    for number in range(6):
        journal.add(rows(number))
    journal.release(6)
    journal.add(rows(6))
    assert list(generations(journal.directory)) == [2, 3, 4]
    journal.check(2)


def test_a_start_leaves_the_newest_commits_readable(journal):
    journal.add(rows(0))
    for number in range(1, 9):
        journal.reopen()
        journal.add(rows(number))
        journal.check(number - 1)
    assert len(segment_paths(journal.directory)) == limits.JOURNAL_SEGMENTS_MIN


def test_a_commit_larger_than_a_segment_has_one_for_itself(journal, monkeypatch):
    monkeypatch.setattr(limits, "JOURNAL_SEGMENTS_MAX", 2)
    journal.add(rows(0), rows(1, 5_000))
    assert [path.stat().st_size > 5_000 for path in segment_paths(journal.directory)] == [False, True]
    journal.check(0)
    for number in range(2, 8):
        journal.release(number)
        journal.add(rows(number, 700))
    assert [path.stat().st_size for path in segment_paths(journal.directory)] == [SEGMENT_BYTES] * 2
    journal.release(8)
    journal.add(rows(8, 9_000))
    journal.check(7)


@pytest.mark.parametrize("call", ["posix_fallocate", "fsync", "open"])
def test_no_room_for_another_segment(journal, monkeypatch, call):
    journal.add(rows(0), rows(1))
    with monkeypatch.context() as full:
        full.setattr(os, call, fail_with(errno.ENOSPC))
        for _ in range(2):
            with pytest.raises(StoreFull, match="No space left"):
                journal.add(rows(2))
    assert len(segment_paths(journal.directory)) == 1
    journal.check(0)
    journal.add(rows(2))
    journal.check(0)


def test_no_room_in_a_segment(journal, monkeypatch):
    """A file system that writes blocks elsewhere needs room for them, too."""
    journal.add(rows(0))
    with monkeypatch.context() as full:
        full.setattr(os, "pwritev", fail_with(errno.EDQUOT))
        with pytest.raises(StoreFull, match="quota"):
            journal.add(rows(1))
    journal.check(0)
    journal.add(rows(2, 100))
    journal.check(0)


def test_a_write_cut_short_is_gone_on_with(journal, monkeypatch):
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: whole(fd, [b"".join(parts)[:50]], at))
    journal.add(rows(0), rows(1), rows(2))
    journal.check(0)


@pytest.mark.parametrize("taken_bytes", [50, 1 << 20])
def test_a_large_commit_is_written_from_where_its_values_are(journal, monkeypatch, taken_bytes):
    """However many there are, and wherever a write ends."""
    monkeypatch.setattr(limits, "JOURNAL_JOINED_BYTES_MAX", 10)
    monkeypatch.setattr(files, "_PARTS_PER_WRITE", 7)
    whole = os.pwritev
    written: list[bytes] = []

    def write(fd: int, parts: list[bytes], at: int) -> int:
        assert len(parts) <= 7
        written.extend(parts)
        return whole(fd, [b"".join(parts)[:taken_bytes]], at)

    monkeypatch.setattr(os, "pwritev", write)
    large: dict[bytes, bytes | None] = {b"k%d" % number: b"%d" % number * 11 for number in range(12)}
    ops = ops_of(large)
    ops.is_large = True
    journal.ends.append(journal.files.append(encode_body(ops, seed_of(DATABASE_ID))))
    journal.commits.append(large)
    journal.add(rows(1))
    journal.check(0)
    assert all(any(part is value for part in written) for value in large.values())


@pytest.mark.parametrize(
    ("sizes", "written"),
    [
        ([48, 10, 2], [60]),
        ([50, 50], [100]),
        ([50, 51, 3], [50, 54]),
        ([8, 250, 8], [8, 100, 100, 50, 8]),
        ([200], [100, 100]),
        ([1] * 10, [4, 4, 2]),
    ],
)
def test_one_call_writes_a_bounded_part_of_a_commit(monkeypatch, sizes, written):
    monkeypatch.setattr(limits, "JOURNAL_WRITE_BYTES_MAX", 100)
    monkeypatch.setattr(files, "_PARTS_PER_WRITE", 4)
    parts = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    portions = list(files._portions(parts))
    assert [sum(map(len, portion)) for portion in portions] == written
    assert b"".join(part for portion in portions for part in portion) == b"".join(parts)


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_an_error_of_the_disk_is_final(journal, monkeypatch, call):
    journal.add(rows(0))
    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail_with(errno.EIO))
        with pytest.raises(StorageError, match="the journal: Input/output error"):
            journal.add(rows(1))
    for _ in range(2):
        with pytest.raises(StorageError, match="Input/output error") as refusal:
            journal.add(rows(1))
        assert not isinstance(refusal.value, StoreFull)
    assert journal.files.last == journal.ends[1]


def test_the_end_record_is_written_after_the_sync_and_before_the_confirm(journal, monkeypatch):
    journal.add(rows(0))
    seen = []

    def look(fd: int) -> None:
        seen.append((journal.directory / "end").read_bytes())

    monkeypatch.setattr(os, "fdatasync", look)
    before = (journal.directory / "end").read_bytes()
    journal.add(rows(1))
    assert seen == [before]
    after = (journal.directory / "end").read_bytes()
    assert frames.decode_end(after, DATABASE_ID) == journal.ends[2]


def test_a_later_start_has_a_higher_generation(journal):
    for generation in range(1, 5):
        journal.add(rows(generation))
        assert max(generations(journal.directory)) == generation
        journal.reopen()


def test_a_journal_without_its_files_cannot_be_written(tmp_path):
    with pytest.raises(StorageError, match="opening the journal: No such file"):
        JournalFiles(tmp_path, DATABASE_ID, Written(tmp_path / "other").ends[0], 0)
