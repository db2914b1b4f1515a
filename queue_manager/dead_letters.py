"""Dead-lettering: a message a group gives up goes to another queue, with the reason and its history.

The copy and the end of the original are in one commit. Where there is no queue to take it the message stays
where it is, failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.envelope import EnvelopeTemplate

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.model import Message

REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
DELIVERY_LIMIT: Final = "delivery_limit"
MAXLEN: Final = "maxlen"


class Death:
    """Why a message is dead-lettered: what its new properties tell.

    `topic` is what it was published with (routing key or MQTT topic), `exchange` likewise.
    """

    __slots__ = ("at_ms", "attempts", "group_id", "message", "queue", "reason")

    def __init__(
        self, message: Message, queue: str, group_id: str, reason: str, attempts: int, at_ms: int
    ) -> None:
        self.message = message
        self.queue = queue
        self.group_id = group_id
        self.reason = reason
        self.attempts = attempts
        self.at_ms = at_ms


Stamp = Callable[[Death], tuple[int, bytes]]
"""Gives the (properties kind, properties) of the copy; the front-ends know how they look."""


def keep_properties(death: Death) -> tuple[int, bytes]:
    """The stamp that adds nothing."""
    template = death.message.template
    return template.properties_kind, template.properties


def send(group: Group, message: Message, attempts: int, reason: str, now_ms: int) -> bool:
    """Append a copy of `message` to the dead-letter queue, if there is one that takes it; whether there was.

    The message's body must be in memory. The caller lets go of the original in the same commit.
    """
    queue = group.queue
    name = queue.policy.dead_letter
    if not name or message.body is None:
        return False
    manager = queue.manager
    target = manager.queues.get(name)
    if target is None:
        return False
    death = Death(message, queue.name, group.group_id, reason, attempts, now_ms)
    kind, properties = manager.stamp_death(death)
    template = EnvelopeTemplate(name, kind, properties, persistent=message.template.persistent)
    body = message.body
    manager.append([target], template, [body], len(body), int(target.durable), now_ms)
    return True
