"""The outcome of a publish that may come to nothing elsewhere, for who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from queue_manager.outcomes import ACCEPTED


class LateOutcome:
    """What became of a publish that was accepted, once it is durable.

    Implements `broker.engine.traffic.PublishWaiter`.
    """

    __slots__ = ("outcome",)

    def __init__(self) -> None:
        self.outcome = ACCEPTED

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        self.outcome = outcome

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`."""
