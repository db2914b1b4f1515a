"""Claims, who holds them, and the buckets they are stored in.

A message is claimed straight from the log when a consumer has credit for it; only then does it get a claim
number, a `Claim` and a place in a bucket. A claim number is given once per message and cursor and never
again. Plain slotted classes: they are made once per message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final, NamedTuple, NotRequired, Protocol, TypedDict

from config import limits
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.log.payloads import Run
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.shard.commit import Commit
from storage.envelope import EnvelopeTemplate, with_visible_at
from storage.records import active, done, failed, settlements
from storage.records.bucket_values import pack_available, pack_in_flight, pack_settled, packed_claim_id

AVAILABLE: Final = 0
IN_FLIGHT: Final = 1
DONE: Final = 2
FAILED: Final = 3
STALE: Final = 4  # replaced by a newer claim of the same message: its ack comes too late
RETURNING: Final = 5  # handed back, and not in its place yet; on the store it is still in flight

LEGAL_MOVES: Final = frozenset(
    {
        (AVAILABLE, IN_FLIGHT),  # claimed
        (AVAILABLE, DONE),  # purged, expired, dead-lettered
        (AVAILABLE, FAILED),  # attempts used up, rejected
        (AVAILABLE, STALE),  # its group was reset or deleted
        (IN_FLIGHT, DONE),  # acknowledged
        (IN_FLIGHT, STALE),  # returned: a new claim takes its place
        (IN_FLIGHT, RETURNING),  # returned with many others
        (RETURNING, STALE),  # a new claim takes its place
        (FAILED, STALE),  # redriven or moved: a new claim takes its place
    }
)

UNLIMITED: Final = 1 << 62


class IllegalMove(AssertionError):
    """A claim was to change to a state that its own does not lead to."""


SETTLED_MESSAGE: Final = Message(0, 0, None, EnvelopeTemplate(""), 0)


@dataclass(eq=False, slots=True)
class Claim:
    """One message of one cursor: claim number, attempt, holder.

    A redelivery replaces the claim by a new one, so that whoever still holds the old one holds something
    STALE (record layout, R-14). `at_ms` is when it was claimed or settled. `deadline_ms`: 0: `at_ms` + the
    consumer's lease; while AVAILABLE, when it may be claimed (0: at once). `packed` is its done or failed
    record, once written.
    """

    message: Message
    claim_number: int
    bucket: Bucket | None
    attempts: int
    state: int
    consumer: Consumer | None
    at_ms: int
    packed: bytes = b""
    deadline_ms: int = field(default=0, init=False)

    @property
    def is_in_flight(self) -> bool:
        """Whether a consumer holds it."""
        return self.state == IN_FLIGHT

    def move(self, state: int) -> None:
        """Change the state; raises IllegalMove."""
        if (self.state, state) not in LEGAL_MOVES:
            raise IllegalMove(f"claim {self.claim_number}: from state {self.state} to {state}")
        self.state = state

    def amend(self, change: Callable[[EnvelopeTemplate], EnvelopeTemplate]) -> None:
        """Have the message be another for this cursor, by what it has beside its body, until it is done; the
        records of its bucket keep that.
        """
        self.message = replace(self.message, template=change(self.message.template))

    def taken_again(self, consumer: Consumer, now_ms: int) -> None:
        """Hand a claim that came back to a consumer, as its next attempt."""
        self.move(IN_FLIGHT)
        self.attempts = min(self.attempts + 1, limits.ATTEMPTS_MAX)
        self.at_ms = now_ms
        self.deadline_ms = 0
        self.consumer = consumer
        if self.bucket is not None:
            self.bucket.touch()
        consumer.hold_again(self)

    def untried(self) -> None:
        """Take back the attempt that is just under way: it does not count."""
        self.attempts -= 1

    def extend(self, deadline_ms: int) -> bool:
        """Give it a lease of its own; False if it is no claim any more."""
        if self.state != IN_FLIGHT or self.consumer is None:
            return False
        self.deadline_ms = deadline_ms
        self.consumer.extend()
        if self.bucket is not None:
            self.bucket.touch()
        return True

    def wait_until(self, due_ms: int) -> None:
        """Have a claim that came back available again at `due_ms`; 0: at once."""
        self.deadline_ms = due_ms

    def given_up(self, now_ms: int) -> None:
        """Note that a claim that waits ends now."""
        self.at_ms = now_ms
        self.deadline_ms = 0
        if self.bucket is not None:
            self.bucket.disturb()

    def finish(self) -> None:
        """Be done with it, available or in flight."""
        if self.consumer is not None:
            self.consumer.release(self)
        self.move(DONE)
        self.deadline_ms = 0
        if self.bucket is not None:
            self.bucket.ended(1)

    def pack(self, claim_base: int) -> bytes:
        """Its done or failed record, which it keeps; what is done lets go of the message."""
        message = self.message
        self.packed = packed = pack_settled(
            message.message_id,
            claim_base | self.claim_number,
            self.at_ms,
            self.attempts,
            message.envelope(),
        )
        if self.state == DONE:
            self.message = SETTLED_MESSAGE
        return packed

    def forget_body(self) -> None:
        """Let go of the payload, which the store has; other groups and the tail may use the same message."""
        self.message = self.message.without_body()

    def __lt__(self, other: Claim) -> bool:
        return self.claim_number < other.claim_number


@dataclass(eq=False, slots=True)
class Bucket:
    """The claims `first .. first + capacity - 1`: what one active, done and failed record holds.

    `claims[i]` is claim `first + i`; None once its done record was purged. `open_count` counts claims neither
    done nor failed. `runs` are the messages as they were claimed; as long as the bucket `is_plain` (nothing
    of it returned, failed, was purged, or is shared with other queues) they are what goes with it.

    `want` has it written with one of the next commits. What is written of it is done if `done_written`, in
    its done record or in those of `settlement_keys`; the active record tells of all that is open unless
    `is_active_changed`.
    """

    want: Callable[[Bucket], None]
    first: int
    capacity: int
    claim_base: int
    claims: list[Claim | None] = field(default_factory=list, init=False)
    open_count: int = field(default=0, init=False)
    is_unwritten: bool = field(default=False, init=False)
    is_active_changed: bool = field(default=False, init=False)
    is_whole_wanted: bool = field(default=False, init=False)
    is_plain: bool = field(default=True, init=False)
    active_written: bool = field(default=False, init=False)
    done_written: bool = field(default=False, init=False)
    failed_written: bool = field(default=False, init=False)
    settlement_keys: list[bytes] = field(default_factory=list, init=False)
    runs: list[Run] = field(default_factory=list, init=False)

    @property
    def bucket_id(self) -> int:
        """The ID of the bucket in record keys."""
        return self.claim_base | self.first

    @property
    def end(self) -> int:
        """The first claim number behind it."""
        return self.first + self.capacity

    def skip(self, count: int) -> None:
        """Leave out claim numbers, as at a change of bucket size."""
        self.claims += [None] * count

    # what happens to its claims

    def touch(self) -> None:
        """Have it written with one of the next commits: claims came into it, or changed."""
        self.is_active_changed = True
        self.settled()

    def settled(self) -> None:
        """Do as `touch`, where claims only ended."""
        if not self.is_unwritten:
            self.is_unwritten = True
            self.want(self)

    def want_whole(self) -> None:
        """Do as `touch`, and have it written as a whole."""
        self.is_whole_wanted = True
        self.settled()

    def disturb(self) -> None:
        """Do as `touch`, where its claims do not all go together any more."""
        self.is_plain = False
        self.touch()

    def ended(self, count: int) -> None:
        """Count open claims that are done, or failed."""
        self.open_count -= count
        self.settled()

    def add(self, claim: Claim) -> None:
        """Take in a new one that is open, of a message from anywhere in the log."""
        self.claims.append(claim)
        self.open_count += 1
        self.disturb()

    def add_run(
        self, claims: list[Claim], open_count: int, messages: list[Message], *, mixes_payloads: bool
    ) -> None:
        """Take in new claims, of messages in order of their offsets; `open_count` are not done."""
        self.claims += claims
        self.open_count += open_count
        if not self.is_active_changed or not self.is_unwritten:
            self.touch()
        if not self.is_plain:
            return
        first = messages[0]
        last = messages[-1]
        span = len(messages) - 1
        contiguous = last.offset - first.offset == span and last.message_id - first.message_id == span
        if not contiguous or mixes_payloads:
            self.is_plain = False
        else:
            self.runs.append((first.offset, first.message_id, span + 1))

    def replace(self, claim: Claim) -> None:
        """Put a claim in the place of an older one of the same number."""
        self.claims[claim.claim_number - self.first] = claim
        self.disturb()

    def revive(self) -> None:
        """Count a failed claim as open: it waits again."""
        self.open_count += 1

    def drop(self, index: int) -> None:
        """Forget a claim whose done record is purged, or never written."""
        self.is_plain = False
        self.claims[index] = None

    def close(self) -> None:
        """Let go of the claims, which are settled and written."""
        self.claims = []

    # its records

    def restore(
        self,
        claims: list[Claim | None],
        open_count: int,
        *,
        has_active: bool,
        has_done: bool,
        has_failed: bool,
    ) -> None:
        """Take over what was written, in these records and in what was settled beside them."""
        self.is_plain = False
        self.claims = claims
        self.open_count = open_count
        self.active_written = has_active
        self.done_written |= has_done
        self.failed_written = has_failed

    def write_begins(self) -> None:
        """Begin to put into a commit what changed."""
        self.is_unwritten = False

    def write_whole(self, storage_id: str, commit: Commit) -> None:
        """Put its active and done records into the commit; there are no settlements beside them any more."""
        self.write_active(storage_id, commit)
        key = done.key(storage_id, self.bucket_id)
        self.done_written = _put_or_delete(
            commit, key, self.encode_settled(DONE), is_written=self.done_written
        )
        commit.delete_run(self.settlement_keys)
        self.is_whole_wanted = False
        self.settlement_keys = []

    def write_active(self, storage_id: str, commit: Commit) -> None:
        """Put its active record into the commit."""
        key = active.key(storage_id, self.bucket_id)
        self.active_written = _put_or_delete(
            commit, key, self.encode_active(), is_written=self.active_written
        )

    def write_settlements(self, storage_id: str, gone: list[int], commit: Commit) -> None:
        """Put into the commit what is done since the last time, and what is `gone` of the active record."""
        packed = self._pack_done()
        if not packed and not gone:
            return
        if not gone and not self.done_written:
            commit.put(done.key(storage_id, self.bucket_id), done.encode(packed))
            self.done_written = True
            return
        first = min([packed_claim_id(element) for element in packed[:1]] + gone[:1])
        key = settlements.key(storage_id, self.bucket_id, first)
        commit.put(key, settlements.encode(packed, gone))
        self.note_settlements(key, has_done=bool(packed))

    def write_failed(self, storage_id: str, commit: Commit) -> None:
        """Put its failed record into the commit."""
        key = failed.key(storage_id, self.bucket_id)
        self.failed_written = _put_or_delete(
            commit, key, self.encode_settled(FAILED), is_written=self.failed_written
        )

    def note_settlements(self, key: bytes, *, has_done: bool) -> None:
        """Note that what was settled is on the store, under this key."""
        self.settlement_keys.append(key)
        self.done_written |= has_done

    def encode_active(self) -> bytes | None:
        """Return the value of the active record, None if nothing is available or in flight."""
        self.is_active_changed = False
        if not self.open_count:
            return None
        base = self.claim_base
        available = []
        in_flight = []
        for claim in self.claims:
            if claim is None:
                continue
            message = claim.message
            if claim.state == AVAILABLE:
                envelope = message.envelope()
                if claim.deadline_ms:
                    envelope = with_visible_at(envelope, claim.deadline_ms)
                available.append(
                    pack_available(message.message_id, base | claim.claim_number, claim.attempts, envelope)
                )
            elif claim.state in (IN_FLIGHT, RETURNING):
                deadline_ms = claim.deadline_ms
                if not deadline_ms and claim.consumer is not None:
                    deadline_ms = claim.at_ms + claim.consumer.lease_ms
                in_flight.append(
                    pack_in_flight(
                        message.message_id,
                        base | claim.claim_number,
                        claim.at_ms,
                        deadline_ms,
                        claim.attempts,
                        message.envelope(),
                    )
                )
        return active.encode(available, in_flight)

    def encode_settled(self, state: int) -> bytes | None:
        """Return the value of the done (state DONE) or failed (FAILED) record, None if no claim is in that
        state.
        """
        base = self.claim_base
        packed = [
            claim.packed or claim.pack(base)
            for claim in self.claims
            if claim is not None and claim.state == state
        ]
        return done.encode(packed) if packed else None

    def settled_message_ids(self) -> list[int]:
        """Return the IDs of the messages that were settled, or taken away, since the last writing."""
        return [
            claim.message.message_id
            for claim in self.claims
            if claim is not None and claim.state in (DONE, STALE) and not claim.packed
        ]

    def _pack_done(self) -> list[bytes]:
        """Return the elements of the done record that were never packed before."""
        base = self.claim_base
        return [
            claim.pack(base)
            for claim in self.claims
            if claim is not None and claim.state == DONE and not claim.packed
        ]


def _put_or_delete(commit: Commit, key: bytes, value: bytes | None, *, is_written: bool) -> bool:
    """Write a record, or delete one that says nothing any more; give whether it is on the store then."""
    if value is not None:
        commit.put(key, value)
    elif is_written:
        commit.delete(key)
    return value is not None


class Sink(Protocol):
    """The receiver of a consumer's deliveries, which a front-end gives."""

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        """Send `messages`, in order; give whether that could be done.

        `claims` are theirs; None: first deliveries to a `no_ack` consumer. Claims of a `no_ack` consumer are
        done once this gives True, and not to be kept. All messages of one call are either first deliveries or
        all redeliveries (`claims[0].attempts > 1`). A consumer whose sink gives False had better go: what it
        could not send returns when it does.
        """

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        """Forget the delivery tags of `claims`, whose leases ended."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """Tell the client that its consumer is gone, because its queue or group is."""


class Verdict(NamedTuple):
    """The way in which claims come back: after `delay_ms`, or, with None, as the retry policy says; for good
    (`failed`). `is_spared`: in a quorum queue they do not count as attempts.
    """

    now_ms: int
    failed: bool = False
    delay_ms: int | None = None
    is_spared: bool = False


class ConsumerGroup(Protocol):
    """The group of a consumer."""

    @property
    def group_id(self) -> str:
        """Its name, or `name@pattern`."""

    name: str
    pattern: str
    selector: str

    @property
    def log(self) -> QueueLog:
        """The log of its queue, that of priority 0."""

    @property
    def queue_name(self) -> str: ...

    @property
    def is_removed(self) -> bool:
        """Whether it was deleted, or a reset put another in its place."""

    def want_dispatch(self) -> None:
        """Have the group look for messages again."""

    def credit_grew(self, consumer: Consumer) -> None:
        """Note that a consumer may have credit again; it is given nothing before the next dispatch."""

    def lacks_credit(self, consumer: Consumer) -> bool:
        """Whether a consumer was, or may have been, given less than there is for want of credit."""

    def settled(self, consumer: Consumer) -> None:
        """Claims of a consumer end: have the group dispatched if somebody can be given more for that."""

    def dispatch(self, now_ms: int) -> None:
        """Hand out what can be handed out."""

    def rank_again(self) -> None:
        """Have a consumer that stood back take part again."""

    def cancel(self, consumer: Consumer) -> None:
        """Deliver nothing more to the consumer; what it holds stays with it."""

    def remove(self, consumer: Consumer, now_ms: int) -> None:
        """Forget the consumer; what it holds returns at once."""

    def drain(self, consumer: Consumer) -> None:
        """Serve a consumer that pulls messages one by one."""

    def entitles(self, consumer: Consumer) -> bool:
        """Whether no other consumer comes before this one."""

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Claim and deliver up to `count` messages; give how many. None: they have to be read back first."""

    def when_loaded(self, call: Callable[[int], None]) -> None:
        """Have `call(now_ms)` called once something was read back, or nothing will be."""

    def give_back(self, claims: list[Claim], verdict: Verdict) -> None:
        """Return claims to their place, or fail them."""

    def counted_attempts(self, claim: Claim) -> int:
        """Return which attempt a claim is of those that count."""

    def unclaim(self, claims: list[Claim], now_ms: int, *, delay_ms: int = 0) -> None:
        """Return claims to their places after `delay_ms`, as if they had not been made."""

    def write_soon(self) -> None:
        """Have what was settled written with the open commit."""


class Pool(ABC):
    """A limit that several consumers share. A consumer is in one at most, as long as it takes messages."""

    __slots__ = ("consumers",)

    def __init__(self) -> None:
        self.consumers: list[Consumer] = []

    @abstractmethod
    def free(self) -> int:
        """How many more messages its consumers may be given now; below 1: none."""

    @abstractmethod
    def claimed(self, count: int) -> None:
        """Note that consumers of the pool were given so many messages."""

    @abstractmethod
    def released(self, count: int) -> None:
        """Note that consumers of the pool hold so many fewer."""

    def join(self, consumer: Consumer) -> None:
        """Limit a consumer, too, which holds nothing yet."""
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        """Remove a consumer, which takes no more messages."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)


class CreditPool(Pool):
    """A limit on unsettled messages (AMQP `basic.qos` global)."""

    __slots__ = ("credit_max", "in_flight")

    def __init__(self, credit_max: int) -> None:
        super().__init__()
        self.credit_max = credit_max
        self.in_flight = 0

    def adopt(self, consumer: Consumer) -> None:
        """Count a consumer that was there before the pool; what it holds counts too."""
        if consumer.join_pool(self):
            self.join(consumer)
            self.in_flight += len(consumer.in_flight)

    def set_credit(self, credit_max: int) -> None:
        """Set another limit."""
        self.credit_max = credit_max

    def free(self) -> int:
        return self.credit_max - self.in_flight

    def claimed(self, count: int) -> None:
        self.in_flight += count

    def released(self, count: int) -> None:
        """See `Pool`: all of them may have credit again."""
        self.in_flight -= count
        for consumer in self.consumers:
            consumer.group.settled(consumer)


class ConsumerOptions(TypedDict):
    """The options that a consumer is made with; see `Consumer`."""

    consumer_id: str
    credit_max: int
    no_ack: bool
    exclusive: bool
    lease_ms: int
    pool: NotRequired[Pool | None]
    priority: NotRequired[int]
    wanted: NotRequired[ConsumerFilter | None]
    is_told_offsets: NotRequired[bool]
    is_single_active: NotRequired[bool]
    on_activity: NotRequired[Callable[[bool], None] | None]


@dataclass(eq=False, slots=True)
class Consumer:
    """One consumer of one group.

    `credit_max` is how many unsettled messages it may hold (UNLIMITED when it set no bound). `in_flight` maps
    message offset to Claim in order of claiming. `no_ack` consumers hold only what is being sent, or could
    not be. Of consumers with credit only those of the highest `priority` are given messages. `late_held`: how
    many claims it had left when it last let a lease end; -1 if that does not count any more. `extended`: some
    claim has a lease of its own. `wanted`: it takes only what matches. `is_told_offsets`: what it is given
    says which offset it has, so its group is given only what is durable. `is_single_active`: it wants one of
    its group at a time to be given messages; `on_activity` is told whether it is that one.
    """

    group: ConsumerGroup
    sink: Sink
    _: KW_ONLY
    consumer_id: str
    credit_max: int
    no_ack: bool
    exclusive: bool
    lease_ms: int
    pool: Pool | None = None
    priority: int = 0
    wanted: ConsumerFilter | None = None
    is_told_offsets: bool = False
    is_single_active: bool = False
    on_activity: Callable[[bool], None] | None = None
    in_flight: dict[int, Claim] = field(default_factory=dict, init=False)
    bytes_in_flight: int = field(default=0, init=False)
    extended: bool = field(default=False, init=False)
    late_held: int = field(default=-1, init=False)
    paused: bool = field(default=False, init=False)
    active: bool = field(default=True, init=False)
    _held_max: int = field(default=limits.CLAIMS_PER_CONSUMER_MAX, init=False)
    _burst_max: int = field(default=limits.NO_ACK_BURST_MAX, init=False)

    def __post_init__(self) -> None:
        if self.pool is not None:
            self.pool.join(self)

    @property
    def is_cut_off(self) -> bool:
        """Whether it has ended with the way to its queue: which is here."""
        return False

    def tell_activity(self, is_active: bool) -> None:
        """Tell whether it is the single active consumer."""
        if self.on_activity is not None and self.active:
            self.on_activity(is_active)

    # credit

    @property
    def held_count(self) -> int:
        """How many unsettled messages it holds."""
        return len(self.in_flight)

    def credit(self) -> int:
        """How many messages may be claimed for it now."""
        if self.paused or not self.active:
            return 0
        if self.no_ack:
            burst = self._burst_max
            return burst if self.pool is None else min(burst, self.pool.free())
        held = len(self.in_flight)
        free = min(self.credit_max, self._held_max) - held
        if self.pool is not None:
            free = min(free, self.pool.free())
        if held and self.bytes_in_flight >= limits.CLAIMED_BYTES_PER_CONSUMER_MAX:
            return 0
        return free

    def set_credit(self, credit_max: int) -> None:
        """Set another bound."""
        self.credit_max = credit_max
        self.group.credit_grew(self)

    def pace(self, per_s: int) -> None:
        """Give it what a quota of so many messages a second lets it have at a time; 0: there is none."""
        step = max(1, per_s // limits.QUOTA_STEPS_PER_S) if per_s else limits.NO_ACK_BURST_MAX
        self._burst_max = min(step, limits.NO_ACK_BURST_MAX)
        self._held_max = min(per_s or limits.CLAIMS_PER_CONSUMER_MAX, limits.CLAIMS_PER_CONSUMER_MAX)

    def join_pool(self, pool: Pool) -> bool:
        """Share a limit from now on; give whether it does not share another already."""
        if self.no_ack or self.pool is not None:
            return False
        self.pool = pool
        return True

    def pause(self) -> None:
        """Give it nothing until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """Give it messages again."""
        self.paused = False
        self.group.credit_grew(self)

    # claims

    def hold(self, claims: list[Claim]) -> None:
        """Take claims that were just made."""
        if len(claims) == 1:
            message = claims[0].message
            self.in_flight[message.offset] = claims[0]
            self.bytes_in_flight += len(message.body or b"")
        else:
            self.in_flight.update([(claim.message.offset, claim) for claim in claims])
            self.bytes_in_flight += sum([len(claim.message.body or b"") for claim in claims])
        if self.pool is not None:
            self.pool.claimed(len(claims))

    def hold_again(self, claim: Claim) -> None:
        """Do as `hold`, for a claim that came back."""
        self.in_flight[claim.message.offset] = claim
        self.bytes_in_flight += len(claim.message.body or b"")
        if self.pool is not None:
            self.pool.claimed(1)

    def release(self, claim: Claim) -> None:
        """Give a claim up that it may hold."""
        if self.in_flight.pop(claim.message.offset, None) is None:
            return
        self.bytes_in_flight -= len(claim.message.body or b"")
        self._released(1)

    def release_many(self, claims: list[Claim]) -> None:
        """Give claims up that it holds."""
        if len(claims) == len(self.in_flight):
            self.in_flight.clear()
            self.bytes_in_flight = 0
        else:
            for claim in claims:
                del self.in_flight[claim.message.offset]
            self.bytes_in_flight -= sum([len(claim.message.body or b"") for claim in claims])
        self._released(len(claims))

    def _released(self, count: int) -> None:
        self.group.credit_grew(self)
        if self.pool is not None:
            self.pool.released(count)

    def acknowledged(self, body_bytes: int) -> None:
        """Claims of so many bytes, which it does not hold any more, are done."""
        self.bytes_in_flight -= body_bytes

    def expired(self, now_ms: int) -> list[Claim]:
        """Return the claims whose lease has ended."""
        expired: list[Claim] = []
        extended = False
        for claim in self.in_flight.values():
            if claim.deadline_ms:
                if claim.deadline_ms <= now_ms:
                    expired.append(claim)
                else:
                    extended = True
            elif claim.at_ms + self.lease_ms <= now_ms:
                expired.append(claim)
            elif not self.extended:
                break  # claims are in order of time
        self.extended = extended
        return expired

    def extend(self) -> None:
        """One of its claims got a lease of its own: it is at work."""
        self.extended = True
        self.came_late()

    # its life

    def stop(self) -> bool:
        """Take no more messages; give whether it took some until now."""
        was_active = self.active
        self.active = False
        if self.pool is not None:
            self.pool.leave(self)
        return was_active

    def move_to(self, group: ConsumerGroup) -> None:
        """Go on in a group that took the place of its own."""
        self.group = group

    def let_lease_end(self) -> None:
        """Note that the consumer is late from now on; claims whose lease ended it does not hold any more."""
        self.late_held = len(self.in_flight)

    def pardon(self) -> None:
        """Count the consumer as late no more."""
        self.late_held = -1

    def is_late(self) -> bool:
        """Whether it let a lease end and has neither settled anything nor waited long since."""
        return 0 <= self.late_held <= len(self.in_flight)

    def came_late(self) -> None:
        """Note that the consumer settled a claim it does not hold any more: it is slow, but at work."""
        if self.late_held >= 0:
            self.on_timer(0)

    def on_timer(self, now_ms: int) -> None:
        """Let the consumer take part again: it was late for long enough."""
        self.pardon()
        if self.active:
            self.group.rank_again()
