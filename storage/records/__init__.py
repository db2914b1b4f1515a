"""All records of a queue database but those of the metadata log: one table of what their keys and values
hold.

A new kind of record goes to the end of its part: the fields of its key and value as `NamedTuple`s of the
types in `fields`, unless there is only one, and a `Record` with the next free number. What rows of fields
cannot say is a codec of its own: `special_codecs`, `queue_spec_values`, and those that are written for each
message or commit and therefore packed by hand, `bucket_values`, `staged_values` and `filter_log_entries`.
`metadata` has the values of the metadata log.

Layouts and the first sentence of each record's docstring stand in `docs/record-layout.md`, too:
`python -m tests.unit.documentation.record_layout_page` writes them there.

Keys begin `01 TT` (layout version, number). A group's queue ID is `layout.group_queue_id`. Times are
milliseconds since the Unix epoch. Encoders raise ValueError or struct.error for what does not fit.
"""

import struct
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import repeat
from typing import Annotated, Any, Final, NamedTuple

from storage import layout
from storage.encoding import U64_MAX, Reader
from storage.records import queue_spec_values, special_codecs, staged_values
from storage.records.bucket_values import ACTIVE, SETTLED, SETTLEMENTS
from storage.records.fields import (
    I64,
    U8,
    U16,
    U32,
    U64,
    BytesRest,
    Codec,
    Digest,
    Flag,
    Packed,
    Ranges,
    Record,
    TerminatedText,
    TextRest,
    Utf8,
    VarBytes,
    added,
    array,
    bytes_rest,
    checked_text,
    group,
    i64,
    key,
    key_of,
    no_key,
    optional,
    ranges,
    table,
    terminated,
    text_rest,
    u8,
    u32,
    u64,
    utf8,
    value,
    value_of,
)
from storage.records.filter_log_entries import encode_entry
from storage.records.special_codecs import BINDING_DIGEST_BYTES
from storage.sequence import decode_block, encode_block
from storage.typed_values import encode_table

# what the keys of several kinds hold


class BucketKey(NamedTuple):
    """A bucket of a group."""

    queue_id: TerminatedText
    bucket_id: U64


_OF_MESSAGE: Final = key("message_id", u64)
_OF_SESSION: Final = key("session", u64)
_OF_GROUP: Final = key("queue_id", terminated)
_OF_QUEUE: Final = key("queue_id", checked_text(layout.check_queue_id))

# the database

message_ids: Final = Record(
    "message IDs", 0x07, no_key(), Codec(encode_block, lambda reader: decode_block(reader.rest()))
)
"""Which message IDs are reserved; they are unique and rise with time. Written with the first publish that
uses an ID of the block.
"""

format_marker: Final = Record("format marker", 0x0F, no_key(), special_codecs.FORMAT)
"""The identity of the database. Written when it is created, verified at each open before anything else is
read.

The version rises when an existing key's layout changes; new kinds of records do not need that. Version 2: a
journal beside the database may hold confirmed commits that the database does not. Version 3: what is stored
is encrypted (`encryption`).
"""


class JournalState(NamedTuple):
    """A random number that the journal's files bear, too, and the last of its commits that the database has:
    a start replays what is behind that.
    """

    database_id: U64
    sequence: U64
    checksum: U32


journal_state: Final = Record("journal state", 0x1F, no_key(), value_of(JournalState))
"""How far the database has got in its journal. Written in every batch the journal hands over. Absent where
there is no journal.
"""


class Holder(NamedTuple):
    """`token` is a random number of each opening; `beat` rises every few seconds while the broker runs.

    `lease_ms`: it is taken for gone when the record has not changed for so long; None: for 25 seconds.
    """

    token: U64
    beat: U64
    pid: U32
    host: Utf8
    lease_ms: Annotated[int | None, optional(u32)] = None

    def describe(self) -> str:
        """Describe the process."""
        return f"process {self.pid} on {self.host}"


holder: Final = Record("holder", 0x20, no_key(), value_of(Holder))
"""Which broker has an object store open. Deleted when it stops; after a kill it stands still. Absent on a
local disk: that is locked.
"""


class LogPlace(NamedTuple):
    """`url` is empty where the log lies beside the tables; `token`, a random number, stands for the database
    where its log lies elsewhere.
    """

    token: U64
    url: Utf8


log_place: Final = Record("log place", 0x31, no_key(), value_of(LogPlace))
"""In which bucket the database's log lies. Absent where it never lay elsewhere."""


class SealingKey(NamedTuple):
    """A key by the number that sealed blocks bear, and the ID that the configuration gives it. By `proof` the
    right key is known. `wrapped` is the key itself, as what keeps it wrapped it; empty: it lies in a file.
    """

    number: U16
    id: Utf8
    proof: VarBytes
    wrapped: VarBytes


class Encryption(NamedTuple):
    """Sealed blocks begin with `mark`, random bytes; their keys are derived for `store_id`, 16 random bytes.
    `has_plain` is 0 where nothing was ever stored unsealed, so that what is not sealed is corrupt.
    """

    mark: Digest
    store_id: VarBytes
    has_plain: U8
    keys: Annotated[tuple[SealingKey, ...], array(group(value_of(SealingKey)))]


encryption: Final = Record("encryption", 0x23, no_key(), value_of(Encryption))
"""The encryption keys. Written before the first record of a key. Absent where nothing is encrypted."""

COPYING: Final = 0
COPIED: Final = 1


class MergeState(NamedTuple):
    """Which shard goes into the first one, and what is added to its numbers there: to message IDs and what is
    numbered like them, to sequences of the metadata log, and to the numbers in log IDs. `state` is 0 while it
    is copied, 1 when all of it is there.
    """

    shard: U16
    ids: U64
    sequences: U64
    logs: U64
    state: Annotated[int, Packed("B", Reader.u8, newest=COPIED)]


merge: Final = Record("merge", 0x35, no_key(), value_of(MergeState))
"""A merge of shards that has not come to its end, in both of them: no broker opens either. Written before
anything is copied, deleted when nothing is left to be.
"""

# messages

payload: Final = Record("payload", 0x01, _OF_MESSAGE, value("body", bytes_rest))
"""The body, verbatim. Written with the publish; deleted when all queues are finished with the message and
done retention has passed. A range of keys is a range of publish time.
"""
_PAYLOAD_PREFIX: Final = int.from_bytes(payload.prefix(), "big")
_pack_payload_key: Final[Callable[[int, int], bytes]] = struct.Struct(">HQ").pack


def payload_keys(first_message_id: int, count: int) -> list[bytes]:
    """Return the keys of the payloads of `count` messages with consecutive IDs."""
    ids = range(first_message_id, first_message_id + count)
    return list(map(_pack_payload_key, repeat(_PAYLOAD_PREFIX), ids))


payload_refs: Final = Record("payload references", 0x0A, _OF_MESSAGE, value("count", u32))
"""How many queues still need a payload with the envelope flag *shared*, which went to several. Payload and
count are deleted when it would become 0.
"""


class ExpiringMessage(NamedTuple):
    """`body_bytes` may be `UNKNOWN_BYTES`: the payload tells."""

    message_id: U64
    body_bytes: U32
    envelope: BytesRest


UNKNOWN_BYTES: Final = (1 << 32) - 1


class ExpiryKey(NamedTuple):
    """Which message expires when, in which queue."""

    queue_id: TerminatedText
    expires_at_ms: U64
    offset: U64


expiry: Final = Record(
    "expiry", 0x12, key_of(ExpiryKey), value_of(ExpiringMessage, special_codecs.encode_expiring)
)
"""A message with an expiry. Written with its log entry. Deleted when it expires, or with the log
entry, whose envelope tells the key. Written again if the last group is deleted while it holds a message that
expired meanwhile.
"""


class ScheduledKey(NamedTuple):
    """Which message is due when, in which queue."""

    queue_id: TerminatedText
    due_ms: U64
    message_id: U64


scheduled: Final = Record("scheduled message", 0x0E, key_of(ScheduledKey), value("envelope", bytes_rest))
"""A confirmed message that is not due; the envelope has offset 0. One for each queue that takes the message.
Deleted with the commit that appends the message to the log, under the same
ID.
"""


class LastValueKey(NamedTuple):
    """The queue, the header, and the value of it."""

    queue_id: TerminatedText
    header: TerminatedText
    value: TextRest


class LastValue(NamedTuple):
    """As `ExpiringMessage`."""

    message_id: U64
    body_bytes: U32
    envelope: BytesRest


last_value: Final = Record("last value", 0x33, key_of(LastValueKey), value_of(LastValue))
"""The newest message of a value. Written with the message."""


class Identified(NamedTuple):
    """When the publish was taken, and the BLAKE2b of its body: another body under the same ID is noticed."""

    seen_ms: U64
    digest: Digest


class IdentifiedKey(NamedTuple):
    """The queue, and the deduplication ID of the publish."""

    queue_id: TerminatedText
    deduplication_id: TextRest


identified: Final = Record("deduplication ID", 0x10, key_of(IdentifiedKey), value_of(Identified))
"""A publish with this ID was taken. Written with it, deleted when the queue's deduplication window
has passed.
"""

DIGEST_BYTES: Final = 8
NONE_TAKEN: Final = -1


class ProducerProgress(NamedTuple):
    """The highest sequence taken (`NONE_TAKEN`: none), when the producer was last heard of, the digest of the
    body (zeros while none was taken), and the lowest sequence that was refused and has to come before the
    next, if there is one.
    """

    sequence: I64
    seen_ms: U64
    digest: Digest
    refused: Annotated[int | None, optional(u64)] = None


class ProducerKey(NamedTuple):
    """A producer of a queue."""

    queue_id: TerminatedText
    producer_id: TextRest


producer: Final = Record(
    "producer", 0x11, key_of(ProducerKey), value_of(ProducerProgress, special_codecs.encode_producer)
)
"""A producer's last number in a queue. Written with each of its publishes."""

# queues

QueueSpec = queue_spec_values.QueueSpec
queue_spec: Final = Record("queue specification", 0x06, _OF_QUEUE, queue_spec_values.SPEC)
"""The settings of a queue or group. A scan of them lists all queues and groups."""


class QueueMeta(NamedTuple):
    """The lowest offset that is kept, and the log entry to begin reading at to find it."""

    head_offset: U64
    head_sequence: U64


queue_meta: Final = Record("queue meta", 0x0C, _OF_QUEUE, value_of(QueueMeta))
"""The head of a queue's log. Written when retention or a purge moves it."""


class Released(NamedTuple):
    """The offsets from `head_offset` on whose payloads had been let go of.

    `let_go` are the IDs of shared payloads that only records of the groups told of, and that the deletion has
    let go of so far. Where that is not known the value ends before it: what is left of them is left alone.
    """

    head_offset: U64
    ranges: Annotated[Ranges, ranges]
    let_go: Annotated[Ranges | None, optional(ranges)] = None


class PendingRemoval(NamedTuple):
    """`ranges` are the offsets from the head on whose payloads had been let go of. Where that was not known,
    soon after a start, the value ends before it, and references to shared payloads are left alone.
    """

    queue_name: Utf8
    queue_ids: Annotated[tuple[str, ...], array(utf8)]
    released: Annotated[Released | None, optional(group(value_of(Released)))] = None


removal: Final = Record("removal", 0x0D, key("log_id", text_rest), value_of(PendingRemoval))
"""A deleted queue with records left. A start goes on with it, and until the end the name is
taken. Written with the delete of the specification, deleted with the last of the records.
"""


class ChunkKey(NamedTuple):
    """Which chunk of which stream."""

    queue_id: TerminatedText
    first_offset: U64


class ChunkValue(NamedTuple):
    """`first_sequence` is that of the log entry which begins with `first_offset`: no entry lies in two
    chunks. `first_ms` and `last_ms` are when the first and the last message were published; they never fall
    from chunk to chunk.
    """

    first_sequence: U64
    message_count: U64
    payload_bytes: U64
    first_ms: U64
    last_ms: U64


stream_chunk: Final = Record("stream chunk", 0x13, key_of(ChunkKey), value_of(ChunkValue))
"""A stretch of a stream that retention deletes as a whole. The next chunk follows without a gap. The newest
is written again with every commit that adds to it; a chunk goes with its last log entry. Of the groups of a
stream only specification, log cursor and group position are written.
"""


class AccountBytes(NamedTuple):
    """So many bytes up to `next_offset`; it holds for that offset only."""

    next_offset: U64
    body_bytes: I64


ACCOUNT_BYTES: Final = value_of(AccountBytes)
queue_account: Final = Record("queue account", 0x14, special_codecs.ACCOUNT_KEY, value("account", bytes_rest))
"""The counts that a queue keeps beside its log, by kind.

While the policy bounds the queue's bytes: those appended to the queue (1), and of them those that a group has
taken or let go of (2); the difference waits for the group. Each holds only if its offset is that of the log's
end, or of the group's position: otherwise bytes are counted anew. Kind 3: messages that expired before every
group had reached them; a group whose position is at or below one has let go of it. A part goes with the head.
"""

released_offsets: Final = Record(
    "released offsets", 0x1E, key("queue_name", text_rest), value("ranges", ranges)
)
"""Offsets whose payloads are deleted, above kept ones. Written where a restart could not work them
out of what the groups have done: when a group begins before them, or the last group goes. Written again
without what a redrive brings back; deleted once the head of the log has passed them.
"""

# groups

active: Final = Record("active bucket", 0x02, key_of(BucketKey), ACTIVE)
"""The messages of a bucket to be delivered. Deleted when it is empty and the claim counter
is past the bucket.
"""

done: Final = Record("done bucket", 0x03, key_of(BucketKey), SETTLED)
"""The acknowledged messages of a bucket."""

failed: Final = Record("failed bucket", 0x04, key_of(BucketKey), SETTLED)
"""The failed messages of a bucket."""


class SettlementsKey(NamedTuple):
    """A bucket of a group, and the lowest claim ID in the value."""

    queue_id: TerminatedText
    bucket_id: U64
    first_claim_id: U64


settlements: Final = Record("settlements", 0x21, key_of(SettlementsKey), SETTLEMENTS)
"""One write of settlements of a bucket since its done record: done messages, and claim IDs of those let go
of at once (`done_retention: 0`). Neither is active any more, whatever the
active record says. The first done messages of a bucket go into its done record.

All of a bucket is written, and its settlements deleted, when it closes, at 1,000 settlements, when done
messages are deleted after their retention, and before the group is deleted or reset.
"""


class AttemptsKey(NamedTuple):
    """Which message of which group."""

    queue_id: TerminatedText
    message_id: U64


attempts: Final = Record("attempts", 0x05, key_of(AttemptsKey), special_codecs.ATTEMPTS)
"""When a message was claimed, and by which consumer. Written when an attempt ends without success: requeue,
lease expiry, loss of the consumer or the broker (then the consumer ID is empty). A claim in flight is in the
active record. At the end, where it is not 0, how many of the message's claims do not count as attempts: those
that consumers of a quorum queue returned without a failure.
"""


class LogCursorKey(NamedTuple):
    """The group, and the log it takes messages from."""

    queue_id: TerminatedText
    log_id: TextRest


log_cursor: Final = Record("log cursor", 0x08, key_of(LogCursorKey), value("next_sequence", u64))
"""The first log entry that a group has not wholly taken over. Written in one batch with the buckets it
filled: each message is assigned exactly once.
"""


class ClaimState(NamedTuple):
    """The size of a group's buckets, and where its claim numbers go on."""

    bucket_exponent: Annotated[int, Packed("B", Reader.u8, largest=layout.BUCKET_EXPONENT_MAX)]
    next_claim_number: Annotated[int, Packed("Q", Reader.u64, largest=layout.NUMBER_MASK + 1)]


claim_state: Final = Record("claim state", 0x09, _OF_GROUP, value_of(ClaimState))
"""Where claims of a group go on, whatever buckets are deleted. Written with every assignment."""

group_position: Final = Record("group position", 0x0B, _OF_GROUP, value("next_offset", u64))
"""The offset a group takes over next: messages below it in the entry of the log cursor are assigned. Written
with every assignment.
"""


class ClaimedBitmapKey(NamedTuple):
    """Which offsets of which group."""

    queue_id: TerminatedText
    chunk: U64


claimed_bitmap: Final = Record("claimed bitmap", 0x15, key_of(ClaimedBitmapKey), special_codecs.BITMAP)
"""The offsets that a group has claimed or passed over beyond its position: bit `i % 8` of byte `i // 8`
stands for offset `chunk * 4096 + i`, bits below the position mean nothing. Written
with the buckets of the claims, deleted with the position that passes it.
"""

RELEASE: Final = 0
DELETE: Final = 1
RESET: Final = 2


class GroupRemovalKey(NamedTuple):
    """The group, and a message ID that no message gets: no two removals have the same."""

    queue_id: TerminatedText
    number: U64


class PendingGroupRemoval(NamedTuple):
    """The parts that go, by `mode`. 0: the payloads at the offsets `log_ranges`, as the queue's log tells; of
    those at `row_ranges`, which the group let go of, the ones that no other group needs. 1, deleted: besides
    `log_ranges`, the group's buckets of claim numbers below `claim_end` with the payloads of `row_ranges`; a
    group of that name gives out numbers from there on. 2, reset: as 1, but failed messages below offset
    `failed_below` stay; of the other rows go the payloads below offset `head`, as those were redriven.
    """

    log_id: Utf8
    mode: Annotated[int, Packed("B", Reader.u8, newest=RESET)]
    claim_end: U64
    failed_below: U64
    head: U64
    log_ranges: Annotated[Ranges, ranges]
    row_ranges: Annotated[Ranges, ranges]


group_removal: Final = Record("group removal", 0x1C, key_of(GroupRemovalKey), value_of(PendingGroupRemoval))
"""A group that was deleted or reset, or began behind the oldest message, with payloads left to delete. Or
messages that were purged, expired or dropped, whose references to payloads that other queues hold, too, are
yet to be taken back. `number` is a message ID that no message gets. Written with the change, again in each
commit that deletes some, without those, and deleted with the last.
"""


class Skipped(NamedTuple):
    """When a reset was, and the offsets it passed over."""

    passed_at_ms: U64
    ranges: Annotated[Ranges, ranges]


skipped_offsets: Final = Record("skipped offsets", 0x1D, _OF_GROUP, value_of(Skipped))
"""Offsets that a reset put behind a group, kept as if the group had done them. Written with the reset,
replaced by the next. Deleted when the done retention has passed, in one batch with the group removal that
releases them, or with the group.
"""

# staged epochs


class StagedKey(NamedTuple):
    """The producer of rows, and the first of them. Keys sort as the rows of an epoch go into the queue."""

    queue_id: TerminatedText
    producer: TerminatedText
    epoch: U64
    part: U64
    attempt: TerminatedText
    first_row: U64


staged_rows: Final = Record("staged rows", 0x17, key_of(StagedKey), staged_values.STAGED)
"""Rows of an epoch that is not committed, or not yet in the queue's log, in its order. Those of an epoch at
or below the committed one that no epoch record names, and those of an attempt whose first record is gone, are
on their way out, with their payloads.
"""


class CommittedEpoch(NamedTuple):
    """`checksum` "": none was given."""

    epoch: U64
    committed_at_ms: I64
    row_count: U64
    checksum: Utf8


class CommittedEpochKey(NamedTuple):
    """A producer of a queue."""

    queue_id: TerminatedText
    producer: TextRest


committed_epoch: Final = Record("committed epoch", 0x18, key_of(CommittedEpochKey), value_of(CommittedEpoch))
"""The last epoch of a producer. Written with the decision to commit; as it makes committing idempotent, it
stays long after the rows are gone.
"""


class PartAttempt(NamedTuple):
    """An attempt at a part of an epoch."""

    part: U64
    attempt: Utf8


class DecidedEpoch(NamedTuple):
    """The producer and its epoch, and the attempts, by part, that make it up."""

    producer: Utf8
    epoch: U64
    attempts: Annotated[tuple[tuple[int, str], ...], array(group(value_of(PartAttempt)))]


class EpochKey(NamedTuple):
    """The queue, and a number that rises in the order of the commits."""

    queue_id: TerminatedText
    number: U64


epoch: Final = Record("epoch", 0x19, key_of(EpochKey), value_of(DecidedEpoch))
"""A committed epoch whose rows are entering the queue's log; numbers rise in the order of commits. Written
with the committed epoch, it makes exactly the named attempts part of the queue. Deleted with the last row.
"""

# exchanges and virtual hosts


class StoredExchange(NamedTuple):
    """An exchange as it was declared; `was_bound`: it goes with its last binding, and had one. `user` made it
    (None: no user did).
    """

    type: Utf8
    auto_delete: Annotated[bool, Flag(0x01)]
    internal: Annotated[bool, Flag(0x02)]
    was_bound: Annotated[bool, Flag(0x04)]
    arguments: Annotated[Mapping[str, object], table]
    user: Annotated[str | None, optional(utf8)] = None


exchange: Final = Record("exchange", 0x1A, key("name", text_rest), value_of(StoredExchange))
"""A declared durable exchange. Exchanges that every virtual host has have no record; their bindings
do.
"""

TO_QUEUE: Final = 0x00
TO_EXCHANGE: Final = 0x01


class BindingKey(NamedTuple):
    """The identity of a binding; `digest` tells its arguments from others, so a key stands for one binding,
    and bindings are a set.
    """

    exchange: TerminatedText
    kind: Annotated[int, Packed("B", Reader.u8, known=TO_EXCHANGE)]
    destination: TerminatedText
    routing_key: TerminatedText
    digest: Annotated[bytes, special_codecs.BINDING_DIGEST]


class StoredBinding(NamedTuple):
    """The arguments of a binding, and the user who made it (None: no user did)."""

    arguments: Annotated[Mapping[str, object], table]
    user: Annotated[str | None, optional(utf8)] = None


binding: Final = Record("binding", 0x1B, key_of(BindingKey), value_of(StoredBinding))
"""A binding of a durable exchange to a durable queue (kind 0) or exchange (1). The digest is BLAKE2b of the
arguments, left out where there are none: bindings are a set. A queue or exchange is deleted in one batch with
all its bindings.
"""


def binding_digest(arguments: Mapping[str, object]) -> bytes:
    """Return the BLAKE2b of arguments, b"" if there are none. Raises ValueError for arguments that
    cannot be stored.
    """
    return blake2b(encode_table(arguments), digest_size=BINDING_DIGEST_BYTES).digest() if arguments else b""


class StoredQuota(NamedTuple):
    """What is bounded, as `max_...` in the configuration, and by how much."""

    quota: Utf8
    most: U64


class StoredVhost(NamedTuple):
    """Whether a virtual host is being deleted with all that is in it (a start goes on with that), and its
    quotas, of which those of connections and queues are 0 for none.
    """

    is_being_deleted: Annotated[bool, Flag(0x01)]
    connections_max: U32
    queues_max: U32
    quotas: Annotated[tuple[tuple[str, int], ...], added(array(group(value_of(StoredQuota))), ())] = ()
    description: Annotated[str, added(utf8, "")] = ""
    tags: Annotated[tuple[str, ...], added(array(utf8), ())] = ()
    default_queue_type: Annotated[str, added(utf8, "classic")] = "classic"
    is_protected: Annotated[int, added(u8, 0)] = 0


vhost: Final = Record("virtual host", 0x22, key("name", text_rest), value_of(StoredVhost))
"""A virtual host made by administration. Those that only stand in the configuration have no record, nor has
`/` unless it was changed.
"""


class PolicyKey(NamedTuple):
    """The kind, 1 for policies of operators and 0 for others; the virtual host, and the name."""

    kind: U8
    vhost: TerminatedText
    name: TextRest


class StoredPolicy(NamedTuple):
    """A policy as it was made: `definition` is JSON, as it was given, `settings` what of queues and exchanges
    it stands for, JSON, too.
    """

    priority: I64
    pattern: Utf8
    apply_to: Utf8
    definition: VarBytes
    settings: VarBytes


policy: Final = Record("policy", 0x30, key_of(PolicyKey), value_of(StoredPolicy))
"""A policy of a virtual host."""


class BanKey(NamedTuple):
    """What is banned: 0 a client identifier, 1 a user, 2 an address; and which."""

    kind: U8
    value: TextRest


class StoredBan(NamedTuple):
    """`until_ms` is 0 for good; `by` is the user who made it, "" the broker."""

    until_ms: I64
    made_at_ms: I64
    reason: Utf8
    by: Utf8


ban: Final = Record("ban", 0x32, key_of(BanKey), value_of(StoredBan))
"""Clients kept out."""


class ParameterKey(NamedTuple):
    """A parameter's component, such as `shovel`, its virtual host, and its name."""

    component: TerminatedText
    vhost: TerminatedText
    name: TextRest


parameter: Final = Record("parameter", 0x34, key_of(ParameterKey), value("value", bytes_rest))
"""What links and webhooks are made from: JSON, as given."""

# sessions of MQTT

NEVER_S: Final = 0xFFFF_FFFF
CONNECTED: Final = -1
NO_LOG: Final = U64_MAX


class SessionValue(NamedTuple):
    """The number that its other records stand under, the expiry (`NEVER_S`: never) after the end of its
    connection (`CONNECTED`: it has one), and the user.
    """

    number: U64
    expiry_s: U32
    ended_at_ms: I64
    user: Utf8


session: Final = Record("session", 0x28, key("client_id", text_rest), value_of(SessionValue))
"""A session that outlives its connection. Its number is a message ID that no message gets, a new one for
every new session. The virtual host of its key is that of all that has its number, and of the logs it reads.
"""


class SubscriptionKey(NamedTuple):
    """The session, and the topic filter as it was subscribed to (`$share/...` and all)."""

    session: U64
    filter: TextRest


class SubscriptionValue(NamedTuple):
    """`log` keeps the session's messages (`NO_LOG`: none does, as with QoS 0, `$share`, `$queue`). `options`
    is the byte of the SUBSCRIBE (bits 0-1 QoS, 2 no local, 3 retain as published, 4-5 retain handling),
    `identifier` is 0 for none. Messages with IDs below `from_id` are not the session's; of what the log ever
    got, `read_count` messages with `read_bytes` of body came before what it has yet to read. `properties` are
    the user properties of the SUBSCRIBE, an MQTT 5 property block.
    """

    log: U64
    options: Annotated[int, Packed("B", Reader.u8, known=0x3F)]
    identifier: U32
    from_id: U64
    read_count: U64
    read_bytes: U64
    properties: VarBytes


session_subscription: Final = Record(
    "session subscription", 0x29, key_of(SubscriptionKey), value_of(SubscriptionValue)
)
"""A subscription of a session, by its topic filter as it came (`$share/...` and all)."""

session_progress: Final = Record("session progress", 0x2A, _OF_SESSION, special_codecs.PROGRESS)
"""The unfinished deliveries: messages with IDs below `read_to` are done, but for those listed. Without this
record a session has everything since its number. Written before a message of QoS 2 is sent and before PUBREL
is; otherwise now and then, as a message sent twice with QoS 1 is no harm.
"""


class ReceivedKey(NamedTuple):
    """The session, and the packet identifier."""

    session: U64
    packet_id: U16


session_received: Final = Record("received publish", 0x2B, key_of(ReceivedKey), value("received_at", i64))
"""A QoS 2 publish not yet released. Written with the message; deleted, durably, before
PUBCOMP, after which the client uses the packet identifier for another message.
"""

filter_log: Final = Record("filter log", 0x2C, key("log", u64), value("filter", utf8))
"""The log of a topic filter. What the filter matches with QoS 1 or 2 is stored once for all its sessions.
Numbered like a session. A log that no subscription names is removed, its entries first.
"""


class EntryKey(NamedTuple):
    """The filter log, and the ID of the entry's first message."""

    log: U64
    first_id: U64


filter_log_entry: Final = Record(
    "filter log entry", 0x2D, key_of(EntryKey), Codec(encode_entry, lambda reader: reader.rest())
)
"""The messages that one commit added to a filter log."""


class RetainedValue(NamedTuple):
    """The topic stands in the envelope, too, whose offset is 0. `user` published it (None: no user did)."""

    qos: U8
    envelope: VarBytes
    body: VarBytes
    user: Annotated[str | None, optional(utf8)] = None


retained: Final = Record(
    "retained message", 0x2E, key("topic", text_rest), value_of(RetainedValue, special_codecs.encode_retained)
)
"""The retained message of a topic. Deleted by an empty payload, and when the message expires."""


class WillValue(NamedTuple):
    """`due_at_ms` is `CONNECTED` while the client is connected, `first_byte` that of the PUBLISH, with QoS
    and RETAIN, `client_id` as in the key of the session, `properties` a property block of MQTT 5 without its
    length, `source` what vouched for the user ("": it is not known).
    """

    due_at_ms: I64
    delay_s: U32
    first_byte: U8
    client_id: Utf8
    user: Utf8
    topic: Utf8
    properties: VarBytes
    payload: VarBytes
    source: Annotated[str, added(utf8, "")]


session_will: Final = Record("will", 0x2F, _OF_SESSION, value_of(WillValue))
"""The delayed will of a session that outlives its connection. Deleted in the commit with the publish,
or when the client is back.
"""

RECORDS: Final[Mapping[int, Record[..., Any, ..., Any]]] = {
    each.number: each for each in list(globals().values()) if isinstance(each, Record)
}
"""Every kind above, by number."""
