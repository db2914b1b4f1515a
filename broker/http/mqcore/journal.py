"""Answers that wait until what they tell of is durable."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.http.problems import RETRY_AFTER_S, Problem
from broker.vhosts.hub import Hub
from config import limits
from storage.errors import StorageError

_RETRY: Final = {"retry-after": str(RETRY_AFTER_S)}


class Journal:
    """What was done is followed up once in a loop turn, and waited for by who asks."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._settles = False
        self._waiting: list[asyncio.Future[None]] = []
        self._telling: set[asyncio.Task[None]] = (
            set()
        )  # not the hub's tasks: those end before a stop confirms

    def follow_up(self) -> None:
        """At the end of this loop turn: deliver what can be delivered, commit what was done."""
        if not self._settles:
            self._settles = True
            self._hub.loop.call_soon(self._settle)

    async def durable(self) -> None:
        """Wait for what was done so far; raises Problem (503) when that is not certain in time, and
        BrokerStopped.
        """
        waiting: asyncio.Future[None] = self._hub.loop.create_future()
        if not self._waiting:
            self._hub.loop.call_soon(self._commit)
        self._waiting.append(waiting)
        await waiting

    def check_room(self) -> None:
        """Raise Problem (503) while as much waits for the store as may."""
        if self._hub.client.turns.uncommitted_bytes() > limits.UNCOMMITTED_BYTES_MAX:
            raise unavailable("more waits for the store than may")

    def _commit(self) -> None:
        """What was done in this turn of the loop is waited for together."""
        waiting, self._waiting = self._waiting, []
        telling = self._hub.loop.create_task(self._tell(waiting))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    async def _tell(self, waiting: list[asyncio.Future[None]]) -> None:
        error: Exception | None = None
        try:
            async with asyncio.timeout(limits.MQCORE_STORE_TIMEOUT_S):
                await self._hub.client.commits.durable()
        except TimeoutError:
            error = unavailable("the store takes too long")
        except StorageError as stopped:
            error = stopped
        for future in waiting:
            if future.done():  # the client went
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def _settle(self) -> None:
        self._settles = False
        self._hub.settle_turn()


def unavailable(reason: str) -> Problem:
    """What cannot be guaranteed now, and when to try again."""
    return Problem(503, "unavailable", reason, headers=_RETRY)
