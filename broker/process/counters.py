"""The counters of the broker: plain integers, read where they are shown."""

from __future__ import annotations


class Counters:
    """Totals since the start."""

    __slots__ = (
        "control_refused",
        "dropped_slow_consumer",
        "dropped_too_large",
        "late_settles",
        "publishes_refused",
        "publishes_unrouted",
    )

    def __init__(self) -> None:
        self.control_refused = 0
        self.dropped_slow_consumer = 0
        self.dropped_too_large = 0
        self.late_settles = 0
        self.publishes_refused = 0
        self.publishes_unrouted = 0

    def refuse_control(self, count: int = 1) -> None:
        """Count `$ack` and its like that named nothing, or could not be done."""
        self.control_refused += count

    def drop_slow(self, count: int) -> None:
        """Count plain messages that a subscriber was too slow for."""
        self.dropped_slow_consumer += count

    def drop_too_large(self, count: int) -> None:
        """Count messages larger than the client takes, so never sent to it."""
        self.dropped_too_large += count

    def settle_late(self, count: int) -> None:
        """Count acknowledgements of claims whose lease had ended."""
        self.late_settles += count

    def refuse_publishes(self, count: int) -> None:
        """Count publishes that a queue, or the broker, did not take."""
        self.publishes_refused += count

    def leave_unrouted(self, count: int) -> None:
        """Count publishes that no queue is there for."""
        self.publishes_unrouted += count
