"""The stage of one queue: attempts, the last epoch of each producer, and the rows on their way.

Committing an epoch is one small record. Its rows then go into the queue's log in steps, in order, each step
in one commit that also deletes the staged records it took them from: a restart goes on where the last step
that became durable ended. Rows that are not due yet go into the queue's schedule instead.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from config import limits
from queue_manager.errors import InvalidArgument, LimitReached, PreconditionFailed
from queue_manager.rules.schedule import Schedule
from queue_manager.rules.staging.attempt import Attempt
from queue_manager.rules.staging.sweeps import Sweep, Sweeps
from queue_manager.rules.stored_window import Host
from queue_manager.stage_tags import EpochPart, StageTag
from storage.envelope import EnvelopeTemplate
from storage.records import CommittedEpoch, committed_epoch, staged_rows
from storage.records import epoch as epoch_record
from storage.records.staged_values import AT_ONCE


class Staged(NamedTuple):
    """The amount that one producer has staged."""

    attempts: int
    row_count: int
    byte_count: int


class Stage:
    """The stage of a durable queue: takes staged rows, moves or drops them as commits decide.

    `byte_count` is the payload staged and not yet moved or dropped.
    """

    __slots__ = (
        "_attempts",
        "_byte_count",
        "_check_ms",
        "_context",
        "_next_number",
        "_producers",
        "_queue",
        "sweeps",
    )

    def __init__(self, queue: Host, schedule: Callable[[], Schedule]) -> None:
        self._queue = queue
        self._context = queue.context
        self._attempts: dict[StageTag, Attempt] = {}
        self._producers: dict[str, CommittedEpoch] = {}
        self._byte_count = 0
        self.sweeps = Sweeps(queue, schedule, self._arm, self._forget_attempts)
        self._next_number = 0
        self._check_ms = 0

    def last_epoch(self, producer: str) -> CommittedEpoch | None:
        """Return the last epoch a producer committed, None if that is not known."""
        return self._producers.get(producer)

    @property
    def producers(self) -> list[str]:
        """The producers whose last epoch is known, or that staged rows."""
        return list(self._producers.keys() | {tag.producer for tag in self._attempts})

    def staged_by(self, producers: Iterable[str]) -> dict[str, Staged]:
        """Return what these have staged that no commit has decided on."""
        staged = dict.fromkeys(producers, Staged(0, 0, 0))
        for tag, attempt in self._attempts.items():
            before = staged.get(tag.producer)
            if before is not None and not attempt.is_ending:
                staged[tag.producer] = Staged(
                    before.attempts + 1,
                    before.row_count + attempt.row_count,
                    before.byte_count + attempt.byte_count,
                )
        return staged

    def row_count(self, tag: StageTag) -> int:
        """Return how many rows an attempt has staged, those of the open commit included."""
        attempt = self._attempts.get(tag)
        return 0 if attempt is None or attempt.is_ending else attempt.row_count

    # time

    def _arm(self, now_ms: int) -> None:
        """Ask to be called when there is something to do."""
        timers = self._context.timers
        if self.sweeps.wants_step():
            timers.set(self, now_ms)
        if self._attempts or self._producers:
            timers.set(self, now_ms + limits.STAGE_CHECK_INTERVAL_MS)

    def on_timer(self, now_ms: int) -> None:
        """Take the next step, if there is one to take."""
        if self._queue.deleted:
            return
        if now_ms >= self._check_ms:
            self._check_ms = now_ms + limits.STAGE_CHECK_INTERVAL_MS
            self._expire(now_ms)
        self.sweeps.begin_step()
        self._arm(now_ms)

    def _forget_attempts(self, tags: list[StageTag]) -> None:
        for tag in tags:
            self._byte_count -= self._attempts.pop(tag).byte_count

    # staging

    def check(self, tag: StageTag, body_bytes: int) -> None:
        """Raise PreconditionFailed or LimitReached if `stage` may not be called with so much."""
        attempt = self._attempts.get(tag)
        last = self._producers.get(tag.producer)
        if last is not None and tag.epoch <= last.epoch:
            raise PreconditionFailed(
                f"epoch {last.epoch} of producer {tag.producer!r} is committed:"
                f" nothing can be staged for epoch {tag.epoch} any more"
            )
        if attempt is not None and attempt.is_ending:
            raise PreconditionFailed(
                f"attempt {tag.attempt!r} of part {tag.part} of epoch {tag.epoch} was given up"
            )
        if self._byte_count + body_bytes > limits.STAGED_BYTES_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self._queue.name!r} holds {self._byte_count} staged bytes;"
                f" at most {limits.STAGED_BYTES_PER_QUEUE_MAX} may wait for their commit"
            )
        if attempt is None and len(self._attempts) >= limits.STAGED_ATTEMPTS_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self._queue.name!r} has {limits.STAGED_ATTEMPTS_PER_QUEUE_MAX} staged attempts"
            )

    def stage(
        self,
        tag: StageTag,
        template: EnvelopeTemplate,
        due_ms: int,
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
        templates: list[EnvelopeTemplate] | None = None,
    ) -> None:
        """Stage rows in the open commit, unseen; `templates` are their own, if they have any.

        They enter the queue with the commit of their epoch, but not before `due_ms`.
        Refuses nothing: `check` is asked before.
        """
        attempt = self._attempts.get(tag)
        if attempt is None:
            attempt = self._attempts[tag] = Attempt(self._queue.name, tag, now_ms)
            self._arm(now_ms)
        first_id = self._queue.store(bodies, body_bytes)
        held_to_ms = due_ms if due_ms > now_ms else AT_ONCE
        context = self._context
        if templates is not None:
            is_new = attempt.add_varied(templates, held_to_ms, first_id, bodies, context.commit, now_ms)
        else:
            is_new = attempt.add(template, held_to_ms, first_id, bodies, body_bytes, context.commit, now_ms)
        if is_new:
            context.staging[attempt] = None
        self._byte_count += body_bytes

    # deciding

    def commit(
        self, producer: str, epoch: int, parts: Sequence[EpochPart], now_ms: int, checksum: str = ""
    ) -> tuple[CommittedEpoch, bool]:
        """Make exactly these attempts part of the queue, with the open commit; the rest of the epoch goes.

        Gives what is committed, and whether it was before. Raises PreconditionFailed, InvalidArgument,
        LimitReached, and changes nothing then.
        """
        name = self._queue.name
        if not self._queue.durable:
            raise PreconditionFailed(f"queue {name!r} is kept in memory: nothing can be staged in it")
        last = self._producers.get(producer)
        if last is not None:
            if epoch == last.epoch:
                return last, True
            if epoch < last.epoch:
                raise PreconditionFailed(
                    f"epoch {epoch} of producer {producer!r} is older than the last committed, {last.epoch}"
                )
        elif len(self._producers) >= limits.STAGE_PRODUCERS_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self._queue.name!r} remembers {limits.STAGE_PRODUCERS_PER_QUEUE_MAX} producers"
            )
        self._check_parts(producer, epoch, parts)
        row_count = sum(part.row_count for part in parts)
        byte_count = sum(
            self._attempts[StageTag(producer, epoch, part.part, part.attempt)].byte_count
            for part in parts
            if part.row_count
        )
        if not self._queue.has_room(row_count, byte_count):
            raise LimitReached(
                f"queue {self._queue.name!r} has no room for the {row_count} rows of the epoch"
            )
        committed = CommittedEpoch(epoch, now_ms, row_count, checksum)
        self._producers[producer] = committed
        open_commit = self._context.commit
        open_commit.put(committed_epoch.key(name, producer), committed_epoch.encode(*committed))
        named = tuple((part.part, part.attempt) for part in parts if part.row_count)
        tags = [tag for tag in self._attempts if tag.producer == producer and tag.epoch <= epoch]
        if named:
            record = epoch_record.encode(producer, epoch, named)
            open_commit.put(epoch_record.key(name, self._next_number), record)
            self._move(producer, epoch, named, row_count, byte_count, self._next_number, tags)
            self._next_number += 1
        self._drop(tag for tag in tags if tag.epoch < epoch or not named)
        self._arm(now_ms)
        return committed, False

    def _check_parts(self, producer: str, epoch: int, parts: Sequence[EpochPart]) -> None:
        if len(parts) > limits.STAGE_PARTS_PER_EPOCH_MAX:
            raise LimitReached(f"an epoch has at most {limits.STAGE_PARTS_PER_EPOCH_MAX} parts")
        if len({part.part for part in parts}) != len(parts):
            raise InvalidArgument("a part is named twice")
        for part, name, row_count in parts:
            attempt = self._attempts.get(StageTag(producer, epoch, part, name))
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
        own = [tag for tag in tags if tag.epoch == epoch and not self._attempts[tag].is_ending]
        for tag in own:
            self._attempts[tag].end()
        prefix = staged_rows.prefix(self._queue.name, producer, epoch)
        self.sweeps.add(Sweep(prefix, own, producer, frozenset(named), number, row_count, byte_count))

    def _drop(self, tags: Iterable[StageTag]) -> int:
        count = 0
        for tag in tags:
            if not self._attempts[tag].is_ending:
                self._attempts[tag].end()
                self.sweeps.add(Sweep.of_attempt(self._queue.name, tag))
                count += 1
        return count

    def abort(
        self, producer: str, epoch: int, now_ms: int, attempts: Container[tuple[int, str]] | None = None
    ) -> int:
        """Drop what is staged for an epoch, or these (part, attempt) of it, unless it is committed.

        Gives how many attempts it were.
        """
        last = self._producers.get(producer)
        if last is not None and epoch <= last.epoch:
            return 0
        count = self._drop(
            [
                tag
                for tag in self._attempts
                if tag.producer == producer
                and tag.epoch == epoch
                and (attempts is None or (tag.part, tag.attempt) in attempts)
            ]
        )
        self._arm(now_ms)
        return count

    def forget(self, producer: str, now_ms: int) -> bool:
        """Forget a producer's last epoch, and drop what it has staged; False if it was not known.

        Raises PreconditionFailed while its last epoch is on its way.
        """
        if self.sweeps.moves(producer):
            raise PreconditionFailed(f"the last epoch of producer {producer!r} is still on its way")
        known = self._producers.pop(producer, None)
        if known is not None:
            self._context.commit.delete(committed_epoch.key(self._queue.name, producer))
        count = self._drop([tag for tag in self._attempts if tag.producer == producer])
        self._arm(now_ms)
        return known is not None or count > 0

    def _expire(self, now_ms: int) -> None:
        """Drop what nobody committed in time, forget producers that were silent for long."""
        due_ms = now_ms - limits.STAGED_LIFETIME_MS
        self._drop([tag for tag, attempt in self._attempts.items() if attempt.staged_at_ms <= due_ms])
        due_ms = now_ms - limits.STAGE_PRODUCER_LIFETIME_MS
        for name in [name for name, last in self._producers.items() if last.committed_at_ms <= due_ms]:
            del self._producers[name]
            self._context.commit.delete(committed_epoch.key(self._queue.name, name))

    # after a start

    def restore(
        self,
        producers: dict[str, CommittedEpoch],
        attempts: Iterable[tuple[StageTag, Attempt]],
        sweeps: Iterable[Sweep],
        next_number: int,
        now_ms: int,
    ) -> None:
        """Take over what the records tell."""
        self._producers = producers
        for tag, attempt in attempts:
            self._attempts[tag] = attempt
            self._byte_count += attempt.byte_count
        for sweep in sweeps:
            self.sweeps.add(sweep)
        self._next_number = next_number
        self._arm(now_ms)
