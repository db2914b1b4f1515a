"""Messages on their way from a queue of one broker into another broker, sans-IO: what comes from both goes
in, frames for both come out. What is acknowledged at the source was confirmed at the target, so that an end
in between leaves a message twice, never none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pamqp import commands

from protocols.amqp091 import content
from protocols.amqp091.client import Frame
from protocols.amqp091.constants import FRAME_BODY, FRAME_HEADER
from protocols.amqp091.methods import encode_method

STREAM_OFFSET: Final = "x-stream-offset"
ORIGINAL_USER: Final = "x-original-user-id"
_CHANNEL: Final = 1
_CONTENT_HEAD_BYTES: Final = 12
_USER_ID: Final = 0x10  # the flag of the property
_OF_DELIVERIES: Final = (STREAM_OFFSET, "x-delivery-count", "x-acquired-count")
"""Headers that the other broker adds when it delivers."""


class Parcel(NamedTuple):
    """A message on its way."""

    tag: int
    offset: int
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class Relay:
    """Counts what is under way. `order` has what came and is not acknowledged, in order; `unconfirmed` what
    was published and not confirmed, by the target's numbers.
    """

    def __init__(self, seal: Callable[[Parcel], bytes], *, is_stream: bool = False) -> None:
        """`seal` makes the frames of a publish to the target; of streams offsets are read."""
        self._seal = seal
        self._is_stream = is_stream
        self._incoming: list[Any] = []  # method, properties, bytes to come and what came of the body
        self._ready: list[Parcel] = []  # to be published
        self._done: set[int] = set()
        self.order: deque[Parcel] = deque()
        self.unconfirmed: dict[int, Parcel] = {}
        self.published_count = 0

    # from the source

    def take(self, frame: Frame) -> None:
        """Take a frame of the source."""
        if frame.kind == FRAME_HEADER:
            size = int.from_bytes(frame.payload[4:_CONTENT_HEAD_BYTES])
            self._incoming += [frame.payload[_CONTENT_HEAD_BYTES:], size, []]
        elif frame.kind == FRAME_BODY:
            self._incoming[3].append(frame.payload)
            self._incoming[2] -= len(frame.payload)
        elif isinstance(frame.method, commands.Basic.Deliver):
            self._incoming = [frame.method]
        if len(self._incoming) == 4 and not self._incoming[2]:
            method, properties, _, parts = self._incoming
            self._incoming = []
            offset, properties = self._own(properties)
            parcel = Parcel(
                method.delivery_tag, offset, method.exchange, method.routing_key, properties, b"".join(parts)
            )
            self.order.append(parcel)
            self._ready.append(parcel)

    def _own(self, raw: bytes) -> tuple[int, bytes]:
        """Return the offset that a delivery tells, and the properties as they were published."""
        offset = -1
        if self._is_stream:
            offset = next(value for name, value in content.decode_headers(raw) if name == STREAM_OFFSET)
        raw = content.without_headers(raw, _OF_DELIVERIES)
        if int.from_bytes(raw[:2]) & _USER_ID:  # nobody may publish for another
            properties, headers = content.decode_properties(raw), content.decode_headers(raw)
            headers.append((ORIGINAL_USER, properties.user_id))
            properties.user_id = None
            raw = content.encode_properties(properties, headers)
        return offset, raw

    def take_ready(self) -> list[Parcel]:
        """Return what came whole, to be published."""
        ready, self._ready = self._ready, []
        return ready

    # to the target

    def publish(self, parcels: Sequence[Parcel]) -> bytes:
        """Return the frames that publish these, and count them as unconfirmed."""
        sent = []
        for parcel in parcels:
            self.published_count += 1
            self.unconfirmed[self.published_count] = parcel
            sent.append(self._seal(parcel))
        return b"".join(sent)

    def settle(self, answer: commands.Basic.Ack | commands.Basic.Nack) -> list[Parcel]:
        """Take an answer of the target; returns those that it refused."""
        tags = [answer.delivery_tag]
        if answer.multiple:
            tags = [tag for tag in self.unconfirmed if tag <= answer.delivery_tag]
        parcels = [self.unconfirmed.pop(tag) for tag in tags]
        if isinstance(answer, commands.Basic.Nack):
            return parcels
        self.finish(parcels)
        return []

    def finish(self, parcels: Sequence[Parcel]) -> None:
        """Have these acknowledged at the source."""
        self._done.update(parcel.tag for parcel in parcels)

    def published(self) -> None:
        """Count what was published as done, without a confirm."""
        self.finish(list(self.unconfirmed.values()))
        self.unconfirmed.clear()

    def publish_anew(self) -> list[Parcel]:
        """Return what is not confirmed, for a channel that counts from one again."""
        parcels = list(self.unconfirmed.values())
        self.unconfirmed.clear()
        self.published_count = 0
        return parcels

    # back to the source

    def take_done(self) -> list[Parcel]:
        """Return what is done, up to the first that is not; to be acknowledged."""
        found = []
        while self.order and self.order[0].tag in self._done:
            found.append(self.order.popleft())
            self._done.remove(found[-1].tag)
        return found


def encode_acks(parcels: Sequence[Parcel], *, multiple: bool) -> bytes:
    """Return what acknowledges these at the source; `multiple`: nothing before them is to stay."""
    if multiple:
        return encode_method(_CHANNEL, commands.Basic.Ack(parcels[-1].tag, True))
    return b"".join([encode_method(_CHANNEL, commands.Basic.Ack(each.tag, False)) for each in parcels])
