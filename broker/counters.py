"""What the broker counts about itself: plain integers, read by whoever shows them."""

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
        self.control_refused = 0  # $ack and friends that named nothing
        self.dropped_slow_consumer = 0  # plain messages a subscriber was too slow for
        self.dropped_too_large = 0  # larger than the MQTT client takes, so never sent to it
        self.late_settles = 0  # acks of claims whose lease had ended
        self.publishes_refused = 0
        self.publishes_unrouted = 0
