"""One log: the messages of a queue, or of one priority of it, in order of arrival."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field

from config import limits
from queue_manager import address
from queue_manager.log.open_entries import OpenEntries
from queue_manager.log.tail import Tail
from queue_manager.model import Message, MessageBatch
from queue_manager.policy import QueuePolicy
from queue_manager.shard.context import Context
from storage.records import queue_meta


@dataclass(eq=False, repr=False, slots=True)
class QueueLog:
    """The newest messages in memory, those on the store, and where the log begins.

    `name` is what its records are stored under, `title` the name of the queue. `head_offset` is the lowest
    offset still kept and `head_sequence` the metadata-log sequence to begin reading at. `durable_offset`:
    everything below is durable, in the beginning all there is. `recovered_end`: log entries below it may hold
    payloads that a crash kept from being deleted. `mixes_payloads`: some may be in other queues too, or have
    IDs out of order. `is_held`: nothing of it is given to consumers. `tells_offsets`: messages in it may tell
    the offsets of others, as dead letters do. `has_large`: there were messages with bodies above
    `limits.DONE_BODY_BYTES_MAX`. `is_counted`: a quota bounds its bytes.
    """

    context: Context
    name: str
    title: str
    _: KW_ONLY
    durable: bool
    policy: QueuePolicy
    log_id: str
    durable_offset: int = 0
    head_offset: int = 0
    head_sequence: int = 0
    mixes_payloads: bool = False
    recovered_end: int = 0
    tail: Tail = field(init=False)
    has_large: bool = field(default=False, init=False)
    deleted: bool = field(default=False, init=False)
    is_held: bool = field(default=False, init=False)
    is_counted: bool = field(default=False, init=False)
    tells_offsets: bool = field(default=False, init=False)
    _index: list[tuple[int, int]] = field(default_factory=list, init=False)
    """First offset and sequence of the newest log entries."""
    _open: OpenEntries = field(default_factory=OpenEntries, init=False)

    def __post_init__(self) -> None:
        self.tail = Tail(self.durable_offset)
        self._prepare()

    def _prepare(self) -> None:
        """Make what only a kind of log has."""

    @property
    def next_offset(self) -> int:
        """The offset the next message gets."""
        return self.tail.next_offset

    def routing_key(self, topic: str) -> str:
        """Return what the patterns of the queue's groups look at."""
        return address.routing_key(topic, self.title)

    def note_sizes(self, bodies: Iterable[bytes]) -> None:
        """Note that there are messages with these bodies."""
        if max(map(len, bodies), default=0) > limits.DONE_BODY_BYTES_MAX:
            self.has_large = True

    # appending

    def append(self, batch: MessageBatch) -> int:
        """Append messages; give the first offset."""
        offset = self.tail.next_offset
        if len(batch.bodies) == 1:
            messages = [Message(batch.first_id, offset, batch.bodies[0], batch.template, batch.now_ms)]
        else:
            messages = batch.messages(offset)
        if batch.templates is None:
            self.tail.append(messages, batch.body_bytes)
        else:
            self.tail.append_varied(messages, batch.body_bytes)
        if self.durable:
            if batch.body_bytes > limits.DONE_BODY_BYTES_MAX:
                self.note_sizes(batch.bodies)
            if batch.templates is None:
                self._open.add(batch.template, batch.first_id, offset, batch.now_ms, len(batch.bodies))
            else:
                self._open.add_varied(batch.templates, batch.first_id, offset, batch.now_ms)
        return offset

    def end_entry(self) -> None:
        """Begin a new log entry with the next message."""
        self._open.close(self.tail.next_offset)

    def write(self, now_ms: int) -> bool:
        """Put what was appended into the open commit; give whether there was anything."""
        entries = self._open.take(self.tail.next_offset)
        if not entries:
            return False
        commit = self.context.commit
        log = self.context.metadata_log
        first, puts = log.allocate(len(entries), now_ms)
        commit.puts.update(puts)
        listing = log.listing(self.log_id)
        if listing is not None:
            commit.put(*listing)
        for sequence, (offset, value) in enumerate(entries, first):
            commit.puts[log.entry_key(self.log_id, sequence)] = value
            self._index.append((offset, sequence))
        if len(self._index) > limits.LOG_INDEX_ENTRIES_MAX:
            del self._index[: -limits.LOG_INDEX_ENTRIES_MAX // 2]
        return True

    def became_durable(self, end_offset: int) -> None:
        """Note that everything below `end_offset` is durable."""
        self.durable_offset = end_offset

    def kept_end(self) -> int:
        """Return the offset behind the last message that a crash does not take from the queue alone."""
        return self.durable_offset if self.durable else self.tail.next_offset

    def sequence_at(self, offset: int) -> int | None:
        """Return the newest known log sequence whose entry begins at or before `offset`."""
        index = self._index
        if not index or index[0][0] > offset:
            return None
        return index[bisect_left(index, (offset + 1, 0)) - 1][1]

    # what it is

    def follow(self, policy: QueuePolicy) -> None:
        """Follow another policy from now on."""
        self.policy = policy

    def hold(self, *, is_held: bool) -> None:
        """Have consumers given nothing of it, or go on."""
        self.is_held = is_held

    def tell_offsets(self) -> None:
        """Take messages that tell the offsets of others from now on."""
        self.tells_offsets = True

    def mix_payloads(self) -> None:
        """Note that other queues take some of its payloads too, or their IDs are out of order."""
        self.mixes_payloads = True

    def delete(self) -> None:
        """End with the queue."""
        self.deleted = True

    # where it begins

    def begin_at(self, offset: int) -> None:
        """Keep nothing before `offset` any more, though memory may have it."""
        self.head_offset = offset

    def drop_before(self, offset: int) -> None:
        """Begin as `begin_at`, in memory too."""
        self.head_offset = offset
        self.tail.drop_before(offset)

    def write_head(self, head_offset: int | None = None) -> None:
        """Put the head, or one that lies behind, into the open commit."""
        head = self.head_offset if head_offset is None else head_offset
        self.context.commit.put(queue_meta.key(self.name), queue_meta.encode(head, self.head_sequence))

    def begin_reading_at(self, sequence: int) -> None:
        """Begin reading at `sequence`: entries before are gone."""
        self.head_sequence = max(self.head_sequence, sequence)

    def extend_to(self, offset: int) -> None:
        """Extend the log, after a start: messages up to `offset` were assigned, so it cannot end before
        it.
        """
        if offset > self.tail.next_offset:
            self.tail.begin_at(offset)
            self.durable_offset = self.recovered_end = offset


class LogTarget:
    """Takes what is read of one log. The base of every `queue_manager.shard.loads.LoadTarget`."""

    __slots__ = ("_context", "log")

    def __init__(self, log: QueueLog) -> None:
        self.log = log
        self._context = log.context

    @property
    def log_id(self) -> str:
        return self.log.log_id

    def log_end(self) -> int:
        return self.log.tail.first_offset

    def is_over(self) -> bool:
        """Return whether nothing is wanted any more."""
        return self.log.deleted

    def abandon(self, now_ms: int) -> None:
        """Give up: nothing will be read, as nobody waits for it."""
