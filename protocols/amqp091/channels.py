"""Everything that happens on channel numbers above 0 of one connection."""

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final, cast

from pamqp import commands

from config import limits
from protocols.amqp091 import channel as ch
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.amqp091.channel import Channel
from protocols.amqp091.hot import ACK_HEAD_BYTES, take_acks
from protocols.amqp091.methods import decode_method, encode_method, is_known
from protocols.amqp091.names import strip_line_ends
from protocols.amqp091.publishes import PublishReader
from protocols.errors import ProtocolError

_U32: Final = Struct(">I")
_CONTENT_HEADER: Final = Struct(">HHQ")
_CONTENT_HEADER_BYTES_MIN: Final = 14  # with the property flags

# what is wrong with a frame that a channel in this state does not take
_EXPECTED: Final = (
    "expected 'channel.open'",
    "expected method frame, got non method frame instead",
    "expected content header for class 60, got non content header frame instead",
    "expected content body, got non content body frame instead",
    "expected 'channel.close-ok'",
)
_SECOND_OPEN: Final = "second 'channel.open' seen"


@dataclass(eq=False, repr=False, slots=True)
class Channels:
    """The open channels; turns their frames into events. Raises ProtocolError for connection errors."""

    _output: list[bytes]
    _publishes: PublishReader
    _channel_max: int
    _message_bytes_max: int
    _channels: dict[int, Channel] = field(default_factory=dict, init=False)
    _events: list[Any] = field(default_factory=list, init=False)
    _settle: ev.SettleRun | None = field(default=None, init=False)
    _unfinished: dict[int, int] = field(default_factory=dict, init=False)
    """Large bodies announced, by channel."""

    def limit(self, channel_max: int) -> None:
        """Note the highest number that the client agreed to."""
        self._channel_max = channel_max

    @property
    def unfinished_bytes(self) -> int:
        """How much has been announced of large bodies that are not whole."""
        return sum(self._unfinished.values()) if self._unfinished else 0

    def memory_to_take(self) -> Callable[[], None] | None:
        wanted = (self._channels[number].memory_to_take() for number in self._unfinished)
        return next(filter(None, wanted), None)

    def begin(self, events: list[Any]) -> None:
        """Put events into `events` from now on."""
        self._events = events
        self._settle = None
        self._publishes.begin(events)

    def is_open(self, number: int) -> bool:
        """Return whether the channel is open and not being closed."""
        channel = self._channels.get(number)
        return channel is not None and channel.state != ch.CLOSING

    def fail(self, number: int, code: int, text: str, class_id: int, method_id: int) -> None:
        """Send channel.close on an open channel and discard what comes until close-ok."""
        if not self.is_open(number):
            return
        self._publishes.forget_channel(number)
        self._end_content(number, self._channels[number], ch.CLOSING)
        close = commands.Channel.Close(code, c.reply_text(code, text), class_id, method_id)
        self._output.append(encode_method(number, close))

    def clear(self) -> None:
        """Forget all channels: the connection is over."""
        self._channels.clear()
        self._unfinished.clear()

    def forget_bodies(self) -> None:
        """Forget the bodies that have come in part."""
        for number in self._unfinished:
            self._channels[number].end_content(ch.CLOSING)
        self._unfinished.clear()

    def _end_content(self, number: int, channel: Channel, state: int) -> None:
        self._unfinished.pop(number, None)
        channel.end_content(state)

    def _check(self, number: int, given: int, index: int = 0) -> Channel | None:
        """Return the channel when `given` is legal on it, None when it is to be discarded (or opens the
        channel).
        """
        channel = self._channels.get(number)
        state = ch.CLOSED if channel is None else channel.state
        verdict = ch.LEGAL[state][given]
        if verdict == ch.DISCARD:
            return None
        if verdict != ch.ACCEPT:
            raise ProtocolError(
                verdict,
                _SECOND_OPEN if given == ch.IN_OPEN and state == ch.OPEN else _EXPECTED[state],
                class_id=index >> 16,
                method_id=index & 0xFFFF,
            )
        return channel

    def on_method(self, number: int, data: bytes, start: int, end: int) -> int:
        """Handle a method frame; gives the position after it, or after the run it starts."""
        index: int = _U32.unpack_from(data, start)[0]
        channel = self._channels.get(number)
        if channel is not None and channel.state == ch.OPEN:
            if index == c.BASIC_PUBLISH:
                after = self._publishes.take_whole(data, start - c.FRAME_HEAD_BYTES, end, number)
                if after:
                    return after
                channel.begin_publish(self._publishes.address(data[start:end]))
                self._publishes.forget_channel(number)
                return end + 1
            if index == c.BASIC_ACK:
                after = self._take_acks(number, data, start - c.FRAME_HEAD_BYTES)
                if after:
                    return after
        self._on_other_method(number, index, data[start:end])
        return end + 1

    def _on_other_method(self, number: int, index: int, payload: bytes) -> None:
        if index >> 16 == c.CLASS_CONNECTION:  # 4.2.3
            raise self._not_allowed(index)
        given = ch.INPUT_OF_METHOD.get(index, ch.IN_METHOD)
        channel = self._check(number, given, index)
        if given == ch.IN_OPEN:
            self._open(number, payload)
        elif channel is None:
            return
        elif given == ch.IN_METHOD:
            self._on_channel_method(number, index, payload)
        else:
            decode_method(payload)
            closing = channel.state == ch.CLOSING
            if given == ch.IN_CLOSE:
                self._output.append(encode_method(number, commands.Channel.CloseOk()))
                if closing:
                    return  # both sides closed at once: the client's close-ok is still to come
            del self._channels[number]
            self._unfinished.pop(number, None)
            self._publishes.forget_channel(number)
            self._events.append(ev.ChannelClosed(number))

    def _open(self, number: int, payload: bytes) -> None:
        decode_method(payload)
        if len(self._channels) >= self._channel_max:
            raise ProtocolError(
                c.NOT_ALLOWED,
                f"number of channels opened ({len(self._channels)}) has reached the negotiated channel_max"
                f" ({self._channel_max})",
            )
        self._channels[number] = Channel(number)
        self._output.append(encode_method(number, commands.Channel.OpenOk()))
        self._events.append(ev.ChannelOpened(number))

    def _on_channel_method(self, number: int, index: int, payload: bytes) -> None:
        if index in ch.PASSED_METHODS:
            method = decode_method(payload)
            strip_line_ends(method)
            self._events.append(ev.MethodReceived(number, method))
        elif index in ch.SETTLE_KINDS:
            self._on_settle(number, ch.SETTLE_KINDS[index], payload)
        elif index not in ch.IGNORED_METHODS:
            raise self._not_allowed(index)

    @staticmethod
    def _not_allowed(index: int) -> ProtocolError:
        code = c.COMMAND_INVALID if is_known(index) else c.NOT_IMPLEMENTED
        return ProtocolError(code, "unimplemented method", class_id=index >> 16, method_id=index & 0xFFFF)

    # settling

    def _take_acks(self, number: int, data: bytes, pos: int) -> int:
        """Take a run of single acks; gives the position after it, or 0 when there is none."""
        delivery_tags: list[int] = []
        after = take_acks(data, pos, data[pos : pos + ACK_HEAD_BYTES], delivery_tags)
        if after == pos:
            return 0
        self._add_settled(number, ev.ACK, delivery_tags, False)
        return after

    def _on_settle(self, number: int, kind: int, payload: bytes) -> None:
        method = cast(commands.Basic.Nack, decode_method(payload))
        requeue = kind != ev.ACK and method.requeue
        if kind != ev.REJECT and method.multiple:
            self._events.append(ev.SettleRun(number, kind, [method.delivery_tag], True, requeue))
        else:
            self._add_settled(number, kind, [method.delivery_tag], requeue)

    def _add_settled(self, number: int, kind: int, delivery_tags: list[int], requeue: bool) -> None:
        """Add to the run under way when it is of the same kind and nothing came between, or to a new one."""
        run = self._settle
        if (
            run is not None
            and self._events[-1] is run
            and run.channel == number
            and run.kind == kind
            and run.requeue == requeue
        ):
            run.add(delivery_tags)
            return
        self._settle = run = ev.SettleRun(number, kind, delivery_tags, False, requeue)
        self._events.append(run)

    # content

    def on_header(self, number: int, payload: bytes) -> None:
        """Handle a content header frame (4.2.6.1)."""
        channel = self._check(number, ch.IN_HEADER)
        if channel is None:
            return
        if len(payload) < _CONTENT_HEADER_BYTES_MIN:
            raise ProtocolError(c.SYNTAX_ERROR, "content header cut off")
        class_id, weight, body_bytes = _CONTENT_HEADER.unpack_from(payload)
        if class_id != c.CLASS_BASIC or weight:
            raise ProtocolError(
                c.UNEXPECTED_FRAME,
                f"expected content header for class 60, got one for class {class_id} instead"
                if class_id != c.CLASS_BASIC
                else f"content header with weight {weight}",
            )
        assert channel.address is not None
        shape = self._publishes.shape(channel.address, payload[12:])
        if body_bytes > self._message_bytes_max:
            reason = f"message size {body_bytes} is larger than configured max size {self._message_bytes_max}"
            self._refuse_content(number, c.PRECONDITION_FAILED, reason)
        elif not body_bytes:
            channel.end_content(ch.OPEN)
            self._publishes.add(number, shape, b"")
        else:
            channel.begin_body(shape, body_bytes)
            if body_bytes > self._publishes.payload_max:
                self._bound_assembly(number, body_bytes)

    def _bound_assembly(self, number: int, body_bytes: int) -> None:
        """Refuse a large body when too much is being put together on all channels."""
        self._unfinished[number] = body_bytes
        if self.unfinished_bytes > limits.AMQP_ASSEMBLY_BYTES_MAX:
            self._refuse_content(number, c.RESOURCE_ERROR, "too many large messages at once")

    def _refuse_content(self, number: int, code: int, reason: str) -> None:
        self.fail(number, code, reason, c.CLASS_BASIC, c.BASIC_PUBLISH & 0xFFFF)
        self._events.append(ev.ChannelFailed(number, code, reason))

    def is_assembling(self, number: int) -> bool:
        """Return whether a body that takes several frames is coming on this channel."""
        return number in self._unfinished

    def check_body(self, number: int, payload_bytes: int) -> Channel | None:
        """Return the channel of a body frame with so long a payload, None if it is to be discarded.

        Raises ProtocolError if it may not come.
        """
        channel = self._check(number, ch.IN_BODY)
        if channel is not None and payload_bytes > channel.missing_bytes():
            raise ProtocolError(c.UNEXPECTED_FRAME, "body is longer than its header announced")
        return channel

    def on_body(self, number: int, data: bytes, start: int, end: int) -> None:
        """Handle a body frame with payload `data[start:end]`, or a part of one."""
        channel = self.check_body(number, end - start)
        if channel is None:
            return
        body = channel.take_body(data, start, end)
        if body is not None:
            shape = channel.shape
            assert shape is not None
            self._end_content(number, channel, ch.OPEN)
            self._publishes.add(number, shape, body)


class BodyPart:
    """The rest of a body frame of a large message: `left_bytes` of its payload are to come, 0 without one."""

    __slots__ = ("_channel", "_channels", "left_bytes")

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._channel = 0
        self.left_bytes = 0

    def begin(self, channel: int, data: bytes, start: int, payload_bytes: int) -> None:
        """Take what is here of a frame with that payload: the rest of `data`, from `start` on."""
        self._channels.check_body(channel, payload_bytes)
        self._channels.on_body(channel, data, start, len(data))
        self._channel = channel
        self.left_bytes = payload_bytes - (len(data) - start)

    def take(self, data: bytes) -> int:
        """Take more of the frame; gives the position of the first byte not used.

        The last of it is taken with the end octet, so that a body is whole only when its frames are: nothing
        is used while that octet is missing.
        """
        left = self.left_bytes
        size = len(data)
        if size == left:
            return 0
        if size < left:
            self.left_bytes = left - size
            self._channels.on_body(self._channel, data, 0, size)
            return size
        if data[left] != c.FRAME_END:
            raise ProtocolError(c.FRAME_ERROR, f"frame ends with 0x{data[left]:02x}")
        self.left_bytes = 0
        self._channels.on_body(self._channel, data, 0, left)
        return left + 1
