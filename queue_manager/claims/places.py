"""The places of a client's window: what its consumers are given takes one for each message, until the client
acknowledges it, and so does what reaches it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from queue_manager.claims.claim import Consumer, Pool
from queue_manager.shard.context import Context, Dispatched


class Window(Protocol):
    """The front-end's window of messages that a client was sent and has not acknowledged."""

    def free(self) -> int:
        """Return how many more messages it takes now, of whatever it is sent; below 1: none."""

    def close(self) -> None:
        """Take nothing until `open`."""

    def open(self) -> None:
        """Take as many messages again as the client allows."""


class Places(Pool):
    """The credit of consumers is what is free of the window.

    Who takes places that become free is decided at the end of the turn: first what waits in the window
    together with the session, or one of the consumers, each in its turn; then the others as far as places
    are left. Until then the window is closed, so that none of them is always a little earlier.
    """

    __slots__ = ("_context", "_fill", "_session", "_turn", "_window")

    def __init__(
        self,
        context: Context,
        window: Window,
        fill: Callable[[], None],
        session: Dispatched | None = None,
    ) -> None:
        """`fill` sends what waits and is neither a consumer's nor the session's, while there is a place."""
        super().__init__()
        self._context = context
        self._window = window
        self._fill = fill
        self._session = session
        self._turn = 0

    def free(self) -> int:
        return self._window.free()

    def claimed(self, count: int) -> None:
        """See `Pool`: the window counts what is sent."""

    def released(self, count: int) -> None:
        """See `Pool`: it is not for a settlement that places are free, but for an acknowledgement."""

    def freed(self) -> None:
        """Note that places are free again."""
        if any(consumer.group.lacks_credit(consumer) for consumer in self.consumers):
            self._window.close()
            self._context.dispatchable[self] = None
        else:
            self._fill()

    def dispatch(self, now_ms: int) -> None:
        """See `Dispatched`: give out the places that are free."""
        window = self._window
        window.open()
        parties: list[Consumer | None] = [None, *self.consumers]
        start = self._turn % len(parties)
        first_served = 0
        for number, party in enumerate(parties[start:] + parties[:start], start + 1):
            free = window.free()
            if party is not None:
                party.group.credit_grew(party)
                party.group.dispatch(now_ms)
            else:
                self._fill()
                if self._session is not None:
                    self._session.dispatch(now_ms)
            if not first_served and window.free() < free:
                first_served = number
        if first_served:
            self._turn = first_served % len(parties)


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
