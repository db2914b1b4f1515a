"""The legal methods of a channel, as a table, and the content being put together on it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final

from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091.events import ACK, NACK, REJECT, PublishAddress, PublishShape
from protocols.large_bodies import LargeBody, body_buffer

# states
CLOSED: Final = 0
OPEN: Final = 1
AWAITING_HEADER: Final = 2  # after basic.publish
AWAITING_BODY: Final = 3
CLOSING: Final = 4  # we sent channel.close

# inputs
IN_OPEN: Final = 0
IN_METHOD: Final = 1
IN_CLOSE: Final = 2
IN_CLOSE_OK: Final = 3
IN_HEADER: Final = 4
IN_BODY: Final = 5

ACCEPT: Final = 0
DISCARD: Final = 1

# verdict by state and input: ACCEPT, DISCARD or the reply code of the connection error.
# Frames on a channel that is not open: 504. Content interrupted or out of order (4.2.6): 505.
LEGAL: Final[tuple[tuple[int, ...], ...]] = (
    # IN_OPEN, IN_METHOD, IN_CLOSE, IN_CLOSE_OK, IN_HEADER, IN_BODY
    (ACCEPT, c.CHANNEL_ERROR, c.CHANNEL_ERROR, c.CHANNEL_ERROR, c.CHANNEL_ERROR, c.CHANNEL_ERROR),
    (c.CHANNEL_ERROR, ACCEPT, ACCEPT, c.COMMAND_INVALID, c.UNEXPECTED_FRAME, c.UNEXPECTED_FRAME),
    (*[c.UNEXPECTED_FRAME] * 4, ACCEPT, c.UNEXPECTED_FRAME),
    (*[c.UNEXPECTED_FRAME] * 5, ACCEPT),
    (c.CHANNEL_ERROR, DISCARD, ACCEPT, ACCEPT, DISCARD, DISCARD),
)

INPUT_OF_METHOD: Final[dict[int, int]] = {
    c.CHANNEL_OPEN: IN_OPEN,
    c.CHANNEL_CLOSE: IN_CLOSE,
    c.CHANNEL_CLOSE_OK: IN_CLOSE_OK,
}

SETTLE_KINDS: Final[dict[int, int]] = {c.BASIC_ACK: ACK, c.BASIC_NACK: NACK, c.BASIC_REJECT: REJECT}

# methods a client may send on an open channel and the front-end answers
PASSED_METHODS: Final[frozenset[int]] = frozenset(
    (
        0x00140014,  # channel.flow
        0x00140015,  # channel.flow-ok
        0x0028000A,  # exchange.declare
        0x00280014,  # exchange.delete
        0x0028001E,  # exchange.bind
        0x00280028,  # exchange.unbind
        0x0032000A,  # queue.declare
        0x00320014,  # queue.bind
        0x0032001E,  # queue.purge
        0x00320028,  # queue.delete
        0x00320032,  # queue.unbind
        0x003C000A,  # basic.qos
        0x003C0014,  # basic.consume
        0x003C001E,  # basic.cancel
        0x003C0046,  # basic.get
        0x003C0064,  # basic.recover-async
        0x003C006E,  # basic.recover
        0x005A000A,  # tx.select
        0x005A0014,  # tx.commit
        0x005A001E,  # tx.rollback
        0x0055000A,  # confirm.select
    )
)

# answers to what the server may send (basic.cancel), of no further use
IGNORED_METHODS: Final[frozenset[int]] = frozenset((c.BASIC_CANCEL_OK,))


@dataclass(eq=False, repr=False, slots=True)
class Channel:
    """State of one channel, and the body arriving on it when that spans frames or chunks."""

    number: int
    state: int = field(default=OPEN, init=False)
    address: PublishAddress | None = field(default=None, init=False)
    shape: PublishShape | None = field(default=None, init=False)
    body_bytes: int = field(default=0, init=False)
    body: BytesIO | None = field(default=None, init=False)
    _is_sized: bool = field(default=False, init=False)

    def begin_publish(self, address: PublishAddress) -> None:
        """Take basic.publish: a content header must follow."""
        self.address = address
        self.state = AWAITING_HEADER

    def begin_body(self, shape: PublishShape, body_bytes: int) -> None:
        """Take a content header that announces a body."""
        self.shape = shape
        self.body_bytes = body_bytes
        self.state = AWAITING_BODY

    def take_body(self, data: bytes, start: int, end: int) -> bytes | None:
        """Add `data[start:end]` (not beyond what was announced); gives the body once it is whole."""
        body = self.body
        if body is None:
            if end - start == self.body_bytes:
                return data[start:end]
            body = self.body = BytesIO()
        # one buffer, not a list: a peer may cut a body into frames of one byte
        body.write(memoryview(data)[start:end])
        size = body.tell()
        if size < self.body_bytes:
            if size >= limits.UNFINISHED_BYTES_FREE and not self._is_sized:
                self._make_whole(body)
            return None
        return body.getvalue()  # the buffer itself, not a copy of it

    def _make_whole(self, begun: BytesIO) -> None:
        """Go on in a buffer as large as the body: one that grows is copied again and again.

        Its memory is taken as it is written to. A peer who sends little of what it announces has none.
        """
        self._is_sized = True
        self.body = body_buffer(self.body_bytes)
        self.body.write(begun.getbuffer())

    def memory_to_take(self) -> Callable[[], None] | None:
        body = self.body
        return body.take_memory if isinstance(body, LargeBody) and body.lacks_memory else None

    def missing_bytes(self) -> int:
        """Return how much of the announced body has not arrived."""
        return self.body_bytes - (0 if self.body is None else self.body.tell())

    def end_content(self, state: int) -> None:
        """Forget the content under way and go to `state`."""
        self.address = None
        self.shape = None
        self.body = None
        self._is_sized = False
        self.body_bytes = 0
        self.state = state
