"""A queue: its log or logs, the groups that read it, and the rules it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config import limits
from queue_manager.address import local_name
from queue_manager.cursor.cursor import Cursor
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.group.group import Group
from queue_manager.log.payloads import store_payloads
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.retention import Retention
from queue_manager.log.tail import MESSAGE_OVERHEAD_BYTES
from queue_manager.model import MessageBatch
from queue_manager.outcomes import (
    ACCEPTED,
    REFUSED_DEPTH,
    REFUSED_PAUSED,
    REFUSED_QUOTA,
    REFUSED_SIZE,
)
from queue_manager.patterns import MATCH_ALL
from queue_manager.policy import DROP_HEAD, DROP_UNMATCHED, NOT_PAUSED, Pause, QueuePolicy
from queue_manager.queue.part import Part
from queue_manager.queue.queue_groups import Groups, Place
from queue_manager.queue.queue_rules import QueueRules
from queue_manager.rules.dead_letters import DeadLetterBook, DeadLetters, Directory
from queue_manager.rules.expiry.log_rules import Levels
from queue_manager.shard.context import Context
from queue_manager.shard.timers import Timers
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate

_WHY_NOT: Final = {
    REFUSED_SIZE: "a message is larger than queue {!r} takes",
    REFUSED_PAUSED: "queue {!r} is paused for publishers",
    REFUSED_DEPTH: "queue {!r} is full",
}


@dataclass(eq=False, slots=True)
class Surroundings:
    """The parts that all queues of a shard are made with."""

    context: Context
    directory: Directory
    book: DeadLetterBook
    memory: EphemeralMemory
    group_key_of: GroupKeyOf
    on_unused: Callable[[Queue, int], None]


class Queue:
    """A classic (durable) or ephemeral queue.

    `policy` is what holds, `declared` what it was declared with. `topics` are its bindings; `dropped_count`
    messages were dropped because none of its groups wanted them. `quota_refusal`: whose quota of bytes it is
    that keeps it from taking more.
    `owner` is the connection an exclusive queue belongs to, `user` who made it. `parts` are its logs,
    that of priority 0 first: more than one if it has priorities.

    It has one method for each thing that publishers, rules (`rules.host.Host`), dead letters (`Target`), the
    memory of all (`EphemeralMemory`) and administration ask of a queue, and kinds of queues differ in those.
    What has state of its own is an object beside it: groups, rules, use, parts.
    Implements `rules.dead_letters.Target` and `rules.host.Host`.
    """

    __slots__ = (
        "_levels",
        "_surroundings",
        "arguments",
        "auto_created",
        "auto_delete",
        "context",
        "declared",
        "deleted",
        "description",
        "dropped_count",
        "durable",
        "groups",
        "is_bounded",
        "name",
        "owner",
        "parts",
        "pause",
        "policy",
        "quota_refusal",
        "rules",
        "topics",
        "use",
        "user",
    )

    is_stream = False

    def __init__(
        self, surroundings: Surroundings, definition: QueueDefinition, log: QueueLog, now_ms: int
    ) -> None:
        self.context = surroundings.context
        self._surroundings = surroundings
        self.name = definition.name
        self.durable = definition.durable
        self.policy = self.declared = definition.policy
        self.topics = definition.topics
        self.arguments: Mapping[str, object] | None = definition.arguments
        self.description = definition.description
        self.owner = definition.owner
        self.auto_delete = definition.auto_delete
        self.auto_created = definition.auto_created
        self.user = definition.user
        self.deleted = False
        self.dropped_count = 0
        self.use = Use(self, self.context.timers, now_ms)
        self._levels = Levels(log)
        self.parts: list[Part] = [self.make_part(log)]
        self.groups = self._make_groups()
        self.rules = QueueRules(self)
        self.pause = NOT_PAUSED
        self.quota_refusal = ""
        self.is_bounded = False
        self._follow_policy()

    def _make_groups(self) -> Groups:
        return Groups(self, self.parts, self._surroundings.group_key_of)

    def make_part(self, log: QueueLog) -> Part:
        """Make the part that belongs to a log of this queue; it is not one of `parts` yet."""
        retention: Retention[Cursor] = Retention(log)
        return Part(retention, self._dead_letters(log), self._levels)

    def _dead_letters(self, log: QueueLog) -> DeadLetters:
        return DeadLetters(log, self._surroundings.directory, self._surroundings.book)

    @property
    def log(self) -> QueueLog:
        """Its log; that of priority 0."""
        return self.parts[0].log

    @property
    def dead_letters(self) -> DeadLetters:
        """Where what is given up goes."""
        return self.parts[0].dead_letters

    # definition

    def definition(self) -> QueueDefinition:
        """Return the definition that a declaration of the queue gives."""
        return QueueDefinition(
            self.name,
            durable=self.durable,
            policy=self.declared,
            topics=self.topics,
            arguments=self.arguments,
            auto_delete=self.auto_delete,
            owner=self.owner,
            auto_created=self.auto_created,
            description=self.description,
            user=self.user,
        )

    def redefine(self, definition: QueueDefinition, policy: QueuePolicy) -> None:
        """Be declared otherwise, with other bindings, and follow `policy`; messages stay."""
        self.topics = definition.topics
        self.description = definition.description
        self.declared = definition.policy
        self.follow(policy)
        if self.durable:
            self.write_spec()

    def follow(self, policy: QueuePolicy) -> None:
        """Follow another policy; what was declared stays."""
        self.policy = policy
        for part in self.parts:
            part.set_policy(policy)
        for group in self.groups.with_keeper():
            group.policy_changed()
        self.groups.policy_changed()
        self._follow_policy()
        self.watch_use()

    def _follow_policy(self) -> None:
        policy = self.policy
        has_limit = policy.depth_max != 0 or policy.bytes_max != 0
        is_closed = self.pause.publish or bool(self.quota_refusal)
        self.is_bounded = has_limit or is_closed or policy.unmatched == DROP_UNMATCHED

    def write_spec(self) -> None:
        """Put its specs into the open commit."""
        default = self.groups.get("")
        declared = self.declared
        self.parts[0].write_spec(
            declared, self.topics, self.arguments, default, self.description, self.pause, self.user
        )
        for part in self.parts[1:]:
            part.write_spec(declared, (), None, default)

    def set_pause(self, pause: Pause) -> None:
        """Stop, or go on, taking messages from publishers and giving them to consumers."""
        self.follow_pause(pause)
        if self.durable:
            self.write_spec()

    def follow_pause(self, pause: Pause) -> None:
        """Do as `set_pause`, with a pause that is written down already."""
        self.pause = pause
        self._follow_policy()
        for part in self.parts:
            part.log.hold(is_held=pause.deliver)
        if not pause.deliver:
            for group in self.groups:
                group.want_dispatch()

    def count_bytes(self, *, is_counted: bool) -> None:
        """Count how many bytes are stored in it, as a quota bounds them, or not any more."""
        for part in self.parts:
            part.count_bytes(is_counted=is_counted)

    def follow_quota(self, refusal: str) -> None:
        """Take nothing more for that reason; "": take messages again."""
        self.quota_refusal = refusal
        self._follow_policy()

    def begin(self) -> None:
        """Put the first records of a new queue into the open commit."""
        if self.durable:
            self.write_spec()
            for part in self.parts:
                part.log.write_head()

    # use

    def consumer_count(self) -> int:
        """Consumers of all groups."""
        return sum(len(group.consumers.members) for group in self.groups)

    def watch_use(self) -> None:
        """Have the queue looked at when it will have been unused for too long."""
        self.use.watch()

    def go_unused(self, now_ms: int) -> None:
        """Go: the queue was not used for as long as its policy says."""
        self._surroundings.on_unused(self, now_ms)

    # groups

    def group(
        self,
        name: str,
        pattern: str = MATCH_ALL,
        selector: str = "",
        places: Sequence[Place] | None = None,
    ) -> Group:
        """Return the group, made (at `places`, or the oldest kept message) if it is not there; its spec is in
        the open commit.

        Raises LimitReached, InvalidAddress.
        """
        return self.groups.ensure(name, pattern, selector, places)

    # counting

    def kept_count(self) -> int:
        """Messages for groups to come; the queue has no group."""
        return sum(part.retention.kept_count() for part in self.parts)

    def ready_count(self) -> int:
        """Messages waiting in the default group; in the longest group if that one was never used."""
        default = self.groups.get("")
        if default is not None:
            return default.ready_count()
        if not len(self.groups):
            return self.kept_count()
        return max(group.ready_count() for group in self.groups.with_keeper())

    def is_history_known(self) -> bool:
        """Return whether it is known what was let go of before the process started."""
        return all(part.retention.is_known for part in self.parts)

    def waiting_count(self) -> int:
        """Count as `ready_count`, with the messages that came back and wait for their next attempt."""
        default = self.groups.get("")
        if default is not None:
            return default.waiting_count()
        return self.depth()

    def depth(self) -> int:
        """Messages the slowest group has still to claim."""
        if not len(self.groups):
            return self.kept_count()
        return max(group.waiting_count() for group in self.groups.with_keeper())

    def unwanted_count(self) -> int:
        """Messages that none of its groups wanted, kept for groups to come."""
        keeper = self.groups.keeper
        return 0 if keeper is None else keeper.waiting_count()

    def memory_bytes(self) -> int:
        """Return how many bytes its messages take in memory."""
        if len(self.parts) == 1:  # asked for with each publish to a queue in memory
            return self.log.tail.memory_bytes + self.rules.scheduled_bytes()
        return sum(part.log.tail.memory_bytes for part in self.parts) + self.rules.scheduled_bytes()

    def stored_bytes(self) -> int:
        """Return how many bytes wait in it, where they are counted."""
        return self._levels.waiting_bytes() if self.durable else self.memory_bytes()

    # room

    def may_drop(self) -> bool:
        """Whether there may be messages that it lets go of at once; see `drops`."""
        return self.policy.unmatched == DROP_UNMATCHED and not self.groups.audience.wants_all()

    def drops(self, template: EnvelopeTemplate) -> bool:
        """Whether a message like this is let go of at once: there are groups, none of them wants it, and such
        messages are dropped. What a group's selector says of a field that each message has for itself (an
        offset, a time) is not known before: it counts as wanted.
        """
        return self.may_drop() and not self.groups.audience.may_want(template)

    def lets_go_of(self, template: EnvelopeTemplate) -> bool:
        """See `Target`."""
        if not self.drops(template):
            return False
        self.note_dropped(1)
        return True

    def note_dropped(self, count: int) -> None:
        """Count messages that were not taken, as `drops` said, or were dead-lettered for that."""
        self.dropped_count += count

    def has_room(self, count: int, body_bytes: int) -> bool:
        """Whether it takes so many messages of so many bytes in all."""
        policy = self.policy
        if self.pause.publish or self.quota_refusal:
            return False
        if not self.is_bounded or policy.overflow == DROP_HEAD:
            return True
        if self.rules.has_stage:  # what is on its way has its room already
            count += self.rules.stage.sweeps.unmoved_count
            body_bytes += self.rules.stage.sweeps.unmoved_bytes
        if policy.depth_max and self.depth() + count > max(0, policy.depth_max):
            return False
        return not policy.bytes_max or self._levels.waiting_bytes() + body_bytes <= max(0, policy.bytes_max)

    def has_memory(self, count: int, body_bytes: int, now_ms: int, ahead_bytes: int = 0) -> bool:
        """Whether there is memory for so many messages of so many bytes in all, if it is needed; see
        `EphemeralMemory.takes`.
        """
        return self.durable or self._surroundings.memory.takes(self, count, body_bytes, now_ms, ahead_bytes)

    def refusal(
        self,
        count: int,
        body_bytes: int,
        largest_bytes: int,
        now_ms: int,
        *,
        is_later: bool = False,
        ahead: tuple[int, int] = (0, 0),
    ) -> int:
        """Return the outcome of so many messages, the largest of these bytes, as far as this queue decides
        it.

        `is_later`: they are due later, so that the limits of the queue do not count them yet. `ahead`: so
        many messages, and bytes, which were judged before, will have been taken.
        """
        if largest_bytes > self.policy.message_bytes_max:
            return REFUSED_SIZE
        if self.pause.publish:
            return REFUSED_PAUSED
        if self.quota_refusal:
            return REFUSED_QUOTA
        ahead_count, ahead_bytes = ahead
        if not is_later and not self.has_room(count + ahead_count, body_bytes + ahead_bytes):
            return REFUSED_DEPTH
        return ACCEPTED if self.has_memory(count, body_bytes, now_ms, ahead_bytes) else REFUSED_DEPTH

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        outcome = self.refusal(1, body_bytes, body_bytes, now_ms)
        if outcome == REFUSED_QUOTA:
            return self.quota_refusal
        return "" if outcome == ACCEPTED else _WHY_NOT[outcome].format(self.name)

    # appending

    def part_of(self, template: EnvelopeTemplate) -> Part:
        """Where a message belongs."""
        return self.parts[0]

    def append(self, batch: MessageBatch) -> None:
        """Append messages."""
        self.parts[0].append(batch)

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Append a message that comes from within the broker; it may tell which offset it had elsewhere."""
        self.part_of(template).tell_offsets()
        size = len(body)
        self.append(MessageBatch(template, self.store([body], size), [body], size, now_ms))

    def store(self, bodies: list[bytes], body_bytes: int) -> int:
        return store_payloads(self.context, bodies, body_bytes, int(self.durable))

    def append_stored(self, batch: MessageBatch) -> None:
        part = self.part_of(batch.template)
        part.log.mix_payloads()
        part.append(batch)

    def mix_payloads(self) -> None:
        """Other queues take the same payloads."""
        for part in self.parts:
            part.log.mix_payloads()

    # its end

    def purge(self, now_ms: int) -> int:
        """Drop every waiting message of every group; claimed ones stay. Give how many it were."""
        count = self.waiting_count()
        if self.rules.has_stage:
            count += self.rules.stage.sweeps.purge()
        for part in self.parts:
            part.purge()
        if any(part.is_purged for part in self.parts):
            self.write_spec()
        return count

    def delete(self, now_ms: int) -> None:
        """End, with all it holds."""
        for part in self.parts:
            for cursor in part.cursors.values():
                if cursor.stored.is_dirty and cursor.claims.buckets.failed_count:
                    # where the log no longer stands for a payload, its failed record tells the removal of it
                    cursor.write(self.context.commit, now_ms)
        is_untouched = not self.rules.are_used and all(part.is_untouched() for part in self.parts)
        self.deleted = True
        self.use.end()
        self.rules.end()
        self._surroundings.book.forget(self.name)
        for part in self.parts:
            storage_ids = [part.log.name, *(cursor.storage_id for cursor in part.cursors.values())]
            part.delete(tuple(dict.fromkeys(storage_ids)), now_ms, is_untouched=is_untouched)
        for group in self.groups.with_keeper():
            group.delete(f"queue {local_name(self.name)!r} was deleted")


class Use:
    """When a queue was used last, and whether it ever had a consumer: what is not used for too long goes."""

    __slots__ = ("_queue", "_timers", "had_consumer", "unused_since_ms")

    def __init__(self, queue: Queue, timers: Timers, now_ms: int) -> None:
        self._queue = queue
        self._timers = timers
        self.had_consumer = False
        self.unused_since_ms = now_ms

    def joined(self) -> None:
        """Note that a consumer came."""
        self.had_consumer = True

    def note(self, now_ms: int) -> None:
        """Note that the queue was used now."""
        self.unused_since_ms = now_ms

    def watch(self) -> None:
        """Have it looked at when it will have been unused for too long."""
        expires_ms = self._expires_ms()
        if expires_ms and self._queue.owner is None:
            self._timers.set(self, self.unused_since_ms + expires_ms)

    def _expires_ms(self) -> int:
        policy = self._queue.policy
        return policy.unused_max_ms if self._queue.durable else policy.expires_ms

    def on_timer(self, now_ms: int) -> None:
        """Go, if it was not used for as long as its policy says."""
        if self._queue.deleted or self._queue.consumer_count():
            return
        expires_ms = self._expires_ms()
        if expires_ms and self.unused_since_ms + expires_ms <= now_ms:
            self._queue.go_unused(now_ms)
        else:
            self.watch()

    def end(self) -> None:
        """Forget the queue, which is gone."""
        self._timers.forget(self)


class EphemeralMemory:
    """The memory that all ephemeral queues take together.

    What is published is counted up, and what is there summed up only when that may be too much.
    """

    __slots__ = ("_bound", "_counted_at_ms", "_queues")

    def __init__(self, queues: Callable[[], Iterable[Queue]]) -> None:
        self._queues = queues
        self._bound = 0  # at most so many bytes are held
        self._counted_at_ms = 0

    def takes(self, queue: Queue, count: int, body_bytes: int, now_ms: int, ahead_bytes: int = 0) -> bool:
        """Return whether there is room for so many messages in `queue`, by itself and with the others. It
        counts what it has said so of: `ahead_bytes` of it are not in the queue yet.
        """
        if queue.memory_bytes() + ahead_bytes + body_bytes > limits.EPHEMERAL_BYTES_PER_QUEUE_MAX:
            return False
        body_bytes += count * MESSAGE_OVERHEAD_BYTES
        self._bound += body_bytes
        if self._bound <= limits.EPHEMERAL_BYTES_MAX:
            return True
        self._bound -= body_bytes
        if 0 <= now_ms - self._counted_at_ms < limits.EPHEMERAL_COUNT_INTERVAL_MS:
            return False
        self._counted_at_ms = now_ms
        self._bound = sum(other.memory_bytes() for other in self._queues() if not other.durable)
        if self._bound + body_bytes > limits.EPHEMERAL_BYTES_MAX:
            return False
        self._bound += body_bytes
        return True
