"""The records of one shard as they are in another, whose numbers go on where its own end.

Message IDs, and what is numbered like them, get something added, as do sequences of the metadata log and the
numbers in log IDs; so whatever stands in an order keeps it. Offsets, claims and names stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from queue_manager.spec_records import with_log_id
from storage import metadata_log
from storage.encoding import decode_terminated, decode_var_u64, encode_var_u64
from storage.errors import CorruptRecord
from storage.metadata_log import SegmentMeta
from storage.records import (
    active,
    attempts,
    claim_state,
    claimed_bitmap,
    committed_epoch,
    done,
    epoch,
    expiry,
    failed,
    group_position,
    group_removal,
    identified,
    last_value,
    log_cursor,
    metadata,
    payload,
    payload_refs,
    producer,
    queue_account,
    queue_meta,
    queue_spec,
    released_offsets,
    removal,
    scheduled,
    settlements,
    skipped_offsets,
    staged_rows,
    stream_chunk,
)
from storage.records.bucket_values import SettledMessage, pack_available, pack_in_flight, pack_settled
from storage.records.staged_values import decode_staged_head

Row = tuple[bytes, bytes]

AS_THEY_ARE: Final = frozenset(
    kind.number
    for kind in (
        claim_state,
        claimed_bitmap,
        committed_epoch,
        epoch,
        group_position,
        identified,
        producer,
        queue_account,
        released_offsets,
        skipped_offsets,
    )
)
"""Records of queues and groups without any number that is the shard's."""

_TAG_AT: Final = 6  # in a key of the metadata log, behind the prefix and the segment


class Shifts(NamedTuple):
    """What is added to numbers."""

    ids: int
    sequences: int
    logs: int


def log_number(log_id: str) -> int:
    """Return the number in the ID of a log. Raises CorruptRecord."""
    if not (log_id.startswith("q") and log_id[1:].isdigit()):
        raise CorruptRecord(queue_spec.name, "log", repr(log_id))
    return int(log_id[1:])


class Renumbering:
    """The records of queues as they are in the other shard; `row` gives each of them.

    `segments` are those of the metadata log that is read, `segment` the newest of the other's, whose log is
    that of `instance_id`.
    """

    def __init__(
        self, shifts: Shifts, segments: Sequence[SegmentMeta], segment: SegmentMeta, instance_id: str
    ) -> None:
        self._shifts = shifts
        self._ids = shifts.ids
        self._starts = {each.segment_id: each.start_sequence for each in segments}
        self._segment = segment
        self._instance_id = instance_id
        self.by_number: dict[int, Callable[[bytes, bytes], Row]] = {
            payload.number: self._payload,
            payload_refs.number: self._payload_refs,
            expiry.number: self._expiry,
            scheduled.number: self._scheduled,
            last_value.number: self._last_value,
            queue_spec.number: self._spec,
            queue_meta.number: self._meta,
            removal.number: self._removal,
            stream_chunk.number: self._chunk,
            active.number: self._active,
            done.number: self._settled,
            failed.number: self._settled,
            settlements.number: self._settlements,
            attempts.number: self._attempts,
            log_cursor.number: self._cursor,
            group_removal.number: self._group_removal,
            staged_rows.number: self._staged,
        }

    def log_row(self, key: bytes, value: bytes) -> Row | None:
        """Return a record of the metadata log, unless it is one that each shard has of its own."""
        tag = key[_TAG_AT]
        if tag == metadata_log.TAG_LISTING:
            _, log_key = metadata_log.parse_listing_key(key)
            return metadata_log.listing_key(self._segment.segment_id, self._log_key(log_key)), value
        if tag != metadata_log.TAG_ENTRY:
            return None
        segment_id = int.from_bytes(key[_TAG_AT - 4 : _TAG_AT], "big")
        log_key, at = decode_terminated(key, _TAG_AT + 1, metadata_log.NAME, "log key")
        relative, end = decode_var_u64(key, at, metadata_log.NAME, "sequence")
        if end != len(key) or segment_id not in self._starts:
            raise CorruptRecord(metadata_log.NAME, "key", key[:64].hex(" "))
        sequence = self._starts[segment_id] + relative + self._shifts.sequences
        prefix = metadata_log.entry_prefix(self._segment.segment_id, self._log_key(log_key))
        messages = [(message_id + self._ids, envelope) for message_id, envelope in metadata.decode(value)]
        return prefix + encode_var_u64(sequence - self._segment.start_sequence), metadata.encode(messages)

    def _log_key(self, log_key: bytes) -> bytes:
        _, log_id = metadata_log.parse_log_key(log_key)
        return metadata_log.log_key(self._instance_id, self.log_id(log_id))

    def log_id(self, log_id: str) -> str:
        """Return the other ID of a log."""
        return f"q{log_number(log_id) + self._shifts.logs}"

    # messages

    def _payload(self, key: bytes, value: bytes) -> Row:
        return payload.key(payload.parse_key(key) + self._ids), value

    def _payload_refs(self, key: bytes, value: bytes) -> Row:
        return payload_refs.key(payload_refs.parse_key(key) + self._ids), value

    def _expiry(self, key: bytes, value: bytes) -> Row:
        message_id, body_bytes, envelope = expiry.decode(value)
        return key, expiry.encode(message_id + self._ids, body_bytes, envelope)

    def _scheduled(self, key: bytes, value: bytes) -> Row:
        queue_id, due_ms, message_id = scheduled.parse_key(key)
        return scheduled.key(queue_id, due_ms, message_id + self._ids), value

    def _last_value(self, key: bytes, value: bytes) -> Row:
        message_id, body_bytes, envelope = last_value.decode(value)
        return key, last_value.encode(message_id + self._ids, body_bytes, envelope)

    # queues

    def _spec(self, key: bytes, value: bytes) -> Row:
        return key, queue_spec.encode(with_log_id(queue_spec.decode(value), self.log_id))

    def _meta(self, key: bytes, value: bytes) -> Row:
        head_offset, head_sequence = queue_meta.decode(value)
        return key, queue_meta.encode(head_offset, head_sequence + self._shifts.sequences)

    def _removal(self, key: bytes, value: bytes) -> Row:
        name, queue_ids, released = removal.decode(value)
        if released is not None and released.let_go is not None:
            shifted = [(start + self._ids, end + self._ids) for start, end in released.let_go]
            released = released._replace(let_go=shifted)
        return removal.key(self.log_id(removal.parse_key(key))), removal.encode(name, queue_ids, released)

    def _chunk(self, key: bytes, value: bytes) -> Row:
        first_sequence, *rest = stream_chunk.decode(value)
        return key, stream_chunk.encode(first_sequence + self._shifts.sequences, *rest)

    # groups

    def _active(self, key: bytes, value: bytes) -> Row:
        available, in_flight = active.decode(value)
        return key, active.encode(
            [pack_available(each.message_id + self._ids, *each[1:]) for each in available],
            [pack_in_flight(each.message_id + self._ids, *each[1:]) for each in in_flight],
        )

    def _settled(self, key: bytes, value: bytes) -> Row:
        return key, done.encode(self._packed(done.decode(value)))  # failed buckets are alike

    def _settlements(self, key: bytes, value: bytes) -> Row:
        found = settlements.decode(value)
        return key, settlements.encode(self._packed(found.done), found.released)

    def _packed(self, messages: Iterable[SettledMessage]) -> list[bytes]:
        return [pack_settled(each.message_id + self._ids, *each[1:]) for each in messages]

    def _attempts(self, key: bytes, value: bytes) -> Row:
        queue_id, message_id = attempts.parse_key(key)
        return attempts.key(queue_id, message_id + self._ids), value

    def _cursor(self, key: bytes, value: bytes) -> Row:
        queue_id, log_id = log_cursor.parse_key(key)
        sequence = log_cursor.decode(value) + self._shifts.sequences
        return log_cursor.key(queue_id, self.log_id(log_id)), log_cursor.encode(sequence)

    def _group_removal(self, key: bytes, value: bytes) -> Row:
        queue_id, number = group_removal.parse_key(key)
        pending = group_removal.decode(value)
        renamed = pending._replace(log_id=self.log_id(pending.log_id))
        return group_removal.key(queue_id, number + self._ids), group_removal.encode(*renamed)

    def _staged(self, key: bytes, value: bytes) -> Row:
        runs = [run._replace(first_id=run.first_id + self._ids) for run in staged_rows.decode(value)]
        head = decode_staged_head(value)
        return key, staged_rows.encode(head.bytes_before, head.staged_at_ms, runs)
