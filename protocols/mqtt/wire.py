"""MQTT data types: variable byte integer, UTF-8 string, binary data. Section 1.5."""

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a variable byte integer; gives it and the position after it. Section 1.5.5.

    Raises ProtocolError 0x81 when it is cut short, longer than four bytes or than it need be
    [MQTT-1.5.5-1].
    """
    value = 0
    shift = 0
    end = len(data)
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise ProtocolError(c.MALFORMED_PACKET, "variable byte integer not in its shortest form")
            return value, position
        shift += 7
        if shift > 21:
            raise ProtocolError(c.MALFORMED_PACKET, "variable byte integer longer than four bytes")
    raise ProtocolError(c.MALFORMED_PACKET, "variable byte integer cut short")


def encode_varint(value: int) -> bytes:
    """Encode a variable byte integer of 0 to 268,435,455; raises LocalProtocolError beyond."""
    if value < 0x80:
        if value < 0:
            raise LocalProtocolError("negative variable byte integer")
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value > c.REMAINING_LENGTH_MAX:
        raise LocalProtocolError("variable byte integer too large")
    return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))


def decode_u16(data: bytes, position: int) -> tuple[int, int]:
    """Read a two byte integer; raises ProtocolError 0x81 when it is cut short. Section 1.5.2."""
    if position + 2 > len(data):
        raise ProtocolError(c.MALFORMED_PACKET, "packet cut short")
    return data[position] << 8 | data[position + 1], position + 2


def decode_packet_id(data: bytes, position: int) -> tuple[int, int]:
    """Read a packet identifier; raises ProtocolError 0x81 when cut short, 0x82 for 0 [MQTT-2.2.1-3]."""
    packet_id, position = decode_u16(data, position)
    if packet_id == 0:
        raise ProtocolError(c.PROTOCOL_ERROR, "packet identifier is 0")
    return packet_id, position


def check_end(data: bytes, position: int) -> None:
    """Raise ProtocolError 0x81 when `position` is not the end of the packet."""
    if position != len(data):
        raise ProtocolError(c.MALFORMED_PACKET, "bytes behind the end of the packet")


def decode_binary(data: bytes, position: int) -> tuple[bytes, int]:
    """Read binary data with its two byte length; raises ProtocolError 0x81 when cut short. Section 1.5.6."""
    size, position = decode_u16(data, position)
    end = position + size
    if end > len(data):
        raise ProtocolError(c.MALFORMED_PACKET, "packet cut short")
    return data[position:end], end


def encode_binary(value: bytes) -> bytes:
    """Encode binary data of at most 65,535 bytes with its length; raises LocalProtocolError beyond."""
    if len(value) > 0xFFFF:
        raise LocalProtocolError("binary data longer than 65535 bytes")
    return len(value).to_bytes(2, "big") + value


def text_of(raw: bytes) -> str:
    """Decode a UTF-8 string from its bytes, without its length.

    Raises ProtocolError 0x81 for ill-formed UTF-8, surrogates included [MQTT-1.5.4-1], and for U+0000
    [MQTT-1.5.4-2].
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise ProtocolError(c.MALFORMED_PACKET, "string is not UTF-8") from None
    if "\0" in text:
        raise ProtocolError(c.MALFORMED_PACKET, "string holds U+0000")
    return text


def decode_text(data: bytes, position: int) -> tuple[str, int]:
    """Read a UTF-8 string with its length; raises as `text_of` and `decode_binary`. Section 1.5.4."""
    raw, position = decode_binary(data, position)
    return text_of(raw), position


def encode_text(value: str) -> bytes:
    """Encode a UTF-8 string with its length; raises LocalProtocolError where MQTT has no form for it."""
    if "\0" in value:
        raise LocalProtocolError("string holds U+0000")
    try:
        return encode_binary(value.encode())
    except UnicodeEncodeError:
        raise LocalProtocolError("string holds a surrogate") from None
