"""From a topic to the queues that take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from queue_manager import address
from queue_manager.definitions import QueueDefinition
from queue_manager.door.lifecycle import Lifecycle
from queue_manager.errors import (
    QueueNotFound,
)
from queue_manager.identities import publish_once
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_IN_PART, REFUSED_SIZE, UNROUTED
from queue_manager.overflow import dead_letter_refused
from queue_manager.plan import PublishPlan
from queue_manager.queue import Queue
from storage.envelope import EnvelopeTemplate

if TYPE_CHECKING:
    from queue_manager.manager import QueueManager


class Publishing(Lifecycle):
    """Routes and publishes."""

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
    ) -> PublishPlan:
        """What to do with publishes of this topic, properties, options; reusable until it is stale."""
        return PublishPlan(topic, properties_kind, properties, persistent, options)

    def route(self, topic: str, now_ms: int) -> tuple[Queue, ...]:
        """The queues a `$queue/...` topic goes to; creates an ephemeral one where that is allowed.

        Raises InvalidAddress, or QueueNotFound when there is none and none may be made.
        """
        queues = self.bindings.match(topic)
        if queues:
            return queues
        parsed = address.parse(topic)
        if not self.auto_create:
            raise QueueNotFound(f"no queue is bound to {topic!r}")
        if parsed.name in self.queues:
            raise QueueNotFound(f"queue {parsed.name!r} is not bound to {topic!r}")
        self.declare(QueueDefinition.ephemeral(parsed.name, self.default_policy), now_ms)
        return self.bindings.match(topic)

    def publish(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """Append one message per body to every queue of the plan; the outcome holds for all of them.

        Of one message that some of the queues have no room for the others take it: REFUSED_IN_PART. Of
        several nothing is taken then (REFUSED_DEPTH): the caller tries them one by one.

        `templates`: the messages' own, where they differ in their properties (`storage.envelope.vary`); the
        plan then has `PLAIN` options, or those of staged rows and nothing else.

        On ACCEPTED with `plan.durable` the messages are durable once `self.journal`, as it is now, is
        (`journal.wait`). Deliveries happen at `dispatch`.
        """
        queues = plan.queues
        if not queues:
            return UNROUTED
        options = plan.options
        if options is not PLAIN:
            if options.stage is not None:
                return self.stage(plan, bodies, now_ms, templates)
            if options.is_identified:
                return publish_once(cast("QueueManager", self), plan, bodies, now_ms)
            if (due_ms := options.due_ms(now_ms)) > now_ms:
                return self.publish_later(plan, bodies, due_ms, now_ms)
        sizes = list(map(len, bodies))
        count = len(bodies)
        body_bytes = sum(sizes)
        full: tuple[Queue, ...] = ()
        for queue in queues:
            policy = queue.policy
            if body_bytes > policy.message_bytes_max and max(sizes) > policy.message_bytes_max:
                return REFUSED_SIZE
            if (queue.is_bounded and not queue.has_room(count, body_bytes)) or (
                not queue.durable and self.ephemeral_memory.refuses(queue, count, body_bytes, now_ms)
            ):
                full = (*full, queue)
        if full:
            return self._publish_beside(full, plan, bodies, now_ms, templates)
        if templates is None:
            self.append(queues, plan.template, bodies, body_bytes, plan.durable_count, now_ms)
            return ACCEPTED
        first_id = self.append(queues, None, bodies, body_bytes, plan.durable_count, now_ms)
        for queue in queues:
            queue.append_varied(templates, first_id, bodies, body_bytes, now_ms)
        return ACCEPTED

    def _publish_beside(
        self,
        full: tuple[Queue, ...],
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> int:
        """Publish to those queues of the plan that have room, if it is one message."""
        others = plan.note_full(full)
        if len(bodies) > 1:
            return REFUSED_DEPTH
        template = plan.template if templates is None else templates[0]
        if others:
            durable_count = sum(queue.durable for queue in others)
            self.append(others, template, bodies, len(bodies[0]), durable_count, now_ms)
        for queue in full:
            dead_letter_refused(queue, template, bodies[0], now_ms)
        return REFUSED_IN_PART if others else REFUSED_DEPTH
