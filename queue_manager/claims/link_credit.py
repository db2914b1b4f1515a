"""Credit that is spent by what is sent, whatever was settled: that of AMQP 1.0 links."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.claims.claim import Consumer, Pool
from queue_manager.shard.context import Context


class LinkCredit(Pool):
    """How many messages one consumer may be given until its client allows more.

    `is_draining`: the client waits to hear that it was given all there is, or all it allowed.
    """

    __slots__ = ("_context", "_dried", "is_draining", "left")

    def __init__(self, context: Context, dried: Callable[[], None]) -> None:
        """`dried` is called once for each `drain`, when nothing more comes of what there is."""
        super().__init__()
        self._context = context
        self._dried = dried
        self.left = 0
        self.is_draining = False

    def free(self) -> int:
        return self.left

    def claimed(self, count: int) -> None:
        self.left -= count

    def released(self, count: int) -> None:
        """See `Pool`: the client says itself when it takes more."""

    def set(self, count: int) -> None:
        """Allow so many from now on; to be followed by a wake of the consumer."""
        self.left = count
        self.is_draining = False

    def drain(self) -> None:
        """Give what there is, then call `dried`, which takes back what is left."""
        self.is_draining = True
        self._again(0)

    def leave(self, consumer: Consumer) -> None:
        super().leave(consumer)
        self._context.forget_dispatch(self)
        self.is_draining = False

    def dispatch(self, now_ms: int) -> None:
        """See `queue_manager.shard.context.Dispatched`: go on draining."""
        if not self.is_draining or not self.consumers:
            return
        consumer = self.consumers[0]
        if consumer.paused:
            return  # `drain` is called again when it goes on
        group = consumer.group
        given: int | None = 0
        if consumer.credit() > 0 and group.entitles(consumer):
            given = group.pull(consumer, min(consumer.credit(), max(1, self._context.budget.left)), now_ms)
        if given is None:
            group.when_loaded(self._again)
        elif given and self.left > 0:
            self._again(now_ms)
        else:
            self.is_draining = False
            self._dried()

    def _again(self, now_ms: int) -> None:
        if self.is_draining and self not in self._context.deferred:
            self._context.dispatchable[self] = None
