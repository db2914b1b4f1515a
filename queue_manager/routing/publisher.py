"""Publishing: each publish is judged for every target, then applied; at once, later, once, or staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queue_manager import address
from queue_manager.errors import QueueNotFound
from queue_manager.log.payloads import store_payloads
from queue_manager.model import MessageBatch
from queue_manager.options import PLAIN
from queue_manager.outcomes import (
    ACCEPTED,
    FULL,
    REFUSED_IN_PART,
    REFUSED_ORDER,
    REFUSED_SESSION,
    UNROUTED,
)
from queue_manager.queue.queue import Queue
from queue_manager.routing.judgement import NOTHING_AHEAD, Ahead, Judgement
from queue_manager.routing.plan import PublishPlan
from queue_manager.routing.queue_directory import QueueDirectory
from queue_manager.routing.route import Route
from queue_manager.shard.context import Context
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate

_TAKEN: Final = (ACCEPTED, REFUSED_IN_PART)
_APPLIED: Final = (
    ACCEPTED,
    *FULL,
    REFUSED_SESSION,
)  # the last two may have to be remembered


class Publisher:
    """Routes and publishes. `repeated_count` are the publishes that were taken before, by their identity.

    `judge` finds the outcome for every target of a publish; `apply` then does it and cannot refuse any more.
    `publish` is both, and quicker where every queue takes what asks for nothing.
    """

    def __init__(self, context: Context, directory: QueueDirectory) -> None:
        self._context = context
        self._directory = directory
        self.repeated_count = 0

    def aim(self, plan: PublishPlan, route: Route, keys: Sequence[str] = ()) -> None:
        """Point a plan at the queues of a route, and at the subscribers of the topics it meets: those of
        `keys`, or of the plan's own topic. A plan that has an audience already keeps it.
        """
        plan.aim(route)
        plan.find_audience(self._directory.topics, keys)

    def route(self, topic: str, now_ms: int, user: str | None = None) -> Route:
        """Return the queues a `$queue/...` topic goes to; creates an ephemeral one, of this user, where that
        is allowed.

        Raises InvalidAddress, or QueueNotFound when there is none and none may be made.
        """
        directory = self._directory
        route = directory.bindings.route(topic)
        if route.queues:
            return route
        parsed = address.parse(topic)
        if not directory.auto_create:
            raise QueueNotFound(f"no queue is bound to {topic!r}")
        if directory.get(parsed.name) is not None:
            raise QueueNotFound(f"queue {parsed.name!r} is not bound to {topic!r}")
        definition = QueueDefinition.ephemeral(parsed.name, directory.default_policy, user)
        directory.declare(definition, now_ms)
        return directory.bindings.route(topic)

    def publish(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """Append one message per body to every queue of the plan, and have its audience hear them; the
        outcome holds for all of them.

        Of one message that some of the queues have no room for the others take it: REFUSED_IN_PART. Of
        several nothing is taken then (REFUSED_DEPTH): the caller tries them one by one.

        `templates`: the messages' own, where they differ in their properties (`storage.envelope.vary`); the
        plan then has `PLAIN` options, or those of staged rows and nothing else, and no audience.

        On ACCEPTED with `plan.durable` the messages are durable once the open commit, as it is now, is.
        Deliveries happen at `dispatch`.
        """
        queues, audience = plan.queues, plan.audience
        if plan.options is not PLAIN:
            return self.apply(self.judge(plan, bodies, now_ms, templates), now_ms)
        if not queues and audience is None:
            return UNROUTED
        count = len(bodies)
        body_bytes = len(bodies[0]) if count == 1 else sum(map(len, bodies))
        for queue in queues:
            size_max = queue.policy.message_bytes_max
            if (
                (body_bytes > size_max and max(map(len, bodies)) > size_max)
                or (queue.is_bounded and (queue.may_drop() or not queue.has_room(count, body_bytes)))
                or (not queue.durable and not queue.has_memory(count, body_bytes, now_ms))
            ):
                return self.apply(self.judge(plan, bodies, now_ms, templates), now_ms)
        if audience is not None and not audience.has_room(count, body_bytes):
            return self.apply(self.judge(plan, bodies, now_ms, templates), now_ms)
        if templates is None and plan.durable_count < 2 and queues:
            # most publishes: as `_append`, without its calls
            first_id = store_payloads(self._context, bodies, body_bytes, plan.durable_count)
            batch = MessageBatch(plan.template, first_id, bodies, body_bytes, now_ms)
            for queue in queues:
                queue.append(batch)
        elif queues:
            self._append(plan, queues, bodies, body_bytes, now_ms, templates)
        if audience is None or plan.is_heard(audience, bodies) or queues:
            return ACCEPTED
        return UNROUTED

    # judging

    def judge(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
        ahead: Ahead = NOTHING_AHEAD,
    ) -> Judgement:
        """Find what becomes of messages at every target of their plan; nothing changes.

        `ahead`: publishes that will have been applied before. Raises InvalidArgument, PreconditionFailed,
        LimitReached for what no publish may ask.
        """
        judged = Judgement(plan, bodies, templates)
        judged.find(now_ms, ahead)
        return judged

    def judge_all(
        self,
        wanted: Iterable[tuple[PublishPlan, list[bytes], list[EnvelopeTemplate] | None]],
        now_ms: int,
    ) -> Sequence[Judgement]:
        """Judge as `judge`, publishes that will be applied one after the other, or none of them."""
        ahead = Ahead()
        judged: list[Judgement] = []
        for plan, bodies, templates in wanted:
            one = self.judge(plan, bodies, now_ms, templates, ahead)
            judged.append(one)
            if one.outcome != ACCEPTED:
                break
            ahead.add(one, now_ms)
        return judged

    # applying

    def apply(self, judged: Judgement, now_ms: int) -> int:
        """Do what was judged, and give the outcome. Nothing else may have happened since.

        A publish refused by every queue that is full may still be heard by its audience: REFUSED_IN_PART. One
        that has neither queues nor anybody to hear it is UNROUTED.
        """
        plan, outcome = judged.plan, judged.outcome
        self.repeated_count += judged.repeated_count
        if outcome not in _APPLIED:
            return outcome
        options = plan.options
        if options.stage is not None and plan.queues:
            if outcome == ACCEPTED:
                self._stage(judged, now_ms)
            return outcome
        if judged.takers:
            if judged.due_ms > now_ms:
                first_id = self._store(plan, judged.takers, judged.bodies, judged.body_bytes)
                for queue in judged.takers:
                    queue.rules.schedule.enter(plan.template, first_id, judged.bodies, judged.due_ms, now_ms)
            else:
                self._append(plan, judged.takers, judged.bodies, judged.body_bytes, now_ms, judged.templates)
        if outcome in _TAKEN:
            for queue in judged.dropping:
                queue.note_dropped(len(judged.bodies))
        if options.is_identified:
            self._remember(judged, now_ms)
        if judged.full and len(judged.bodies) == 1:
            self._give_up(judged, now_ms)
        return self._tell(judged)

    def _append(
        self,
        plan: PublishPlan,
        takers: Sequence[Queue],
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> None:
        first_id = self._store(plan, takers, bodies, body_bytes)
        template = plan.template if templates is None else templates[0]
        batch = MessageBatch(template, first_id, bodies, body_bytes, now_ms, templates)
        for queue in takers:
            queue.append(batch)

    def _store(self, plan: PublishPlan, takers: Sequence[Queue], bodies: list[bytes], body_bytes: int) -> int:
        """Store the payloads, once for all takers; give the first message ID.

        The template may say that payloads are shared where one queue alone took them: what is not counted is
        not shared.
        """
        durable_count = plan.durable_count
        if durable_count > 1:
            for queue in takers:
                queue.mix_payloads()
        if takers is not plan.queues:
            durable_count = sum(queue.durable for queue in takers)
        return store_payloads(self._context, bodies, body_bytes, durable_count)

    def _remember(self, judged: Judgement, now_ms: int) -> None:
        """Remember the identity where it was taken, and for the queues without room that it was refused."""
        options = judged.plan.options
        takers = set(judged.takers)
        for queue, rows in judged.records:
            identities = queue.rules.identities
            if queue in judged.dropping:
                identities.note_dropped(options)
                continue
            if queue not in takers:
                identities.note_refused(options, now_ms)
                continue
            for row in rows:
                self._context.commit.put(*row)
            identities.remember(options, judged.digest, now_ms)

    def _give_up(self, judged: Judgement, now_ms: int) -> None:
        """Send what full queues refused to where their policy has it."""
        if judged.due_ms > now_ms:
            return
        template = judged.plan.template if judged.templates is None else judged.templates[0]
        for queue in judged.full:
            if not (queue.pause.publish or queue.quota_refusal):
                queue.dead_letters.send_refused(template, judged.bodies[0], now_ms)

    def _tell(self, judged: Judgement) -> int:
        """Have the audience hear what was taken, or refused by full queues alone; give the outcome."""
        plan, outcome = judged.plan, judged.outcome
        audience = plan.audience
        untaken = UNROUTED if len(judged.dropping) == len(plan.queues) else outcome
        if audience is None:
            return untaken
        if not judged.is_heard or (outcome != ACCEPTED and len(judged.bodies) > 1):
            return outcome
        if plan.options.is_identified and outcome in FULL and outcome != REFUSED_IN_PART:
            return outcome  # it comes again, and would be heard twice
        if not plan.is_heard(audience, judged.bodies):
            return untaken
        return outcome if outcome == ACCEPTED else REFUSED_IN_PART

    def _stage(self, judged: Judgement, now_ms: int) -> None:
        plan = judged.plan
        assert plan.options.stage is not None
        plan.queues[0].rules.stage.stage(
            plan.options.stage,
            plan.template,
            plan.options.due_ms(now_ms),
            judged.bodies,
            sum(map(len, judged.bodies)),
            now_ms,
            judged.templates,
        )


def is_remembered(plan: PublishPlan, outcome: int) -> bool:
    """Return whether a refusal is to be told only when the open commit, which remembers it, is durable.

    Told before, a crash could make a queue forget it, take what the producer sends next, and then confirm
    the refused publish as one that was taken before.
    """
    is_noted = outcome in (*FULL, REFUSED_SESSION, REFUSED_ORDER)
    return is_noted and plan.durable_count > 0 and bool(plan.options.producer_id)
