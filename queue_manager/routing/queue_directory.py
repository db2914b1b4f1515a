"""The queues of one shard: found by name, declared, deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from config import limits
from config.name_rules import why_reserved
from queue_manager.address import OUTBOX_PREFIX, is_reserved, local_name, qualified_name, vhost_of
from queue_manager.audience import Audience, TopicSpaces
from queue_manager.effective_policy import (
    CLASSIC,
    NO_POLICIES,
    QUORUM,
    STREAM,
    Effective,
    Policies,
    Policy,
    joined,
)
from queue_manager.errors import (
    InUse,
    InvalidAddress,
    LimitReached,
    NotEmpty,
    PreconditionFailed,
    QueueNotFound,
    ReservedName,
    ResourceLocked,
)
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.removals import QueueRemoval
from queue_manager.log.tail import RELEASED
from queue_manager.model import Message
from queue_manager.outcomes import REASONS, REFUSED_SESSION
from queue_manager.policy import QueuePolicy
from queue_manager.queue.part import Part
from queue_manager.queue.queue import EphemeralMemory, Queue
from queue_manager.quota_accounts import QUEUES
from queue_manager.routing.bindings import Bindings
from queue_manager.routing.exchange import TOPICS
from queue_manager.routing.exchange_directory import Exchanges
from queue_manager.routing.exchange_types.base import NO_HEADERS, Headers
from queue_manager.routing.follower import Follower, NoFollower
from queue_manager.routing.maker import QueueMaker
from queue_manager.routing.route import NOWHERE, ForeignQueue, Route
from queue_manager.routing.watched_names import Removing, WatchedNames
from queue_manager.rules.dead_letters import DeadLetterBook, Target
from queue_manager.shard.context import Context
from queue_manager.spec_records import QueueDefinition, is_quorum
from queue_manager.stored_bytes import StoredBytes
from storage.envelope import EnvelopeTemplate, expires_at_ms


class TopicSubscribers:
    """As `queue_manager.rules.dead_letters.Target`: those that messages reach through `amq.topic` in a
    virtual host, by these routing keys. `name` is that of the exchange, which no queue has: one that is named
    as an exchange on the way would look like a loop.
    """

    __slots__ = ("_audience", "_keys", "_topics", "_vhost", "name")

    def __init__(self, topics: TopicSpaces, vhost: str, keys: Sequence[str], audience: Audience) -> None:
        """`audience` are the subscribers of the message as it was before it died."""
        self._topics = topics
        self._vhost = vhost
        self._keys = keys
        self._audience = audience
        self.name = qualified_name(vhost, TOPICS)

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        return "" if self._audience.has_room(1, body_bytes) else REASONS[REFUSED_SESSION]

    def lets_go_of(self, template: EnvelopeTemplate) -> bool:
        return False

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        audience = self._topics.audience(self._vhost, self._keys, template)
        if audience is not None:
            audience.hear([body])


HeadersOf = Callable[[EnvelopeTemplate], Headers]
"""The headers of messages of a template, by name."""


def no_headers(template: EnvelopeTemplate) -> Headers:
    """Return no headers, for queue managers without a front-end."""
    return NO_HEADERS


class TakenMessage(NamedTuple):
    """A message of a queue that is no more. `ends_at_ms` 0: it lives as long as its queue lets it.
    `due_ms` 0: at once.
    """

    template: EnvelopeTemplate
    body: bytes
    ends_at_ms: int
    due_ms: int = 0


class QueueDirectory:
    """All queues by name, what is bound to them, and the exchanges it is bound to.

    `topics` are the subscribers of topics, in each virtual host. `maker` makes the queues; `removing` are
    those that were deleted, but of which records are left. Implements `rules.dead_letters.Directory`.
    """

    def __init__(self, context: Context, default_policy: QueuePolicy, *, auto_create: bool) -> None:
        self._context = context
        self.default_policy = default_policy
        self.auto_create = auto_create
        self.bindings = Bindings()
        self.policies = Policies(context)
        self.exchanges = Exchanges(context, self.policies)
        self.dead_letters = DeadLetterBook()
        self.topics = TopicSpaces()
        self._queues: dict[str, Queue] = {}
        self.foreign: dict[str, ForeignQueue] = {}  # what other shards have, by name
        self._parts: dict[str, Part] = {}  # by the names of their logs
        self.stored_bytes = StoredBytes(context, self._queues.values)
        self.follower: Follower = NoFollower()
        self.removing = Removing(context)
        self.watched = WatchedNames()
        self._unused: dict[Queue, int] = {}
        """Queues to be deleted once it is known what they let go of, and when they had been used last."""
        self._headers_of: HeadersOf = no_headers
        self.maker = QueueMaker(
            context, self, self.dead_letters, EphemeralMemory(self._queues.values), self.delete_unused
        )

    def __iter__(self) -> Iterator[Queue]:
        return iter(self._queues.values())

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, name: object) -> bool:
        return name in self._queues

    # finding

    def get(self, name: str) -> Queue | None:
        """Return the queue of that name."""
        return self._queues.get(name)

    def outboxes(self) -> list[Queue]:
        """Return the queues that hold what queues of other workers are owed, or were."""
        return [queue for queue in self if local_name(queue.name).startswith(OUTBOX_PREFIX)]

    def route_to(self, name: str) -> Route:
        """Return the route to the queue of that name; one without queues, and never current, if there is
        none.
        """
        queue = self._queues.get(name)
        if queue is None:
            foreign = self.foreign.get(name)
            return NOWHERE if foreign is None else foreign.route
        return self.bindings.to_queue(queue)

    def targets(self, exchange: str, keys: Sequence[str], template: EnvelopeTemplate) -> Sequence[Target]:
        if exchange:
            through = self.exchanges.get(exchange)
            if through is None:
                return ()
            try:
                route = self.exchanges.routes.through(through, keys, lambda: self._headers_of(template))
            except LimitReached:
                return ()
            found: list[Target] = [*route.queues, *route.foreign]
            if route.topics_of is not None:
                audience = self.topics.audience(route.topics_of, keys, template)
                if audience is not None and audience.is_there():
                    found.append(TopicSubscribers(self.topics, route.topics_of, keys, audience))
            return found
        named = [self._queues.get(name) or self.foreign.get(name) for name in dict.fromkeys(keys)]
        return [queue for queue in named if queue is not None]

    def read_headers_by(self, headers_of: HeadersOf) -> None:
        """Have the headers of messages read so."""
        self._headers_of = headers_of

    def find(self, name: str, owner: object = None) -> Queue:
        """Return the queue; raises QueueNotFound, or ResourceLocked when it is exclusive to another owner."""
        queue = self._queues.get(name)
        if queue is None:
            raise QueueNotFound.named(name)
        self.check_owner(queue, owner)
        return queue

    def check_owner(self, queue: Queue, owner: object) -> None:
        """Raise ResourceLocked if the queue is exclusive to another than `owner`."""
        if queue.owner is not None and queue.owner is not owner:
            raise ResourceLocked(queue.name)

    def of_log(self, log: QueueLog) -> Queue | None:
        """Return the queue of a log, if it was not deleted."""
        queue = self._queues.get(log.title)
        return queue if queue is not None and queue.log is log else None

    def part(self, name: str) -> Part | None:
        """Return what is stored under the name of a log."""
        return self._parts.get(name)

    # making

    def declare(self, definition: QueueDefinition, now_ms: int) -> Queue:
        """Return the queue of that name, created if it is not there.

        Raises Inequivalent when it exists with another definition, ResourceLocked when it is exclusive to
        another owner, or not, QueueBusy while a queue of that name is being deleted, ReservedName,
        LimitReached.
        """
        queue = self._queues.get(definition.name)
        if queue is not None:
            self.check_owner(queue, definition.owner)
            difference = definition.difference(queue.definition())
            if difference is None:
                queue.use.note(now_ms)
                return queue
            if not queue.auto_created:
                raise difference
            if len(queue.groups):
                raise PreconditionFailed(
                    f"queue {queue.name!r} was made in memory, by its first use, and has consumer groups"
                )
            return self._adopt_auto_created(queue, definition, now_ms)
        if is_reserved(definition.name) and not definition.is_server_named:
            raise ReservedName("queue", local_name(definition.name))
        if reserved := why_reserved(local_name(definition.name)):
            raise InvalidAddress(f"queue name {reserved}")
        self._check_room(definition)
        self.removing.check_free(definition)
        queue = self.maker.make(definition, now_ms)
        self._follow_policies(queue)
        queue.begin()
        self.adopt(queue)
        self.follower.queue_changed(queue)
        queue.watch_use()
        if self._context.events.is_wanted:
            self._context.events.note("queue.created", _told(queue, definition), definition.user)
        return queue

    def _check_room(self, definition: QueueDefinition) -> None:
        """Raise LimitReached if there may be no more queues."""
        if len(self._parts) >= limits.QUEUES_MAX:
            raise LimitReached(f"{limits.QUEUES_MAX} queues exist already")
        self._context.quotas.check(QUEUES, vhost_of(definition.name), definition.user)

    def adopt(self, queue: Queue) -> None:
        """Take in a queue that was made or recovered."""
        self._queues[queue.name] = queue
        self._context.quotas.add(QUEUES, vhost_of(queue.name), queue.user)
        for part in queue.parts:
            self._parts[part.log.name] = part
        self.bindings.add(queue)
        self.stored_bytes.adopted(queue)

    def _adopt_auto_created(self, old: Queue, definition: QueueDefinition, now_ms: int) -> Queue:
        """Declare properly what was only published to so far; the messages come along, in order."""
        self.removing.check_free(definition)
        messages = _waiting_in(old)
        planned = old.rules.take_scheduled()
        bound = self.exchanges.take_bindings(old)
        self.delete(old, now_ms)
        queue = self.declare(definition, now_ms)
        self.exchanges.give_bindings(bound, queue)
        for (due_ms, _), template, body in planned:
            first_id = queue.store([body], len(body))
            queue.rules.schedule.enter(template, first_id, [body], due_ms, now_ms)
        queue.rules.take_over_identities(old.rules)
        for message in messages:
            queue.append_one(message.template, message.body or b"", now_ms)
        return queue

    def take_away(self, queue: Queue, now_ms: int) -> list[TakenMessage]:
        """Delete a queue that was only published to so far; give what was in it, in order."""
        taken = [
            TakenMessage(
                message.template, message.body or b"", expires_at_ms(message.template, message.received_at_ms)
            )
            for message in _waiting_in(queue)
        ]
        taken += [
            TakenMessage(template, body, expires_at_ms(template, now_ms), due_ms)
            for (due_ms, _), template, body in queue.rules.take_scheduled()
        ]
        self.delete(queue, now_ms)
        return taken

    def redefine(self, queue: Queue, definition: QueueDefinition) -> None:
        """Give an existing queue another policy and other bindings; its messages stay."""
        if definition.policy.priority_max != queue.policy.priority_max:
            raise PreconditionFailed(
                f"queue {queue.name!r} has priorities up to {queue.policy.priority_max}; that cannot change"
            )
        policy = joined(definition.policy, queue.arguments, self.policies_of(queue), durable=queue.durable)
        self.bindings.remove(queue)
        queue.redefine(definition, policy)
        self.bindings.add(queue)
        self.follower.queue_changed(queue)

    # of other shards

    def follow(self, follower: Follower) -> None:
        """Have changes of queues, and of what leads to them, followed."""
        self.follower = self.exchanges.follower = follower

    def take_foreign(self, queue: ForeignQueue) -> None:
        """Route to a queue of another shard, in the place of what was known of it."""
        known = self.foreign.get(queue.name)
        bound = [] if known is None else self.exchanges.take_bindings(known)
        if known is not None:
            self.bindings.remove(known)
        self.foreign[queue.name] = queue
        self.bindings.add(queue)
        self.exchanges.give_bindings(bound, queue)

    def forget_foreign(self, queue: ForeignQueue) -> None:
        """Route to a queue of another shard no more: it is gone."""
        del self.foreign[queue.name]
        self.bindings.remove(queue)
        self.exchanges.forget(queue)
        self.watched.deleted(queue.name)

    # policies

    def policies_of(self, queue: Queue) -> Effective:
        """Return the policies that hold for a queue."""
        if local_name(queue.name).startswith(OUTBOX_PREFIX):
            return NO_POLICIES  # what it holds was confirmed: nothing may take it away
        kind = STREAM if queue.is_stream else QUORUM if is_quorum(queue.arguments) else CLASSIC
        return self.policies.of(queue.name, kind)

    def policy_held(self, queue: Queue) -> QueuePolicy:
        """Return what a queue has by what it was declared with and the policies."""
        return joined(queue.declared, queue.arguments, self.policies_of(queue), durable=queue.durable)

    def _follow_policies(self, queue: Queue) -> bool:
        """Have a queue follow the policies as they are; whether that changed anything."""
        policy = self.policy_held(queue)
        is_other = policy != queue.policy
        if is_other:
            queue.follow(policy)
        return is_other

    def set_policy(self, policy: Policy) -> None:
        """Have a policy from now on, in the place of another of that name."""
        self.policies.keep(policy)
        self._policies_changed(policy.vhost)

    def clear_policy(self, policy: Policy) -> None:
        """Have a policy no more."""
        self.policies.forget(policy)
        self._policies_changed(policy.vhost)

    def _policies_changed(self, vhost: str) -> None:
        for queue in list(self._queues.values()):
            if vhost_of(queue.name) == vhost and self._follow_policies(queue):
                self.bindings.remove(
                    queue
                )  # so that what was derived from its policy is not current any more
                self.bindings.add(queue)
                self.follower.queue_changed(queue)
        self.exchanges.follow_policies(vhost)

    def find_or_create(self, name: str, owner: object, now_ms: int, user: str | None = None) -> Queue:
        """Return the queue as `find`, but an unknown name makes an ephemeral queue, of this user, where
        `auto_create` allows it.
        """
        if name not in self._queues and self.auto_create:
            return self.declare(QueueDefinition.ephemeral(name, self.default_policy, user), now_ms)
        return self.find(name, owner)

    # deleting

    def delete(
        self,
        queue: Queue,
        now_ms: int,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        user: str | None = None,
    ) -> int:
        """Delete a queue with all it holds; give how many messages waited in it. `user` wants it; None: the
        broker.

        Raises InUse, NotEmpty when that was a condition.
        """
        if if_unused and queue.consumer_count():
            raise InUse("queue", queue.name)
        count = queue.waiting_count()
        if if_empty and count:
            raise NotEmpty(queue.name)
        del self._queues[queue.name]
        self._context.quotas.remove(QUEUES, vhost_of(queue.name), queue.user)
        for part in queue.parts:
            del self._parts[part.log.name]
            if queue.durable:
                self.removing.begin(part.log.name)
        self.bindings.remove(queue)
        self.exchanges.forget(queue)
        queue.delete(now_ms)
        self.follower.queue_gone(queue)
        self.watched.deleted(queue.name)
        if self._context.events.is_wanted:
            headers = {"name": local_name(queue.name), "vhost": vhost_of(queue.name), "type": _type_of(queue)}
            self._context.events.note("queue.deleted", headers, user)
        return count

    def delete_unused(self, queue: Queue, now_ms: int) -> None:
        """Delete a queue without consumers; soon after a start once it is known what it let go of before, if
        it was not used since.

        Its share of payloads that others hold, too, would stay for ever otherwise.
        """
        if queue.is_history_known():
            self.delete(queue, now_ms)
        else:
            self._unused[queue] = queue.use.unused_since_ms

    # after a start

    def policies_restored(self) -> None:
        """Have all queues and exchanges follow the policies that were read back."""
        for queue in self._queues.values():
            self._follow_policies(queue)
        for vhost in {vhost_of(exchange.name) for exchange in self.exchanges}:
            self.exchanges.follow_policies(vhost)

    def restore_removal(self, pending: QueueRemoval) -> None:
        """Go on with the deletion of a queue that was under way; its log ID is not given out again."""
        self.removing.restore(pending)
        self.maker.note_log_id(pending.log_id)

    def resume_removals(self) -> None:
        """Have gone on with what was being removed of groups when the process before ended."""
        for queue in self:
            for part in queue.parts:
                self._context.removals.extend(part.retention.removals)

    def history_known(self, now_ms: int) -> None:
        """Note that it is known now what the queues had let go of before the start."""
        for queue in list(self._queues.values()):
            queue.groups.history_known(now_ms)
        unused, self._unused = self._unused, {}
        for queue, unused_since_ms in unused.items():
            if queue.deleted or queue.consumer_count():
                continue
            if queue.use.unused_since_ms == unused_since_ms:
                self.delete(queue, now_ms)
            else:
                queue.watch_use()


def _waiting_in(queue: Queue) -> list[Message]:
    """Return the messages of a queue in memory that nobody was given."""
    log = queue.log
    found = log.tail.slice(log.head_offset, len(log.tail))
    return [message for message in found if message is not RELEASED]


def _type_of(queue: Queue) -> str:
    """Return the type of a queue, as RabbitMQ calls it in its events."""
    kind = STREAM if queue.policy.stream else QUORUM if queue.policy.quorum else CLASSIC
    return f"rabbit_{kind.removesuffix('s')}_queue"


def _told(queue: Queue, definition: QueueDefinition) -> dict[str, object]:
    """Return the headers of the event that tells of a new queue."""
    return {
        "name": local_name(queue.name),
        "vhost": vhost_of(queue.name),
        "type": _type_of(queue),
        "durable": queue.durable,
        "auto_delete": definition.auto_delete,
        "exclusive": queue.owner is not None,
        "arguments": dict(definition.arguments or {}),
        "owner_pid": "" if queue.owner is None else str(queue.owner),
    }
