"""An event loop with a time of its own, and connections in memory that are late at random: a seed replays
all of it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

T = TypeVar("T")

OWNER: Final[contextvars.ContextVar[object]] = contextvars.ContextVar("OWNER")
"""The process that something is done in, as it were."""

Make = Callable[[], asyncio.Protocol]

_DELAYS_S: Final = (0.0, 0.0, 0.0, 0.0005, 0.002, 0.01, 0.05)
_UNFINISHED: Final = "Task was destroyed but it is pending!"  # of processes that were killed


class SeededLoop(asyncio.BaseEventLoop):
    """Runs what is due, and has time go on to what is due next. `problems` are errors that nobody took."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._selector = self
        self._now = 0.0
        self.chance = chance
        self.problems: list[object] = []
        self._servers: dict[str, tuple[Make, contextvars.Context]] = {}
        self._neutral = contextvars.Context()
        self.wires: list[Wire] = []
        self.set_exception_handler(self._note_problem)

    def _note_problem(self, loop: object, context: dict[str, Any]) -> None:
        if context["message"] != _UNFINISHED:
            self.problems.append(context.get("exception") or context["message"])

    # what BaseEventLoop asks for

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """Have the time pass that there is nothing to do."""
        assert timeout is not None, "nothing will ever happen"
        self._now += timeout
        return []

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    # processes

    def call_within(self, owner: object, call: Callable[..., T], *arguments: Any) -> T:
        """Do something as that process."""
        context = contextvars.Context()
        context.run(OWNER.set, owner)
        return context.run(call, *arguments)

    def kill(self, owner: object) -> None:
        """End a process: nothing of it goes on, and its connections end."""
        for handle in [*self._ready, *self._scheduled]:  # type: ignore[attr-defined]
            if handle._context is not None and handle._context.get(OWNER, None) is owner:
                handle.cancel()
        for path, (_, context) in list(self._servers.items()):
            if context[OWNER] is owner:
                del self._servers[path]
        for wire in list(self.wires):
            wire.end_of(owner)

    # connections

    async def create_unix_server(self, make: Make, path: str) -> _Server:  # type: ignore[override]
        self._servers[path] = make, contextvars.copy_context()
        return _Server(self, path)

    def end_server(self, path: str) -> None:
        """Take no connections there any more."""
        self._servers.pop(path, None)

    async def create_unix_connection(  # type: ignore[override]
        self, make: Make, path: str
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        found = self._servers.get(path)
        if found is None:
            raise FileNotFoundError(path)
        make_server, context = found
        wire = Wire(self, (make, contextvars.copy_context()), (make_server, context.copy()))
        self.wires.append(wire)
        return wire.ends[0], wire.ends[0].protocol

    def later(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        """Call as nobody's process."""
        self.call_later(delay_s, call, *arguments, context=self._neutral)


class _Server:
    def __init__(self, loop: SeededLoop, path: str) -> None:
        self._loop = loop
        self._path = path

    def close(self) -> None:
        self._loop.end_server(self._path)


class Wire:
    """A connection of two processes; `ends[0]` is at the one that asked for it."""

    def __init__(self, loop: SeededLoop, *made: tuple[Make, contextvars.Context]) -> None:
        self.loop = loop
        self.is_broken = False
        self.ends = [End(self, context.run(make), context) for make, context in made]
        first, second = self.ends
        first.other, second.other = second, first
        for end in self.ends:
            end.call(end.protocol.connection_made, end)

    def end_of(self, owner: object) -> None:
        """End it if it is one of that process, which is not told."""
        for end in self.ends:
            if end.owner is owner:
                end.is_lost = True
                end.abort()


class End(asyncio.Transport):
    """One end of a wire. What is written comes later at the other one, in pieces of any size."""

    other: End

    def __init__(self, wire: Wire, protocol: asyncio.Protocol, context: contextvars.Context) -> None:
        super().__init__()
        self._wire = wire
        self._loop = wire.loop
        self._chance = wire.loop.chance
        self._context = context
        self.protocol = protocol
        self._waiting = bytearray()
        self._high = 64 << 10
        self._is_coming = False
        self._is_full = False
        self._is_closing = False
        self.is_lost = False

    @property
    def owner(self) -> object:
        """The process that has this end."""
        return self._context[OWNER]

    @property
    def is_broken(self) -> bool:
        """Whether one of its ends aborted it: what comes still is from before."""
        return self._wire.is_broken

    def call(self, call: Callable[..., object], *arguments: object) -> None:
        """Have its process do something."""
        self._context.copy().run(call, *arguments)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self._high = high

    def is_closing(self) -> bool:
        return self._is_closing

    def write(self, data: Any) -> None:
        if self._is_closing:
            return
        self._waiting += data
        if len(self._waiting) > self._high and not self._is_full:
            self._is_full = True
            self.protocol.pause_writing()
        self._come_later()

    def _come_later(self) -> None:
        if not self._is_coming:
            self._is_coming = True
            self._loop.later(self._chance.choice(_DELAYS_S), self._come)

    def _come(self) -> None:
        self._is_coming = False
        if self.other.is_lost:
            return
        waiting = self._waiting
        size = len(waiting) if self._chance.random() < 0.6 else self._chance.randint(0, len(waiting))
        if size:
            data = bytes(waiting[:size])
            del waiting[:size]
            self.other.call(self.other.protocol.data_received, data)
        if self._is_full and len(waiting) <= self._high // 4 and not self.is_lost:
            self._is_full = False
            self.call(self.protocol.resume_writing)
        if waiting:
            self._come_later()
        elif self._is_closing:
            self._lose()

    def close(self) -> None:
        """End the connection once what was written has come."""
        if not self._is_closing:
            self._is_closing = True
            self._come_later()

    def abort(self) -> None:
        """End the connection; what was written may come still, in part, or not."""
        if not self._is_closing:
            self._is_closing = self._wire.is_broken = True
            del self._waiting[self._chance.choice((0, 0, len(self._waiting), len(self._waiting) // 2)) :]
            self._loop.later(0, self._tell_lost)
            self._come_later()

    def _lose(self) -> None:
        for end in (self, self.other):
            end._is_closing = True
            end._tell_lost()
        if self._wire in self._loop.wires:
            self._loop.wires.remove(self._wire)

    def _tell_lost(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.call(self.protocol.connection_lost, None)
