"""One AMQP 0.9.1 connection, server side: frames in, events and frames out."""

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from struct import Struct
from typing import Any, Final

from pamqp import base, commands

from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.amqp091 import handshake
from protocols.amqp091.channels import BodyPart, Channels
from protocols.amqp091.handshake import CLOSE, Ending
from protocols.amqp091.methods import decode_method, encode_method, is_known
from protocols.amqp091.publishes import PublishReader
from protocols.errors import LocalProtocolError, ProtocolError
from protocols.foreign import foreign_protocol
from protocols.sans_io_connection import Connection

_FRAME_HEAD: Final = Struct(">BHI")
_U32: Final = Struct(">I")
_CONTENT_HEADER: Final = Struct(">HHQ")
_HEADER_FRAME_HEAD: Final = Struct(">BHIHHQ")
_FRAME_TYPES: Final = (c.FRAME_METHOD, c.FRAME_BODY, c.FRAME_HEADER, c.FRAME_HEARTBEAT)


@dataclass(eq=False, repr=False, slots=True)
class AmqpConnection(Connection):
    """The protocol of one client.

    Feed it as `sans_io_connection.Connection` says and answer its events with the methods below. What is
    sent on a channel (or connection) that is closed or closing is dropped: the client would not understand
    it. Front-ends that append to `output` themselves check `channel_is_open` first.

    `frame_max` (bytes, a whole frame), `channel_max` and `heartbeat_s` (0: none) are offered in tune, and
    then what was agreed. The server's properties go into connection.start; `constants.CAPABILITIES` belongs
    in them.
    `other_headers` are protocol headers that somebody else answers: see `OtherVersion`.
    """

    frame_max: int
    channel_max: int
    heartbeat_s: int
    _server_properties: dict[str, Any]
    now: InitVar[float]
    _: KW_ONLY
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    offers_external: InitVar[bool] = False
    other_headers: tuple[bytes, ...] = ()
    closing: bool = field(default=False, init=False)
    _mechanisms: str = field(default=handshake.MECHANISMS, init=False)
    _step: int = field(default=handshake.AWAITING_HEADER, init=False)
    _client_properties: dict[str, Any] = field(default_factory=dict, init=False)
    _blocked: bool = field(default=False, init=False)
    _lingers: bool = field(default=False, init=False)
    """The client has ended it, and is to close the transport."""
    _events: list[Any] = field(default_factory=list, init=False)
    # bytes of an incomplete frame, and how many there must be before decoding can go on
    _pending: list[bytes] = field(default_factory=list, init=False)
    _pending_bytes: int = field(default=0, init=False)
    _need_bytes: int = field(default=0, init=False)
    _publishes: PublishReader = field(init=False)
    _channels: Channels = field(init=False)
    _part: BodyPart = field(init=False)
    _now: float = field(init=False)
    _received_at: float = field(init=False)
    _next_heartbeat: float = field(default=0.0, init=False)
    _handshake_deadline: float = field(init=False)
    _ending: Ending = field(default_factory=Ending, init=False)

    def __post_init__(self, now: float, offers_external: bool) -> None:
        frame_bytes_max = min(self.frame_max, limits.AMQP_HANDSHAKE_FRAME_BYTES_MAX)
        self._publishes = PublishReader(frame_bytes_max, self.message_bytes_max)
        self._channels = Channels(self.output, self._publishes, self.channel_max, self.message_bytes_max)
        if offers_external:
            self._mechanisms = f"{handshake.EXTERNAL} {handshake.MECHANISMS}"
        self._part = BodyPart(self._channels)
        self._now = self._received_at = now
        self._handshake_deadline = now + limits.AMQP_HANDSHAKE_TIMEOUT_S

    # driver side

    def receive(self, data: bytes, now: float) -> list[Any]:
        """Take bytes from the client; gives the events of every complete frame."""
        self._now = now
        self._received_at = now
        events = self._begin()
        if self.closed:
            return events
        if self._pending:
            self._pending.append(data)
            self._pending_bytes += len(data)
            if self._pending_bytes < self._need_bytes and not self.closing:
                return events
            data = b"".join(self._pending)
            self._pending = []
        if self.closing:
            answer = self._ending.answer(data)
            if answer == CLOSE:
                self.output.append(encode_method(0, commands.Connection.CloseOk()))
            if answer and not self._lingers:
                self._leave(self._ending.told())
            return events
        try:
            pos = self._decode(data)
        except ProtocolError as error:
            self._start_close(error.code, error.reason, error.class_id, error.method_id)
            events += self._ending.told()  # at once; the close handshake goes on without the front-end
        else:
            if pos < len(data) and not self.closing:
                self._pending.append(data[pos:])
                self._pending_bytes = len(data) - pos
        return events

    @property
    def is_let_in(self) -> bool:
        return self._step == handshake.RUNNING

    @property
    def unfinished_bytes(self) -> int:
        return self._channels.unfinished_bytes

    def memory_to_take(self) -> Callable[[], None] | None:
        return self._channels.memory_to_take()

    def receive_eof(self) -> list[Any]:
        """Take the end of the client's side of the transport."""
        events = self._begin()
        if not self.closed:
            self._lose(0, "the client closed the transport", by_peer=True)
        return events

    def next_deadline(self) -> float | None:
        """Return the earliest of handshake, heartbeat and close deadlines (monotonic seconds)."""
        if self.closed:
            return None
        if self.closing:
            # set at the next timeout call: `fail` was not told the time
            return self._ending.deadline(self._now)
        if self._step < handshake.RUNNING:
            return self._handshake_deadline
        if not self.heartbeat_s:
            return None
        return min(self._next_heartbeat, self._received_at + 2 * self.heartbeat_s)

    def handle_timeout(self, now: float) -> list[Any]:
        """Send a heartbeat, or give up on a silent client, where due at `now`."""
        self._now = now
        events = self._begin()
        if self.closed:
            return events
        if self.closing:
            if self._ending.is_overdue(now):
                self._leave(self._ending.told())
        elif self._step < handshake.RUNNING:
            if now >= self._handshake_deadline:
                self._lose(0, "handshake not finished in time", by_peer=False)
        elif self.heartbeat_s:
            if now >= self._received_at + 2 * self.heartbeat_s:
                self._lose(0, f"nothing received for {2 * self.heartbeat_s} s", by_peer=False)
            elif now >= self._next_heartbeat:
                self.output.append(c.HEARTBEAT_FRAME)
                self._next_heartbeat = now + self.heartbeat_s / 2
        return events

    # front-end side

    def accept_auth(self) -> None:
        """Accept the credentials of `AuthRequested`: sends connection.tune."""
        if self.closing:
            return
        if self._step != handshake.DECIDING_AUTH:
            raise LocalProtocolError("no authentication to accept")
        self._step = handshake.AWAITING_TUNE_OK
        tune = commands.Connection.Tune(self.channel_max, self.frame_max, self.heartbeat_s)
        self.output.append(encode_method(0, tune))

    def refuse_auth(self, reason: str) -> None:
        """Refuse the credentials: closes with 403.

        A client that does not know `authentication_failure_close` is left without an answer, and a little
        later without a connection, as the specification has it (2.2.4).
        """
        if handshake.understands(self._client_properties, "authentication_failure_close"):
            self.fail(c.ACCESS_REFUSED, reason)
        elif not self.closing:
            self.closing = True
            self._pending = []
            self._ending.begin(c.ACCESS_REFUSED, reason, self._now + limits.AMQP_REFUSAL_DELAY_S)

    def block(self, reason: str) -> None:
        """Tell the client, if it knows of that, that nothing more is read from it for a while."""
        if not self._blocked and not self.closing and self._step == handshake.RUNNING:
            self._blocked = True
            if handshake.understands(self._client_properties, "connection.blocked"):
                self.output.append(encode_method(0, commands.Connection.Blocked(reason)))

    def unblock(self) -> None:
        """End what `block` began."""
        if self._blocked:
            self._blocked = False
            if not self.closing and handshake.understands(self._client_properties, "connection.blocked"):
                self.output.append(encode_method(0, commands.Connection.Unblocked()))

    def accept_open(self) -> None:
        """Accept the virtual host of `OpenRequested`: sends connection.open-ok."""
        if self.closing:
            return
        if self._step != handshake.DECIDING_OPEN:
            raise LocalProtocolError("no virtual host to open")
        self._step = handshake.RUNNING
        self._next_heartbeat = self._now + self.heartbeat_s / 2
        self.output.append(encode_method(0, commands.Connection.OpenOk()))

    def channel_is_open(self, channel: int) -> bool:
        """Return whether the client understands what is sent on this channel now.

        False once channel.close or connection.close was sent or received; events of the same chunk that
        come after the close (seen from the front-end) are to be dropped.
        """
        return not self.closing and self._channels.is_open(channel)

    def send_method(self, channel: int, method: base.Frame) -> None:
        """Send a method. For names with a `$`, use the classes of `methods`; the others refuse them."""
        if self.channel_is_open(channel) or (channel == 0 and not self.closing):
            self.output.append(encode_method(channel, method))

    def send_content(self, channel: int, method: base.Frame, properties: bytes, body: bytes) -> None:
        """Send a method with content (deliver, get-ok, return), its body split by the negotiated size."""
        if not self.channel_is_open(channel):
            return
        output: list[Any] = self.output  # bytes, or views of parts of the body
        output.append(encode_method(channel, method))
        size = len(body)
        output.append(
            b"".join(
                (
                    _HEADER_FRAME_HEAD.pack(
                        c.FRAME_HEADER, channel, 12 + len(properties), c.CLASS_BASIC, 0, size
                    ),
                    properties,
                    c.FRAME_END_BYTE,
                )
            )
        )
        payload_max = self.frame_max - c.FRAME_OVERHEAD_BYTES
        if size > payload_max:
            self.has_large_output = True
        whole = memoryview(body)
        for start in range(0, size, payload_max):
            part = whole[start : start + payload_max]
            output.append(_FRAME_HEAD.pack(c.FRAME_BODY, channel, len(part)))
            output.append(part)
            output.append(c.FRAME_END_BYTE)

    def fail_channel(self, channel: int, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Send channel.close; the channel then discards everything until the client's close-ok.

        Nothing happens when the channel is not open any more.
        """
        if self.channel_is_open(channel):
            self._channels.fail(channel, code, text, class_id, method_id)

    def fail(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Send connection.close and discard everything until close-ok, end of transport or a deadline.

        `ConnectionLost` comes with that. Nothing happens when the connection is closing already.
        """
        if not self.closing:
            self._start_close(code, text, class_id, method_id)

    # closing

    def _begin(self) -> list[Any]:
        events: list[Any] = []
        self._events = events
        self._channels.begin(events)
        return events

    def _start_close(self, code: int, text: str, class_id: int, method_id: int) -> None:
        self.closing = True
        self._pending = []
        self._channels.forget_bodies()
        self._ending.begin(code, text)
        close = commands.Connection.Close(code, c.reply_text(code, text), class_id, method_id)
        self.output.append(encode_method(0, close))

    def _end_for_peer(self, code: int, reason: str) -> None:
        """Answer the end that the client asks for, and leave the transport to the client for a moment.

        What it still writes, such as another close by another of its threads, would otherwise be met by a
        reset that takes the answer away from it.
        """
        self.closing = True
        self._lingers = True
        self._pending = []
        self._channels.clear()
        self.output.append(encode_method(0, commands.Connection.CloseOk()))
        self._ending.begin(code, reason, self._now + limits.AMQP_LINGER_S)
        self._events += self._ending.told_of(code, reason, by_peer=True)

    def _lose(self, code: int, reason: str, by_peer: bool) -> None:
        """End the connection without ado."""
        self._leave(self._ending.told_of(code, reason, by_peer=by_peer))

    def _leave(self, told: list[ev.ConnectionLost]) -> None:
        """Read nothing and wait for nothing any more."""
        self.closing = True
        self.closed = True
        self._pending = []
        self._channels.clear()
        self._events += told

    # decoding

    def _decode(self, data: bytes) -> int:
        """Handle every complete frame; gives the position of the first byte not used."""
        size = len(data)
        pos = 0
        part = self._part
        if self._step == handshake.AWAITING_HEADER:
            pos = self._take_protocol_header(data)
            if not pos:
                self._need_bytes = len(c.PROTOCOL_HEADER)
                return 0
        elif part.left_bytes:
            pos = part.take(data)
            if part.left_bytes:
                self._need_bytes = part.left_bytes + 1  # if all but the end octet came
                return pos
        publishes = self._publishes
        while not self.closing:
            pos = publishes.take(data, pos)
            left = size - pos
            if left < publishes.equal_bytes and publishes.is_cut_off(data, pos):
                self._need_bytes = publishes.equal_bytes
                break
            if left < c.FRAME_HEAD_BYTES:
                self._need_bytes = c.FRAME_HEAD_BYTES
                break
            kind, number, payload_bytes = _FRAME_HEAD.unpack_from(data, pos)
            if kind not in _FRAME_TYPES:
                raise ProtocolError(c.FRAME_ERROR, f"unknown frame type {kind}")
            if payload_bytes > publishes.payload_max:
                raise ProtocolError(
                    c.FRAME_ERROR,
                    f"a frame with {payload_bytes} bytes is above the frame-max of {publishes.payload_max}",
                )
            start = pos + c.FRAME_HEAD_BYTES
            end: int = start + payload_bytes
            if end >= size:
                if kind == c.FRAME_BODY and start < size < end and self._channels.is_assembling(number):
                    part.begin(number, data, start, payload_bytes)
                    return size
                self._need_bytes = payload_bytes + c.FRAME_OVERHEAD_BYTES
                break
            if data[end] != c.FRAME_END:
                raise ProtocolError(c.FRAME_ERROR, f"frame ends with 0x{data[end]:02x}")
            pos = self._on_frame(kind, number, data, start, end)
        return pos

    def _on_frame(self, kind: int, number: int, data: bytes, start: int, end: int) -> int:
        """Handle the frame with payload `data[start:end]`; gives the position after it, or after its run."""
        if kind == c.FRAME_HEARTBEAT:
            if number:
                raise ProtocolError(c.UNEXPECTED_FRAME, "heartbeat on a channel")  # 4.2.3 says 503
            if start != end:
                raise ProtocolError(c.FRAME_ERROR, "heartbeat with a payload")
        elif kind == c.FRAME_METHOD:
            if end - start < 4:
                raise ProtocolError(c.SYNTAX_ERROR, "method frame without a method")
            if number:
                if self._step < handshake.RUNNING:
                    raise ProtocolError(c.COMMAND_INVALID, "channel used before connection.open-ok")
                return self._channels.on_method(number, data, start, end)
            self._on_connection_method(data[start:end])
        elif not number:
            raise ProtocolError(c.UNEXPECTED_FRAME, "content on channel 0")  # 4.2.6.1
        elif kind == c.FRAME_HEADER:
            self._channels.on_header(number, data[start:end])
        else:
            self._channels.on_body(number, data, start, end)
        return end + 1

    def _take_protocol_header(self, data: bytes) -> int:
        """Answer any other protocol header with one that is taken, and leave (4.2.2). Gives 8, or 0."""
        if not c.PROTOCOL_HEADER.startswith(data[:8]):
            if data.startswith(self.other_headers):
                self._events.append(ev.OtherVersion(data))
                return 0
            if any(header.startswith(data[:8]) for header in self.other_headers):
                return 0
            is_of_another = self.other_headers and not data.startswith(c.PROTOCOL_HEADER[:7])
            self.output.append(self.other_headers[0] if is_of_another else c.PROTOCOL_HEADER)
            foreign = foreign_protocol(data)
            reason = f"not an AMQP 0.9.1 protocol header: {data[:8]!r}"
            if foreign:
                reason = f"the client speaks {foreign}, this port plain AMQP 0.9.1"
            self._lose(c.FRAME_ERROR, reason, by_peer=False)
            return 0
        if len(data) < len(c.PROTOCOL_HEADER):
            return 0
        self._step = handshake.AWAITING_START_OK
        start = commands.Connection.Start(0, 9, self._server_properties, self._mechanisms, handshake.LOCALE)
        self.output.append(encode_method(0, start))
        return len(c.PROTOCOL_HEADER)

    def _on_connection_method(self, payload: bytes) -> None:
        index: int = _U32.unpack_from(payload)[0]
        if index not in handshake.LEGAL[self._step]:
            code, text = c.COMMAND_INVALID, "method not allowed here"
            if not is_known(index):
                code, text = c.NOT_IMPLEMENTED, "no such method"
            elif self._step == handshake.RUNNING:
                code, text = c.CHANNEL_ERROR, "unexpected method in connection state running"
            raise ProtocolError(code, text, class_id=index >> 16, method_id=index & 0xFFFF)
        method: Any = decode_method(payload)
        if index == c.CONNECTION_START_OK:
            self._client_properties = method.client_properties
            username, password = handshake.credentials(method)
            self._step = handshake.DECIDING_AUTH
            self._events.append(
                ev.AuthRequested(method.mechanism, username, password, method.client_properties)
            )
        elif index == c.CONNECTION_TUNE_OK:
            self._on_tune_ok(method)
        elif index == c.CONNECTION_UPDATE_SECRET:
            self.output.append(encode_method(0, commands.Connection.UpdateSecretOk()))
            secret: str | bytes = method.new_secret
            raw = secret.encode() if isinstance(secret, str) else secret
            self._events.append(ev.SecretChanged(raw))
        elif index == c.CONNECTION_OPEN:
            self._step = handshake.DECIDING_OPEN
            self._events.append(ev.OpenRequested(method.virtual_host))
        else:
            assert index == c.CONNECTION_CLOSE
            self._end_for_peer(method.reply_code, method.reply_text)

    def _on_tune_ok(self, tune_ok: commands.Connection.TuneOk) -> None:
        self.channel_max = handshake.negotiated_channel_max(self.channel_max, tune_ok.channel_max)
        self.frame_max = handshake.negotiated_frame_max(self.frame_max, tune_ok.frame_max)
        self.heartbeat_s = tune_ok.heartbeat
        self._channels.limit(self.channel_max)
        self._publishes.set_payload_max(self.frame_max, self.message_bytes_max)
        self._step = handshake.AWAITING_OPEN
