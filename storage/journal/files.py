"""The segment files of a journal, for the one process that writes them.

A few files, filled with zeros once and used again and again, so that a commit is one write and one
fdatasync into blocks that are there already.
"""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from config import limits
from storage.batch import WriteOps
from storage.errors import StorageError, StoreFull, StoreUnavailable
from storage.journal import frames
from storage.journal.frames import EndRecord, FrameBody, SegmentHead, Signs
from storage.seal import Seal

SEGMENT_PREFIX: Final = "segment-"
END_FILE: Final = "end"

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_PARTS_PER_WRITE: Final = os.sysconf("SC_IOV_MAX")
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class _Segment:
    """One file: the generation of what lies in it, and the last commit since this process began it."""

    __slots__ = ("fd", "generation", "is_free", "last", "path", "size")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.size = os.fstat(fd).st_size
        head = frames.decode_head(os.pread(fd, frames.HEAD_BYTES, 0))
        self.generation = 0 if head is None else head.generation
        self.is_free = True
        self.last = 0

    def begin(self, generation: int, before: int) -> None:
        """Take the commits behind `before` from now on."""
        self.generation = generation
        self.is_free = False
        self.last = before

    def hold(self, last: int) -> None:
        """Note that it has commits up to `last` that are nowhere else."""
        self.is_free = False
        self.last = last

    def wrote(self, sequence: int) -> None:
        """Note that a commit is in it."""
        self.last = sequence

    def set_free(self) -> None:
        """Note that its commits are held elsewhere."""
        self.is_free = True

    def measure(self) -> None:
        """Note its size after a change."""
        self.size = os.fstat(self.fd).st_size


class Held(NamedTuple):
    """Segments there are, how many hold what SlateDB may not have on disk, and the size of all."""

    segment_count: int
    in_use: int
    size_bytes: int


class JournalFiles:
    """Appends frames and syncs them. Blocking, one caller of `append` at a time.

    `release` may be called from another thread.
    """

    def __init__(
        self,
        directory: Path,
        database_id: int,
        last: EndRecord,
        generation: int,
        held: Mapping[Path, int] | None = None,
        seal: Seal | None = None,
    ) -> None:
        """Go on behind the commit `last`, in segments of generations above `generation`.

        `held` has the segments with commits that SlateDB does not hold durably yet, with the last of each;
        all others are free, and there may be one more than otherwise. `seal` encrypts the bodies of frames.
        Raises StorageError.
        """
        held = held or {}
        self._held_count = len(held)
        self._directory = directory
        self._database_id = database_id
        self._generation = generation
        self._sequence, self._previous = last
        self._segments: list[_Segment] = []
        self._segments_lock = threading.Lock()  # which segments are free
        self._current: _Segment | None = None
        self._signs: Signs | None = None  # of the current segment
        self._at = 0
        self._broken = ""
        self._version = frames.JOURNAL_VERSION
        self._encode_frame = frames.encode_frame
        self.encode_body: Callable[[WriteOps], FrameBody]
        """Encode a commit for `append`; raises ValueError if it is too large."""
        if seal is None:
            self.encode_body = partial(frames.encode_body, seed=frames.seed_of(database_id))
        else:
            self._version = frames.SEALED_VERSION
            self._encode_frame = partial(frames.encode_sealed_frame, seal)
            self.encode_body = partial(frames.body_to_seal, overhead_bytes=seal.overhead_bytes)
        self.sync_s = 0.0
        """How long the last sync took."""
        try:
            self._end_fd = os.open(directory / END_FILE, os.O_RDWR)
            for path in segment_paths(directory):
                segment = _Segment(path, os.open(path, os.O_RDWR))
                self._segments.append(segment)
                if path in held:
                    segment.hold(held[path])
        except OSError as error:
            self.close()
            raise StorageError(f"opening the journal: {error.strerror}: {error.filename}") from error

    @property
    def last(self) -> EndRecord:
        """The last commit that is on disk."""
        return EndRecord(self._sequence, self._previous)

    def fits(self, body_bytes: int) -> bool:
        """Return whether a frame with so large a body goes into the segment being written."""
        return self._current is not None and self._at + frames.frame_bytes(body_bytes) <= self._current.size

    @property
    def has_free_segment(self) -> bool:
        """Whether another segment can be begun, room on the disk given."""
        return self._may_create or any(segment.is_free for segment in self._segments)

    @property
    def _may_create(self) -> bool:
        return len(self._segments) < max(limits.JOURNAL_SEGMENTS_MAX, self._held_count + 1)

    def held(self) -> Held:
        """Count the segments and their bytes."""
        with self._segments_lock:
            in_use = sum(not segment.is_free or segment is self._current for segment in self._segments)
            size_bytes = sum(segment.size for segment in self._segments)
            return Held(len(self._segments), in_use, size_bytes)

    def append(self, body: FrameBody) -> EndRecord:
        """Write one commit and sync it; gives its number and checksum.

        Raises StoreFull or StoreUnavailable, and nothing has happened; or StorageError, and from then on
        always.
        """
        if self._broken:
            raise StorageError(self._broken)
        if not self.fits(body.size):
            self._begin_segment(frames.frame_bytes(body.size))
        segment, signs = self._current, self._signs
        assert segment is not None
        assert signs is not None
        sequence = self._sequence + 1
        parts, checksum = self._encode_frame(body, sequence, signs, self._previous)
        size = frames.frame_bytes(body.size)
        try:
            self._write(segment.fd, parts)
        except OSError as error:
            raise self._failed("writing", error) from error
        begun = time.perf_counter()
        try:
            os.fdatasync(segment.fd)
            self.sync_s = time.perf_counter() - begun
            end = EndRecord(sequence, checksum)
            slot = sequence % 2 * frames.END_SLOT_BYTES
            os.pwrite(self._end_fd, frames.encode_end(self._database_id, end), slot)
        except OSError as error:
            # the kernel may have dropped the pages and call the next sync a success
            raise self._break("syncing", error) from error
        self._at += size
        self._sequence, self._previous = sequence, checksum
        segment.wrote(sequence)
        return end

    def release(self, durable: int) -> None:
        """Free older segments: SlateDB holds everything up to `durable` on disk."""
        with self._segments_lock:
            for segment in self._segments:
                if segment is not self._current and segment.last <= durable:
                    segment.set_free()

    def sync_end(self) -> None:
        """Put the end record on disk, so that the start after a power cut knows it. Raises StorageError."""
        try:
            os.fdatasync(self._end_fd)
        except OSError as error:
            raise self._break("syncing", error) from error

    def close(self) -> None:
        """Let go of the files; nothing else may be called afterwards."""
        for segment in self._segments:
            os.close(segment.fd)
        self._segments = []
        end_fd = getattr(self, "_end_fd", -1)
        if end_fd >= 0:
            os.close(end_fd)
            self._end_fd = -1

    def _begin_segment(self, room: int) -> None:
        """Make a free segment the current one, or a new one. Raises StoreFull, StorageError."""
        wanted = max(limits.JOURNAL_SEGMENT_BYTES, frames.HEAD_BYTES + room)
        segment = self._oldest_free()
        if segment is None:
            segment = self._create(wanted)
        elif segment.size != wanted:
            self._resize(segment, wanted)
        generation = self._generation + 1
        head = SegmentHead(self._database_id, generation, self._sequence + 1, self._previous, self._version)
        try:
            # on disk with the first frame
            os.pwrite(segment.fd, frames.encode_head(head), 0)
        except OSError as error:
            raise self._failed("writing", error) from error
        with self._segments_lock:
            self._generation = generation
            segment.begin(generation, self._sequence)
            self._current, self._at = segment, frames.HEAD_BYTES
            self._signs = frames.signs_of(head)

    def _oldest_free(self) -> _Segment | None:
        """Return the free segment whose commits are the oldest: what was written last stays readable longest,
        should SlateDB's files be damaged. None if a new one is to be made.
        """
        if len(self._segments) < limits.JOURNAL_SEGMENTS_MIN:
            return None
        with self._segments_lock:
            free = [segment for segment in self._segments if segment.is_free]
        return min(free, key=lambda segment: segment.generation, default=None)

    def _create(self, size: int) -> _Segment:
        if not self._may_create:
            raise StoreFull("writing: the journal is full, and the database does not take it over")
        numbers = [_number(segment.path) for segment in self._segments]
        path = self._directory / f"{SEGMENT_PREFIX}{max(numbers, default=0) + 1}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise self._failed("writing", error) from error
        try:
            _fill(fd, min(size, limits.JOURNAL_SEGMENT_BYTES))
            _extend(fd, limits.JOURNAL_SEGMENT_BYTES, size)
            sync_directory(self._directory)
        except OSError as error:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise self._failed("writing", error) from error
        segment = _Segment(path, fd)
        with self._segments_lock:
            self._segments.append(segment)
        return segment

    def _resize(self, segment: _Segment, size: int) -> None:
        """Give a segment its size again, after a larger commit made it grow."""
        try:
            if segment.size > size:
                os.ftruncate(segment.fd, size)
            else:
                _extend(segment.fd, segment.size, size)
        except OSError as error:
            raise self._failed("writing", error) from error
        finally:
            segment.measure()

    def _write(self, fd: int, parts: list[bytes]) -> None:
        at = self._at
        for some in _portions(parts):
            end = at + sum(map(len, some))
            at += os.pwritev(fd, some, at)
            if at != end:
                rest = memoryview(b"".join(some))
                while at < end:
                    at += os.pwrite(fd, rest[at - end :], at)

    def _failed(self, doing: str, error: OSError) -> StorageError:
        """Return the exception for an error before anything was synced."""
        if error.errno in _NO_ROOM:
            return StoreFull(f"{doing} the journal: {error.strerror}")
        if error.errno in _OUT_OF_DESCRIPTORS:
            return StoreUnavailable(f"{doing} the journal: {error.strerror}")
        return self._break(doing, error)

    def _break(self, doing: str, error: OSError) -> StorageError:
        self._broken = f"{doing} the journal: {error.strerror or error}"
        return StorageError(self._broken)


def segment_paths(directory: Path) -> list[Path]:
    """Return the segments in the directory, by number."""
    return sorted(
        [path for path in directory.glob(SEGMENT_PREFIX + "*") if path.name[len(SEGMENT_PREFIX) :].isdigit()],
        key=_number,
    )


def create_files(directory: Path, database_id: int) -> None:
    """Make the directory of a journal without a commit, and put it on disk. Raises OSError."""
    directory.mkdir()
    fd = os.open(directory / END_FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        record = frames.encode_end(database_id, EndRecord(0, frames.seed_of(database_id)))
        os.pwrite(fd, record + bytes(2 * frames.END_SLOT_BYTES - len(record)), 0)
        os.pwrite(fd, record, frames.END_SLOT_BYTES)
        os.fsync(fd)
    finally:
        os.close(fd)
    sync_directory(directory)


def sync_directory(directory: Path) -> None:
    """Put the directory's entries on disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _portions(parts: list[bytes]) -> Iterator[list[bytes | memoryview]]:
    """Cut large parts, and yield as many at a time as one call writes."""
    bytes_max = limits.JOURNAL_WRITE_BYTES_MAX
    portion: list[bytes | memoryview] = []
    room = bytes_max
    for part in parts:
        if len(part) > room or len(portion) == _PARTS_PER_WRITE:
            if portion:
                yield portion
            portion = []
            room = bytes_max
            if len(part) > room:
                whole = memoryview(part)
                for start in range(0, len(part), bytes_max):
                    yield [whole[start : start + bytes_max]]
                continue
        portion.append(part)
        room -= len(part)
    if portion:
        yield portion


def _number(path: Path) -> int:
    return int(path.name[len(SEGMENT_PREFIX) :])


def _fill(fd: int, size: int) -> None:
    """Write zeros up to `size`, on disk: a sync then writes data only, no sizes and places."""
    os.posix_fallocate(fd, 0, size)
    zeros = bytes(limits.JOURNAL_FILL_BYTES)
    at = 0
    while at < size:
        at += os.pwrite(fd, zeros[: size - at], at)
    os.fsync(fd)


def _extend(fd: int, start: int, end: int) -> None:
    """Reserve room from `start` to `end` for one large commit, which zeros would make twice what is
    written.
    """
    if end > start:
        os.posix_fallocate(fd, start, end - start)
