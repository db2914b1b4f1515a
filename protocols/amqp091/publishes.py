"""Publishes in: from frames to runs of bodies with one shape.

Three speeds. A publish that repeats the previous one up to its body is recognised by comparing bytes; any
other whose three frames lie in the chunk is read in one go; the rest goes frame by frame through the state of
its channel. All end in `add`, which gathers runs; or, where a client gives each message properties that none
had before, in `_add_varied`.
"""

from dataclasses import InitVar, dataclass, field
from struct import Struct
from typing import Any, Final

from config import limits
from protocols.amqp091.constants import (
    BASIC_PUBLISH,
    CLASS_BASIC,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_METHOD,
    NOT_IMPLEMENTED,
    SYNTAX_ERROR,
)
from protocols.amqp091.content import check_properties
from protocols.amqp091.events import PublishAddress, PublishRun, PublishShape, VariedPublishRun
from protocols.amqp091.hot import take_equal_publishes
from protocols.errors import ProtocolError

_FRAME_HEAD: Final = Struct(">BHI")
_HEADER_FRAME_HEAD: Final = Struct(">BHIIQ")  # class and weight as one number
_END_AND_HEAD: Final = Struct(">BBHI")
_BASIC_WEIGHT_0: Final = CLASS_BASIC << 16
_CONTENT_BYTES_MIN: Final = 7 + 14 + 1 + 7 + 1 + 1  # a header with flags, a body of one byte
_WHOLE_BYTES_MIN: Final = 7 + 9 + 1 + _CONTENT_BYTES_MIN
_MANDATORY: Final = 1
_IMMEDIATE: Final = 2
_CLASS_ID: Final = BASIC_PUBLISH >> 16
_METHOD_ID: Final = BASIC_PUBLISH & 0xFFFF


def parse_address(payload: bytes) -> PublishAddress:
    """Read a basic.publish method payload.

    Raises ProtocolError: 502 when malformed or not UTF-8, 540 for `immediate` (as RabbitMQ since 3.0).
    """
    try:
        start = 7  # method index and the ticket of AMQP 0.8
        end = start + payload[6]
        exchange = payload[start:end].decode()
        start = end + 1
        end = start + payload[start - 1]
        routing_key = payload[start:end].decode()
        bits = payload[end]
    except (IndexError, UnicodeDecodeError):
        bits = end = -2
    if end + 1 != len(payload):
        raise ProtocolError(SYNTAX_ERROR, "malformed basic.publish", class_id=_CLASS_ID, method_id=_METHOD_ID)
    if bits & _IMMEDIATE:
        raise ProtocolError(NOT_IMPLEMENTED, "immediate=true", class_id=_CLASS_ID, method_id=_METHOD_ID)
    return PublishAddress(exchange, routing_key, bool(bits & _MANDATORY))


@dataclass(eq=False, repr=False, slots=True)
class PublishReader:
    """Caches of one connection, the run being gathered and the last publish's bytes."""

    payload_max: int
    message_bytes_max: InitVar[int]
    body_max: int = field(init=False)
    events: list[Any] = field(default_factory=list, init=False)
    _addresses: dict[bytes, PublishAddress] = field(default_factory=dict, init=False)
    _shape_count: int = field(default=0, init=False)
    _run: PublishRun | None = field(default=None, init=False)
    _varied: VariedPublishRun | None = field(default=None, init=False)
    _last_unseen: bytes = field(default=b"", init=False)
    # the last publish that was taken whole; _method_frame is b"" unless its channel is open and idle
    _address: PublishAddress | None = field(default=None, init=False)
    _method_frame: bytes = field(default=b"", init=False)
    _prefix: bytes = field(default=b"", init=False)  # all its bytes up to the body, once it was repeated
    _shape: PublishShape | None = field(default=None, init=False)
    _body_bytes: int = field(default=0, init=False)
    _channel: int = field(default=0, init=False)
    equal_bytes: int = field(default=0, init=False)  # size of a publish that repeats it, 0 without one

    def __post_init__(self, message_bytes_max: int) -> None:
        self.set_payload_max(self.payload_max, message_bytes_max)

    def set_payload_max(self, payload_max: int, message_bytes_max: int) -> None:
        """Set the negotiated largest frame payload, and with it the largest body in a single frame.

        That is frame-max: frames of clients that do not count head and end are taken, as with RabbitMQ.
        """
        self.payload_max = payload_max
        self.body_max = min(payload_max, message_bytes_max)

    def begin(self, events: list[Any]) -> None:
        """Gather into `events` from now on."""
        self.events = events
        self._run = None
        self._varied = None

    def forget_channel(self, channel: int) -> None:
        """Forget what was learnt from this channel's last publish: it no longer tells that the next is
        legal.
        """
        if channel == self._channel:
            self._forget()

    def _forget(self) -> None:
        self._method_frame = b""
        self._prefix = b""
        self.equal_bytes = 0

    def address(self, payload: bytes) -> PublishAddress:
        """Return the address in a basic.publish payload, from the cache when it was seen before."""
        address = self._addresses.get(payload)
        if address is None:
            address = parse_address(payload)
            if len(self._addresses) >= limits.AMQP_SHAPES_PER_CONNECTION_MAX:
                self._addresses.clear()
                self._shape_count = 0
                self._forget()  # an address outside the cache would gather shapes without bound
            self._addresses[payload] = address
        return address

    def shape(self, address: PublishAddress, properties: bytes) -> PublishShape:
        """Return the shape for these properties; raises ProtocolError (502) when they are malformed."""
        shape = address.shapes.get(properties)
        if shape is None:
            check_properties(properties)
            shape = PublishShape(address, properties)
            if len(properties) <= limits.AMQP_SHAPE_BYTES_MAX:
                if self._shape_count >= limits.AMQP_SHAPES_PER_CONNECTION_MAX:
                    for known in self._addresses.values():
                        known.shapes.clear()
                    self._shape_count = 0
                address.shapes[properties] = shape
                self._shape_count += 1
        return shape

    def add(self, channel: int, shape: PublishShape, body: bytes) -> None:
        """Add a complete publish to the run under way, or to a new one."""
        run = self._run
        if (
            run is not None
            and run.shape is shape
            and run.channel == channel
            and self.events[-1] is run  # nothing came between
        ):
            run.bodies.append(body)
            return
        self._run = run = PublishRun(channel, shape, [body])
        self.events.append(run)

    def _add_varied(self, properties: bytes, body: bytes) -> None:
        """Add a complete publish to the current address whose properties need not be remembered.

        Raises ProtocolError (502) when they are malformed.
        """
        mode = check_properties(properties)
        run = self._varied
        address = self._address
        assert address is not None
        if (
            run is None
            or run.address is not address
            or run.channel != self._channel
            or self.events[-1] is not run
        ):
            self._varied = run = VariedPublishRun(self._channel, address)
            self.events.append(run)
        run.properties.append(properties)
        run.modes.append(mode)
        run.bodies.append(body)

    def take(self, data: bytes, pos: int) -> int:
        """Take publishes that go on where the last one left off: same channel, a known address.

        Gives the position of the first byte not taken; does nothing before a publish was taken whole.
        """
        if not self._method_frame:
            return pos
        while True:
            if self._prefix and data.startswith(self._prefix, pos):
                pos = self._take_equal(data, pos)
            if data.startswith(self._method_frame, pos):
                after = self._take_content(data, pos, pos + len(self._method_frame))
            else:
                after = self._take_known_address(data, pos)
            if not after:
                return pos
            pos = after

    def _take_equal(self, data: bytes, pos: int) -> int:
        """Take what repeats the last publish; gives the position after it."""
        run = self._run
        shape = self._shape
        assert shape is not None
        if run is not None and run.shape is shape and run.channel == self._channel and self.events[-1] is run:
            return take_equal_publishes(data, pos, self._prefix, self._body_bytes, run.bodies)
        bodies: list[bytes] = []
        pos = take_equal_publishes(data, pos, self._prefix, self._body_bytes, bodies)
        if bodies:
            self._run = run = PublishRun(self._channel, shape, bodies)
            self.events.append(run)
        return pos

    def _take_known_address(self, data: bytes, pos: int) -> int:
        """Take a publish to another address seen before; gives the position after it, or 0."""
        if len(data) - pos < _WHOLE_BYTES_MIN:
            return 0
        kind, number, method_bytes = _FRAME_HEAD.unpack_from(data, pos)
        if kind != FRAME_METHOD or number != self._channel:
            return 0
        end: int = pos + 7 + method_bytes
        address = self._addresses.get(data[pos + 7 : end])
        if address is None or end >= len(data) or data[end] != FRAME_END:
            return 0
        self._address = address
        self._method_frame = data[pos : end + 1]
        self._prefix = b""
        self.equal_bytes = 0
        return self._take_content(data, pos, end + 1)

    def take_whole(self, data: bytes, pos: int, method_end: int, channel: int) -> int:
        """Take the publish whose method frame (checked, ending at `method_end`) starts at `pos`.

        The channel must be open and idle. Gives the position after the publish, or 0 when its frames are not
        all here, or anything is not as usual: then the frame decoder takes or refuses it step by step.
        """
        self._address = self.address(data[pos + 7 : method_end])
        self._method_frame = data[pos : method_end + 1]
        self._channel = channel
        self._prefix = b""
        self.equal_bytes = 0
        return self._take_content(data, pos, method_end + 1)

    def _take_content(self, data: bytes, pos: int, header_at: int) -> int:
        """Take header and body of the publish at `pos`, whose method frame is the current one, or give 0."""
        if len(data) < header_at + _CONTENT_BYTES_MIN:
            return 0
        kind, channel, header_bytes, class_and_weight, body_bytes = _HEADER_FRAME_HEAD.unpack_from(
            data, header_at
        )
        header_end = header_at + 7 + header_bytes
        end: int = header_end + 8 + body_bytes  # past the end octet and the head of the body frame
        if (
            end >= len(data)
            or class_and_weight != _BASIC_WEIGHT_0
            or channel != self._channel
            or kind != FRAME_HEADER
            or not 0 < body_bytes <= self.body_max
            or header_bytes > self.payload_max
            or data[end] != FRAME_END
            or _END_AND_HEAD.unpack_from(data, header_end) != (FRAME_END, FRAME_BODY, channel, body_bytes)
        ):
            return 0
        address = self._address
        assert address is not None
        properties = data[header_at + 19 : header_end]
        shape = address.shapes.get(properties)
        if shape is None:
            address.unseen += 1
            if address.unseen > limits.AMQP_UNSEEN_SHAPES_MAX and properties != self._last_unseen:
                self._last_unseen = properties
                self._prefix = b""
                self.equal_bytes = 0
                self._shape = None
                self._add_varied(properties, data[header_end + 8 : end])
                return end + 1
            shape = self.shape(address, properties)
        else:
            address.unseen = 0
            if shape is self._shape and body_bytes == self._body_bytes and not self._prefix:
                # twice the same: from now on told by comparing bytes
                self._prefix = data[pos : header_end + 8]
                self.equal_bytes = end + 1 - pos
        if shape is not self._shape or body_bytes != self._body_bytes:
            self._prefix = b""
            self.equal_bytes = 0
            self._shape = shape
            self._body_bytes = body_bytes
        self.add(channel, shape, data[header_end + 8 : end])
        return end + 1

    def is_cut_off(self, data: bytes, pos: int) -> bool:
        """Return whether the rest of `data` (less than `equal_bytes`) starts a publish that repeats the last.

        Waiting for all of it keeps the next chunk on the fast path.
        """
        return bool(self._prefix) and data.startswith(self._prefix, pos)
