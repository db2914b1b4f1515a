"""The directory: which worker has which queue, and what leads there. Each worker tells the others of its own
queues; what it was told is in the routing of its own shard, as foreign queues and bindings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from broker.engine.answers import Answer
from broker.engine.shard import Shard
from queue_manager.address import is_reserved
from queue_manager.api import BindingDefinition
from queue_manager.errors import ExchangeNotFound, InvalidArgument, LimitReached, QueueManagerError
from queue_manager.policy import QueuePolicy
from queue_manager.queue.queue import Queue
from queue_manager.routing.binding import Binding
from queue_manager.routing.route import ForeignQueue, Pass
from storage.errors import StorageError


@dataclass(frozen=True, slots=True)
class QueueFact:
    """A queue that is there, as it is now. `log_id` tells it from an earlier one of its name."""

    name: str
    durable: bool
    policy: QueuePolicy
    topics: tuple[str, ...]
    is_exclusive: bool
    log_id: str = ""


@dataclass(frozen=True, slots=True)
class QueueGone:
    """A queue that is there no more."""

    name: str


@dataclass(frozen=True, slots=True)
class BindingFact:
    """A binding to a queue that is there; or not, any more."""

    binding: BindingDefinition
    is_there: bool = True


@dataclass(frozen=True, slots=True)
class ReplyFact:
    """A requester that takes direct replies by this routing key; or not, any more."""

    key: str
    is_there: bool = True


Fact: TypeAlias = QueueFact | QueueGone | BindingFact | ReplyFact


class Told(Protocol):
    """A link over which facts are told."""

    number: int

    def call(self, part: str, method: str, *arguments: object) -> Answer[None]:
        """Call a part of the other worker."""


class FarReplies(Protocol):
    """The requesters of all workers; `own` are the routing keys of those of this one."""

    own: dict[str, None]

    def note(self, worker: int, key: str, *, is_there: bool) -> None:
        """Note a requester of another worker."""

    def forget(self, worker: int) -> None:
        """Forget all of another worker."""


_NOTHING: Final[Answer[None]] = Answer.given(None)


class Directory:
    """What this worker tells of its queues, and what others told it of theirs.

    `note` and `note_all` are called by the others, by their numbers. `end_claims` ends what
    clients of this worker hold of queues that are gone. `_held_back` are the names of queues
    that the others are not told of, for it is not decided yet whether they are to be here;
    `on_made_elsewhere` is called when another worker has one of that name.
    """

    def __init__(self, shard: Shard, number: int, pass_on: Pass, replies: FarReplies) -> None:
        self._replies = replies
        self._queues = shard.manager.queues
        self._number = number
        self._pass_on = pass_on
        self._changed: list[Fact] = []
        self._links: list[Told] = []
        self._reserved: dict[str, tuple[int, int]] = {}  # who makes it, and who asked
        self._held_back: set[str] = set()
        self.on_change: Callable[[], None] = lambda: None
        self.on_gone: Callable[[ForeignQueue], None] = lambda queue: None
        self.on_made_elsewhere: Callable[[ForeignQueue], None] = lambda queue: None
        self.end_claims: Callable[[int, list[ForeignQueue]], Answer[None]] = lambda number, queues: _NOTHING
        self._queues.follow(self)

    # what is told

    def queue_changed(self, queue: Queue) -> None:
        """See `Follower`."""
        if queue.name not in self._held_back:
            self._reserved.pop(queue.name, None)
            self._note(_fact_of(queue))

    def queue_gone(self, queue: Queue) -> None:
        """See `Follower`."""
        if queue.name not in self._held_back:
            self._note(QueueGone(queue.name))

    def bound(self, binding: Binding) -> None:
        """See `Follower`."""
        self._note(BindingFact(_definition(binding)))

    def unbound(self, binding: Binding) -> None:
        """See `Follower`."""
        self._note(BindingFact(_definition(binding), is_there=False))

    def hold_back(self, name: str) -> None:
        """Tell the others nothing of the queue of that name, until `let_out`."""
        self._held_back.add(name)

    def is_held_back(self, name: str) -> bool:
        """Whether the others are told nothing of the queue of that name."""
        return name in self._held_back

    def let_out(self, name: str) -> None:
        """Tell the others of the queue of that name, if it is here, and of its changes from now on."""
        self._held_back.discard(name)
        queue = self._queues.get(name)
        if queue is not None:
            self.queue_changed(queue)
            for binding in self._queues.exchanges.bindings_to(queue):
                self.bound(binding)

    def _note(self, fact: Fact) -> None:
        """Have a fact told with the others of this turn."""
        self._changed.append(fact)
        if len(self._changed) == 1:
            self.on_change()

    def tell(self) -> Answer[None]:
        """Tell the others what changed; the answer is there when all of them know."""
        facts, self._changed = self._changed, []
        if not facts or not self._links:
            return Answer.given(None)
        return all_answered([link.call("directory", "note", self._number, facts) for link in self._links])

    def begin(self, link: Told) -> Answer[None]:
        """Tell another worker everything, and from now on each change."""
        self._links.append(link)
        told = [queue for queue in self._queues if queue.name not in self._held_back]
        facts: list[Fact] = [_fact_of(queue) for queue in told]
        facts += [
            BindingFact(_definition(binding))
            for queue in told
            for binding in self._queues.exchanges.bindings_to(queue)
        ]
        facts += [ReplyFact(key) for key in self._replies.own]
        return link.call("directory", "note_all", self._number, facts)

    def end(self, link: Told) -> None:
        """Tell another worker nothing more: it is gone, and its requesters are."""
        self._replies.forget(link.number)
        if link in self._links:
            self._links.remove(link)

    def reply_taken(self, key: str, *, is_there: bool) -> Answer[None]:
        """Tell of a requester of this worker."""
        self._note(ReplyFact(key, is_there))
        return self.tell() if is_there else Answer.given(None)

    # what is heard

    def note_all(self, shard: int, facts: Sequence[Fact]) -> None:
        """Note everything that another worker has."""
        self._replies.forget(shard)
        named = {fact.name for fact in facts if isinstance(fact, QueueFact)}
        for queue in self.of_shard(shard):
            if queue.name not in named:
                self._forget(queue)
        bound = {
            (one.source, one.destination, one.routing_key, repr(one.arguments))
            for one in (fact.binding for fact in facts if isinstance(fact, BindingFact))
        }
        for queue in self.of_shard(shard):
            for binding in self._queues.exchanges.bindings_to(queue):
                if (binding.source, queue.name, binding.key, repr(binding.arguments)) not in bound:
                    self._queues.exchanges.unbind(self._queues.exchanges.find(binding.source), binding)
        self.note(shard, facts)
        self._release_where(lambda maker, by: by == shard)  # over a link that ended: it would be among them

    def note(self, shard: int, facts: Iterable[Fact]) -> Answer[None]:
        """Note what changed at another worker, in order. Of queues that are gone the answer says that what
        clients held of them has ended, too.
        """
        gone: list[ForeignQueue] = []
        for fact in facts:
            if isinstance(fact, QueueFact):
                self._reserved.pop(fact.name, None)
                self._take(shard, fact)
            elif isinstance(fact, QueueGone):
                queue = self._queues.foreign.get(fact.name)
                if queue is not None and queue.shard == shard:
                    self._forget(queue)
                    gone.append(queue)
            elif isinstance(fact, ReplyFact):
                self._replies.note(shard, fact.key, is_there=fact.is_there)
            else:
                self._bind(fact)
        return self.end_claims(shard, gone) if gone else _NOTHING

    def _take(self, shard: int, fact: QueueFact) -> None:
        known = self._queues.foreign.get(fact.name)
        if known is not None and (known.shard, known.log_id) != (shard, fact.log_id):
            self._forget(known)  # it was deleted, which nobody could tell here
        queue = ForeignQueue(
            fact.name,
            shard=shard,
            durable=fact.durable,
            policy=fact.policy,
            topics=fact.topics,
            is_exclusive=fact.is_exclusive,
            log_id=fact.log_id,
            pass_on=self._pass_on,
        )
        self._queues.take_foreign(queue)
        if fact.name in self._held_back:
            self.on_made_elsewhere(queue)

    def note_gone(self, queue: ForeignQueue) -> None:
        """Forget a queue that its worker says it has no more: what it tells to all may come later."""
        known = self.get(queue.name)
        if known is not None and (known.shard, known.log_id) == (queue.shard, queue.log_id):
            self._forget(known)

    def _forget(self, queue: ForeignQueue) -> None:
        self._queues.forget_foreign(queue)
        self.on_gone(queue)

    def _bind(self, fact: BindingFact) -> None:
        told = fact.binding
        queue = self._queues.foreign.get(told.destination)
        exchanges = self._queues.exchanges
        if queue is None:
            return
        try:
            source = exchanges.find(told.source)
            if fact.is_there:
                exchanges.bind(source, queue, told.routing_key, told.arguments)
                return
            found = source.find(queue, told.routing_key, told.arguments)
        except (ExchangeNotFound, InvalidArgument, LimitReached):
            return  # the exchange is going, which is told by itself
        if found is not None:
            exchanges.unbind(source, found)

    def of_shard(self, shard: int) -> list[ForeignQueue]:
        """Return the queues that another worker has."""
        return [queue for queue in self._queues.foreign.values() if queue.shard == shard]

    def get(self, name: str) -> ForeignQueue | None:
        """Return the queue of that name, if another worker has it."""
        return self._queues.foreign.get(name)

    # names

    def reserve(self, name: str, worker: int, asker: int) -> int:
        """Say which worker makes the queue of a name: that which is named first, unless it is there. One that
        hears so of itself makes it at once, and tells.
        """
        if name in self._queues and name not in self._held_back:
            return self._number
        queue = self._queues.foreign.get(name)
        if queue is not None:
            return queue.shard
        maker, by = self._reserved.setdefault(name, (worker, asker))
        if maker == asker != by:
            self._reserved[name] = maker, asker
        return maker

    def release(self, name: str, worker: int) -> None:
        """Let others make the queue of a name: that worker did not."""
        if self._reserved.get(name, (-1, -1))[0] == worker:
            del self._reserved[name]

    def asks_no_more(self, asker: int) -> None:
        """Do as `release`, for all names that a worker asked for: its link ended. But where it was to make
        the queue itself that may be there, which it tells over the next link.
        """
        self._release_where(lambda maker, by: by == asker != maker)

    def _release_where(self, is_it: Callable[[int, int], bool]) -> None:
        for name in [name for name, told in self._reserved.items() if is_it(*told)]:
            del self._reserved[name]


def is_own_name(name: str) -> bool:
    """Return whether the broker made a name up, so that nobody else makes a queue of it."""
    return is_reserved(name)


def all_answered(answers: Sequence[Answer[None]]) -> Answer[None]:
    """Return an answer that is there when all of these are, whatever they came to."""
    done: Answer[None] = Answer()
    left = len(answers)

    def one(answer: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            done.resolve(None)

    for answer in answers:
        answer.then(one)
    return done if answers else Answer.given(None)


def all_done(answers: Sequence[Answer[None]]) -> Answer[None]:
    """Return an answer that is there when all of these are: the first error among them, if there is one."""
    done: Answer[None] = Answer()

    def end(_: object) -> None:
        for answer in answers:
            try:
                answer.result()
            except (QueueManagerError, StorageError) as error:
                done.fail(error)
                return
        done.resolve(None)

    all_answered(answers).then(end)
    return done


def _fact_of(queue: Queue) -> QueueFact:
    is_exclusive, log_id = queue.owner is not None, queue.log.log_id
    return QueueFact(queue.name, queue.durable, queue.policy, queue.topics, is_exclusive, log_id)


def _definition(binding: Binding) -> BindingDefinition:
    return BindingDefinition(
        source=binding.source,
        destination=binding.destination.name,
        destination_type="queue",
        routing_key=binding.key,
        arguments=binding.arguments,
    )
