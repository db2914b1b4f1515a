"""Dead-lettering: a message a group gives up goes to another queue, with the reason and its history.

The copy and the end of the original are in one commit. Where there is no queue to take it the message stays
where it is, failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from queue_manager import address
from queue_manager.errors import InvalidAddress
from storage.envelope import EnvelopeTemplate

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.model import Message
    from queue_manager.queue import Queue

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"


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


class DeadLetterBook:
    """What dead-lettering did so far.

    `refused_count` messages stayed failed where they were, `dropped_count` went round a loop that nobody's
    rejecting was part of. `on_trouble(queue name, reason)` is called when a queue begins to keep messages it
    should have passed on, or for another reason than before; not for each message.
    """

    __slots__ = ("_trouble", "dropped_count", "on_trouble", "refused_count", "sent_count")

    def __init__(self) -> None:
        self.sent_count = 0
        self.dropped_count = 0
        self.refused_count = 0
        self.on_trouble: Callable[[str, str], None] = lambda queue, reason: None
        self._trouble: dict[str, str] = {}

    def refused(self, queue: str, reason: str) -> None:
        """Count a message that could not be passed on."""
        self.refused_count += 1
        if self._trouble.get(queue) != reason:
            self._trouble[queue] = reason
            self.on_trouble(queue, reason)

    def forget(self, queue: str) -> None:
        """That queue has no trouble any more, or is gone."""
        self._trouble.pop(queue, None)


def keep_properties(death: Death) -> tuple[int, bytes] | None:
    """The stamp that adds nothing."""
    template = death.message.template
    return template.properties_kind, template.properties


def send(group: Group, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
    """Append a copy of `message` to the dead-letter queue; whether the caller may let go of the original.

    He has to do so in the same commit. False: there is no such queue, or it does not take the message. True
    also for a message that went round a loop because it expired or was too many: that one is dropped. The
    message's body must be in memory.
    """
    queue = group.queue
    policy = queue.policy
    if not (policy.dead_letter or policy.dead_letter_by_key) or message.body is None:
        return False
    manager = queue.manager
    book = manager.dead_letters
    name = policy.dead_letter or _queue_of_key(message.template.topic)
    target = manager.named(name)
    if target is None:
        book.refused(queue.name, f"there is no queue {name!r}")
        return False
    obstacle = why_not(target, len(message.body), now_ms)
    if obstacle:
        book.refused(queue.name, obstacle)
        return False
    stamped = None
    if target is not queue or reason == REJECTED:
        death = Death(message, queue.title, group.group_id, reason, attempts, now_ms, name)
        stamped = manager.stamp_death(death)
    if stamped is None:
        if reason in (EXPIRED, MAXLEN):
            book.dropped_count += 1
            return True
        book.refused(queue.name, f"messages would go round in a loop through {name!r}")
        return False
    template = EnvelopeTemplate(
        name, *stamped, persistent=message.template.persistent, priority=message.template.priority
    )
    body = message.body
    manager.append([target], template, [body], len(body), int(target.durable), now_ms)
    book.sent_count += 1
    book.forget(queue.name)
    return True


def why_not(target: Queue, body_bytes: int, now_ms: int) -> str:
    """Why `target` does not take one more message of that size; "" if it does."""
    policy = target.policy
    if body_bytes > policy.message_bytes_max:
        return f"a message is larger than queue {target.name!r} takes"
    if target.is_bounded and not target.has_room(1, body_bytes):
        return f"queue {target.name!r} is full"
    if not target.durable and target.manager.ephemeral_memory.refuses(target, 1, body_bytes, now_ms):
        return f"queue {target.name!r} is full"
    return ""


def _queue_of_key(topic: str) -> str:
    """The queue that a routing key on the default exchange names."""
    if not address.is_queue_topic(topic):
        return topic
    try:
        return address.parse(topic).name
    except InvalidAddress:
        return ""
