"""The per-message paths: runs of deliveries and confirms out, runs of publishes and acks in.

Frames of a run differ in a few bytes at known places, so they are taken apart many at a time by one `struct`
call and checked by comparing what lies between.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import Final

from protocols.amqp091.constants import FRAME_END, FRAME_END_BYTE

_U64: Final = Struct(">Q")
_METHOD_HEAD: Final = Struct(">BHII")
_pack_u64: Final = _U64.pack
_pack_content: Final = Struct(">BHIIQ").pack  # class and weight as one number
_pack_end_and_body: Final = Struct(">BBHI").pack
_CONFIRM: Final = Struct(">BHIIQBB")
_BASIC_WEIGHT_0: Final = 60 << 16
_BASIC_DELIVER: Final = 0x003C003C
_BASIC_ACK: Final = 0x003C0050
_BASIC_NACK: Final = 0x003C0078

_WIDE: Final = 64
_NARROW: Final = 8

ACK_HEAD_BYTES: Final = 11
ACK_FRAME_BYTES: Final = 21
_ACK_TAIL: Final = b"\x00\xce"  # multiple = 0, frame end


def encode_ack(channel: int, delivery_tag: int, multiple: bool) -> bytes:
    """Encode basic.ack as a whole frame: confirms one publish, or all up to `delivery_tag`."""
    return _CONFIRM.pack(1, channel, 13, _BASIC_ACK, delivery_tag, multiple, FRAME_END)


def encode_nack(channel: int, delivery_tag: int) -> bytes:
    """Encode basic.nack as a whole frame: refuses one publish."""
    return _CONFIRM.pack(1, channel, 13, _BASIC_NACK, delivery_tag, False, FRAME_END)


def _short(text: str) -> bytes:
    raw = text.encode()
    return bytes((len(raw),)) + raw


class DeliverAddress:
    """The bytes of a first basic.deliver that say from where to whom: `head` up to the delivery tag, `middle`
    behind it.
    """

    __slots__ = ("head", "middle")

    def __init__(self, channel: int, consumer_tag: str, exchange: str, routing_key: str) -> None:
        consumer = _short(consumer_tag)
        address = _short(exchange) + _short(routing_key)
        method_bytes = 4 + len(consumer) + 8 + 1 + len(address)
        self.head = _METHOD_HEAD.pack(1, channel, method_bytes, _BASIC_DELIVER) + consumer
        self.middle = b"\x00" + address + FRAME_END_BYTE


class DeliverTemplate:
    """All bytes of a first basic.deliver but the delivery tag and the body.

    A delivery on the wire is `head + u64(tag) + tail + body + end`. Holds for bodies of exactly `body_bytes`,
    which must fit one frame (frame_max - 8) or be 0; larger ones go through `send_content`.
    """

    __slots__ = ("_address", "_channel", "_properties", "body_bytes", "end", "head", "tail")

    def __init__(self, channel: int, address: DeliverAddress, properties: bytes, body_bytes: int) -> None:
        self._channel = channel
        self._address = address
        self._properties = properties
        self.body_bytes = body_bytes
        self.head = address.head
        header = _pack_content(2, channel, 12 + len(properties), _BASIC_WEIGHT_0, body_bytes)
        self.tail = address.middle + header + properties
        self.end = b""
        if body_bytes:
            self.tail += _pack_end_and_body(FRAME_END, 3, channel, body_bytes)
            self.end = FRAME_END_BYTE
        else:
            self.tail += FRAME_END_BYTE

    def resized(self, body_bytes: int) -> DeliverTemplate:
        """Return the same delivery for bodies of another size."""
        return DeliverTemplate(self._channel, self._address, self._properties, body_bytes)


def encode_deliver_run(
    output: list[bytes], template: DeliverTemplate, first_tag: int, bodies: list[bytes]
) -> None:
    """Append deliveries with consecutive tags; every body must have `template.body_bytes`."""
    count = len(bodies)
    if not count:
        return
    head = template.head
    tail = template.tail
    end = template.end
    if count == 1:
        assert len(bodies[0]) == template.body_bytes
        output.append(b"".join((head, _U64.pack(first_tag), tail, bodies[0], end)))
        return
    parts = [end + head, b"", tail, b""] * count
    parts[0] = head
    tags = pack(f">{count}Q", *range(first_tag, first_tag + count))
    parts[1::4] = [tags[at : at + 8] for at in range(0, 8 * count, 8)]
    parts[3::4] = bodies
    parts.append(end)
    encoded = b"".join(parts)
    # one body of another size would shift every frame after it
    assert len(encoded) == count * (len(head) + 8 + len(tail) + template.body_bytes + len(end))
    output.append(encoded)


def encode_deliver_parts(
    output: list[bytes], template: DeliverTemplate, first_tag: int, bodies: list[bytes]
) -> None:
    """Encode as `encode_deliver_run`; the bodies are parts of the output as they are, not copied."""
    head, tail, end = template.head, template.tail, template.end
    before = head
    for tag, body in enumerate(bodies, first_tag):
        assert len(body) == template.body_bytes
        output += (b"".join((before, _pack_u64(tag), tail)), body)
        before = end + head
    if bodies:
        output.append(end)


def encode_deliver_varied(
    output: list[bytes],
    channel: int,
    first_tag: int,
    addresses: list[DeliverAddress],
    properties: list[bytes],
    bodies: list[bytes],
) -> None:
    """Append first deliveries with consecutive tags, each with its own address and properties.

    Each body must fit one frame and not be empty.
    """
    parts: list[bytes] = []
    tags = range(first_tag, first_tag + len(bodies))
    for tag, address, raw, body in zip(tags, addresses, properties, bodies, strict=True):
        size = len(body)
        parts += (
            address.head,
            _pack_u64(tag),
            address.middle,
            _pack_content(2, channel, 12 + len(raw), _BASIC_WEIGHT_0, size),
            raw,
            _pack_end_and_body(FRAME_END, 3, channel, size),
            body,
            FRAME_END_BYTE,
        )
    output.append(b"".join(parts))


class NumberedTemplate:
    """A DeliverTemplate with a place for a number in each of some headers, 64 bits wide, such as `x-offset`.

    The template's properties must have been made by `append_headers` with `(name, 0)` for each of `names`, in
    this order, as the last headers. `parts` is a delivery behind another, empty where tag, numbers and body
    go; `size` what all of it takes.
    """

    __slots__ = ("end", "head", "parts", "size")

    def __init__(self, template: DeliverTemplate, names: Sequence[str]) -> None:
        """Make the template. Raises ValueError when the header is not in it."""
        tail = template.tail
        self.head = template.head
        self.end = template.end
        self.parts = [self.end + self.head, b""]
        entries = [_short(name) + b"l" + bytes(8) for name in names]
        start = 0
        at = tail.rindex(b"".join(entries))
        for entry in entries:
            at += len(entry) - 8
            self.parts += (tail[start:at], b"")
            at += 8
            start = at
        self.parts += (tail[start:], b"")
        self.size = sum(map(len, self.parts)) + 8 * (len(entries) + 1) + template.body_bytes


def encode_deliver_numbered(
    output: list[bytes],
    template: NumberedTemplate,
    first_tag: int,
    columns: Sequence[Sequence[int]],
    bodies: Sequence[bytes],
) -> None:
    """Append deliveries with consecutive tags; `columns` hold one number a message for each header.

    Bodies as `encode_deliver_run`.
    """
    count = len(bodies)
    if not count:
        return
    parts = template.parts * count
    parts[0] = template.head
    width = len(template.parts)
    layout = f">{count}Q"
    place = 1
    for column in (range(first_tag, first_tag + count), *columns):
        packed = pack(layout, *column)
        parts[place::width] = [packed[at : at + 8] for at in range(0, 8 * count, 8)]
        place += 2
    parts[place::width] = bodies
    parts.append(template.end)
    encoded = b"".join(parts)
    assert len(encoded) == count * template.size
    output.append(encoded)


@lru_cache(maxsize=64)
def _publish_windows(body_bytes: int, between_bytes: int) -> tuple[tuple[int, Struct], ...]:
    return tuple(
        (count, Struct(f">{body_bytes}s" + f"{between_bytes}s{body_bytes}s" * (count - 1)))
        for count in (_WIDE, _NARROW)
    )


def take_equal_publishes(data: bytes, pos: int, prefix: bytes, body_bytes: int, bodies: list[bytes]) -> int:
    """Take publishes that repeat `prefix` (all their bytes up to the body) from `pos`.

    Appends the bodies and gives the position of the first byte not taken. Stops before anything else,
    including a wrong frame end, which is left to the frame decoder to judge.
    """
    head_bytes = len(prefix)
    step = head_bytes + body_bytes + 1
    size = len(data)
    narrow_at = pos  # not before here: a window failed
    while data.startswith(prefix, pos):
        if (
            pos >= narrow_at
            and size - pos >= _NARROW * step
            and data.startswith(prefix, pos + (_NARROW - 1) * step)
        ):
            after = _take_windows(data, pos, prefix, body_bytes, bodies)
            if after > pos:
                pos = after
                continue
            narrow_at = pos + _NARROW * step
        end = pos + step - 1
        if end >= size or data[end] != FRAME_END:
            break
        bodies.append(data[pos + head_bytes : end])
        pos = end + 1
    return pos


def _take_windows(data: bytes, pos: int, prefix: bytes, body_bytes: int, bodies: list[bytes]) -> int:
    """Take whole windows of publishes, the first of which is known to start with `prefix`."""
    between = FRAME_END_BYTE + prefix
    head_bytes = len(prefix)
    step = head_bytes + body_bytes + 1
    for count, window in _publish_windows(body_bytes, len(between)):
        span = count * step
        last = len(data) - span
        while pos <= last:
            fields = window.unpack_from(data, pos + head_bytes)
            if (
                data[pos + span - 1] != FRAME_END
                or fields[1::2].count(between) != count - 1
                or not data.startswith(prefix, pos)
            ):
                break
            bodies += fields[0::2]
            pos += span
    return pos


_ACK_WINDOWS: Final = tuple((count, Struct(">Q" + "13sQ" * (count - 1))) for count in (4 * _WIDE, _NARROW))


def take_acks(data: bytes, pos: int, head: bytes, delivery_tags: list[int]) -> int:
    """Take single basic.acks that start with `head` (their first 11 bytes) from `pos`.

    Appends the tags and gives the position of the first byte not taken.
    """
    size = len(data)
    for count, window in _ACK_WINDOWS:
        span = count * ACK_FRAME_BYTES
        while pos + span <= size and data.startswith(head, pos + span - ACK_FRAME_BYTES):
            fields = window.unpack_from(data, pos + ACK_HEAD_BYTES)
            if (
                fields[1::2].count(_ACK_TAIL + head) != count - 1
                or not data.startswith(head, pos)
                or not data.startswith(_ACK_TAIL, pos + span - 2)
            ):
                break
            delivery_tags += fields[0::2]
            pos += span
    while data.startswith(head, pos) and data.startswith(_ACK_TAIL, pos + ACK_FRAME_BYTES - 2):
        delivery_tags.append(_U64.unpack_from(data, pos + ACK_HEAD_BYTES)[0])
        pos += ACK_FRAME_BYTES
    return pos
