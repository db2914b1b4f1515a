"""What is worked out once for many publishes alike: their queues and the constant part of their envelope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.options import PLAIN, PublishOptions
from storage.envelope import EnvelopeTemplate

if TYPE_CHECKING:
    from queue_manager.manager import QueueManager
    from queue_manager.queue import Queue


class PublishPlan:
    """Topic and properties, resolved. `aim` it before use, and again whenever `generation`
    is not that of the bindings.

    `durable`: at least one of the queues keeps messages on the store (`durable_count` of them do). `full`:
    the queues without room, as of the last publish that was refused for that.
    """

    __slots__ = (
        "durable",
        "durable_count",
        "full",
        "generation",
        "options",
        "persistent",
        "properties",
        "properties_kind",
        "queues",
        "template",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
    ) -> None:
        self.topic = topic
        self.properties_kind = properties_kind
        self.properties = properties
        self.persistent = persistent
        self.options = options
        self.queues: tuple[Queue, ...] = ()
        self.durable = False
        self.durable_count = 0
        self.full: tuple[Queue, ...] = ()
        self.generation = -1
        self.template = self._template(False)

    def aim(self, manager: QueueManager, queues: tuple[Queue, ...]) -> None:
        """Point the plan at `queues` as bindings are now."""
        self.queues = queues
        self.durable_count = sum(queue.durable for queue in queues)
        self.durable = self.durable_count > 0
        self.generation = manager.bindings.generation
        shared = self.durable_count > 1
        if shared != self.template.shared:
            context = self.template.context
            self.template = self._template(shared)
            self.template.context = context

    def note_full(self, full: tuple[Queue, ...]) -> list[Queue]:
        """Take note of the queues that have no room for a publish; give those that have."""
        self.full = full
        return [queue for queue in self.queues if queue not in full]

    def _template(self, shared: bool) -> EnvelopeTemplate:
        return EnvelopeTemplate(
            self.topic,
            self.properties_kind,
            self.properties,
            persistent=self.persistent,
            shared=shared,
            priority=min(self.options.priority, 255),
            expires_at_ms=0 if self.options.ttl_ms is None else max(1, self.options.ttl_ms),
        )
