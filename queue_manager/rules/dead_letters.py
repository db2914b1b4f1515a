"""Dead-lettering: a message a group gives up goes to another queue, with the reason and its history.

The copy and the end of the original are in one commit. Where there is no queue to take it the message stays
where it is, failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, Protocol

from config import limits
from queue_manager import address
from queue_manager.cursor.failures import EXPIRED, MAXLEN, REJECTED
from queue_manager.errors import InvalidAddress
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.policy import REJECT_DLX
from storage.envelope import EnvelopeTemplate


@dataclass(eq=False, slots=True)
class Death:
    """Why a message is dead-lettered, and to which queues: what its new properties tell. `is_readdressed`: by
    another routing key than it was published with.
    """

    message: Message
    queue: str
    group_id: str
    reason: str
    attempts: int
    at_ms: int
    targets: Sequence[str]
    _: KW_ONLY
    is_readdressed: bool = True


class Stamped(NamedTuple):
    """The properties of the copies. `avoided`: the targets that get none, since the message would go round in
    a loop, or have become too many.
    """

    properties_kind: int
    properties: bytes
    avoided: Collection[str] = ()


Stamp = Callable[[Death], Stamped]
"""Gives what the copies are; the front-ends know how they look."""


def keep_properties(death: Death) -> Stamped:
    """Return the properties as they were: a stamp that adds nothing."""
    template = death.message.template
    return Stamped(template.properties_kind, template.properties)


@dataclass(eq=False, slots=True)
class Origin:
    """The origin of a dead letter: queue, topic, exchange, properties to publish again."""

    queue: str
    topic: str
    exchange: str
    properties_kind: int
    properties: bytes


OriginOf = Callable[[EnvelopeTemplate], Origin | None]
"""Reads what a `Stamp` wrote; None for what is no dead letter."""


def no_origin(template: EnvelopeTemplate) -> Origin | None:
    """For queue managers without a front-end."""
    return None


OnTrouble = Callable[[str, str, bool], None]
"""Is told the name of a queue, why its dead letters are not taken, and whether they are kept there."""

CopiesOf = Callable[[EnvelopeTemplate], Sequence[str]]
"""The further routing keys that a message was published with."""


def no_copies(template: EnvelopeTemplate) -> Sequence[str]:
    """For queue managers without a front-end."""
    return ()


class Target(Protocol):
    """A queue that dead letters go to."""

    name: str

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        """Why it does not take one more message of that size; "" if it does."""

    def lets_go_of(self, template: EnvelopeTemplate) -> bool:
        """Whether it does not take a message like this since none of its groups wants it; that is counted."""

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Append a message."""


class Directory(Protocol):
    """The queues of the shard."""

    def targets(self, exchange: str, keys: Sequence[str], template: EnvelopeTemplate) -> Sequence[Target]:
        """Return the queues that take messages of this template from an exchange, by these routing keys; ""
        is the default exchange, whose keys are the names of queues.
        """


@dataclass(eq=False, slots=True)
class DeadLetterBook:
    """The account of dead-lettering so far.

    `dropped_count` messages went round a loop in which no consumer rejected them, had become too many, or
    were too much for their queue and led to no other. `on_trouble` is called when a queue begins not to pass
    on what it should, or for another reason than
    before; not for each message.
    """

    dropped_count: int = field(default=0, init=False)
    stamp: Stamp = field(init=False)
    origin_of: OriginOf = field(init=False)
    copies_of: CopiesOf = field(init=False)
    on_trouble: OnTrouble = field(init=False)
    _trouble: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.stamp = keep_properties
        self.origin_of = no_origin
        self.copies_of = no_copies
        self.on_trouble = lambda queue, reason, is_kept: None

    def install(
        self,
        stamp: Stamp,
        origin_of: OriginOf,
        copies_of: CopiesOf,
        on_trouble: OnTrouble,
    ) -> None:
        """Have dead letters look so, and be read so; have trouble told."""
        self.stamp = stamp
        self.origin_of = origin_of
        self.copies_of = copies_of
        self.on_trouble = on_trouble

    def refused(self, queue: str, reason: str) -> None:
        """Note a message that could not be passed on, and stays failed."""
        self._tell(queue, reason, is_kept=True)

    def dropped(self) -> None:
        """Count a message that went round a loop, or had become too many."""
        self.dropped_count += 1

    def dropped_without_target(self, queue: str, reason: str) -> None:
        """Count a message that is dropped because it was too much and no queue is there to take it."""
        self.dropped_count += 1
        self._tell(queue, reason, is_kept=False)

    def _tell(self, queue: str, reason: str, *, is_kept: bool) -> None:
        if self._trouble.get(queue) != reason:
            self._trouble[queue] = reason
            self.on_trouble(queue, reason, is_kept)

    def sent(self, queue: str) -> None:
        """Note a message that was passed on."""
        self._trouble.pop(queue, None)

    def forget(self, queue: str) -> None:
        """Forget the trouble of a queue that has none any more, or is gone."""
        self._trouble.pop(queue, None)


class DeadLetters:
    """Where what is given up in one log goes (see `queue_manager.cursor.cursor.DeadLetters`)."""

    __slots__ = ("_book", "_directory", "_log")

    def __init__(self, log: QueueLog, directory: Directory, book: DeadLetterBook) -> None:
        self._log = log
        self._directory = directory
        self._book = book

    def is_wanted(self) -> bool:
        """Whether what is given up goes to another queue at all."""
        policy = self._log.policy
        return bool(policy.dead_letter or policy.dead_letter_exchange) or policy.dead_letter_by_key

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        """Append a copy of `message` to the dead-letter queues; whether the original may be let go of.

        That has to be done in the same commit. False: there is no such queue, or none takes the message.
        True also for one that is dropped: it went round a loop, or has become too many, because it expired or
        was one too many; or it was one too many (a limit holds) and there is no such queue. The message's
        body must be in memory.
        """
        if not self.is_wanted() or message.body is None:
            return False
        name = self._log.name
        exchange, keys = self._address(message.template)
        targets = self._targets(exchange, keys, message.template)
        obstacle = "" if targets else _nowhere(exchange, keys[0])
        takers: list[Target] = []
        is_loop = False
        for target in targets:
            if target.name == name and reason != REJECTED:
                is_loop = True
            elif refusal := target.why_not(len(message.body), now_ms):
                obstacle = refusal
            else:
                takers.append(target)
        if takers:
            death = self._death(group_id, message, attempts, reason, now_ms, takers)
            unwanted = self._append_copies(death, exchange, keys[0], takers, message.body)
            if unwanted is None:
                self._book.sent(name)
                return True
            obstacle = unwanted or obstacle
            is_loop = is_loop or not unwanted
        if is_loop and reason in (EXPIRED, MAXLEN):
            self._book.dropped()
            return True
        if reason == MAXLEN and not targets:
            self._book.dropped_without_target(name, obstacle)
            return True
        self._book.refused(
            name,
            obstacle or f"messages would go round in a loop, or be too many, through {targets[0].name!r}",
        )
        return False

    def _append_copies(
        self, death: Death, exchange: str, key: str, takers: Sequence[Target], body: bytes
    ) -> str | None:
        """Append copies to those that the stamp does not avoid and that do not let go of them.

        None: there are such; else the obstacle, "": the stamp avoids all of them.
        """
        discards = self._log.context.discards
        discards.spend(limits.DEAD_LETTER_COST)
        kind, properties, avoided = self._book.stamp(death)
        left = [taker for taker in takers if address.local_name(taker.name) not in avoided]
        original = death.message.template
        template = EnvelopeTemplate(
            key,
            kind,
            properties,
            persistent=original.persistent,
            priority=original.priority,
            exchange=exchange,
        )
        wanting = [taker for taker in left if not taker.lets_go_of(template)]
        if not wanting:
            return f"no group of queue {left[0].name!r} wants them" if left else ""

        def append() -> None:
            for taker in wanting:
                taker.append_one(template, body, death.at_ms)

        discards.dead_letters(len(wanting), append, death.at_ms)
        return None

    def _targets(self, exchange: str, keys: Sequence[str], template: EnvelopeTemplate) -> Sequence[Target]:
        """Return the queues that take a dead letter, in the virtual host of this one."""
        here = self._log.title
        if exchange:
            return self._directory.targets(address.sibling(here, exchange), keys, template)
        return self._directory.targets("", [address.sibling(here, key) for key in keys], template)

    def _address(self, template: EnvelopeTemplate) -> tuple[str, list[str]]:
        """Return the exchange that dead letters are published to, and their routing keys, those of copies
        last.
        """
        policy = self._log.policy
        if not policy.dead_letter_by_key:
            return policy.dead_letter_exchange, [policy.dead_letter]
        keys = [template.topic, *self._book.copies_of(template)]
        if not policy.dead_letter_exchange:
            keys = [_queue_of_key(key) for key in keys]
        return policy.dead_letter_exchange, keys

    def _death(
        self,
        group_id: str,
        message: Message,
        attempts: int,
        reason: str,
        now_ms: int,
        targets: Sequence[Target],
    ) -> Death:
        is_readdressed = not self._log.policy.dead_letter_by_key
        return Death(
            message,
            address.local_name(self._log.title),
            group_id,
            reason,
            attempts,
            now_ms,
            [address.local_name(target.name) for target in targets],
            is_readdressed=is_readdressed,
        )

    def send_refused(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Send a copy of a publish that was refused to the dead-letter queue, if the policy says so."""
        if self._log.policy.overflow == REJECT_DLX:
            message = Message(0, self._log.next_offset, body, template, now_ms)
            self.send("", message, 0, MAXLEN, now_ms)


def _nowhere(exchange: str, key: str) -> str:
    if not exchange:
        return f"there is no queue {key!r}"
    return f"exchange {exchange!r} is not there, or no queue is bound to it for {key!r}"


def _queue_of_key(topic: str) -> str:
    """Return the queue that a routing key on the default exchange names."""
    if not address.is_queue_topic(topic):
        return topic
    try:
        return address.parse(topic).name
    except InvalidAddress:
        return ""
