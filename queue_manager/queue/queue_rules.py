"""The rules of a queue that are there once somebody asks for them: schedule, deduplication, staged epochs."""

from __future__ import annotations

from queue_manager.rules.deduplication import Identities
from queue_manager.rules.schedule import Schedule
from queue_manager.rules.staging.stage import Stage
from queue_manager.rules.stored_window import Host, Key
from storage.envelope import EnvelopeTemplate


class QueueRules:
    """Makes each when it is first used; a queue that uses none of them pays nothing."""

    __slots__ = ("_host", "_identities", "_schedule", "_stage")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._schedule: Schedule | None = None
        self._identities: Identities | None = None
        self._stage: Stage | None = None

    # scheduled messages

    @property
    def schedule(self) -> Schedule:
        """The messages scheduled in the queue."""
        if self._schedule is None:
            self._schedule = Schedule(self._host)
        return self._schedule

    def scheduled_count(self) -> int:
        """Count messages that are not due yet, as far as they were counted since the start."""
        return 0 if self._schedule is None else self._schedule.count

    def scheduled_bytes(self) -> int:
        """Return the payload bytes of scheduled messages that are in memory."""
        return 0 if self._schedule is None else self._schedule.memory_bytes

    def restore_schedule(self) -> None:
        """Note, after a start, that the store holds scheduled messages of this queue."""
        self._schedule = Schedule(self._host)
        self._schedule.begin()

    def take_scheduled(self) -> list[tuple[Key, EnvelopeTemplate, bytes]]:
        """Empty the schedule of a queue in memory; give what was in it, in order."""
        if self._schedule is None:
            return []
        return [(key, row.template, row.body or b"") for key, row in self._schedule.take_all()]

    # deduplication

    @property
    def identities(self) -> Identities:
        """Which publishes the queue took already."""
        if self._identities is None:
            self._identities = Identities(self._host)
        return self._identities

    def take_over_identities(self, old: QueueRules) -> None:
        """Remember what another queue took, whose messages come along."""
        if old._identities is not None:
            self._identities = old._identities
            self._identities.move_to(self._host)

    # staged epochs

    @property
    def stage(self) -> Stage:
        """The stage of the queue."""
        if self._stage is None:
            self._stage = Stage(self._host, lambda: self.schedule)
        return self._stage

    @property
    def has_stage(self) -> bool:
        """Whether anything was ever staged."""
        return self._stage is not None

    # the queue's end

    @property
    def are_used(self) -> bool:
        """Whether there may be records of any of them."""
        return (self._schedule, self._identities, self._stage) != (None, None, None)

    def end(self) -> None:
        """Have nothing done any more."""
        timers = self._host.context.timers
        for rule in (self._schedule, self._identities, self._stage):
            if rule is not None:
                timers.forget(rule)
