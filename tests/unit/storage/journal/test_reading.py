"""Random journals, whole and damaged: a start finds every confirmed commit or refuses."""

import random
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import FormatTooNew, StorageError
from storage.journal import frames
from storage.journal.files import END_FILE, JournalFiles, create_files
from storage.journal.frames import EndRecord, SegmentHead, encode_body, seed_of
from storage.journal.journal_survey import JournalDamaged, read_commits, survey_journal
from tests.unit.storage.journal.journals import (
    DATABASE_ID,
    NOTHING,
    SEGMENT_BYTES,
    Written,
    frames_in,
    generations,
    keep_some_sectors,
    ops_of,
    random_rows,
)

pytestmark = pytest.mark.usefixtures("small")

seeds = st.integers(0, 2**32)
often = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture
def written(tmp_path):
    """Five commits in three segments."""
    journal = Written(tmp_path / "journal")
    journal.add(*({b"k%d" % number: b"v" * 400} for number in range(5)))
    assert len(generations(journal.directory)) == 3
    yield journal
    journal.close()


def in_new_directory():
    return tempfile.TemporaryDirectory(prefix="journal-")


def random_journal(directory: Path, source: random.Random, commits_max: int = 30) -> Written:
    """Some starts, some commits after each, segments written anew now and then."""
    journal = Written(directory / "journal")
    for _ in range(source.randrange(1, 4)):
        for _ in range(source.randrange(commits_max)):
            journal.add(random_rows(source, len(journal.commits)))
            if source.random() < 0.2:
                journal.release(source.randrange(len(journal.commits) + 1))
        if source.random() < 0.7:
            journal.reopen()
    return journal


def held_counts(journal: Written) -> list[int]:
    """How many commits the database may have: everything that is no longer in the journal."""
    first = len(journal.commits) + 1
    for path in reversed(generations(journal.directory).values()):
        head = frames.decode_head(path.read_bytes())
        assert head is not None
        if head.first + len(frames_in(path)) < first:
            break
        first = head.first
    return list(range(first - 1, len(journal.commits) + 1))


@often
@given(seeds)
def test_every_commit_behind_what_the_database_has_is_found(seed):
    source = random.Random(seed)
    with in_new_directory() as name:
        journal = random_journal(Path(name), source)
        for held_count in source.sample(held_counts(journal), 1):
            survey = journal.check(held_count)
            assert survey.notes == []
        journal.close()


@often
@given(seeds)
def test_commits_that_nobody_has_are_named(seed):
    source = random.Random(seed)
    with in_new_directory() as name:
        journal = random_journal(Path(name), source)
        oldest = held_counts(journal)[0]
        if oldest > 0:
            with pytest.raises(JournalDamaged, match=f"commits {oldest} to {oldest} are neither in it"):
                journal.survey(oldest - 1)
        journal.close()


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize("rest", ["zeros", "cut off"])
def test_truncated_at_every_byte_of_the_tail(written, confirmed, rest):
    if not confirmed:
        written.unconfirm_last()
    path, begin, end = written.place_of_last()
    whole = path.read_bytes()
    last_byte = len(whole[:end].rstrip(b"\0"))
    assert last_byte > begin + frames.FRAME_HEAD_BYTES
    for cut in range(begin, last_byte):
        path.write_bytes(whole[:cut] + (bytes(len(whole) - cut) if rest == "zeros" else b""))
        if confirmed:
            with pytest.raises(JournalDamaged, match="commits 5 to 5 were confirmed and are not there"):
                written.survey(0)
        else:
            written.check(0, lost=1)
    path.write_bytes(whole)
    written.check(0)


def test_a_frame_that_was_begun_is_noted(written):
    written.unconfirm_last()
    path, begin, _ = written.place_of_last()
    whole = path.read_bytes()
    path.write_bytes(whole[: begin + 60] + bytes(len(whole) - begin - 60))
    survey = written.check(0, lost=1)
    assert survey.notes == [
        f"commit 5 in {path.name} at byte {begin} was begun and not finished: nobody was told about it"
    ]


@often
@given(seeds)
def test_damage_in_any_frame_is_found_or_harmless(seed):
    source = random.Random(seed)
    with in_new_directory() as name:
        journal = random_journal(Path(name), source)
        held = journal.ends[source.choice(held_counts(journal))]
        for path in generations(journal.directory).values():
            whole = path.read_bytes()
            for begin, end in frames_in(path):
                at = source.randrange(begin, end)
                damaged = bytearray(whole)
                damaged[at] ^= 1 << source.randrange(8)
                path.write_bytes(damaged)
                try:
                    survey = survey_journal(journal.directory, DATABASE_ID, held)
                except JournalDamaged:
                    continue
                assert survey.last == journal.ends[-1]
                found = [rows for _, rows, _ in read_commits(survey)]
                assert found == journal.commits[held.sequence :]
            path.write_bytes(whole)
        journal.close()


def test_damage_that_hides_a_confirmed_commit_is_never_taken_for_a_torn_end(written):
    path, begin, _ = written.place_of_last()
    whole = path.read_bytes()
    for at in range(begin, begin + 100):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(JournalDamaged, match="commits 5 to 5 were confirmed and are not there"):
            written.survey(0)


def test_a_torn_frame_with_a_whole_one_behind_it_is_damage(written):
    written.add({b"small": b"1"}, {b"small": b"2"})
    path = generations(written.directory)[3]
    begin, _ = frames_in(path)[1]
    whole = path.read_bytes()
    path.write_bytes(whole[:begin] + bytes(16) + whole[begin + 16 :])
    (written.directory / END_FILE).write_bytes(frames.encode_end(DATABASE_ID, written.ends[5]))
    with pytest.raises(JournalDamaged, match=f"commit 6 in {path.name} at byte {begin} is damaged, and a"):
        written.survey(0)


def test_frames_in_another_order_are_damage(written):
    written.add({b"a": b"1"}, {b"b": b"2"})
    path = generations(written.directory)[3]
    (begin, middle), (_, end) = frames_in(path)[-2:]
    whole = path.read_bytes()
    path.write_bytes(whole[:begin] + whole[middle:end] + whole[begin:middle] + whole[end:])
    with pytest.raises(JournalDamaged, match="commit 6 in segment-3 .* is damaged, and a later one"):
        written.survey(0)


@pytest.mark.parametrize(
    ("generation", "problem"),
    [
        (1, "commits 1 to 2 are neither in it nor in the database"),
        (2, "commits 3 to 4 are damaged or missing"),
        (3, "commits 5 to 5 were confirmed and are not there"),
    ],
)
@pytest.mark.parametrize("how", ["deleted", "head damaged", "zeros"])
def test_a_segment_that_is_gone_is_missed(written, generation, problem, how):
    path = generations(written.directory)[generation]
    if how == "deleted":
        path.unlink()
    elif how == "zeros":
        path.write_bytes(bytes(path.stat().st_size))
    else:
        raw = path.read_bytes()
        path.write_bytes(raw[:20] + b"\xff" + raw[21:])
    with pytest.raises(JournalDamaged, match=problem):
        written.survey(0)


@pytest.mark.parametrize("generation", [1, 2, 3])
def test_a_segment_that_is_gone_does_no_harm_once_the_database_has_it_all(written, generation):
    generations(written.directory)[generation].unlink()
    survey = written.check(5)
    assert len(survey.notes) == (1 if generation == 3 else 0)
    assert "nothing is missing" in "".join(survey.notes) or not survey.notes


@pytest.mark.parametrize("how", ["deleted", "empty", "of another database"])
def test_without_its_end_record_nothing_is_believed(written, how):
    path = written.directory / END_FILE
    if how == "deleted":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.write_bytes(frames.encode_end(DATABASE_ID + 1, written.ends[5]))
    with pytest.raises(JournalDamaged, match="its end record is missing"):
        written.survey(5)


@pytest.mark.parametrize("slot", [0, 1])
def test_one_place_of_the_end_record_may_be_torn(written, slot):
    path = written.directory / END_FILE
    raw = bytearray(path.read_bytes())
    raw[slot * frames.END_SLOT_BYTES + 20] ^= 1
    path.write_bytes(raw)
    written.check(0)


def test_a_journal_of_another_moment_is_found_out(written):
    stranger = EndRecord(3, written.ends[3].checksum ^ 1)
    with pytest.raises(JournalDamaged, match="commit 3 is another one than the database says"):
        survey_journal(written.directory, DATABASE_ID, stranger)


def test_a_journal_of_another_database_is_refused(written):
    shutil.copy(written.directory / END_FILE, written.directory / "kept")
    (written.directory / END_FILE).write_bytes(frames.encode_end(DATABASE_ID + 1, NOTHING))
    with pytest.raises(StorageError, match="belongs to another database"):
        survey_journal(written.directory, DATABASE_ID + 1, NOTHING)


def test_a_copied_segment_is_refused(written):
    shutil.copy(generations(written.directory)[2], written.directory / "segment-77")
    with pytest.raises(StorageError, match="segment-77 is a copy of segment-2"):
        written.survey(0)


def test_a_later_format_is_not_called_damaged(written):
    path = generations(written.directory)[3]
    raw = path.read_bytes()
    path.write_bytes(raw[:8] + b"\x04" + raw[9:])
    with pytest.raises(FormatTooNew, match="the journal has format 4"):
        written.survey(0)


FIRST_FORMAT_SEGMENT = bytes.fromhex(
    "736c756963656a6c0100000023ae2e8eedfe000000000000010000000000000001000000000000005daeb64900000000"
    "00000000000000000000000000000000534a726dd7a32c715daeb6491e00000001000000000000000100000000000000"
    "010000000000000002000000140000006b3076767676767676767676767676767676767676760000534a726d054d54ca"
    "d7a32c712600000001000000010000000200000000000000010000000000000002000000140000000400000"
    "06b317676767676767676767676767676767676767676676f6e65"
).ljust(SEGMENT_BYTES, b"\0")
FIRST_FORMAT_END = bytes.fromhex(
    "736c756963656a658baa679f054d54caedfe00000000000002000000000000000000000000000000"
)


def test_a_journal_of_the_first_format_is_read_and_gone_on_with(tmp_path):
    directory = tmp_path / "journal"
    create_files(directory, DATABASE_ID)
    (directory / "segment-1").write_bytes(FIRST_FORMAT_SEGMENT)
    (directory / END_FILE).write_bytes(FIRST_FORMAT_END)
    survey = survey_journal(directory, DATABASE_ID, NOTHING)
    value = b"v" * 20
    expected = [{b"k0": value}, {b"k1": value, b"gone": None}]
    assert [rows for _, rows, _ in read_commits(survey)] == expected
    assert survey.notes == []
    files = JournalFiles(directory, DATABASE_ID, survey.last, survey.generation, survey.held_segments())
    files.append(encode_body(ops_of({b"k2": value}), seed_of(DATABASE_ID)))
    files.close()
    survey = survey_journal(directory, DATABASE_ID, NOTHING)
    assert [rows for _, rows, _ in read_commits(survey)] == [*expected, {b"k2": value}]


def test_damage_in_a_journal_of_the_first_format_is_found(tmp_path):
    directory = tmp_path / "journal"
    create_files(directory, DATABASE_ID)
    raw = bytearray(FIRST_FORMAT_SEGMENT)
    raw[frames.HEAD_BYTES + 50] ^= 1
    (directory / "segment-1").write_bytes(raw)
    with pytest.raises(JournalDamaged, match="commit 1 in segment-1 .* is damaged, and a later one is there"):
        survey_journal(directory, DATABASE_ID, NOTHING)


def test_what_clients_published_before_is_not_taken_for_frames(written, monkeypatch):
    """Stale bytes behind the last frame that look like frames of any generation cost a start nothing."""
    path, _, end = written.place_of_last()
    read_at = []
    read_frame = frames.read_frame

    def counted(data, at, signs):
        read_at.append(at)
        return read_frame(data, at, signs)

    monkeypatch.setattr(frames, "read_frame", counted)
    marks = [frames.signs_of(SegmentHead(DATABASE_ID, 3, 1, 0, version=1)).mark]
    marks += [frames.signs_of(SegmentHead(database_id, 3, 1, 0)).mark for database_id in range(100)]
    forged = b"".join([struct.pack("<IIIIIIQQ", mark, 0, 0, 0, 1, 0, 6, 3) for mark in marks])
    path.write_bytes(path.read_bytes()[:end] + forged)
    written.check(0)
    assert max(read_at) == end


def test_each_generation_has_a_mark_of_its_own():
    """Frames of what a segment held before begin otherwise, too."""
    marks = {frames.signs_of(SegmentHead(DATABASE_ID, n, 1, 0)).mark for n in range(1, 1_000)}
    assert len(marks) == 999


def test_what_lies_behind_in_a_segment_used_again_is_not_read(written):
    written.release(5)
    written.reopen()
    for number in range(20):
        written.add({b"n": b"%d" % number})
        written.release(len(written.commits))
        written.check(len(written.commits) - 1)
        if number % 7 == 6:
            written.reopen()


def test_a_torn_frame_is_written_over_in_a_new_segment(written):
    """What was begun and not confirmed stays where it is; a start goes on in another segment."""
    path, begin, _ = written.place_of_last()
    written.unconfirm_last()
    whole = path.read_bytes()
    path.write_bytes(whole[: begin + 50] + bytes(len(whole) - begin - 50))
    written.commits.pop()
    written.ends.pop()
    written.reopen()
    written.add({b"other": b"5"}, {b"other": b"6"})
    assert list(generations(written.directory)) == [2, 3, 4]
    for held_count in range(2, 7):
        written.check(held_count)


@often
@given(seeds, st.sampled_from([0.0, 0.3, 0.7, 1.0]))
def test_a_power_cut_in_the_middle_of_an_append(seed, chance):
    """Of a commit that was not synced any sectors may be on disk: it is there or not; nothing is refused."""
    source = random.Random(seed)
    with in_new_directory() as name:
        journal = random_journal(Path(name), source)
        count = len(journal.commits)
        held_count = source.randrange(journal.released_count, count + 1)
        files = set(journal.directory.iterdir())
        before = {path: path.read_bytes() for path in files}
        journal.add(random_rows(source, count))
        for path in journal.directory.iterdir():
            if path.name == END_FILE:
                path.write_bytes(before[path])
            elif path in files:
                keep_some_sectors(path, before[path], path.read_bytes(), source, chance)
            else:
                keep_some_sectors(path, b"", path.read_bytes(), source, chance)
        survey = journal.survey(held_count)
        assert survey.last.sequence in (count, count + 1)
        journal.check(held_count, lost=count + 1 - survey.last.sequence)
        journal.close()


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**63), st.integers(0, 2**63), st.integers(0, 2**32 - 1))
def test_heads_and_end_records_come_back_and_no_bit_is_free(database_id, generation, first, checksum):
    head = SegmentHead(database_id, generation, first, checksum)
    raw = frames.encode_head(head)
    assert len(raw) == frames.HEAD_BYTES
    assert frames.decode_head(raw) == head
    end = EndRecord(first, checksum)
    record = frames.encode_end(database_id, end)
    assert frames.decode_end(record, database_id) == end
    for at in range(12, frames.HEAD_BYTES):
        assert frames.decode_head(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]) is None
    for at in range(len(record)):
        assert (
            frames.decode_end(record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :], database_id) is None
        )
