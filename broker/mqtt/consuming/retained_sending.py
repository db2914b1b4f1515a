"""Retained messages for new subscriptions: found and sent in steps, with everybody else's turn in between.

A filter may match a hundred thousand messages, or look at as many topics in vain, and one SUBSCRIBE may have
hundreds of filters. What is little is sent at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from broker.engine.answers import Answer
from broker.engine.elsewhere import Pages
from broker.engine.traffic import RetainedMessage
from broker.mqtt.settling.outbound import Outbound
from config import limits

Found = Iterator[RetainedMessage | None]
"""The messages that a filter matches; None after so many topics, `limits.RETAINED_TOPICS_PER_PAUSE`."""


_Todo = tuple[Found, Callable[[RetainedMessage], bool], Callable[[], None], Pages | None]


class RetainedTurns:
    """How much clients are sent in a turn of the loop, and whose turn it is."""

    __slots__ = ("_is_due", "_left", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[RetainedSending] = deque()
        self._left = limits.RETAINED_COST_PER_TURN_MAX
        self._is_due = False

    def spend(self, cost: int) -> bool:
        """Count so much as done; give whether that is all for this turn."""
        self._left -= cost
        return self._left <= 0

    def begin(self, sending: RetainedSending) -> None:
        """Send a client what there is for it: now, if that is little and nobody else waits."""
        if self._waiting or self._left <= 0 or not sending.step():
            sending.wait()
            if not sending.is_stalled:
                self._waiting.append(sending)
        self._schedule()

    def go_on(self, sending: RetainedSending) -> None:
        """Send a client more: what it waited for is there."""
        self._waiting.append(sending)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        self._left = limits.RETAINED_COST_PER_TURN_MAX
        while self._waiting and self._left > 0:
            sending = self._waiting.popleft()
            if not sending.step() and not sending.is_stalled:
                self._waiting.append(sending)
        if self._waiting:
            self._schedule()


class RetainedSending:
    """The retained messages for one client, subscription by subscription. Other messages for it wait
    meanwhile, so that nothing overtakes an older message.

    `is_stalled`: it goes on when other workers have answered.
    """

    __slots__ = ("_is_waiting", "_outbound", "_todo", "_turns", "is_stalled")

    def __init__(self, turns: RetainedTurns, outbound: Outbound) -> None:
        self._turns = turns
        self._outbound = outbound
        self._todo: deque[_Todo] = deque()
        self._is_waiting = False
        self.is_stalled = False

    def add(
        self,
        found: Found,
        send: Callable[[RetainedMessage], bool],
        done: Callable[[], None],
        pages: Pages | None = None,
    ) -> None:
        """Call `send` with what is found, until that gives False since the subscription is over; then call
        `done`. `pages`: part of it comes from other workers.
        """
        self._todo.append((found, send, done, pages))
        if not self._is_waiting:
            self._turns.begin(self)

    def end(self) -> None:
        """End: the client is gone."""
        self._todo.clear()

    def wait(self) -> None:
        """Go on in another turn."""
        if not self._is_waiting:
            self._is_waiting = True
            self._outbound.hold()

    def step(self) -> bool:
        """Send a part; give whether that was all."""
        if self._todo and not self._outbound.guard_retained(self._send):
            self._todo.clear()
        if self._todo:
            return False
        if self._is_waiting:
            self._turns.spend(limits.HELD_RUNS_RELEASED_MAX * limits.RETAINED_MESSAGE_COST)
            self._is_waiting = not self._outbound.release()
        return not self._is_waiting

    def _send(self) -> None:
        spend = self._turns.spend
        while self._todo:
            found, send, done, pages = self._todo[0]
            for message in found:
                if message is None and pages is not None and not pages.arrived.is_done:
                    self.is_stalled = True
                    pages.arrived.then(self._go_on)
                    return
                if message is None:
                    is_spent = spend(limits.RETAINED_TOPICS_PER_PAUSE)
                elif send(message):
                    is_spent = spend(limits.RETAINED_MESSAGE_COST + len(message.body) // 512)
                else:
                    break
                if is_spent:
                    return
            self._todo.popleft()
            done()
            if spend(limits.RETAINED_FILTER_COST):
                return

    def _go_on(self, arrived: Answer[None]) -> None:
        self.is_stalled = False
        self._turns.go_on(self)
