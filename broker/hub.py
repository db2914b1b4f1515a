"""What all connections of one broker share: the way to the core, and the end of each loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import islice
from typing import Any, Protocol

from broker.access.access import Access
from broker.body_room import BodyRoom, Sender
from broker.clock import Clock
from broker.configured import default_policy
from broker.connection_views import ConnectionView
from broker.counters import Counters
from broker.engine.client import ShardClient
from broker.refusals import RefusalLog
from broker.topics import TopicSpace
from config import limits
from config.settings import Settings


class Peer(Sender, Protocol):
    """A client's connection, as the broker sees it."""

    def describe(self) -> ConnectionView:
        """What there is to tell of it."""

    def dismiss(self, reason: str) -> None:
        """Somebody who operates the broker wants the client gone."""

    def flush(self) -> None:
        """Write its output."""

    def check_deadline(self, now: float) -> None:
        """Let the connection act on its deadlines."""

    def store_caught_up(self) -> None:
        """What was held back by `Hub.hold_back` may go on."""

    def end_slow_message(self) -> None:
        """Others wait for the room of a message that does not get finished: send the client away."""

    def hold_reading(self) -> None:
        """Read nothing more before as many `release_reading` as there were holds."""

    def release_reading(self) -> None:
        """One reason less not to read."""

    def shut_down(self) -> None:
        """The broker stops: say goodbye."""

    def fail_storage(self) -> None:
        """The broker's store failed for good: send the client away."""

    def abort(self) -> None:
        """End the transport without waiting for anything."""


class Hub:
    """Passed to every front-end; there is one per running broker, none global."""

    def __init__(
        self,
        settings: Settings,
        client: ShardClient,
        access: Access,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.settings = settings
        self.access = access
        self.client = client
        self.default_policy = default_policy(settings)
        self.clock = clock
        self.loop = loop
        self.counters = Counters()
        self.refusals = RefusalLog()
        self.topics = TopicSpace()
        self.bodies: BodyRoom[Peer] = BodyRoom()
        self.transports: dict[Peer, None] = {}
        self._flushes: dict[Peer, None] = {}
        self._held_back: list[Peer] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_scheduled = False
        self._caller_count = 0
        self._connection_count = 0
        client.commits.on_committed(self._on_committed)

    # connections

    def connected(self, transport: Peer) -> int:
        """A client connected; gives the number of its connection."""
        self._connection_count += 1
        self.transports[transport] = None
        return self._connection_count

    def new_caller(self) -> str:
        """A name for a connection, by which the core tells who asks."""
        self._caller_count += 1
        return f"connection-{self._caller_count}"

    def disconnected(self, transport: Peer) -> None:
        """The client's transport is gone."""
        self.transports.pop(transport, None)
        self._flushes.pop(transport, None)

    async def check_deadlines(self, now: float) -> None:
        """Let all connections act on theirs, in steps between which others have their turn."""
        transports = list(self.transports)
        for start in range(0, len(transports), limits.DEADLINES_PER_TURN_MAX):
            for transport in transports[start : start + limits.DEADLINES_PER_TURN_MAX]:
                if transport in self.transports:
                    transport.check_deadline(now)
            await asyncio.sleep(0)

    def hold_back(self, transport: Peer) -> None:
        """Call its `store_caught_up` with the next commit."""
        self._held_back.append(transport)

    # loop turns

    def has_work(self) -> bool:
        """Whether `settle_turn` has anything to do."""
        return self.client.turns.has_work()

    def settle_turn(self) -> None:
        """After something was done to the core: deliver what can be delivered, commit what must be."""
        self.client.turns.settle()

    def want_flush(self, transport: Peer) -> None:
        """Write this transport's output at the end of the loop turn."""
        self._flushes[transport] = None
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        flushes = self._flushes
        for transport in list(islice(flushes, limits.FLUSHES_PER_TURN_MAX)):
            if transport in flushes:
                del flushes[transport]
                transport.flush()
        self._flush_scheduled = bool(flushes)
        if flushes:  # one publish may be for thousands: others have their turn in between
            self.loop.call_soon(self._flush)
        if self.has_work():  # what clients who are gone gave back
            self.settle_turn()

    def _on_committed(self) -> None:
        if self._held_back:
            transports = self._held_back
            self._held_back = []
            for transport in transports:
                transport.store_caught_up()

    # tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; it ends with the broker."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop_tasks(self) -> None:
        """The broker stops."""
        for task in self._tasks:
            task.cancel()
