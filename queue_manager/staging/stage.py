"""What is staged in one queue: attempts, the last epoch of each producer, and the rows on their way.

Committing an epoch is one small record. Its rows then go into the queue's log in steps, in order, each step
in one commit that also deletes the staged records it took them from: a restart goes on where the last step
that became durable ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from config import limits
from queue_manager.errors import InvalidArgument, LimitReached, PreconditionFailed
from queue_manager.plan import PublishPlan
from queue_manager.staging.attempt import Attempt
from queue_manager.staging.sweep import Sweep
from queue_manager.staging.sweeping import Sweeping
from queue_manager.staging.tags import EpochPart, StageTag
from storage.envelope import EnvelopeTemplate
from storage.records import committed_epoch, staged_rows
from storage.records import epoch as epoch_record
from storage.records.committed_epoch import CommittedEpoch


class Stage(Sweeping):
    """What may be staged in a durable queue, what a commit decides, and what goes by itself."""

    __slots__ = ()

    # staging

    def stage(
        self,
        plan: PublishPlan,
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> None:
        """Stage rows in the open commit, unseen; `templates` are their own, if they have any.

        Raises PreconditionFailed, LimitReached.
        """
        tag = plan.options.stage
        assert tag is not None
        attempt = self.attempts.get(tag)
        last = self.producers.get(tag.producer)
        if last is not None and tag.epoch <= last.epoch:
            raise PreconditionFailed(
                f"epoch {last.epoch} of producer {tag.producer!r} is committed:"
                f" nothing can be staged for epoch {tag.epoch} any more"
            )
        if attempt is not None and attempt.is_ending:
            raise PreconditionFailed(
                f"attempt {tag.attempt!r} of part {tag.part} of epoch {tag.epoch} was given up"
            )
        if self.byte_count + body_bytes > limits.STAGED_BYTES_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self.queue.name!r} holds {self.byte_count} staged bytes;"
                f" at most {limits.STAGED_BYTES_PER_QUEUE_MAX} may wait for their commit"
            )
        if attempt is None:
            if len(self.attempts) >= limits.STAGED_ATTEMPTS_PER_QUEUE_MAX:
                raise LimitReached(
                    f"queue {self.queue.name!r} has {limits.STAGED_ATTEMPTS_PER_QUEUE_MAX} staged attempts"
                )
            attempt = self.attempts[tag] = Attempt(self.queue.name, tag, now_ms)
            self.arm(now_ms)
        manager = self.queue.manager
        ttl_ms = plan.options.ttl_ms
        first_id = manager.append([self.queue], None, bodies, body_bytes, 1, now_ms)
        lives_ms = -1 if ttl_ms is None else ttl_ms
        journal = manager.journal
        if templates is not None:
            is_new = attempt.add_varied(templates, lives_ms, first_id, bodies, journal, now_ms)
        else:
            is_new = attempt.add(plan.template, lives_ms, first_id, bodies, body_bytes, journal, now_ms)
        if is_new:
            manager.staged_open.append(attempt)
        self.byte_count += body_bytes

    # deciding

    def commit(
        self, producer: str, epoch: int, parts: Sequence[EpochPart], checksum: str, now_ms: int
    ) -> tuple[CommittedEpoch, bool]:
        """Make exactly these attempts part of the queue, with the open commit; the rest of the epoch goes.

        Gives what is committed, and whether it was before. Raises PreconditionFailed, InvalidArgument,
        LimitReached, and changes nothing then.
        """
        last = self.producers.get(producer)
        if last is not None:
            if epoch == last.epoch:
                return last, True
            if epoch < last.epoch:
                raise PreconditionFailed(
                    f"epoch {epoch} of producer {producer!r} is older than the last committed, {last.epoch}"
                )
        elif len(self.producers) >= limits.STAGE_PRODUCERS_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self.queue.name!r} remembers {limits.STAGE_PRODUCERS_PER_QUEUE_MAX} producers"
            )
        self._check_parts(producer, epoch, parts)
        row_count = sum(part.row_count for part in parts)
        byte_count = sum(
            self.attempts[StageTag(producer, epoch, part.part, part.attempt)].byte_count
            for part in parts
            if part.row_count
        )
        if self.queue.is_bounded and not self.queue.has_room(row_count, byte_count):
            raise LimitReached(f"queue {self.queue.name!r} has no room for the {row_count} rows of the epoch")
        committed = CommittedEpoch(epoch, now_ms, row_count, checksum)
        self.producers[producer] = committed
        manager = self.queue.manager
        name = self.queue.name
        manager.journal.put(committed_epoch.key(name, producer), committed_epoch.encode(committed))
        named = tuple((part.part, part.attempt) for part in parts if part.row_count)
        tags = [tag for tag in self.attempts if tag.producer == producer and tag.epoch <= epoch]
        if named:
            record = epoch_record.encode(producer, epoch, named)
            manager.journal.put(epoch_record.key(name, self.next_number), record)
            self._move(producer, epoch, named, row_count, byte_count, self.next_number, tags)
            self.next_number += 1
        self._drop(tag for tag in tags if tag.epoch < epoch or not named)
        self.arm(now_ms)
        return committed, False

    def _check_parts(self, producer: str, epoch: int, parts: Sequence[EpochPart]) -> None:
        if len(parts) > limits.STAGE_PARTS_PER_EPOCH_MAX:
            raise LimitReached(f"an epoch has at most {limits.STAGE_PARTS_PER_EPOCH_MAX} parts")
        if len({part.part for part in parts}) != len(parts):
            raise InvalidArgument("a part is named twice")
        for part, name, row_count in parts:
            attempt = self.attempts.get(StageTag(producer, epoch, part, name))
            staged = 0 if attempt is None or attempt.is_ending else attempt.row_count
            if staged != row_count:
                raise PreconditionFailed(
                    f"attempt {name!r} of part {part} of epoch {epoch} has {staged} rows, not {row_count}"
                )

    def _move(
        self,
        producer: str,
        epoch: int,
        named: Iterable[tuple[int, str]],
        row_count: int,
        byte_count: int,
        number: int,
        tags: list[StageTag],
    ) -> None:
        # what is ending already has its own sweep, which comes first
        own = [tag for tag in tags if tag.epoch == epoch and not self.attempts[tag].is_ending]
        for tag in own:
            self.attempts[tag].is_ending = True
        prefix = staged_rows.epoch_prefix(self.queue.name, producer, epoch)
        self.sweeps.append(Sweep(prefix, own, producer, frozenset(named), number, row_count, byte_count))
        self.unmoved_count += row_count
        self.unmoved_bytes += byte_count

    def _drop(self, tags: Iterable[StageTag]) -> int:
        count = 0
        for tag in tags:
            if not self.attempts[tag].is_ending:
                self.attempts[tag].is_ending = True
                self.sweeps.append(Sweep.of_attempt(self.queue.name, tag))
                count += 1
        return count

    def abort(
        self, producer: str, epoch: int, now_ms: int, attempts: Container[tuple[int, str]] | None = None
    ) -> int:
        """Drop what is staged for an epoch, or these (part, attempt) of it, unless it is committed.

        Gives how many attempts it were.
        """
        last = self.producers.get(producer)
        if last is not None and epoch <= last.epoch:
            return 0
        count = self._drop(
            [
                tag
                for tag in self.attempts
                if tag.producer == producer
                and tag.epoch == epoch
                and (attempts is None or (tag.part, tag.attempt) in attempts)
            ]
        )
        self.arm(now_ms)
        return count

    def forget(self, producer: str, now_ms: int) -> bool:
        """Forget a producer's last epoch, and drop what it has staged; False if it was not known.

        Raises PreconditionFailed while its last epoch is on its way.
        """
        if any(sweep.producer == producer for sweep in self.sweeps):
            raise PreconditionFailed(f"the last epoch of producer {producer!r} is still on its way")
        known = self.producers.pop(producer, None)
        if known is not None:
            self.queue.manager.journal.delete(committed_epoch.key(self.queue.name, producer))
        count = self._drop([tag for tag in self.attempts if tag.producer == producer])
        self.arm(now_ms)
        return known is not None or count > 0

    # in time

    def expire(self, now_ms: int) -> None:
        """Drop what nobody committed in time, forget producers that were silent for long."""
        due_ms = now_ms - limits.STAGED_LIFETIME_MS
        self._drop([tag for tag, attempt in self.attempts.items() if attempt.staged_at_ms <= due_ms])
        due_ms = now_ms - limits.STAGE_PRODUCER_LIFETIME_MS
        for name in [name for name, last in self.producers.items() if last.committed_at_ms <= due_ms]:
            del self.producers[name]
            self.queue.manager.journal.delete(committed_epoch.key(self.queue.name, name))
