"""Staged epochs of a shard in this process."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.engine.answers import Answer
from broker.engine.local.queues import find
from broker.engine.shard import Shard
from queue_manager.api import CommittedEpoch, EpochPart, EpochStatus, ProducerView, StageTag


class LocalEpochs:
    """As `EpochClient`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    def commit(
        self, queue: str, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> Answer[CommittedEpoch]:
        """See `EpochClient.commit`."""
        return Answer.of(lambda: self._commit(queue, caller, producer, epoch, parts, checksum))

    def _commit(
        self, queue: str, caller: str, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str
    ) -> CommittedEpoch:
        shard = self._shard
        found = find(shard, queue, caller)
        committed, before = shard.manager.commit_epoch(
            found, producer, epoch, parts, shard.clock.now_ms(), checksum
        )
        return CommittedEpoch(committed.epoch, committed.row_count, committed.checksum, before)

    def abort(
        self,
        queue: str,
        caller: str,
        producer: str,
        epoch: int,
        attempts: Collection[tuple[int, str]] | None,
    ) -> Answer[int]:
        """See `EpochClient.abort`."""
        shard = self._shard
        return Answer.of(
            lambda: shard.manager.abort_epoch(
                find(shard, queue, caller), producer, epoch, shard.clock.now_ms(), attempts
            )
        )

    def status(self, queue: str, caller: str, producer: str, tag: StageTag | None) -> Answer[EpochStatus]:
        """See `EpochClient.status`."""
        return Answer.of(lambda: self._status(queue, caller, producer, tag))

    def _status(self, queue: str, caller: str, producer: str, tag: StageTag | None) -> EpochStatus:
        manager = self._shard.manager
        found = find(self._shard, queue, caller)
        last = manager.last_epoch(found, producer)
        return EpochStatus(
            None if last is None else CommittedEpoch(last.epoch, last.row_count, last.checksum),
            None if tag is None else manager.staged_rows(found, tag),
            manager.is_moving(found, producer),
        )

    def producers(self, queue: str) -> list[str]:
        """See `EpochClient.producers`."""
        found = find(self._shard, queue)
        return found.rules.stage.producers if found.rules.has_stage else []

    def views(self, queue: str, producers: Collection[str]) -> list[ProducerView]:
        """See `EpochClient.views`."""
        found = find(self._shard, queue)
        if not found.rules.has_stage:
            return []
        views = []
        for producer, staged in found.rules.stage.staged_by(producers).items():
            last = found.rules.stage.last_epoch(producer)
            view = ProducerView(
                producer=producer,
                epoch=None if last is None else last.epoch,
                row_count=None if last is None else last.row_count,
                committed_at_ms=None if last is None else last.committed_at_ms,
                is_moving=found.rules.stage.is_moving(producer),
                staged_attempts=staged.attempts,
                staged_rows=staged.row_count,
                staged_bytes=staged.byte_count,
            )
            views.append(view)
        return views

    def forget(self, queue: str, caller: str, producer: str) -> Answer[bool]:
        """See `EpochClient.forget`."""
        shard = self._shard
        return Answer.of(
            lambda: shard.manager.forget_producer(find(shard, queue, caller), producer, shard.clock.now_ms())
        )
