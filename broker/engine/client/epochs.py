"""Staged epochs of a shard in this process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.engine.answers import answered
from broker.engine.call_names import Name
from broker.engine.client.queues import find
from broker.engine.shard import Shard
from queue_manager.api import CommittedEpoch, EpochPart, EpochStatus, ProducerView, StageTag
from queue_manager.queue.queue import Queue
from queue_manager.rules.staging.stage import Stage


class EpochClient:
    """Staged epochs. All that give an Answer come to QueueNotFound, ResourceLocked."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @answered
    def commit(
        self, queue: Name, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> CommittedEpoch:
        """Make exactly the named attempts of an epoch part of the queue, in the order of their parts.

        Comes to PreconditionFailed when the epoch is older than the last or the attempts do not have so many
        rows, InvalidArgument, LimitReached.
        """
        shard = self._shard
        found = find(shard, queue, caller)
        committed, before = found.rules.stage.commit(producer, epoch, parts, shard.clock.now_ms(), checksum)
        return CommittedEpoch(committed.epoch, committed.row_count, committed.checksum, before)

    @answered
    def abort(
        self,
        queue: Name,
        caller: str,
        producer: str,
        epoch: int,
        attempts: Collection[tuple[int, str]] | None,
    ) -> int:
        """Drop what is staged for an epoch that is not committed, or only these (part, attempt) of it; give
        how many attempts it were.
        """
        shard = self._shard
        stage = _stage_of(find(shard, queue, caller))
        return 0 if stage is None else stage.abort(producer, epoch, shard.clock.now_ms(), attempts)

    @answered
    def status(self, queue: Name, caller: str, producer: str, tag: StageTag | None) -> EpochStatus:
        """Return the last epoch of a producer, and how many rows an attempt has staged."""
        stage = _stage_of(find(self._shard, queue, caller))
        if stage is None:
            return EpochStatus(None, None if tag is None else 0, False)
        last = stage.last_epoch(producer)
        return EpochStatus(
            None if last is None else CommittedEpoch(last.epoch, last.row_count, last.checksum),
            None if tag is None else stage.row_count(tag),
            stage.sweeps.moves(producer),
        )

    @answered
    def producers(self, queue: Name) -> list[str]:
        """Return the producers whose last epoch is known or that staged rows, in no order. Comes to
        QueueNotFound.
        """
        stage = _stage_of(find(self._shard, queue))
        return [] if stage is None else stage.producers

    @answered
    def views(self, queue: Name, producers: Collection[str]) -> list[ProducerView]:
        """Return what is known of these producers, in their order. Comes to QueueNotFound."""
        stage = _stage_of(find(self._shard, queue))
        if stage is None:
            return []
        views = []
        for producer, staged in stage.staged_by(producers).items():
            last = stage.last_epoch(producer)
            view = ProducerView(
                producer=producer,
                epoch=None if last is None else last.epoch,
                row_count=None if last is None else last.row_count,
                committed_at_ms=None if last is None else last.committed_at_ms,
                is_moving=stage.sweeps.moves(producer),
                staged_attempts=staged.attempts,
                staged_rows=staged.row_count,
                staged_bytes=staged.byte_count,
            )
            views.append(view)
        return views

    @answered
    def forget(self, queue: Name, caller: str, producer: str) -> bool:
        """Forget the last epoch of a producer and drop what it staged; False if it was not known.

        Comes to PreconditionFailed while the rows of that epoch are still on their way into the queue.
        """
        shard = self._shard
        stage = _stage_of(find(shard, queue, caller))
        return stage is not None and stage.forget(producer, shard.clock.now_ms())


def _stage_of(queue: Queue) -> Stage | None:
    """Return what is staged in a queue; None: nothing ever was."""
    return queue.rules.stage if queue.rules.has_stage else None
