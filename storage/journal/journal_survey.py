"""Reading a journal at a start: which commits are in it, proven without a gap, and what they hold.

A frame that is not whole, with nothing behind it, was being written when the process or the machine
stopped: nobody was told about it. Everything else that is not whole is damage: a whole frame follows, or a
later segment, the end record or the database know of a commit that is not here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storage.errors import StorageError
from storage.journal import frames
from storage.journal.files import END_FILE, segment_paths
from storage.journal.frames import EndRecord, Frame, SegmentHead, Signs
from storage.seal import Seal


class JournalDamaged(StorageError):
    """A commit that was confirmed is missing, or may be. `survey` has what comes before it."""

    def __init__(self, reason: str, survey: "Survey") -> None:
        super().__init__(reason)
        self.survey = survey


@dataclass
class Survey:
    """The commits of a journal for a database that has the commits up to `held`."""

    held: EndRecord
    last: EndRecord
    """The last commit, of the journal or the database."""
    generation: int = 0
    """The highest of any segment."""
    to_replay: list[tuple[Path, list[Frame]]] = field(default_factory=list)
    """The frames behind what the database has, by file, in order."""
    notes: list[str] = field(default_factory=list)

    def note_newest(self, head: SegmentHead) -> None:
        """Note the newest segment."""
        self.generation = head.generation

    def reach(self, commit: EndRecord) -> None:
        """Note a commit that is there."""
        if commit.sequence > self.last.sequence:
            self.last = commit

    @property
    def replay_count(self) -> int:
        return sum([len(found) for _, found in self.to_replay])

    def held_segments(self) -> dict[Path, int]:
        """Return the segments with commits to be replayed, and the last of each."""
        return {path: found[-1].sequence for path, found in self.to_replay}

    @property
    def replay_bytes(self) -> int:
        return sum([frame.end - frame.body_start for _, found in self.to_replay for frame in found])


class _Segment(NamedTuple):
    path: Path
    head: SegmentHead


def survey_journal(directory: Path, database_id: int, held: EndRecord) -> Survey:
    """Look through the journal of a database that holds the commits up to `held`.

    Raises JournalDamaged if a later one is missing, FormatTooNew, StorageError, and OSError.
    """
    walk = _Walk(directory, database_id, held)
    segments = _begun_segments(directory, database_id)
    if segments:
        walk.survey.note_newest(segments[-1].head)
    for index, segment in enumerate(segments):
        following = segments[index + 1].head.first if index + 1 < len(segments) else None
        if following is not None and following <= held.sequence + 1:
            continue  # the database has all of it
        walk.begin(segment)
        walk.read(segment, following)
    walk.finish()
    return walk.survey


def read_portions(
    survey: Survey, portion_bytes: int, seal: Seal | None = None
) -> Iterator[tuple[EndRecord, dict[bytes, bytes | None], int]]:
    """Read as `read_commits`, with so many commits put together that they have `portion_bytes`, or are all
    there is.
    """
    commits = read_commits(survey, seal)
    for last, rows, size in commits:
        while size < portion_bytes and (following := next(commits, None)) is not None:
            last, more, more_bytes = following
            rows.update(more)
            size += more_bytes
        yield last, rows, size


def read_commits(
    survey: Survey, seal: Seal | None = None
) -> Iterator[tuple[EndRecord, dict[bytes, bytes | None], int]]:
    """Read the commits to be replayed, one by one: operations by key, and their bytes.

    Raises OSError, and CorruptRecord for one that `seal` does not open.
    """
    for path, found in survey.to_replay:
        data = path.read_bytes()
        for frame in found:
            body = frames.opened_body(data, frame, seal)
            rows = frames.decode_body(body, frame.puts, frame.deletes)
            yield EndRecord(frame.sequence, frame.checksum), rows, len(body)


def read_body_starts(survey: Survey, size: int) -> list[bytes]:
    """Read the first bytes of the body of each commit to be replayed. Raises OSError."""
    starts = []
    for path, found in survey.to_replay:
        data = path.read_bytes()
        starts += [data[frame.body_start : frame.body_start + size] for frame in found]
    return starts


class _Walk:
    """Goes from frame to frame and knows what has to come next."""

    def __init__(self, directory: Path, database_id: int, held: EndRecord) -> None:
        self._directory = directory
        self._held = held
        self._end = read_end(directory, database_id)
        self._at: EndRecord | None = None  # the last frame seen
        self.survey = Survey(held, held)
        if self._end is None:
            raise self._damage("its end record is missing, so nothing proves that it is whole")

    def begin(self, segment: _Segment) -> None:
        """Check that the segment goes on where the one before it ends."""
        before = EndRecord(segment.head.first - 1, segment.head.previous)
        if self._at is None and before.sequence > self._held.sequence:
            missing = f"commits {self._held.sequence + 1} to {before.sequence}"
            raise self._damage(f"{missing} are neither in it nor in the database")
        if self._at is not None and self._at != before:
            raise self._damage(f"{segment.path.name} does not follow on commit {self._at.sequence}")
        self._arrive(before)

    def read(self, segment: _Segment, following: int | None) -> None:
        """Read the segment's frames, up to that one with which the next segment begins."""
        data = memoryview(segment.path.read_bytes())
        signs = frames.signs_of(segment.head)
        at = frames.HEAD_BYTES
        found: list[Frame] = []
        if self._at is None:
            raise AssertionError("begin comes first")
        while self._at.sequence + 1 != following:
            frame = frames.read_frame(data, at, signs)
            if frame is None or (frame.sequence, frame.previous) != (
                self._at.sequence + 1,
                self._at.checksum,
            ):
                break
            if frame.sequence > self._held.sequence:
                found.append(frame)
            self._arrive(EndRecord(frame.sequence, frame.checksum))
            at = frame.end
        if found:
            self.survey.to_replay.append((segment.path, found))
        where = f"{segment.path.name} at byte {at}"
        if following is not None and self._at.sequence + 1 != following:
            missing = f"commits {self._at.sequence + 1} to {following - 1}"
            raise self._damage(f"{missing} are damaged or missing ({where}), and later ones are there")
        if following is None:
            self._check_tail(data, at, signs, f"commit {self._at.sequence + 1} in {where}")

    def finish(self) -> None:
        """Check that the last frame is not older than what is known to have been confirmed."""
        end = self._end
        assert end is not None
        if self.survey.last.sequence < end.sequence:
            raise self._damage(
                f"commits {self.survey.last.sequence + 1} to {end.sequence} were confirmed and are not there"
            )
        reached = 0 if self._at is None else self._at.sequence
        if reached < self._held.sequence:
            self.survey.notes.append(
                f"the journal in {self._directory} ends before commit {self._held.sequence}, which the "
                "database holds: files of it are damaged or gone, but nothing is missing"
            )

    def _arrive(self, commit: EndRecord) -> None:
        self._at = commit
        for known, who in ((self._held, "the database"), (self._end, "the end record")):
            if known is not None and commit.sequence == known.sequence and commit != known:
                raise self._damage(
                    f"commit {commit.sequence} is another one than {who} says: "
                    "journal and database are not of the same moment"
                )
        self.survey.reach(commit)

    def _check_tail(self, data: memoryview, at: int, signs: Signs, where: str) -> None:
        """Refuse a whole frame behind the last one in order: that is damage, not a torn end."""
        raw = data.obj
        assert isinstance(raw, bytes)
        mark = signs.mark_bytes
        found = raw.find(mark, at)
        while found >= 0:
            if found % 8 == 0 and frames.read_frame(data, found, signs) is not None:
                raise self._damage(f"{where} is damaged, and a later one is there")
            found = raw.find(mark, found + 1)
        if frames.begun_frame(data, at, signs):
            self.survey.notes.append(f"{where} was begun and not finished: nobody was told about it")

    def _damage(self, what: str) -> JournalDamaged:
        return JournalDamaged(f"opening: the journal in {self._directory} is damaged: {what}", self.survey)


def _begun_segments(directory: Path, database_id: int) -> list[_Segment]:
    """Return the segments with a whole head, oldest first.

    A head is on disk together with the first frame behind it, so without one there is nothing that was
    confirmed; or the end record says otherwise.
    """
    found: dict[int, _Segment] = {}
    for path in segment_paths(directory):
        with path.open("rb") as file:
            head = frames.decode_head(file.read(frames.HEAD_BYTES))
        if head is None:
            continue
        if head.database_id != database_id:
            raise StorageError(f"opening: {path} belongs to another database")
        if head.generation in found:
            raise StorageError(f"opening: {path} is a copy of {found[head.generation].path.name}")
        found[head.generation] = _Segment(path, head)
    return [found[generation] for generation in sorted(found)]


def read_end(directory: Path, database_id: int) -> EndRecord | None:
    """Read the end record of this database's journal, None if there is no whole one. Raises OSError."""
    try:
        raw = (directory / END_FILE).read_bytes()
    except FileNotFoundError:
        return None
    places = (raw[: frames.END_SLOT_BYTES], raw[frames.END_SLOT_BYTES :])
    records = [record for place in places if (record := frames.decode_end(place, database_id)) is not None]
    return max(records, default=None)
