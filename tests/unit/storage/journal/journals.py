"""Journals to test with: small segments, and nothing waits for a disk."""

import os
import random
from collections.abc import Sequence
from pathlib import Path

from storage.batch import WriteOps
from storage.journal import frames
from storage.journal.files import END_FILE, JournalFiles, create_files, segment_paths
from storage.journal.frames import EndRecord, encode_body, seed_of
from storage.journal.journal_survey import Survey, read_commits, survey_journal

DATABASE_ID = 0xFEED
NOTHING = EndRecord(0, seed_of(DATABASE_ID))
SEGMENT_BYTES = 1_024
SECTOR_BYTES = 512

Rows = dict[bytes, bytes | None]


def ops_of(rows: Rows) -> WriteOps:
    ops = WriteOps()
    for key, value in rows.items():
        if value is None:
            ops.delete(key)
        else:
            ops.put(key, value)
    return ops


def random_rows(source: random.Random, number: int) -> Rows:
    """Different in every commit, sometimes larger than a segment."""
    size = source.choice([0, 3, 40, 200, 700, 1_500])
    rows: Rows = {b"n": b"%d" % number, b"k%d" % number: source.randbytes(size)}
    for _ in range(source.randrange(3)):
        rows[b"d%d" % source.randrange(9)] = None
    return rows


class Written:
    """A journal being written, its commits remembered."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        create_files(directory, DATABASE_ID)
        self.commits: list[Rows] = []
        self.ends: list[EndRecord] = [NOTHING]
        """After each number of commits."""
        self.released_count = 0
        """What the database holds for sure."""
        self.files = JournalFiles(directory, DATABASE_ID, NOTHING, 0)

    def add(self, *commits: Rows) -> None:
        for rows in commits:
            self.ends.append(self.files.append(encode_body(ops_of(rows), seed_of(DATABASE_ID))))
            self.commits.append(rows)

    def release(self, count: int) -> None:
        """Have the database hold so many commits."""
        self.released_count = max(self.released_count, count)
        self.files.release(count)

    def reopen(self) -> None:
        """As a start does once all is in the database."""
        self.files.close()
        self.released_count = len(self.commits)
        survey = survey_journal(self.directory, DATABASE_ID, self.ends[-1])
        self.files = JournalFiles(self.directory, DATABASE_ID, survey.last, survey.generation)

    def survey(self, held_count: int) -> Survey:
        """What a start finds whose database has so many commits."""
        return survey_journal(self.directory, DATABASE_ID, self.ends[held_count])

    def check(self, held_count: int, *, lost: int = 0) -> Survey:
        """Assert that everything behind `held_count` is found, but for the last `lost` commits."""
        survey = self.survey(held_count)
        assert [rows for _, rows, _ in read_commits(survey)] == self.commits[
            held_count : len(self.commits) - lost
        ]
        assert survey.last == self.ends[max(held_count, len(self.commits) - lost)]
        return survey

    def unconfirm_last(self) -> None:
        """Have the end record name the commit before the last, as if that had not been confirmed."""
        path = self.directory / END_FILE
        raw = bytearray(path.read_bytes())
        slot = len(self.commits) % 2 * frames.END_SLOT_BYTES
        raw[slot : slot + 40] = bytes(40)
        path.write_bytes(raw)

    def place_of_last(self) -> tuple[Path, int, int]:
        """The file of the last commit's frame, and where it begins and ends."""
        segment = self.files._current
        assert segment is not None
        body = encode_body(ops_of(self.commits[-1]), seed_of(DATABASE_ID))
        return segment.path, self.files._at - frames.frame_bytes(body.size), self.files._at

    def close(self) -> None:
        self.files.close()


def frames_in(path: Path) -> list[tuple[int, int]]:
    """Where each whole frame of a segment begins and ends."""
    raw = path.read_bytes()
    head = frames.decode_head(raw)
    assert head is not None
    places = []
    at = frames.HEAD_BYTES
    while (found := frames.read_frame(memoryview(raw), at, frames.signs_of(head))) is not None:
        places.append((at, found.end))
        at = found.end
    return places


def generations(directory: Path) -> dict[int, Path]:
    """The begun segments by generation."""
    found = {}
    for path in segment_paths(directory):
        head = frames.decode_head(path.read_bytes())
        if head is not None:
            found[head.generation] = path
    return dict(sorted(found.items()))


def keep_some_sectors(path: Path, before: bytes, after: bytes, source: random.Random, chance: float) -> None:
    """Write the file as a power cut may leave it: of what was not synced some sectors are on disk."""
    before = before.ljust(len(after), b"\0")
    kept: Sequence[bytes] = [
        (after if source.random() < chance else before)[at : at + SECTOR_BYTES]
        for at in range(0, len(after), SECTOR_BYTES)
    ]
    path.write_bytes(b"".join(kept))


def no_sync(fd: int) -> None:
    """In place of `os.fsync`: these tests decide themselves what reaches the disk."""
    os.fstat(fd)
