"""The connections of a broker: who is there, who has output to be written, who is held back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Any, Protocol

from broker.connections.body_room import Sender
from broker.connections.connection_views import ConnectionView
from broker.stepping import one_by_one
from config import limits


class Goodbye(Enum):
    """Why the broker ends a connection: what the client is told where there is no reason of its own."""

    DISMISSED = "closed by an operator"
    SHUTTING_DOWN = "the broker is shutting down"
    STORE_FAILED = "the broker's store failed"
    TOO_SLOW = "a message took too long to come while others waited for room"
    NOT_PERMITTED = "not permitted any more"
    INTERNAL_ERROR = "internal error"


class Peer(Sender, Protocol):
    """A client's connection, as the broker sees it."""

    def describe(self) -> ConnectionView:
        """Return what there is to tell of it."""

    def flush(self) -> None:
        """Write its output."""

    def check_deadline(self, now: float) -> None:
        """Let the connection act on its deadlines."""

    def store_caught_up(self) -> None:
        """Let what was held back by `Connections.hold_back` go on."""

    def end_slow_message(self) -> None:
        """Send the client away: others wait for the room of a message that does not get finished."""

    def send_away(self, why: Goodbye, reason: str = "") -> None:
        """Say goodbye in the protocol's words, and end the connection."""

    def abort(self) -> None:
        """End the transport without waiting for anything."""


@dataclass(eq=False, repr=False)
class Connections:
    """All that hubs share of connections, whatever virtual host these are in."""

    _loop: asyncio.AbstractEventLoop
    _settle_left: Callable[[], None]
    """Called once before output is written, for whoever said something in this loop turn, and after it:
    clients that are gone may have given back.
    """
    _announce: Callable[[], None]
    """Called when the first of a turn has said something."""
    transports: dict[Peer, None] = field(default_factory=dict, init=False)
    _flushes: dict[Peer, None] = field(default_factory=dict, init=False)
    _answers: dict[Peer, None] = field(default_factory=dict, init=False)
    _before_write: list[Callable[[], None]] = field(default_factory=list, init=False)
    _held_back: list[Peer] = field(default_factory=list, init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _settle_wanted: bool = field(default=False, init=False)
    _end_scheduled: bool = field(default=False, init=False)
    _caller_count: int = field(default=0, init=False)
    _connection_count: int = field(default=0, init=False)
    _connection_step: int = field(default=1, init=False)

    def connected(self, transport: Peer) -> int:
        """Note a client that connected; gives the number of its connection."""
        self._connection_count += self._connection_step
        self.transports[transport] = None
        return self._connection_count

    def number_from(self, first: int, step: int) -> None:
        """Give connections these numbers, before the first one: other processes give others."""
        self._connection_count, self._connection_step = first, step

    def new_caller(self) -> str:
        """Make a name for a connection, by which the core tells who asks."""
        self._caller_count += 1
        return f"connection-{self._caller_count}"

    def disconnected(self, transport: Peer) -> None:
        """Forget the client: its transport is gone."""
        self.transports.pop(transport, None)
        self._flushes.pop(transport, None)
        self._answers.pop(transport, None)

    async def check_deadlines(self, now: float) -> None:
        """Let all connections act on theirs, in steps between which others have their turn."""
        async for transport in self.peers(limits.DEADLINES_PER_TURN_MAX):
            transport.check_deadline(now)

    async def peers(self, size: int = limits.LISTED_CONNECTIONS_PER_STEP) -> AsyncIterator[Peer]:
        """Yield those that are connected, but for who goes meanwhile; others have their turn after every
        `size` of them.
        """
        async for transport in one_by_one(list(self.transports), size):
            if transport in self.transports:
                yield transport

    def hold_back(self, transport: Peer) -> None:
        """Call its `store_caught_up` with the next commit."""
        self._held_back.append(transport)

    def committed(self) -> None:
        """Note that a commit is done: clients held back may go on, and those that waited for it are told at
        once.
        """
        if self._held_back:
            transports = self._held_back
            self._held_back = []
            for transport in transports:
                transport.store_caught_up()
        if self._flushes or self._answers:
            self._write()

    def want_settle(self) -> None:
        """Have the core settled once, at the end of the loop turn, after a client said something."""
        if not self._settle_wanted:
            self._settle_wanted = True
            self._schedule_end()
            self._announce()

    def before_write(self, call: Callable[[], None]) -> None:
        """Call that once, at the end of the loop turn, before output is written. It raises nothing."""
        self._before_write.append(call)
        self._schedule_end()

    def want_flush(self, transport: Peer) -> None:
        """Write this transport's output at the end of the loop turn."""
        self._flushes[transport] = None
        if not self._end_scheduled:
            self._schedule_end()

    def want_flushes(self, transports: Iterable[Peer]) -> None:
        """Ask as `want_flush`, for all of these."""
        self._flushes.update(dict.fromkeys(transports))
        self._schedule_end()

    def want_answer(self, transport: Peer) -> None:
        """Ask as `want_flush`, for a client that spoke in this turn: it is written to before those that only
        receive.
        """
        self._answers[transport] = None
        if not self._end_scheduled:
            self._schedule_end()

    def _schedule_end(self) -> None:
        if not self._end_scheduled:
            self._end_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        try:
            if self._settle_wanted:
                self._settle_wanted = False
                self._settle_left()
            if self._before_write:
                calls, self._before_write = self._before_write, []
                for call in calls:
                    call()
            self._write()
        finally:
            # one publish may be for thousands: others have their turn in between
            self._end_scheduled = False
            if self._flushes or self._answers or self._settle_wanted:
                self._schedule_end()
        self._settle_left()

    def _write(self) -> None:
        """Write some of the output; who was just heard is read again before the rest is written.

        While the loop is busy, what then comes for a connection that still waits goes out in the same write.
        """
        answers, flushes = self._answers, self._flushes
        if answers:
            self._write_first(answers, limits.ANSWERS_PER_TURN_MAX)
        if flushes:
            share = len(flushes) // limits.FLUSH_TURNS
            count = min(max(share, limits.FLUSHES_PER_TURN_MIN), limits.FLUSHES_PER_TURN_MAX)
            self._write_first(flushes, count)

    def _write_first(self, waiting: dict[Peer, None], count: int) -> None:
        for transport in list(islice(waiting, count)):
            if transport in waiting:
                del waiting[transport]
                try:
                    transport.flush()
                except Exception as error:  # our bug, or the transport's: it must cost one connection
                    message = "writing to a client failed"
                    self._loop.call_exception_handler({"message": message, "exception": error})
                    transport.abort()

    # tasks

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; it ends with the broker."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop_tasks(self) -> None:
        """Stop tasks: the broker stops."""
        for task in self._tasks:
            task.cancel()
