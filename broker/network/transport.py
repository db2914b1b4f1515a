"""One asyncio.Protocol that drives the `Connection` of any protocol, and the flush that ends a loop turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import structlog

from broker.access.credentials import Peer, peer_of
from broker.connections.body_room import BodyRoom
from broker.connections.connection_views import ConnectionView
from broker.connections.read_holds import Reading
from broker.connections.registry import Goodbye
from broker.network.frontend_base import Frontend
from broker.network.output import Output
from broker.network.tls.gate import certificate_names
from broker.vhosts.hub import Hub
from config import limits
from queue_manager.quota_accounts import BYTES_IN, BYTES_OUT, MESSAGES_IN, MESSAGES_OUT, NO_SHARE, Share

_log: Final = structlog.get_logger("sluicemq.transport")


def peer_text(name: object) -> str:
    """Return the address of a peer as `host:port`; a Unix socket has none."""
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) > 1 else str(name or "unix")


class Door(Protocol):
    """Takes chunks in the place of a transport, as long as it is open; the others it hands on."""

    def data_received(self, data: bytes, /) -> None:
        """Take bytes from the peer."""

    def close(self) -> None:
        """Hand the next chunk on: something else happens to the client than to be heard and answered."""

    def dissolve(self) -> None:
        """Let go of everything: the client is gone."""


@dataclass(eq=False, repr=False, slots=True)
class Transport(asyncio.Protocol):
    """Feeds bytes to a connection, hands its events to the front-end, writes what both put out.

    Writing happens once per loop turn and connection, however many deliveries came together. `paused`: the
    peer reads too slowly. `reading` says whether anything is read from it, `output` what it has not taken.
    `share`: whose quotas hold for the client, once it was let in. `take_lone`: takes a small chunk if that
    needs nothing but an answer, which it returns; None: the chunk is for the connection. `door`: what the
    loop calls instead of `data_received`, once there is something to gain by it.
    The rest is one method for whatever the loop, the broker (`Peer`) or the front-end may want.
    Implements `broker.network.proxy_protocol.Proxied` and `Peer`.
    """

    _hub: Hub
    _make: Callable[[Transport], Frontend]
    _lost: Callable[[], None]
    monotonic: Callable[[], float] = field(init=False)
    _asked_for: str = field(default="", init=False)
    _certified_by: tuple[str, ...] = field(default=(), init=False)
    _room: BodyRoom[Any] | None = field(default=None, init=False)
    """Where a large message that has come in part was announced."""
    _dissolved: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _flush_wanted: bool = field(default=False, init=False)
    _later: list[Any] = field(default_factory=list, init=False)  # events that have yet to have their turn
    _number: int = field(default=0, init=False)
    _connected_at_ms: int = field(init=False)
    paused: bool = field(default=False, init=False)
    peer: str = field(default="", init=False)
    share: Share = field(default=NO_SHARE, init=False)
    take_lone: Callable[[bytes, float], bytes | None] | None = field(default=None, init=False)
    door: Door | None = field(default=None, init=False)
    frontend: Frontend = field(init=False)
    output: Output = field(init=False)
    reading: Reading = field(init=False)
    transport: asyncio.Transport = field(init=False)

    def __post_init__(self) -> None:
        """Drive what `make_frontend` makes; `lost` is called once the connection is lost."""
        self.monotonic = self._hub.clock.monotonic
        self._connected_at_ms = self._hub.clock.now_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a peer that connected."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=limits.WRITE_BUFFER_BYTES_HIGH)
        self.output = Output(self._hub.loop, self.transport, self.resume_writing)
        self.reading = Reading(self.transport)
        self.peer = self.peer or peer_text(transport.get_extra_info("peername"))
        self.frontend = self._make(self)
        self._number = self._hub.connected(self)

    def hand_over(self, frontend: Frontend, data: bytes) -> None:
        """Have another front-end serve the peer from now on, which has said `data` and been told nothing."""
        self.frontend.dissolve()
        self.frontend = frontend
        self.reading.hold()
        self._hub.loop.call_soon(self._begin_again, data)

    def _begin_again(self, data: bytes) -> None:
        if not self._dissolved:
            self.data_received(data)
            self.reading.release()

    def go_by(self, door: Door) -> None:
        """Have the loop give the door what comes from the peer; where it cannot, nothing comes to it."""
        self.door = door
        with suppress(NotImplementedError):  # bytes in frames
            self.transport.set_protocol(cast(asyncio.BaseProtocol, door))

    def lone_failed(self, error: Exception) -> None:
        """End the client: the door met a bug of ours."""
        self._fail(error)
        self.want_answer()

    def come_from(self, peer: str) -> None:
        self.peer = peer

    def ask_for(self, host: str) -> None:
        """Note that the peer is a page of a browser, which asked for that host (see `Peer`)."""
        self._asked_for = host

    def certified_by(self, names: tuple[str, ...]) -> None:
        """Note the names of a certificate that the peer showed to another worker, before
        `connection_made`.
        """
        self._certified_by = names

    @property
    def came_from(self) -> Peer:
        """Where the peer comes from, for access control."""
        return peer_of(self.peer, self._asked_for)

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """The names of the peer's certificate, if it showed one that was verified."""
        return self._certified_by or certificate_names(self.transport.get_extra_info("ssl_object"))

    def data_received(self, data: bytes) -> None:
        """Decode all bytes from the peer, act, have the answers written this turn."""
        if (
            self.take_lone is not None
            and len(data) <= limits.LONE_CHUNK_BYTES_MAX
            and not (self._flush_wanted or self.paused or self.share.is_paced or self.output.pending_bytes)
        ):
            try:
                answer = self.take_lone(data, self.monotonic())
            except Exception:
                self._fail()
                self.want_answer()
                return
            if answer is not None:
                if answer:
                    self.transport.write(answer)
                return
        frontend = self.frontend
        connection = frontend.connection
        events = connection.receive(data, self.monotonic())
        if events:
            try:  # as `guard`, without its calls: every message of a lone device comes this way
                if len(events) == 1:
                    frontend.handle(events)
                else:
                    self._act(events)
            except Exception:
                self._fail()
            hub = self._hub
            if connection.closed and not self._later:
                self.end()  # before anything is dispatched to a client who will not read it
            if len(data) <= limits.LONE_CHUNK_BYTES_MAX:
                hub.want_settle()
            elif hub.has_work():
                hub.settle_turn()
            if self.share.is_paced:
                self._pace_reading(len(data), events)
            uncommitted_bytes = hub.client.turns.uncommitted_bytes()
            if uncommitted_bytes > limits.UNCOMMITTED_BYTES_MAX and self.reading.block(self.monotonic()):
                hub.hold_back(self)
        unfinished_bytes = connection.unfinished_bytes
        if unfinished_bytes or self._room is not None:
            self._announce(unfinished_bytes)
            self.reading.took_part(len(data), self._hub.loop, connection.memory_to_take)
        if not self._flush_wanted and (connection.output or connection.closed):
            self._flush_wanted = True
            self._hub.want_answer(self)
        if self.paused:
            self.reading.bound_answers(self.output.buffered_bytes())

    def _pace_reading(self, size: int, events: list[Any]) -> None:
        """Count what the client said; read nothing more for a while if that is more than a quota lets it."""
        share, now = self.share, self.monotonic()
        found = [share.spend(BYTES_IN, size, now)]
        count = self.frontend.published_count(events)
        if count:
            found.append(share.spend(MESSAGES_IN, count, now))
        wait_s, reason = max(found)
        if wait_s:
            self.reading.hold_for(wait_s, reason, self._hub.loop, self._paced)
            if wait_s >= limits.BLOCKED_NOTICE_MS / 1000:
                self.guard(self.frontend.held_back, reason)

    def _paced(self) -> None:
        """Note that the client is read from again."""
        if not self._dissolved:
            self.guard(self.frontend.let_on)
            self.want_flush()

    def sent(self, count: int) -> None:
        """Count messages for a client whose quotas bound what it is sent (`Share.is_paced`); it gets no more
        for a while if that was too much.
        """
        self._hold_output(*self.share.spend(MESSAGES_OUT, count, self.monotonic()))

    def _hold_output(self, wait_s: float, reason: str) -> None:
        if wait_s:
            self.output.hold(wait_s, reason)
            self.pause_writing()

    def _write_paced(self, parts: Iterable[bytes | memoryview]) -> None:
        """Write in steps, each when the quotas let it."""
        share = self.share

        def wrote(size: int) -> None:
            self._hold_output(*share.spend(BYTES_OUT, size, self.monotonic()))

        step_bytes = share.per_s(BYTES_OUT) // limits.QUOTA_STEPS_PER_S
        self.output.write_in_steps(parts, max(limits.QUOTA_STEP_BYTES_MIN, step_bytes), wrote)
        if self.output.pending_bytes:
            self.pause_writing()

    def _announce(self, unfinished_bytes: int) -> None:
        """Tell how much of large messages has yet to come; a client that is not known by now has a small
        room.
        """
        hub = self._hub
        room = hub.bodies if self.frontend.connection.is_let_in else hub.bodies_of_strangers
        if self._room is not room:
            self._forget_unfinished()
        room.announce(self, unfinished_bytes, self.monotonic())
        self._room = room if unfinished_bytes else None

    def _act(self, events: list[Any]) -> None:
        """Act on the first of several events, as many as do not take long; the others come when all clients
        have had their turn.
        """
        count = self._handle_some(events)
        if count < len(events):
            self._later = events[count:]
            self.reading.hold()
            self._hub.loop.call_soon(self._go_on)

    def _handle_some(self, events: list[Any]) -> int:
        """Act on some events, ever more at a time as long as they take no time; give how many it were."""
        handle = self.frontend.handle
        monotonic = self.monotonic
        most = min(len(events), limits.EVENTS_PER_TURN_MAX)
        until = monotonic() + limits.EVENTS_TURN_MS / 1000
        count = 0
        while count < most:
            part = events[count : min(2 * count + 1, most)]
            count += len(part)
            handle(part)
            if monotonic() > until:
                break
        return count

    def _go_on(self) -> None:
        """Act on more of what the client said before."""
        later = self._later
        if not later:
            return  # the connection was lost
        try:
            del later[: self._handle_some(later)]
        except Exception:
            later.clear()
            self._fail()
        if later:
            self._hub.loop.call_soon(self._go_on)
        else:
            self.reading.release()
            if self.frontend.connection.closed:
                self.end()
        self._hub.settle_turn()
        self.want_answer()

    @property
    def is_behind(self) -> bool:
        """Whether something that the client said has yet to have its turn."""
        return bool(self._later)

    def catch_up(self) -> None:
        """Act now on everything that the client said."""
        said, self._later = self._later, []
        if said:
            self.guard(self.frontend.handle, said)
            self.reading.release()

    def eof_received(self) -> bool:
        """Take the end of what the peer sends; nothing of either protocol can go on."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the transport, whatever the cause."""
        self._lost()
        self._hub.disconnected(self)
        self.output.dissolve()
        said, self._later = self._later, []
        self.guard(self.frontend.handle, [*said, *self.frontend.connection.receive_eof()])
        self.end()
        self._hub.want_settle()  # once for all that are lost together
        # here the circles of references end: the collector looks far too seldom for connections
        self._dissolved = True
        self._flush_wanted = True  # for good: nobody is left to write to
        self.frontend.dissolve()
        self.take_lone = None
        if self.door is not None:
            self.door.dissolve()
            self.door = None
        del self.frontend

    def pause_writing(self) -> None:
        """Give consumers nothing more until the peer, which reads too slowly, has caught up."""
        if not self.paused:
            self.paused = True
            if self.door is not None:
                self.door.close()
            self.frontend.pause()

    def resume_writing(self) -> None:
        """Go on: the peer caught up, or large messages were written to their end."""
        self.output.go_on()
        if (
            not self.paused
            or self._dissolved
            or self.output.held_by
            or self.output.buffered_bytes() > limits.WRITE_BUFFER_BYTES_HIGH
        ):
            return
        self.reading.answers_taken()
        self.paused = False
        self.frontend.resume()
        if self.frontend.connection.closed:
            self.want_flush()
        self._hub.settle_turn()

    def check_deadline(self, now: float) -> None:
        """Let the connection act on its deadlines."""
        connection = self.frontend.connection
        if self.reading.is_blocked_long(now):
            self.guard(self.frontend.held_back, "the store does not keep up")
            self.want_flush()
        if self.reading.is_held_by_broker and connection.is_let_in:  # a handshake has its time in any case
            if not self.frontend.sends_heartbeats:
                return
            connection.receive(b"", now)
        deadline = connection.next_deadline()
        if deadline is not None and deadline <= now:
            self.guard(self.frontend.handle, connection.handle_timeout(now))
            self.want_flush()

    def want_flush(self) -> None:
        """Have the connection's output written at the end of this loop turn."""
        if not self._flush_wanted:
            self._flush_wanted = True
            if self.door is not None:
                self.door.close()
            self._hub.want_flush(self)

    def want_answer(self) -> None:
        """Ask for a flush as `want_flush`, before clients that only receive: this one waits for what it is
        told.
        """
        if not self._flush_wanted:
            self._flush_wanted = True
            if self.door is not None:
                self.door.close()
            self._hub.want_answer(self)

    def flush(self) -> None:
        """Write the output; close once the connection is closed."""
        self._flush_wanted = False
        connection = self.frontend.connection
        output = connection.output
        if output:
            if self.share.is_paced or self.output.held_by:
                self._write_paced(connection.take_output())
            elif connection.has_large_output or self.output.pending_bytes:
                self.output.write_in_steps(connection.take_output())
                if self.output.pending_bytes:
                    self.pause_writing()
            else:
                data = output[0] if len(output) == 1 else b"".join(output)
                output.clear()
                self.transport.write(data)
        if connection.closed and not self._later:
            self.end()
            self.output.close()

    def end(self) -> None:
        """End the client as far as the broker goes, even if its transport takes longer."""
        if not self._ended:
            self._ended = True
            self._forget_unfinished()
            self.guard(self.frontend.gone)

    def describe(self) -> ConnectionView:
        return ConnectionView(
            id=self._number,
            peer=self.peer,
            local=peer_text(self.transport.get_extra_info("sockname")),
            connected_at_ms=self._connected_at_ms,
            buffered_bytes=self.output.buffered_bytes(),
            blocked=self.reading.is_blocked,
            held_by=self.reading.held_by or self.output.held_by,
            description=self.frontend.describe(),
        )

    def send_away(self, why: Goodbye, reason: str = "") -> None:
        self.guard(self.frontend.say_goodbye, why, reason)
        self.want_flush()

    def abort(self) -> None:
        self.transport.abort()

    def _forget_unfinished(self) -> None:
        if self._room is not None:
            self._room.forget(self, self.monotonic())
            self._room = None

    def guard(self, call: Callable[..., None], *arguments: Any) -> bool:
        """Call what acts for this client: our bug must cost one connection, not the broker.

        Gives whether it went well; if not, the connection ends.
        """
        try:
            call(*arguments)
        except Exception:
            self._fail()
            return False
        return True

    def _fail(self, error: Exception | None = None) -> None:
        _log.error("connection.internal_error", peer=self.peer, exc_info=error or True)
        if not self._dissolved:
            self.frontend.say_goodbye(Goodbye.INTERNAL_ERROR, "")

    def end_slow_message(self) -> None:
        if self.reading.is_blocked:  # our fault, then
            return
        self._forget_unfinished()
        self.send_away(Goodbye.TOO_SLOW, Goodbye.TOO_SLOW.value)

    def store_caught_up(self) -> None:
        if self.reading.unblock() and not self._dissolved:
            self.guard(self.frontend.let_on)
            self.want_flush()
