"""One AMQP 1.0 connection, server side: frames in, events and frames out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, Final

from config import limits
from protocols.amqp10 import constants as c
from protocols.amqp10 import events as ev
from protocols.amqp10 import handshake, hot
from protocols.amqp10 import link as ln
from protocols.amqp10 import performatives as p
from protocols.amqp10.amqp_session import Session
from protocols.amqp10.errors import CONNECTION, LINK, AmqpError
from protocols.amqp10.framing import HEAD, check_head, encode_frame, encode_sasl_frame
from protocols.amqp10.link import Link, LinkTotals
from protocols.amqp10.types import Symbol
from protocols.errors import LocalProtocolError
from protocols.foreign import foreign_protocol
from protocols.sans_io_connection import Connection

_CLOSE: Final = b"\x00\x53\x18"
_REFUSAL: Final = Symbol("amqp:connection-establishment-failed")  # as Qpid's clients know it


@dataclass(eq=False, repr=False, slots=True)
class Amqp10Connection(Connection):
    """The protocol of one client.

    Feed it as `sans_io_connection.Connection` says and answer its events with the methods below. What is sent
    on a session or link that is gone or going is dropped: the client would not understand it.

    It offers these SASL mechanisms, and in open the rest; an idle timeout of 0 is none. Without
    `requires_sasl`, a client may begin with the header of AMQP: `AuthRequested` has mechanism "".
    """

    container_id: InitVar[str]
    mechanisms: tuple[str, ...]
    _now: float
    _: KW_ONLY
    frame_max: int = limits.AMQP10_FRAME_BYTES_MAX
    channel_max: int = limits.AMQP10_CHANNEL_MAX
    handle_max: int = limits.AMQP10_HANDLE_MAX
    idle_timeout_ms: InitVar[int] = limits.AMQP10_IDLE_TIMEOUT_MS
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    offered_capabilities: InitVar[tuple[str, ...]] = ()
    properties: InitVar[dict[Any, Any] | None] = None
    requires_sasl: bool = True
    remote_frame_max: int = field(default=c.FRAME_BYTES_MIN, init=False)
    heartbeat_s: float = field(default=0.0, init=False)
    """How often the client wants to hear of us."""
    closing: bool = field(default=False, init=False)
    _own_open: p.Open = field(init=False)
    _idle_timeout_s: float = field(init=False)
    _step: int = field(default=handshake.AWAITING_HEADER, init=False)
    _mechanism: str = field(default="", init=False)
    _opened: bool = field(default=False, init=False)
    """Our open was sent."""
    _sessions: dict[int, Session] = field(default_factory=dict, init=False)
    _totals: LinkTotals = field(default_factory=LinkTotals, init=False)
    _transfers: hot.TransferReader = field(default_factory=hot.TransferReader, init=False)
    _dispositions: hot.DispositionReader = field(default_factory=hot.DispositionReader, init=False)
    _settle: ev.DispositionRun | None = field(default=None, init=False)
    _events: list[Any] = field(default_factory=list, init=False)
    _pending: list[bytes] = field(default_factory=list, init=False)
    """Octets of an incomplete frame."""
    _pending_bytes: int = field(default=0, init=False)
    _needs_bytes: int = field(default=0, init=False)
    """How many there must be before decoding can go on."""
    _received_at: float = field(init=False)
    _next_heartbeat: float = field(default=0.0, init=False)
    _handshake_deadline: float = field(init=False)
    _error: tuple[str, str] = field(default=("", ""), init=False)
    _ending_at: float | None = field(default=None, init=False)
    _lingers: bool = field(default=False, init=False)
    _is_told: bool = field(default=False, init=False)
    _tail: bytes = field(default=b"", init=False)
    """The last of what was discarded."""

    def __post_init__(
        self,
        container_id: str,
        idle_timeout_ms: int,
        offered_capabilities: tuple[str, ...],
        properties: dict[Any, Any] | None,
    ) -> None:
        self._own_open = p.Open(
            container_id,
            None,
            self.frame_max,
            self.channel_max,
            idle_timeout_ms or None,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )
        self._idle_timeout_s = 2 * idle_timeout_ms / 1000
        self._received_at = self._now
        self._handshake_deadline = self._now + limits.AMQP10_HANDSHAKE_TIMEOUT_S

    # driver side

    def receive(self, data: bytes, now: float) -> list[Any]:
        """Take bytes from the client; gives the events of every complete frame."""
        self._now = now
        self._received_at = now
        events = self._begin()
        if self.closed:
            return events
        if self.closing:
            self._look_for_close(data)
            return events
        if self._pending:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._pending_bytes < self._needs_bytes:
                return events
            data = b"".join(self._pending)
            self._pending = []
        self._take(data)
        return events

    @property
    def is_let_in(self) -> bool:
        """See `Connection.is_let_in`."""
        return self._step == handshake.RUNNING

    @property
    def unfinished_bytes(self) -> int:
        """See `Connection.unfinished_bytes`."""
        return self._totals.unfinished_bytes

    def receive_eof(self) -> list[Any]:
        """Take the end of the client's side of the transport."""
        events = self._begin()
        if not self.closed:
            self._leave("", "the client closed the transport", by_peer=True)
        return events

    def next_deadline(self) -> float | None:
        """Return the earliest of handshake, idle and close deadlines (monotonic seconds)."""
        if self.closed:
            return None
        if self.closing:
            # set at the next timeout call: `fail` was not told the time
            return self._now if self._ending_at is None else self._ending_at
        if self._step < handshake.RUNNING:
            return self._handshake_deadline
        deadlines = []
        if self._idle_timeout_s:
            deadlines.append(self._received_at + self._idle_timeout_s)
        if self.heartbeat_s:
            deadlines.append(self._next_heartbeat)
        return min(deadlines, default=None)

    def handle_timeout(self, now: float) -> list[Any]:
        """Send an empty frame, or give up on a silent client, where due at `now`."""
        self._now = now
        events = self._begin()
        if self.closed:
            return events
        if self.closing:
            if self._ending_at is None:
                self._ending_at = now + limits.AMQP_CLOSE_TIMEOUT_S
            if now >= self._ending_at:
                self._leave(*self._error, by_peer=False)
        elif self._step < handshake.RUNNING:
            if now >= self._handshake_deadline:
                self._leave("", "handshake not finished in time", by_peer=False)
        elif self._idle_timeout_s and now >= self._received_at + self._idle_timeout_s:
            self.fail(
                c.RESOURCE_LIMIT_EXCEEDED, "no frame received from client within idle timeout threshold"
            )
            self._tell(*self._error, by_peer=False)
        elif self.heartbeat_s and now >= self._next_heartbeat:
            self.output.append(c.HEARTBEAT_FRAME)
            self._next_heartbeat = now + self.heartbeat_s
        return events

    # front-end side: handshake

    def accept_auth(self) -> list[Any]:
        """Accept the credentials of `AuthRequested`; gives the events of what the client sent meanwhile."""
        if self.closing:
            return []
        if self._step != handshake.DECIDING_AUTH:
            raise LocalProtocolError("no authentication to accept")
        if self._mechanism:
            self.output.append(encode_sasl_frame(p.SaslOutcome(c.SASL_OK)))
            self._step = handshake.AWAITING_AMQP_HEADER
        else:
            self.output.append(c.AMQP_HEADER)
            self._step = handshake.AWAITING_OPEN
        return self._resume()

    def refuse_auth(self, reason: str, code: int = c.SASL_AUTH) -> None:
        """Refuse the credentials of `AuthRequested`; the client gets the outcome, and has to go."""
        if self.closing:
            return
        if self._mechanism:
            self.output.append(encode_sasl_frame(p.SaslOutcome(code)))
            self.closing = True
            self._pending = []
            self._error = (c.UNAUTHORIZED_ACCESS, reason)
            self._ending_at = self._now + limits.AMQP_LINGER_S
        else:
            self.output.append(c.AMQP_HEADER)
            self.fail(c.UNAUTHORIZED_ACCESS, reason)

    def accept_open(self) -> list[Any]:
        """Accept what `OpenRequested` asks for; gives the events of what the client sent meanwhile."""
        if self.closing:
            return []
        if self._step != handshake.DECIDING_OPEN:
            raise LocalProtocolError("nothing to open")
        self._send_open()
        self._step = handshake.RUNNING
        self._next_heartbeat = self._now + self.heartbeat_s
        return self._resume()

    def fail(self, condition: str, description: str) -> None:
        """Close with an error and discard everything until the client's close, or a deadline.

        `ConnectionLost` comes with that. Nothing happens when the connection is closing already.
        """
        if self.closing:
            return
        self.closing = True
        self._pending = []
        self._forget_sessions()
        self._error = (condition, description)
        if self._step < handshake.AWAITING_OPEN:
            # nothing of AMQP may be said yet
            self._ending_at = self._now
            return
        self._send_open(is_refusal=True)
        error = p.Error(condition, description) if condition else None
        self.output.append(encode_frame(0, p.Close(error)))

    # front-end side: sessions and links

    def session_is_open(self, channel: int) -> bool:
        """Return whether the client understands what is sent on this session now."""
        session = self._sessions.get(channel)
        return session is not None and not session.is_ending

    def session_room(self, channel: int) -> int:
        """Return how many transfers the client takes now on a session; `WindowOpened` tells when it is not 0
        any more.
        """
        session = self._sessions.get(channel)
        return 0 if session is None or session.is_ending else session.room

    def end_session(self, channel: int, condition: str, description: str) -> None:
        """End a session with an error; everything on it is discarded until the client ends it, too."""
        session = self._sessions.get(channel)
        if session is not None and not session.is_ending:
            self._end(session, p.Error(condition, description))

    def accept_attach(
        self,
        link: Link,
        source: p.Source | None,
        target: Any,
        *,
        snd_settle_mode: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        properties: p.Fields = None,
    ) -> None:
        """Attach a link of `AttachRequested`: `source` and `target` say what it really has.

        A link that the client sends on gets credit by `grant`.
        """
        session = self._session_of(link, ln.ATTACHING)
        if session is None:
            return
        if snd_settle_mode is not None:
            link.snd_settle_mode = snd_settle_mode
        max_message_size = link.max_message_size if link.client_sends else link.attach.max_message_size
        if not link.client_sends:
            link.encoder = hot.DeliveryEncoder(
                link.channel,
                link.handle,
                link.snd_settle_mode == c.SENDER_SETTLED,
                min(self.remote_frame_max, limits.AMQP10_FRAME_BYTES_MAX),
            )
        session.answer_attach(
            link,
            p.Attach(
                link.name,
                link.handle,
                not link.attach.role,
                link.snd_settle_mode,
                link.rcv_settle_mode,
                source,
                target,
                max_message_size=max_message_size,
                offered_capabilities=offered_capabilities,
                properties=properties,
            ),
        )

    def refuse_attach(self, link: Link, condition: str, description: str) -> None:
        """Refuse a link of `AttachRequested`: attach without what was asked for, then detach (2.6.3)."""
        session = self._session_of(link, ln.ATTACHING)
        if session is None:
            return
        attach = link.attach
        source, target = (attach.source, None) if link.client_sends else (None, attach.target)
        session.answer_attach(
            link,
            p.Attach(
                link.name,
                link.handle,
                not attach.role,
                attach.snd_settle_mode,
                attach.rcv_settle_mode,
                source,
                target,
            ),
        )
        session.detach(link, p.Error(condition, description))

    def detach(self, link: Link, condition: str, description: str | None = None) -> None:
        """Detach a link with an error."""
        session = self._session_of(link)
        if session is not None:
            session.detach(link, p.Error(condition, description))

    def grant(self, link: Link, credit: int) -> None:
        """Let the client send `credit` deliveries from now on, on a link that it sends on; 0 stops it."""
        session = self._session_of(link)
        if session is not None:
            link.credit = credit
            link.credit_end = max(link.credit_end, link.delivery_count + credit)
            session.send_flow(link)

    def send_flow(self, link: Link, properties: p.Fields = None) -> None:
        """Tell the client our state of a link."""
        session = self._session_of(link)
        if session is not None:
            session.send_flow(link, properties=properties)

    def drained(self, link: Link) -> None:
        """Tell the client that nothing is left for what remains of its credit (2.6.7)."""
        session = self._session_of(link)
        if session is not None:
            session.tell_drained(link)

    def deliver(self, link: Link, payloads: list[bytes]) -> int:
        """Send whole messages on a link that the client receives on; gives the delivery ID of the first.

        The others follow on it, modulo 2**32; tags are the IDs in four octets. No more than `link.credit` may
        be sent, and no more than `session_room` should be: what the window has no room for waits here. Gives
        -1 when the link is gone.
        """
        session = self._session_of(link)
        if session is None:
            return -1
        if len(payloads) > link.credit:
            raise LocalProtocolError(f"{len(payloads)} deliveries for a credit of {link.credit}")
        if not payloads:
            return session.next_delivery_id
        bytes_max = len(payloads[0]) if len(payloads) == 1 else max(map(len, payloads))
        if bytes_max > link.encoder.payload_max:
            self.note_large_output()
        return session.send_run(link, payloads, bytes_max)

    def settle(
        self,
        channel: int,
        ranges: Iterable[tuple[int, int]],
        state: Any = hot.ACCEPTED,
        *,
        role: bool = c.RECEIVER,
        settled: bool = True,
    ) -> None:
        """Tell the client a state of deliveries, first and last of each range included.

        `state` is a performative such as `Rejected`, or one that is encoded. With `role` RECEIVER (True) they
        are deliveries that the client sent, with SENDER that it got.
        """
        if self.session_is_open(channel):
            encoded = state if type(state) is bytes else p.encode(state)
            self.output.append(
                b"".join(
                    [
                        hot.encode_disposition(channel, role, first, last, encoded, settled)
                        for first, last in ranges
                    ]
                )
            )

    # inside

    def _session_of(self, link: Link, state: int = ln.ATTACHED) -> Session | None:
        """Return the session of a link in this state; None when there is none, or the session ends."""
        session = self._sessions.get(link.channel)
        if session is None or session.is_ending or link.state != state:
            return None
        return session if session.links.get(link.handle) is link else None

    def _forget_sessions(self) -> None:
        for session in self._sessions.values():
            session.leave()
        self._sessions.clear()

    def _begin(self) -> list[Any]:
        events: list[Any] = []
        self._events = events
        self._settle = None
        for session in self._sessions.values():
            session.begin(events)
        return events

    def _resume(self) -> list[Any]:
        """Go on with what came while the front-end decided."""
        events = self._begin()
        data = b"".join(self._pending)
        self._pending = []
        if data:
            self._take(data)
        return events

    def _take(self, data: bytes) -> None:
        """Decode what came, and keep what is not whole."""
        try:
            pos = self._decode(data)
        except AmqpError as error:
            self.fail(error.condition, error.description)
            self._tell(*self._error, by_peer=False)  # at once; the rest goes on without the front-end
            return
        if pos < len(data) and not self.closing:
            rest = data[pos:]
            if self._step in handshake.DECIDING:
                if len(rest) > limits.AMQP10_PIPELINED_BYTES_MAX:
                    self._leave("", "too much was sent before the client was let in", by_peer=False)
                    return
                self._needs_bytes = limits.AMQP10_PIPELINED_BYTES_MAX + 1
            self._pending.append(rest)
            self._pending_bytes = len(rest)

    def _send_open(self, *, is_refusal: bool = False) -> None:
        """Send open, if it was not; one that is a refusal says so, that the client waits for the close."""
        if not self._opened:
            self._opened = True
            opened = self._own_open._replace(channel_max=self.channel_max)
            if is_refusal:
                opened = opened._replace(properties={**(opened.properties or {}), _REFUSAL: True})
            self.output.append(encode_frame(0, opened))

    def _look_for_close(self, data: bytes) -> None:
        """Discard what comes until the client's close, told by its octets: framing may be lost."""
        data = self._tail + data
        self._tail = data[1 - len(_CLOSE) :]
        if _CLOSE in data and not self._lingers and self._opened:
            self._leave(*self._error, by_peer=False)

    def _tell(self, condition: str, reason: str, *, by_peer: bool) -> None:
        if not self._is_told:
            self._is_told = True
            self._events.append(ev.ConnectionLost(condition, reason, by_peer))

    def _leave(self, condition: str, reason: str, *, by_peer: bool) -> None:
        """Read nothing and wait for nothing any more."""
        self.closing = True
        self.closed = True
        self._pending = []
        self._forget_sessions()
        self._tell(condition, reason, by_peer=by_peer)

    # decoding

    def _decode(self, data: bytes) -> int:
        """Handle every complete frame; gives the position of the first octet not used."""
        size = len(data)
        pos = 0
        while not self.closing:
            step = self._step
            if step in handshake.DECIDING:
                break
            if step in (handshake.AWAITING_HEADER, handshake.AWAITING_AMQP_HEADER):
                used = self._take_protocol_header(data, pos)
                if not used:
                    self._needs_bytes = c.PROTOCOL_HEADER_BYTES
                    break
                pos += used
                continue
            if size - pos < c.FRAME_HEAD_BYTES:
                self._needs_bytes = c.FRAME_HEAD_BYTES
                break
            frame_bytes, doff, kind, channel = HEAD.unpack_from(data, pos)
            end: int = pos + frame_bytes
            if not (doff == c.DOFF_MIN and not kind and c.FRAME_HEAD_BYTES <= frame_bytes <= self.frame_max):
                check_head(frame_bytes, doff, kind, self.frame_max)
            if end > size:
                self._needs_bytes = frame_bytes
                break
            at = pos + 4 * doff
            if step == handshake.RUNNING and not kind:
                pos = self._on_frame(channel, data, pos, at, end)
            else:
                self._on_handshake_frame(kind, data, at, end)
                pos = end
        return pos

    def _take_protocol_header(self, data: bytes, pos: int) -> int:
        """Take a protocol header; gives its size, 0 when it is not whole. Any that is not legal here is
        answered with one that would be (2.2).
        """
        header = data[pos : pos + c.PROTOCOL_HEADER_BYTES]
        expected = [c.AMQP_HEADER]
        if self._step == handshake.AWAITING_HEADER:
            expected = [c.SASL_HEADER] if self.requires_sasl else [c.SASL_HEADER, c.AMQP_HEADER]
        if header not in expected:
            if len(header) < c.PROTOCOL_HEADER_BYTES and any(one.startswith(header) for one in expected):
                return 0
            self.output.append(expected[0])
            foreign = foreign_protocol(header)
            reason = f"not a protocol header that is expected here: {header!r}"
            if foreign and header != c.AMQP_HEADER:
                reason = f"the client speaks {foreign}, this port AMQP 1.0"
            self._leave(c.FRAMING_ERROR, reason, by_peer=False)
            return 0
        if header == c.SASL_HEADER:
            self._step = handshake.AWAITING_INIT
            self.output += (c.SASL_HEADER, encode_sasl_frame(p.SaslMechanisms(self.mechanisms)))
        elif self._step == handshake.AWAITING_AMQP_HEADER:
            self._step = handshake.AWAITING_OPEN
            self.output.append(c.AMQP_HEADER)
        else:
            self._step = handshake.DECIDING_AUTH
            self._events.append(ev.AuthRequested("", "", ""))
        return c.PROTOCOL_HEADER_BYTES

    def _on_handshake_frame(self, kind: int, data: bytes, at: int, end: int) -> None:
        legal = handshake.LEGAL[self._step]
        is_sasl = self._step < handshake.AWAITING_AMQP_HEADER
        if (kind == c.FRAME_SASL) is not is_sasl:
            mode = "sasl" if is_sasl else "amqp"
            raise AmqpError(
                c.FRAMING_ERROR, f"unexpected frame type {kind} in {mode} mode (expected {int(is_sasl)})"
            )
        if at == end:
            return  # an empty frame says only that the client is there
        body, pos = p.decode(data, at, end)
        if type(body) not in legal or pos != end:
            raise AmqpError(c.NOT_ALLOWED, f"{type(body).__name__.lower()} is not allowed here")
        if type(body) is p.SaslInit:
            self._on_sasl(body)
        elif type(body) is p.Open:
            self._on_open(body)
        else:
            self._on_close(body)

    def _on_sasl(self, init: p.SaslInit) -> None:
        self._mechanism = str(init.mechanism)
        self._step = handshake.DECIDING_AUTH
        if self._mechanism not in self.mechanisms:
            self.refuse_auth(f"authentication mechanism {self._mechanism!r} is unknown")
            return
        pair = handshake.credentials(self._mechanism, init.initial_response or b"")
        if pair is None:
            self.refuse_auth("malformed PLAIN response")
            return
        self._events.append(ev.AuthRequested(self._mechanism, *pair))

    def _on_open(self, opened: p.Open) -> None:
        self.channel_max = min(self.channel_max, int(opened.channel_max))
        self.remote_frame_max = max(int(opened.max_frame_size), c.FRAME_BYTES_MIN)
        handshake.check_open(opened, limits.AMQP10_IDLE_TIMEOUT_MS_MIN)
        self.heartbeat_s = (opened.idle_time_out or 0) / 2000
        self._step = handshake.DECIDING_OPEN
        self._events.append(ev.OpenRequested(opened))

    def _on_close(self, close: p.Close) -> None:
        """Answer the end that the client asks for, and leave the transport to it for a moment."""
        self.closing = True
        self._lingers = True
        self._pending = []
        self._forget_sessions()
        self._send_open()
        self.output.append(encode_frame(0, p.Close()))
        self._ending_at = self._now + limits.AMQP_LINGER_S
        error = close.error or p.Error("", "the client closed the connection")
        self._error = (error.condition, error.description or "")
        self._tell(*self._error, by_peer=True)

    def _on_frame(self, channel: int, data: bytes, pos: int, at: int, end: int) -> int:
        """Handle a frame of AMQP; gives the position after it, or after others like it."""
        if at == end:
            return end
        session = self._sessions.get(channel)
        head = data[at : at + 3]
        if session is None or session.is_ending:
            if session is None or head in (b"\x00\x53\x17", b"\x00\x53\x18") or head[1:2] != b"\x53":
                self._on_performative(session, channel, data, at, end)
            return end
        try:
            if head == hot.TRANSFER:
                return session.on_transfer(data, pos, at, end)
            if head == hot.DISPOSITION:
                return self._on_disposition(channel, data, pos, at, end)
            else:
                self._on_performative(session, channel, data, at, end)
        except AmqpError as error:
            if error.scope == CONNECTION:
                raise
            self._fail_part(session, error, data, at, end)
        return end

    def _fail_part(self, session: Session, error: AmqpError, data: bytes, at: int, end: int) -> None:
        """End what an error is about: a session, or a link of it."""
        told = p.Error(error.condition, error.description)
        if error.scope == LINK:
            head = self._transfers.read(data, at, end)
            link = session.links[head.handle]
            session.detach(link, told)
            self._events.append(ev.LinkDetached(link, closed=True, error=told, by_peer=False))
        else:
            self._end(session, told)
            self._events.append(ev.SessionEnded(session.channel, told, by_peer=False))

    def _end(self, session: Session, error: p.Error) -> None:
        session.is_ending = True
        session.leave()
        self.output.append(encode_frame(session.channel, p.End(error)))

    def _on_disposition(self, channel: int, data: bytes, pos: int, at: int, end: int) -> int:
        """Take a disposition; gives the position after it, or after others like it."""
        first, last, said = self._dispositions.read(data, at, end)
        run = self._settle
        if (
            run is not None
            and self._events[-1] is run
            and run.channel == channel
            and run.role is said.role
            and run.settled is said.settled
            and run.state is said.state
        ):
            run.ranges.append((first, last))
            return hot.take_dispositions(data, pos, end, run.ranges)
        self._settle = run = ev.DispositionRun(channel, said.role, said.settled, said.state, [(first, last)])
        self._events.append(run)
        return hot.take_dispositions(data, pos, end, run.ranges)

    def _on_performative(self, session: Session | None, channel: int, data: bytes, at: int, end: int) -> None:
        body, pos = p.decode(data, at, end)
        kind = type(body)
        if kind is p.Transfer and session is not None and not session.is_ending:
            session.on_transfer(data, at, at, end)
            return
        if pos != end:
            raise AmqpError(c.DECODE_ERROR, "octets behind a performative")
        if kind not in handshake.LEGAL[handshake.RUNNING]:
            raise AmqpError(c.NOT_ALLOWED, f"{kind.__name__.lower()} is not allowed here")
        if kind is p.Close:
            self._on_close(body)
        elif kind is p.Begin:
            self._on_begin(session, channel, body)
        elif session is None:
            raise AmqpError(c.NOT_ALLOWED, f"{kind.__name__.lower()} on a channel without a session")
        elif kind is p.End:
            self._on_end(session, body)
        elif not session.is_ending:
            self._on_session_performative(session, body)

    def _on_session_performative(self, session: Session, body: Any) -> None:
        kind = type(body)
        if kind is p.Flow:
            session.on_flow(body)
        elif kind is p.Attach:
            session.on_attach(body, self.message_bytes_max)
        elif kind is p.Detach:
            session.on_detach(body)
        else:
            assert kind is p.Disposition
            first = int(body.first)
            last = first if body.last is None else int(body.last)
            run = ev.DispositionRun(session.channel, body.role, body.settled, body.state, [(first, last)])
            self._events.append(run)

    def _on_begin(self, session: Session | None, channel: int, begin: p.Begin) -> None:
        if session is not None:
            raise AmqpError(c.NOT_ALLOWED, f"channel {channel} has a session")
        if channel > self.channel_max:
            raise AmqpError(
                c.FRAMING_ERROR,
                f"channel number ({channel}) exceeds maximum channel number ({self.channel_max})",
            )
        if begin.remote_channel is not None:
            raise AmqpError(c.NOT_ALLOWED, "begin answers a session that was not begun")
        session = Session(
            channel,
            begin,
            self.output,
            self._transfers,
            self.handle_max,
            self.frame_max,
            self._totals,
        )
        session.begin(self._events)
        self._sessions[channel] = session
        self._events.append(ev.SessionBegun(channel, begin))

    def _on_end(self, session: Session, end: p.End) -> None:
        del self._sessions[session.channel]
        session.leave()
        if not session.is_ending:
            self.output.append(encode_frame(session.channel, p.End()))
            self._events.append(ev.SessionEnded(session.channel, end.error, by_peer=True))
