"""Publishing: to the queues of a plan, at once, later, once, or staged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queue_manager import address
from queue_manager.definitions import QueueDefinition
from queue_manager.errors import InvalidArgument, PreconditionFailed, QueueNotFound
from queue_manager.log.payloads import store_payloads
from queue_manager.options import PLAIN, PublishOptions
from queue_manager.outcomes import (
    ACCEPTED,
    FULL,
    REFUSED_DEPTH,
    REFUSED_IDENTITY,
    REFUSED_IN_PART,
    REFUSED_ORDER,
    REFUSED_PAUSED,
    REFUSED_SIZE,
    UNROUTED,
)
from queue_manager.queue.queue import Queue
from queue_manager.routing.bindings import Route
from queue_manager.routing.directory import QueueDirectory
from queue_manager.routing.plan import PublishPlan
from queue_manager.rules.deduplication import REPEATED, digest_of
from queue_manager.shard.context import Context
from storage.envelope import EnvelopeTemplate


class Publisher:
    """Routes and publishes. `repeated_count`: publishes that were taken before, by their identity."""

    def __init__(self, context: Context, directory: QueueDirectory) -> None:
        self._context = context
        self._directory = directory
        self.repeated_count = 0

    def plan(
        self,
        topic: str,
        properties_kind: int,
        properties: bytes,
        persistent: bool,
        options: PublishOptions = PLAIN,
        exchange: str = "",
    ) -> PublishPlan:
        """What to do with publishes of this topic, properties, options; reusable until it is stale."""
        return PublishPlan(topic, properties_kind, properties, persistent, options, exchange)

    def route(self, topic: str, now_ms: int) -> Route:
        """The queues a `$queue/...` topic goes to; creates an ephemeral one where that is allowed.

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
        directory.declare(QueueDefinition.ephemeral(parsed.name, directory.default_policy), now_ms)
        return directory.bindings.route(topic)

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

        On ACCEPTED with `plan.durable` the messages are durable once the open commit, as it is now, is.
        Deliveries happen at `dispatch`.
        """
        queues = plan.queues
        if not queues:
            return UNROUTED
        if plan.options is not PLAIN:
            outcome = self._publish_by_options(plan, bodies, now_ms, templates)
            if outcome is not None:
                return outcome
        count = len(bodies)
        body_bytes = len(bodies[0]) if count == 1 else sum(map(len, bodies))
        full: tuple[Queue, ...] = ()
        for queue in queues:
            size_max = queue.policy.message_bytes_max
            if body_bytes > size_max and max(map(len, bodies)) > size_max:
                return REFUSED_SIZE
            if (queue.is_bounded and not queue.has_room(count, body_bytes)) or (
                not queue.durable and not queue.has_memory(count, body_bytes, now_ms)
            ):
                full = (*full, queue)
        if full:
            return self._publish_beside(full, plan, bodies, now_ms, templates)
        if plan.durable_count > 1:
            first_id = self._store(plan, queues, bodies, body_bytes)
        else:
            first_id = store_payloads(self._context, bodies, body_bytes, plan.durable_count)
        if templates is None:
            for queue in queues:
                queue.append(plan.template, first_id, bodies, body_bytes, now_ms)
        else:
            for queue in queues:
                queue.append_varied(templates, first_id, bodies, body_bytes, now_ms)
        return ACCEPTED

    def _publish_by_options(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> int | None:
        """Stage, publish once or later, as the options of the plan say; None: they do not keep these messages
        from being published at once.
        """
        options = plan.options
        if options.stage is not None:
            return self._stage(plan, bodies, now_ms, templates)
        if options.is_identified:
            return self._publish_once(plan, bodies, now_ms)
        due_ms = options.due_ms(now_ms)
        return self.publish_later(plan, bodies, due_ms, now_ms) if due_ms > now_ms else None

    def first_full(self, wanted: Iterable[tuple[PublishPlan, list[bytes]]], now_ms: int) -> Queue | None:
        """A queue without room for all that these would bring it together, None if there is none.

        What is due later does not count, as it does not in `publish_later`.
        """
        counts: dict[Queue, int] = {}
        sizes: dict[Queue, int] = {}
        for plan, bodies in wanted:
            if plan.options is not PLAIN and plan.options.due_ms(now_ms) > now_ms:
                continue
            body_bytes = sum(map(len, bodies))
            for queue in plan.queues:
                counts[queue] = counts.get(queue, 0) + len(bodies)
                sizes[queue] = sizes.get(queue, 0) + body_bytes
        for queue, count in counts.items():
            if not queue.has_room(count, sizes[queue]) or not queue.has_memory(count, sizes[queue], now_ms):
                return queue
        return None

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
        none_took = REFUSED_PAUSED if all(queue.pause.publish for queue in full) else REFUSED_DEPTH
        if len(bodies) > 1:
            return none_took
        template = plan.template if templates is None else templates[0]
        if others:
            first_id = self._store(plan, others, bodies, len(bodies[0]))
            for queue in others:
                queue.append(template, first_id, bodies, len(bodies[0]), now_ms)
        for queue in full:
            if not queue.pause.publish:
                queue.dead_letters.send_refused(template, bodies[0], now_ms)
        return REFUSED_IN_PART if others else none_took

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

    # later

    def publish_later(self, plan: PublishPlan, bodies: list[bytes], due_ms: int, now_ms: int) -> int:
        """As `publish`, for messages that are due at `due_ms`. Depth limits do not count them before."""
        sizes = list(map(len, bodies))
        body_bytes = sum(sizes)
        takers = plan.queues
        full: tuple[Queue, ...] = ()
        for queue in takers:
            if max(sizes) > queue.policy.message_bytes_max:
                return REFUSED_SIZE
            if queue.pause.publish or not queue.has_memory(len(bodies), body_bytes, now_ms):
                full = (*full, queue)
        if full:
            takers = plan.note_full(full)
            if not takers or len(bodies) > 1:
                return REFUSED_PAUSED if all(queue.pause.publish for queue in full) else REFUSED_DEPTH
        first_id = self._store(plan, takers, bodies, body_bytes)
        for queue in takers:
            queue.rules.schedule.add(plan.template, first_id, bodies, due_ms, now_ms)
        return REFUSED_IN_PART if full else ACCEPTED

    # once

    def _publish_once(self, plan: PublishPlan, bodies: list[bytes], now_ms: int) -> int:
        """As `publish`, for publishes with an identity: each queue takes it once.

        All `bodies` have the same identity. What was taken before counts as accepted; another body under the
        same identity is refused. Sent again after some queues were full, it goes to those.
        """
        options = plan.options
        digest = digest_of(bodies[0])
        if any(digest_of(body) != digest for body in bodies[1:]):
            return REFUSED_IDENTITY
        fresh: list[Queue] = []
        for queue in plan.queues:
            verdict = queue.rules.identities.judge(options, digest, now_ms)
            if verdict == ACCEPTED:
                fresh.append(queue)
            elif verdict != REPEATED:
                return verdict
        self.repeated_count += len(bodies) if not fresh else len(bodies) - 1
        if not fresh:
            return ACCEPTED
        once = self.plan(
            plan.topic,
            plan.properties_kind,
            plan.properties,
            plan.persistent,
            options.without_identity(),
            plan.exchange,
        )
        once.aim_at(fresh, sum(queue.durable for queue in fresh))
        # made before anything is queued: what cannot be written down cannot be taken
        records = [queue.rules.identities.records(options, digest, now_ms) for queue in fresh]
        outcome = self.publish(once, bodies[:1], now_ms)
        if outcome not in (ACCEPTED, *FULL):
            return outcome
        full = once.full if outcome != ACCEPTED else ()
        if full:
            plan.note_full(full)
        for queue, rows in zip(fresh, records, strict=True):
            if queue in full:
                queue.rules.identities.note_refused(options, now_ms)
                continue
            for row in rows:
                self._context.commit.put(*row)
            queue.rules.identities.remember(options, digest, now_ms)
        return REFUSED_IN_PART if 0 < len(full) < len(plan.queues) else outcome

    # staged

    def _stage(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None,
    ) -> int:
        """As `publish`, for rows that are not to be seen before their epoch is committed.

        Raises InvalidArgument, PreconditionFailed, LimitReached.
        """
        if len(plan.queues) != 1:
            raise InvalidArgument(
                f"a staged publish goes to one queue, but {len(plan.queues)} take {plan.topic!r}"
            )
        options = plan.options
        if options.is_identified:
            raise InvalidArgument("a staged publish has no deduplication or producer ID")
        queue = plan.queues[0]
        sizes = list(map(len, bodies))
        if max(sizes) > queue.policy.message_bytes_max:
            return REFUSED_SIZE
        if not queue.durable:
            raise PreconditionFailed(f"queue {queue.name!r} is kept in memory: nothing can be staged in it")
        if queue.pause.publish:
            plan.note_full((queue,))
            return REFUSED_PAUSED
        assert options.stage is not None
        due_ms = options.due_ms(now_ms)
        queue.rules.stage.stage(options.stage, plan.template, due_ms, bodies, sum(sizes), now_ms, templates)
        return ACCEPTED


def is_remembered(plan: PublishPlan, outcome: int) -> bool:
    """Whether a refusal is to be told only when the open commit, which remembers it, is durable.

    Told before, a crash could make a queue forget it, take what the producer sends next, and then confirm
    the refused publish as one that was taken before.
    """
    return plan.durable and bool(plan.options.producer_id) and outcome in (*FULL, REFUSED_ORDER)
