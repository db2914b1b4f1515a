"""The code that runs once per message: whole runs of equal packets at a time.

Packets of one shape and one payload size lie at equal distances, so a run is checked column by column (one
strided slice per byte of the head, all packets at once) and packet identifiers are read and stamped with two
strided slices, instead of one step of the interpreter per packet.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import Final

from protocols.errors import LocalProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.wire import encode_varint

_SCALAR_MAX: Final = 8  # packets compared one by one before columns pay
_WINDOW_MIN: Final = 64
_ACK_WINDOW_MIN: Final = 16
_CODED_ACK_BYTES: Final = 5
_ack: Final = Struct(">HH").pack  # first byte and remaining length, packet identifier
_BLOCK: Final = 64  # payloads cut out by one call
_HIGH: Final = 1 if sys.byteorder == "little" else 0  # where a native 16 bit number has its high byte
_LOW: Final = 1 - _HIGH


def run_length(
    data: bytes,
    start: int,
    end: int,
    prefix: bytes,
    tail: bytes,
    tail_offset: int,
    stride_bytes: int,
    window: int,
) -> int:
    """Count the packets of `stride_bytes` from `start` that begin with `prefix` and have `tail` at
    `tail_offset`.

    The first is known to. `window` is how many to compare at once at first: the length of the last run, so
    that a comparison in vain costs no more than the last success brought.
    """
    room = (end - start) // stride_bytes
    count = 1
    position = start + stride_bytes
    while count < room and count < _SCALAR_MAX:
        if not data.startswith(prefix, position):
            return count
        if tail and not data.startswith(tail, position + tail_offset):
            return count
        count += 1
        position += stride_bytes
    window = max(window, _WINDOW_MIN)
    while count < room:
        wanted = min(window, room - count)
        equal = _equal_columns(data, position, wanted, stride_bytes, prefix)
        if tail and equal:
            equal = _equal_columns(data, position + tail_offset, equal, stride_bytes, tail)
        count += equal
        if equal < wanted:
            break
        position += equal * stride_bytes
        window *= 4
    return count


def _equal_columns(data: bytes, start: int, count: int, stride_bytes: int, wanted: bytes) -> int:
    """Count the places, `stride_bytes` apart from `start`, at most `count`, that hold `wanted` before one
    does not.
    """
    for offset in range(len(wanted)):
        first = start + offset
        byte = wanted[offset : offset + 1]
        column = data[first : first + (count - 1) * stride_bytes + 1 : stride_bytes]
        if column != byte * count:
            count -= len(column.lstrip(byte))
            if count == 0:
                return 0
    return count


def packet_ids_at(data: bytes, start: int, count: int, stride_bytes: int) -> list[int]:
    """Return the big-endian 16 bit numbers at `start` and every `stride_bytes` after it, `count` of them."""
    if count == 1:
        return [data[start] << 8 | data[start + 1]]
    stop = start + (count - 1) * stride_bytes + 1
    packed = bytearray(2 * count)
    packed[_HIGH::2] = data[start:stop:stride_bytes]
    packed[_LOW::2] = data[start + 1 : stop + 1 : stride_bytes]
    return memoryview(packed).cast("H").tolist()


def payloads_at(wire: bytes, start: int, count: int, stride_bytes: int, offset: int) -> list[bytes]:
    """Return the payloads of `count` equal-size packets from `start`, each `offset` into its packet."""
    if count == 1:
        return [wire[start + offset : start + stride_bytes]]
    size = stride_bytes - offset
    payloads: list[bytes] = []
    blocks = count // _BLOCK
    if blocks:
        take = _block_of(offset, size)
        for position in range(start, start + blocks * _BLOCK * stride_bytes, _BLOCK * stride_bytes):
            payloads += take(wire, position)
        start += blocks * _BLOCK * stride_bytes
        count -= blocks * _BLOCK
    first = start + offset
    payloads += [wire[at : at + size] for at in range(first, first + count * stride_bytes, stride_bytes)]
    return payloads


@lru_cache(maxsize=64)
def _block_of(offset: int, size: int) -> Callable[[bytes, int], tuple[bytes, ...]]:
    return Struct(f"{offset}x{size}s" * _BLOCK).unpack_from


def ack_run_length(data: bytes, start: int, end: int) -> int:
    """Count the four-byte acknowledgements with the first byte at `start` that follow one another; 0 for
    none.
    """
    room = (end - start) // c.LONE_ACK_BYTES
    head = data[start : start + 2]
    if not room or head[1] != 2:
        return 0
    if not data.startswith(head, start + c.LONE_ACK_BYTES):
        return 1
    count = 0
    window = _ACK_WINDOW_MIN
    while count < room:
        wanted = min(window, room - count)
        position = start + count * c.LONE_ACK_BYTES
        equal = _equal_columns(data, position, wanted, c.LONE_ACK_BYTES, head)
        count += equal
        if equal < wanted:
            break
        window *= 4
    return count


def encode_publish_head(
    protocol_version: int,
    topic_bytes: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    properties: bytes,
    payload_bytes: int,
) -> bytes:
    """Encode a PUBLISH up to its packet identifier (QoS 0: up to `encode_publish_tail`).

    `properties` is the raw block without length, `payload_bytes` the payload's size. Raises
    LocalProtocolError for a packet beyond MQTT's 256 MiB or a topic beyond 64 KiB.
    """
    size = 2 + len(topic_bytes) + payload_bytes
    if qos:
        size += 2
    if protocol_version == c.MQTT_5:
        size += len(properties) + (1 if len(properties) < 0x80 else len(encode_varint(len(properties))))
    if len(topic_bytes) > 0xFFFF:
        raise LocalProtocolError("topic longer than 65535 bytes")
    first_byte = 0x30 | dup << 3 | qos << 1 | retain
    return bytes((first_byte,)) + encode_varint(size) + len(topic_bytes).to_bytes(2, "big") + topic_bytes


def encode_publish_tail(protocol_version: int, properties: bytes) -> bytes:
    """Encode what stands between packet identifier and payload: b"" in 3.1.1, the sized property block
    in 5.
    """
    if protocol_version != c.MQTT_5:
        return b""
    return encode_varint(len(properties)) + properties


def encode_publish(
    protocol_version: int,
    topic_bytes: bytes,
    qos: int,
    retain: bool,
    dup: bool,
    packet_id: int,
    properties: bytes,
    payload: bytes,
) -> bytes:
    """Encode one whole PUBLISH; `packet_id` is not looked at for QoS 0."""
    head = encode_publish_head(protocol_version, topic_bytes, qos, retain, dup, properties, len(payload))
    tail = encode_publish_tail(protocol_version, properties)
    if qos:
        return b"".join((head, packet_id.to_bytes(2, "big"), tail, payload))
    return b"".join((head, tail, payload))


def encode_publish_run(
    output: list[bytes], head: bytes, packet_ids: Sequence[int], tail: bytes, payloads: Sequence[bytes]
) -> None:
    """Append a run of PUBLISH packets to `output`, all payloads of the size `head` was made for.

    `packet_ids` has one identifier per payload, or is empty for QoS 0.
    """
    count = len(payloads)
    if count == 1:
        packet_id = packet_ids[0].to_bytes(2, "big") if packet_ids else b""
        output.append(b"".join((head, packet_id, tail, payloads[0])))
    elif count and not packet_ids:
        output.append((head + tail).join((b"", *payloads)))
    elif count:
        blank = (head + b"\0\0" + tail).join((b"", *payloads))
        output.append(restamp_packet_ids(blank, len(blank) // count, len(head), packet_ids))


def restamp_packet_ids(
    wire: bytes, stride_bytes: int, packet_id_offset: int, packet_ids: Sequence[int]
) -> bytes:
    """Copy equal-size packets with other packet identifiers, one each.

    Raises ValueError when their number is not that of the packets.
    """
    packed = pack(f">{len(packet_ids)}H", *packet_ids)
    stamped = bytearray(wire)
    stamped[packet_id_offset::stride_bytes] = packed[0::2]
    stamped[packet_id_offset + 1 :: stride_bytes] = packed[1::2]
    return bytes(stamped)


def restamp_each(wire: bytes, offsets: Iterable[int], packet_ids: Sequence[int]) -> bytes:
    """Copy packets with other packet identifiers, which lie at these offsets."""
    stamped = bytearray(wire)
    for at, packet_id in zip(offsets, packet_ids, strict=True):
        stamped[at] = packet_id >> 8
        stamped[at + 1] = packet_id & 0xFF
    return bytes(stamped)


def encode_ack_run(packet_type: int, packet_ids: Sequence[int], reason_code: int = c.SUCCESS) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP packets; those of success are the same bytes in both
    versions.
    """
    if reason_code:  # MQTT 5: one byte more
        head = bytes((packet_type << 4 | c.FLAGS_BY_TYPE[packet_type], 3, 0, 0, reason_code))
        return restamp_packet_ids(head * len(packet_ids), _CODED_ACK_BYTES, 2, packet_ids)
    first = packet_type << 12 | c.FLAGS_BY_TYPE[packet_type] << 8 | 2
    count = len(packet_ids)
    if count == 1:
        return _ack(first, packet_ids[0])
    return restamp_packet_ids(_ack(first, 0) * count, c.LONE_ACK_BYTES, 2, packet_ids)
