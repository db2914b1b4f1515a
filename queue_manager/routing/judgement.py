"""What becomes of a publish at each of its targets, found before anything is done."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.audience import Audience
from queue_manager.outcomes import ACCEPTED
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from queue_manager.rules.deduplication import IdentitiesAhead
from storage.envelope import EnvelopeTemplate


class Judgement:
    """The outcome of one publish, for `Publisher.apply`.

    `takers` are the queues that take it (at `due_ms`, if that is later), `full` those without room,
    `dropping` those that keep nothing no consumer group wants. Of an identified publish `records` are the
    queues that do not know it yet, each with what the store is to remember, and `bodies` only the first.
    `is_heard`: the audience is to hear it.
    """

    __slots__ = (
        "bodies",
        "body_bytes",
        "digest",
        "dropping",
        "due_ms",
        "full",
        "is_heard",
        "outcome",
        "plan",
        "records",
        "repeated_count",
        "takers",
        "templates",
    )

    def __init__(
        self, plan: PublishPlan, bodies: list[bytes], templates: list[EnvelopeTemplate] | None
    ) -> None:
        self.plan = plan
        self.bodies = bodies
        self.templates = templates
        self.outcome = ACCEPTED
        self.takers: Sequence[Queue] = plan.queues
        self.full: tuple[Queue, ...] = ()
        self.body_bytes = 0
        self.due_ms = 0
        self.digest = b""
        self.dropping: Sequence[Queue] = ()
        self.records: list[tuple[Queue, list[tuple[bytes, bytes]]]] = []
        self.repeated_count = 0
        self.is_heard = True


class Ahead:
    """Publishes that are judged together and come before: the room and identities they will have taken."""

    __slots__ = ("_extents", "_heard", "identities")

    def __init__(self) -> None:
        self.identities = IdentitiesAhead()
        self._extents: dict[Queue, tuple[int, int]] = {}
        self._heard: dict[Audience, tuple[int, int]] = {}

    def extent(self, queue: Queue) -> tuple[int, int]:
        """Messages, and bytes of body, that a queue will have taken."""
        return self._extents.get(queue, (0, 0))

    def heard(self, audience: Audience) -> tuple[int, int]:
        """Messages, and bytes of body, that an audience will have heard."""
        return self._heard.get(audience, (0, 0))

    def add(self, judged: Judgement, now_ms: int) -> None:
        """Count one more that comes before."""
        plan = judged.plan
        is_later = judged.due_ms > now_ms
        for queue in judged.takers:
            count, body_bytes = self.extent(queue)
            if not is_later or not queue.durable:  # limits do not count what is due later
                self._extents[queue] = count + len(judged.bodies), body_bytes + judged.body_bytes
            if plan.options.is_identified:
                self.identities.take(queue.rules.identities, plan.options, judged.digest, now_ms)
        if plan.audience is not None and judged.is_heard:
            count, body_bytes = self.heard(plan.audience)
            self._heard[plan.audience] = count + len(judged.bodies), body_bytes + judged.body_bytes
