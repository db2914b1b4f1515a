"""The PROXY protocol, versions 1 and 2."""

import struct

import pytest

from protocols.proxy import UNKNOWN_PEER, ProxyError, decode_header

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = struct.pack(">4s4sHH", bytes((10, 1, 2, 3)), bytes((127, 0, 0, 1)), 4711, 1883)
V6 = struct.pack(">16s16sHH", bytes(15) + b"\x07", bytes(15) + b"\x01", 4711, 1883)


def v2(command: int, family: int, body: bytes) -> bytes:
    return V2 + struct.pack(">BBH", 0x20 | command, family, len(body)) + body


@pytest.mark.parametrize(
    ("header", "peer"),
    [
        (b"PROXY TCP4 10.1.2.3 127.0.0.1 4711 1883\r\n", "10.1.2.3:4711"),
        (b"PROXY TCP6 ::7 ::1 4711 1883\r\n", "::7:4711"),
        (b"PROXY UNKNOWN\r\n", UNKNOWN_PEER),
        (b"PROXY UNKNOWN a b c d\r\n", UNKNOWN_PEER),
        (v2(1, 0x11, V4), "10.1.2.3:4711"),
        (v2(1, 0x11, V4 + b"\x03\x00\x04abcd"), "10.1.2.3:4711"),
        (v2(1, 0x21, V6), "::7:4711"),
        (v2(0, 0x00, b""), ""),
        (v2(1, 0x31, b"x" * 216), UNKNOWN_PEER),
    ],
)
def test_header_names_the_peer(header: bytes, peer: str) -> None:
    assert decode_header(header + b"\x10\x00") == (len(header), peer)
    for size in range(len(header)):
        assert decode_header(header[:size]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\x10\x0d\x00\x04MQTT",
        b"PROXY TCP4 10.1.2.3\r\n",
        b"PROXY TCP4 nowhere 127.0.0.1 4711 1883\r\n",
        b"PROXY TCP4 10.1.2.3 127.0.0.1 99999 1883\r\n",
        b"PROXY " + b"x" * 120,
        V2 + b"\x11\x11\x00\x00",
        v2(2, 0x11, V4),
        v2(1, 0x11, b"short"),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ProxyError):
        decode_header(data)
