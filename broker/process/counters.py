"""The counters of the broker: plain integers, read where they are shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Totals since the start."""

    control_refused: int = 0
    dropped_slow_consumer: int = 0
    dropped_too_large: int = 0
    events_dropped: int = 0
    events_published: int = 0
    late_settles: int = 0
    publishes_refused: int = 0
    publishes_unrouted: int = 0

    def refuse_control(self, count: int = 1) -> None:
        """Count `$ack` and its like that named nothing, or could not be done."""
        self.control_refused += count

    def drop_slow(self, count: int) -> None:
        """Count plain messages that a subscriber was too slow for."""
        self.dropped_slow_consumer += count

    def drop_too_large(self, count: int) -> None:
        """Count messages larger than the client takes, so never sent to it."""
        self.dropped_too_large += count

    def publish_events(self, count: int, dropped_count: int) -> None:
        """Count events that a queue took, and those that were dropped for want of room."""
        self.events_published += count
        self.events_dropped += dropped_count

    def settle_late(self, count: int) -> None:
        """Count acknowledgements of claims whose lease had ended."""
        self.late_settles += count

    def refuse_publishes(self, count: int) -> None:
        """Count publishes that a queue, or the broker, did not take."""
        self.publishes_refused += count

    def leave_unrouted(self, count: int) -> None:
        """Count publishes that no queue is there for."""
        self.publishes_unrouted += count


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterView:
    """The counters since the start; see `Counters` and, for sessions, `SessionClient.losses`."""

    control_refused: int
    dropped_session_expired: int
    dropped_session_full: int
    dropped_slow_consumer: int
    dropped_too_large: int
    events_dropped: int
    events_published: int
    late_settles: int
    publishes_refused: int
    publishes_unrouted: int
