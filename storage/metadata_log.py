"""The metadata log: which messages were published to which queue, in order.

Byte-compatible with the records of the current OpenData-Log layout, in the same database as the queue
records. Every key begins `03 01 ‖ segment u32BE ‖ tag`:

    record        tag  segment  rest of key                        value
    LogEntry      10   its own  TB(log key) ‖ var_u64(relative)    one metadata record
    SeqBlock      20   0        -                                  base u64BE ‖ size u64BE
    SegmentMeta   30   0        segment u32BE                      start_sequence u64BE ‖ start_time i64BE ms
    ListingEntry  40   its own  log key raw                        empty

`relative` is the entry's sequence less its segment's first. One sequence serves all logs of the database: a
log's sequences rise but are not consecutive. Segments are numbered from 1; one ends where the next begins.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from storage.encoding import decode_var_u64, encode_terminated, encode_var_u64, prefix_end
from storage.errors import CorruptRecord
from storage.sequence import SeqBlock, SequenceAllocator

NAME: Final = "metadata log"
INSTANCE_ID_DEFAULT: Final = "i1"
PREFIX: Final = b"\x03\x01"  # subsystem log, version 1

TAG_ENTRY: Final = 0x10
TAG_SEQ_BLOCK: Final = 0x20
TAG_SEGMENT_META: Final = 0x30
TAG_LISTING: Final = 0x40

FIRST_SEGMENT: Final = 1
_SEGMENT_ID_MAX: Final = 2**32 - 1
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOG_KEY: Final = re.compile(rf"opendata-queue/({_ID.pattern})/messages/metadata/({_ID.pattern})")
_KEY_HEAD: Final = struct.Struct(">2sIB")
_META_KEY: Final = struct.Struct(">2sIBI")
_META_VALUE: Final = struct.Struct(">Qq")

SEQ_BLOCK_KEY: Final = _KEY_HEAD.pack(PREFIX, 0, TAG_SEQ_BLOCK)


class SegmentMeta(NamedTuple):
    """One segment: its number, the first sequence in it, and when it was opened (ms since the Unix epoch)."""

    segment_id: int
    start_sequence: int
    start_time_ms: int


class ScanRange(NamedTuple):
    """The keys `start <= key < end` of one log in one segment that hold the wanted sequences."""

    segment: SegmentMeta
    start: bytes
    end: bytes
    prefix_bytes: int

    def sequence(self, key: bytes) -> int:
        """Return the sequence of an entry whose key lies in this range."""
        relative, end = decode_var_u64(key, self.prefix_bytes, NAME, "sequence")
        if end != len(key):
            raise CorruptRecord(NAME, "key", f"{len(key) - end} bytes too many")
        return self.segment.start_sequence + relative


def log_key(instance_id: str, log_id: str) -> bytes:
    """Make the key under which a log's entries stand; both IDs are 1 to 64 of `A-Z a-z 0-9 . _ -`."""
    for name in (instance_id, log_id):
        if not _ID.fullmatch(name):
            raise ValueError(f"{name!r} is no instance or log ID")
    return f"opendata-queue/{instance_id}/messages/metadata/{log_id}".encode()


def parse_log_key(raw: bytes) -> tuple[str, str]:
    """Parse a log key into its (instance ID, log ID)."""
    match = _LOG_KEY.fullmatch(raw.decode("ascii", "replace"))
    if match is None:
        raise CorruptRecord(NAME, "log key", repr(raw))
    return match[1], match[2]


def entry_prefix(segment_id: int, log_key: bytes) -> bytes:
    """Return the beginning of all keys of one log's entries in one segment."""
    return _KEY_HEAD.pack(PREFIX, segment_id, TAG_ENTRY) + encode_terminated(log_key)


def segment_meta_key(segment_id: int) -> bytes:
    return _META_KEY.pack(PREFIX, 0, TAG_SEGMENT_META, segment_id)


def segment_meta_bounds() -> tuple[bytes, bytes]:
    """Return the range of keys to scan for all segments at a start."""
    return segment_meta_key(FIRST_SEGMENT), segment_meta_key(_SEGMENT_ID_MAX)


def encode_segment_meta(segment: SegmentMeta) -> bytes:
    return _META_VALUE.pack(segment.start_sequence, segment.start_time_ms)


def decode_segment_meta(key: bytes, value: bytes) -> SegmentMeta:
    if len(key) != _META_KEY.size or not key.startswith(_KEY_HEAD.pack(PREFIX, 0, TAG_SEGMENT_META)):
        raise CorruptRecord("segment", "key", key.hex(" "))
    if len(value) != _META_VALUE.size:
        raise CorruptRecord("segment", "length", f"{len(value)} bytes")
    return SegmentMeta(_META_KEY.unpack(key)[3], *_META_VALUE.unpack(value))


def listing_key(segment_id: int, log_key: bytes) -> bytes:
    return _KEY_HEAD.pack(PREFIX, segment_id, TAG_LISTING) + log_key


def listing_bounds(segment_id: int) -> tuple[bytes, bytes]:
    """Return the range of keys to scan for the logs that have entries in a segment."""
    return listing_key(segment_id, b""), _KEY_HEAD.pack(PREFIX, segment_id, TAG_LISTING + 1)


def parse_listing_key(key: bytes) -> tuple[int, bytes]:
    """Parse the key of a listing into its (segment ID, log key)."""
    if len(key) < _KEY_HEAD.size:
        raise CorruptRecord("listing", "key", "truncated")
    prefix, segment_id, tag = _KEY_HEAD.unpack_from(key)
    if prefix != PREFIX or tag != TAG_LISTING:
        raise CorruptRecord("listing", "key", key.hex(" "))
    return segment_id, key[_KEY_HEAD.size :]


class MetadataLog:
    """The state of all logs of one database: segments, sequence block, and which logs were listed.

    Pure: what must be stored is given to the caller as puts, which it must write in one batch with the
    entries that use them. If that batch is given up, this object is ahead of the store and must be built
    anew from it. All segments there are can be read; here the newest never ends.
    """

    def __init__(
        self,
        instance_id: str = INSTANCE_ID_DEFAULT,
        *,
        segments: Sequence[SegmentMeta] = (),
        stored_block: SeqBlock | None = None,
    ) -> None:
        log_key(instance_id, "q0")  # refuses an instance ID no log could have
        self.instance_id = instance_id
        self.segments = sorted(segments, key=lambda segment: segment.start_sequence)
        self._starts = [segment.start_sequence for segment in self.segments]
        self._allocator = SequenceAllocator(SEQ_BLOCK_KEY, stored_block)
        self._listed_ids: set[str] = set()  # of logs that were listed in the newest segment
        self._entry_prefixes: dict[str, bytes] = {}  # likewise of the newest segment
        ids = [segment.segment_id for segment in self.segments]
        if ids != sorted(set(ids)) or len(set(self._starts)) != len(ids):
            raise CorruptRecord("segment", "order", "segment IDs and start sequences do not rise together")
        if self._starts and self._starts[-1] > self._allocator.next_value:
            raise CorruptRecord("segment", "start_sequence", "beyond the reserved sequences")

    @classmethod
    def recover(
        cls,
        instance_id: str,
        segment_rows: Iterable[tuple[bytes, bytes]],
        seq_block: SeqBlock | None,
    ) -> "MetadataLog":
        """Restore the log after a start, from what was scanned.

        `segment_rows` are the rows of `segment_meta_bounds()`, `seq_block` is the decoded value of
        `SEQ_BLOCK_KEY`. Logs are listed again, which does no harm.
        """
        segments = [decode_segment_meta(key, value) for key, value in segment_rows]
        return cls(instance_id, segments=segments, stored_block=seq_block)

    @property
    def next_sequence(self) -> int:
        """The sequence the next entry will have; everything below has been given out or skipped."""
        return self._allocator.next_value

    def allocate(self, count: int, now_ms: int) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Allocate sequences for `count` entries of one batch; returns the first, and the puts to add to that
        batch.

        The puts reserve the sequences and open the first segment. All entries of the batch go to
        the newest segment, so allocate once for a batch, not once for an entry.
        """
        first, reserve = self._allocator.allocate(count)
        puts = [] if reserve is None else [reserve]
        if not self.segments:
            segment = SegmentMeta(FIRST_SEGMENT, first, now_ms)
            self.segments.append(segment)
            self._starts.append(first)
            puts.append((segment_meta_key(FIRST_SEGMENT), encode_segment_meta(segment)))
        return first, puts

    def listing(self, log_id: str) -> tuple[bytes, bytes] | None:
        """Return the put that lists this log in the newest segment, or None if that was done."""
        if log_id in self._listed_ids:
            return None
        self._listed_ids.add(log_id)
        return listing_key(self.segments[-1].segment_id, log_key(self.instance_id, log_id)), b""

    def entry_key(self, log_id: str, sequence: int) -> bytes:
        """Return the key of a log's entry; `sequence` must have been allocated."""
        if sequence >= self._starts[-1]:
            prefix = self._entry_prefixes.get(log_id)
            if prefix is None:
                prefix = self._entry_prefix(self.segments[-1], log_id)
                self._entry_prefixes[log_id] = prefix
            return prefix + encode_var_u64(sequence - self._starts[-1])
        segment = self._segments_of(sequence, sequence + 1)[0]
        return self._entry_prefix(segment, log_id) + encode_var_u64(sequence - segment.start_sequence)

    def scan_bounds(
        self, log_id: str, from_sequence: int = 0, to_sequence: int | None = None
    ) -> list[ScanRange]:
        """Return the key ranges, one per segment and in order, of a log's entries with `from <= sequence <
        to`.

        Without `to_sequence` they reach to the end. A reader goes on later at the last sequence it saw + 1.
        """
        ranges = []
        for segment in self._segments_of(from_sequence, to_sequence):
            prefix = self._entry_prefix(segment, log_id)
            start = prefix + encode_var_u64(max(from_sequence - segment.start_sequence, 0))
            if to_sequence is None:
                end = prefix_end(prefix)
                assert end is not None  # the prefix begins with 03
            else:
                end = prefix + encode_var_u64(to_sequence - segment.start_sequence)
            ranges.append(ScanRange(segment, start, end, len(prefix)))
        return ranges

    def _entry_prefix(self, segment: SegmentMeta, log_id: str) -> bytes:
        return entry_prefix(segment.segment_id, log_key(self.instance_id, log_id))

    def _segments_of(self, from_sequence: int, to_sequence: int | None) -> list[SegmentMeta]:
        if to_sequence is not None and to_sequence <= from_sequence:
            return []
        first = max(bisect_right(self._starts, from_sequence) - 1, 0)
        return [
            segment
            for segment in self.segments[first:]
            if to_sequence is None or segment.start_sequence < to_sequence
        ]
