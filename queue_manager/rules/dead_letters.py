"""Dead-lettering: a message a group gives up goes to another queue, with the reason and its history.

The copy and the end of the original are in one commit. Where there is no queue to take it the message stays
where it is, failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from queue_manager import address
from queue_manager.cursor.reasons import EXPIRED, MAXLEN, REJECTED
from queue_manager.errors import InvalidAddress
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import Message
from queue_manager.policy import REJECT_DLX
from storage.envelope import EnvelopeTemplate


class Death:
    """Why a message is dead-lettered, and to which queue: what its new properties tell."""

    __slots__ = ("at_ms", "attempts", "group_id", "message", "queue", "reason", "target")

    def __init__(
        self, message: Message, queue: str, group_id: str, reason: str, attempts: int, at_ms: int, target: str
    ) -> None:
        self.message = message
        self.queue = queue
        self.group_id = group_id
        self.reason = reason
        self.attempts = attempts
        self.at_ms = at_ms
        self.target = target


Stamp = Callable[[Death], tuple[int, bytes] | None]
"""Gives the (properties kind, properties) of the copy, or None when its history shows a loop; the front-ends
know how they look."""


def keep_properties(death: Death) -> tuple[int, bytes] | None:
    """The stamp that adds nothing."""
    template = death.message.template
    return template.properties_kind, template.properties


class Origin:
    """What a dead letter was before it died: queue, topic, exchange, properties to publish again."""

    __slots__ = ("exchange", "properties", "properties_kind", "queue", "topic")

    def __init__(
        self, queue: str, topic: str, exchange: str, properties_kind: int, properties: bytes
    ) -> None:
        self.queue = queue
        self.topic = topic
        self.exchange = exchange
        self.properties_kind = properties_kind
        self.properties = properties


OriginOf = Callable[[EnvelopeTemplate], Origin | None]
"""Reads what a `Stamp` wrote; None for what is no dead letter."""


def no_origin(template: EnvelopeTemplate) -> Origin | None:
    """For queue managers without a front-end."""
    return None


class Target(Protocol):
    """A queue that dead letters go to."""

    @property
    def name(self) -> str: ...

    def why_not(self, body_bytes: int, now_ms: int) -> str:
        """Why it does not take one more message of that size; "" if it does."""

    def append_one(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """Append a message."""


class Directory(Protocol):
    """The queues of the shard."""

    def target(self, name: str) -> Target | None:
        """The queue of that name."""


class DeadLetterBook:
    """What dead-lettering did so far.

    `refused_count` messages stayed failed where they were, `dropped_count` went round a loop in which no
    consumer rejected them. `on_trouble(queue name, reason)` is called when a queue begins to keep messages it
    should have passed on, or for another reason than before; not for each message.
    """

    __slots__ = (
        "_trouble",
        "dropped_count",
        "on_trouble",
        "origin_of",
        "refused_count",
        "sent_count",
        "stamp",
    )

    def __init__(self) -> None:
        self.sent_count = 0
        self.dropped_count = 0
        self.refused_count = 0
        self.stamp: Stamp = keep_properties
        self.origin_of: OriginOf = no_origin
        self.on_trouble: Callable[[str, str], None] = lambda queue, reason: None
        self._trouble: dict[str, str] = {}

    def install(self, stamp: Stamp, origin_of: OriginOf, on_trouble: Callable[[str, str], None]) -> None:
        """Have copies look so, and be read so; have trouble told."""
        self.stamp = stamp
        self.origin_of = origin_of
        self.on_trouble = on_trouble

    def refused(self, queue: str, reason: str) -> None:
        """Count a message that could not be passed on."""
        self.refused_count += 1
        if self._trouble.get(queue) != reason:
            self._trouble[queue] = reason
            self.on_trouble(queue, reason)

    def dropped(self) -> None:
        """Count a message that went round a loop."""
        self.dropped_count += 1

    def sent(self, queue: str) -> None:
        """Count a message that was passed on."""
        self.sent_count += 1
        self._trouble.pop(queue, None)

    def forget(self, queue: str) -> None:
        """That queue has no trouble any more, or is gone."""
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
        return bool(policy.dead_letter) or policy.dead_letter_by_key

    def send(self, group_id: str, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
        """Append a copy of `message` to the dead-letter queue; whether the original may be let go of.

        That has to be done in the same commit. False: there is no such queue, or it does not take the
        message. True also for a message that went round a loop because it expired or was too many: that one
        is dropped. The message's body must be in memory.
        """
        if not self.is_wanted() or message.body is None:
            return False
        log = self._log
        book = self._book
        name = log.policy.dead_letter or _queue_of_key(message.template.topic)
        target = self._directory.target(name)
        obstacle = (
            f"there is no queue {name!r}" if target is None else target.why_not(len(message.body), now_ms)
        )
        if target is None or obstacle:
            book.refused(log.name, obstacle)
            return False
        stamped = None
        if name != log.name or reason == REJECTED:
            stamped = book.stamp(Death(message, log.title, group_id, reason, attempts, now_ms, name))
        if stamped is None:
            if reason in (EXPIRED, MAXLEN):
                book.dropped()
                return True
            book.refused(log.name, f"messages would go round in a loop through {name!r}")
            return False
        template = EnvelopeTemplate(
            name, *stamped, persistent=message.template.persistent, priority=message.template.priority
        )
        target.append_one(template, message.body, now_ms)
        book.sent(log.name)
        return True

    def send_refused(self, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
        """A publish was refused: where the policy says so a copy goes to the dead-letter queue."""
        if self._log.policy.overflow == REJECT_DLX:
            message = Message(0, self._log.next_offset, body, template, now_ms)
            self.send("", message, 0, MAXLEN, now_ms)


def _queue_of_key(topic: str) -> str:
    """The queue that a routing key on the default exchange names."""
    if not address.is_queue_topic(topic):
        return topic
    try:
        return address.parse(topic).name
    except InvalidAddress:
        return ""
