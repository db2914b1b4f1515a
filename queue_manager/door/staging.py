"""Staged epochs: publishing exactly once from jobs that retry."""

from __future__ import annotations

from collections.abc import Container, Sequence

from queue_manager.door.appending import Appending
from queue_manager.errors import InvalidArgument, PreconditionFailed
from queue_manager.outcomes import ACCEPTED, REFUSED_SIZE
from queue_manager.plan import PublishPlan
from queue_manager.queue import Queue
from queue_manager.staging.stage import Stage
from queue_manager.staging.tags import EpochPart, StageTag
from storage.envelope import EnvelopeTemplate
from storage.records.committed_epoch import CommittedEpoch


class Staging(Appending):
    """Stage, commit, abort."""

    def stage(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> int:
        """As `publish`, for rows that are not to be seen before their epoch is committed.

        Raises InvalidArgument, PreconditionFailed, LimitReached.
        """
        if len(plan.queues) != 1:
            raise InvalidArgument(
                f"a staged publish goes to one queue, but {len(plan.queues)} take {plan.topic!r}"
            )
        options = plan.options
        if options.delay_ms or options.deliver_at_ms or options.deduplication_id or options.producer_id:
            raise InvalidArgument("a staged publish has neither a delay nor a deduplication or producer ID")
        queue = plan.queues[0]
        sizes = list(map(len, bodies))
        if max(sizes) > queue.policy.message_bytes_max:
            return REFUSED_SIZE
        self.stage_of(queue).stage(plan, bodies, sum(sizes), now_ms, templates)
        return ACCEPTED

    def stage_of(self, queue: Queue) -> Stage:
        """The queue's stage, made if need be. Raises PreconditionFailed where there cannot be one."""
        if queue.stage is None:
            if not queue.durable:
                raise PreconditionFailed(
                    f"queue {queue.name!r} is kept in memory: nothing can be staged in it"
                )
            queue.stage = Stage(queue)
        return queue.stage

    def commit_epoch(
        self,
        queue: Queue,
        producer: str,
        epoch: int,
        parts: Sequence[EpochPart],
        now_ms: int,
        checksum: str = "",
    ) -> tuple[CommittedEpoch, bool]:
        """Make exactly the named attempts of an epoch part of the queue, in the order of their parts.

        Gives what is committed, and whether it was before: then nothing changed. Durable with the open
        commit (`journal.wait`); the rows follow. Raises PreconditionFailed when the epoch is older than the
        last or the attempts do not have so many rows, InvalidArgument, LimitReached.
        """
        return self.stage_of(queue).commit(producer, epoch, parts, checksum, now_ms)

    def abort_epoch(
        self,
        queue: Queue,
        producer: str,
        epoch: int,
        now_ms: int,
        attempts: Container[tuple[int, str]] | None = None,
    ) -> int:
        """Drop what is staged for an epoch that is not committed, or only these (part, attempt) of it.

        Gives how many attempts it were.
        """
        return 0 if queue.stage is None else queue.stage.abort(producer, epoch, now_ms, attempts)

    def staged_rows(self, queue: Queue, tag: StageTag) -> int:
        """How many rows an attempt has staged, those of the open commit included."""
        attempt = None if queue.stage is None else queue.stage.attempts.get(tag)
        return 0 if attempt is None or attempt.is_ending else attempt.row_count

    def forget_producer(self, queue: Queue, producer: str, now_ms: int) -> bool:
        """Forget the last epoch of a producer and drop what it staged; False if it was not known."""
        return queue.stage is not None and queue.stage.forget(producer, now_ms)

    def last_epoch(self, queue: Queue, producer: str) -> CommittedEpoch | None:
        """The last epoch a producer committed, None if that is not known."""
        return None if queue.stage is None else queue.stage.producers.get(producer)
