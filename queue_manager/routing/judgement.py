"""The outcome of a publish at each of its targets, found before anything is done."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from queue_manager.errors import InvalidArgument, PreconditionFailed
from queue_manager.options import PLAIN
from queue_manager.outcomes import (
    ACCEPTED,
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_PAUSED,
    REFUSED_QUOTA,
    REFUSED_SESSION,
    REFUSED_SIZE,
    UNROUTED,
)
from queue_manager.queue.queue import Queue
from queue_manager.routing.plan import PublishPlan
from queue_manager.rules.deduplication import REPEATED, IdentitiesAhead, digest_of
from queue_manager.stage_tags import StageTag
from storage.envelope import EnvelopeTemplate


@dataclass(eq=False, slots=True)
class Judgement:
    """The outcome of one publish: `find` finds it, `Publisher.apply` does it.

    `takers` are the queues that take it (at `due_ms`, if that is later), `full` those without room,
    `dropping` those that keep nothing no consumer group wants. Of an identified publish `records` are the
    queues that do not know it yet, each with what the store is to remember, and `bodies` only the first.
    `is_heard`: the audience is to hear it.
    """

    plan: PublishPlan
    bodies: list[bytes]
    templates: list[EnvelopeTemplate] | None
    outcome: int = field(default=ACCEPTED, init=False)
    takers: Sequence[Queue] = field(init=False)
    full: tuple[Queue, ...] = field(default=(), init=False)
    body_bytes: int = field(default=0, init=False)
    due_ms: int = field(default=0, init=False)
    digest: bytes = field(default=b"", init=False)
    dropping: Sequence[Queue] = field(default=(), init=False)
    records: list[tuple[Queue, list[tuple[bytes, bytes]]]] = field(default_factory=list, init=False)
    repeated_count: int = field(default=0, init=False)
    is_heard: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        self.takers = self.plan.queues

    def find(self, now_ms: int, ahead: Ahead) -> None:
        """Find what becomes of the messages; `ahead`: publishes that will have been applied before.

        Raises InvalidArgument, PreconditionFailed, LimitReached for what no publish may ask.
        """
        options = self.plan.options
        if self.plan.queues and options is not PLAIN:
            if options.stage is not None:
                self._judge_staged(options.stage, now_ms)
                return
            self.due_ms = options.due_ms(now_ms)
            if options.is_identified:
                self._judge_identity(now_ms, ahead)
                if self.outcome != ACCEPTED or not self.takers:
                    return
        self._judge_room(now_ms, ahead)

    def _judge_staged(self, stage: StageTag, now_ms: int) -> None:
        """Judge rows that are not to be seen before their epoch is committed."""
        plan, bodies = self.plan, self.bodies
        if len(plan.queues) != 1:
            raise InvalidArgument(
                f"a staged publish goes to one queue, but {len(plan.queues)} take {plan.topic!r}"
            )
        if plan.options.is_identified:
            raise InvalidArgument("a staged publish has no deduplication or producer ID")
        queue = plan.queues[0]
        if max(map(len, bodies)) > queue.policy.message_bytes_max:
            self.outcome = REFUSED_SIZE
            return
        if not queue.durable:
            raise PreconditionFailed(f"queue {queue.name!r} is kept in memory: nothing can be staged in it")
        if queue.pause.publish:
            plan.refused_by((queue,))
            self.outcome = REFUSED_PAUSED
            return
        if queue.quota_refusal:
            plan.refused_by((queue,))
            self.outcome = REFUSED_QUOTA
            return
        queue.rules.stage.check(stage, sum(map(len, bodies)))

    def _judge_identity(self, now_ms: int, ahead: Ahead) -> None:
        """Judge a publish with an identity, which each queue takes once.

        All bodies have the same identity. What was taken before counts as accepted; another body under the
        same identity is refused. Sent again after some queues were full, it goes to those.
        """
        plan, options = self.plan, self.plan.options
        digest = self.digest = digest_of(self.bodies[0])
        if any(digest_of(body) != digest for body in self.bodies[1:]):
            self.outcome = REFUSED_IDENTITY
            return
        fresh: list[Queue] = []
        for queue in plan.queues:
            verdict = queue.rules.identities.judge(options, digest, now_ms, ahead.identities)
            if verdict == ACCEPTED:
                fresh.append(queue)
            elif verdict != REPEATED:
                self.outcome = verdict
                return
        self.is_heard = len(fresh) == len(plan.queues)  # its audience heard it with the first of them
        self.repeated_count = len(self.bodies) - (1 if fresh else 0)
        self.bodies = self.bodies[:1]
        self.takers = fresh
        # made before anything is queued: what cannot be written down cannot be taken
        self.records = [(queue, queue.rules.identities.records(options, digest, now_ms)) for queue in fresh]

    def _judge_room(self, now_ms: int, ahead: Ahead) -> None:
        plan, bodies = self.plan, self.bodies
        count, largest = len(bodies), max(map(len, bodies))
        body_bytes = self.body_bytes = sum(map(len, bodies))
        is_later = self.due_ms > now_ms
        full: list[Queue] = []
        self._leave_out_unmatched()
        if self.outcome != ACCEPTED:
            return
        for queue in self.takers:
            verdict = queue.refusal(
                count, body_bytes, largest, now_ms, is_later=is_later, ahead=ahead.extent(queue)
            )
            if verdict == REFUSED_SIZE:
                self.outcome = REFUSED_SIZE
                return
            if verdict != ACCEPTED:
                full.append(queue)
        audience = plan.audience if self.is_heard else None
        if audience is not None and not audience.has_room(count, body_bytes, ahead.sessions):
            self.outcome, self.takers, self.is_heard = REFUSED_SESSION, [], False
            return
        if not full:
            return
        self.full = tuple(full)
        plan.refused_by(self.full)
        takers = [queue for queue in self.takers if queue not in full]
        none_took = REFUSED_DEPTH
        if all(queue.pause.publish for queue in full):
            none_took = REFUSED_PAUSED
        elif all(queue.quota_refusal for queue in full):
            none_took = REFUSED_QUOTA
        if count > 1:
            self.outcome, self.takers = none_took, []
            return
        self.takers = takers
        # one that is not heard any more was taken by some of the queues before
        self.outcome = REFUSED_IN_PART if takers or not self.is_heard else none_took

    def _leave_out_unmatched(self) -> None:
        """Leave out the queues that drop what no consumer group of theirs wants."""
        templates = self.templates or [self.plan.template]
        dropping = [queue for queue in self.takers if queue.may_drop() and any(map(queue.drops, templates))]
        if dropping:
            self.dropping = dropping
            self.takers = [queue for queue in self.takers if queue not in dropping]
            if len(templates) > 1:  # some of them may be wanted: one by one
                self.outcome = UNROUTED


class Ahead:
    """Publishes that are judged together and come before: the room and identities they will have taken."""

    __slots__ = ("_extents", "identities", "sessions")

    def __init__(self) -> None:
        self.identities = IdentitiesAhead()
        self._extents: dict[Queue, tuple[int, int]] = {}
        self.sessions: dict[Hashable, tuple[int, int]] = {}

    def extent(self, queue: Queue) -> tuple[int, int]:
        """Return messages, and bytes of body, that a queue will have taken."""
        return self._extents.get(queue, (0, 0))

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
            plan.audience.count_ahead(len(judged.bodies), judged.body_bytes, self.sessions)


NOTHING_AHEAD: Final = Ahead()
