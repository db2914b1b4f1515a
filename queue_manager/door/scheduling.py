"""Publishes for a later time."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.door.appending import Appending
from queue_manager.outcomes import ACCEPTED, REFUSED_DEPTH, REFUSED_IN_PART, REFUSED_SIZE
from queue_manager.plan import PublishPlan
from queue_manager.queue import Queue
from queue_manager.schedule import Key, Planned, Schedule
from storage.records import payload, scheduled


class Scheduling(Appending):
    """Messages that wait for their time."""

    def publish_later(self, plan: PublishPlan, bodies: list[bytes], due_ms: int, now_ms: int) -> int:
        """As `publish`, for messages that are due at `due_ms`. Depth limits do not count them before."""
        sizes = list(map(len, bodies))
        body_bytes = sum(sizes)
        takers: Sequence[Queue] = plan.queues
        full: tuple[Queue, ...] = ()
        for queue in takers:
            if max(sizes) > queue.policy.message_bytes_max:
                return REFUSED_SIZE
            if not queue.durable and self.ephemeral_memory.refuses(queue, len(bodies), body_bytes, now_ms):
                full = (*full, queue)
        if full:
            takers = plan.note_full(full)
            if not takers or len(bodies) > 1:
                return REFUSED_DEPTH
        first_id = self.append(takers, None, bodies, body_bytes, plan.durable_count, now_ms)
        for queue in takers:
            self.schedule_of(queue).add(plan.template, first_id, bodies, due_ms, now_ms)
        return REFUSED_IN_PART if full else ACCEPTED

    def schedule_of(self, queue: Queue) -> Schedule:
        """The queue's schedule, made if need be."""
        if queue.schedule is None:
            queue.schedule = Schedule(queue)
        return queue.schedule

    def restore_schedule(self, queue: Queue) -> None:
        """After a start: the store holds scheduled messages of this queue."""
        queue.schedule = Schedule(queue, horizon=(0, 0))
        queue.schedule.begin()

    def cancel_scheduled(self, queue: Queue, key: Key, *, keep_payload: bool) -> None:
        """Delete a scheduled message that is not due yet; the driver has looked that it is there.

        `keep_payload`: other queues need it.
        """
        self.journal.delete(scheduled.key(queue.name, *key))
        if not keep_payload:
            self.journal.delete(payload.key(key[1]))
        self.schedule_of(queue).cancel(key)

    def plan_again(self, queue: Queue, planned: list[tuple[Key, Planned]], now_ms: int) -> None:
        """Schedule in `queue` what another queue had scheduled."""
        for (due_ms, _), message in planned:
            bodies = [message.body or b""]
            first_id = self.append([queue], None, bodies, message.body_bytes, int(queue.durable), now_ms)
            self.schedule_of(queue).add(message.template, first_id, bodies, due_ms, now_ms)
