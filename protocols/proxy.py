"""The PROXY protocol, versions 1 and 2: a proxy's word on where a connection comes from, before all else.

https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt
"""

import ipaddress
from struct import Struct
from typing import Final

HEADER_BYTES_MAX: Final = 16 + 65_535
_V1_BYTES_MAX: Final = 107
_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_V2_HEAD: Final = Struct(">12sBBH")
UNKNOWN_PEER: Final = "unknown:0"
"""A peer that a proxy does not name: not this machine, where the proxy itself may be."""
_LOCAL: Final = 0
_PROXY: Final = 1
_V2_ADDRESSES: Final = {
    0x11: Struct(">4s4sHH"),  # TCP over IPv4, over IPv6
    0x21: Struct(">16s16sHH"),
}


class ProxyError(Exception):
    """The bytes that came are no header of the PROXY protocol."""


def decode_header(data: bytes) -> tuple[int, str] | None:
    """Return how long the header at the start of `data` is, and the peer it names, as `host:port` ("" if
    none).

    None: more bytes are needed. Raises ProxyError.
    """
    if data.startswith(_V1[: len(data)]):
        return _decode_v1(data)
    if data.startswith(_V2[: len(data)]):
        return _decode_v2(data)
    raise ProxyError("no PROXY header")


def _decode_v1(data: bytes) -> tuple[int, str] | None:
    end = data.find(b"\r\n", 0, _V1_BYTES_MAX)
    if end < 0:
        if len(data) >= _V1_BYTES_MAX:
            raise ProxyError("PROXY line without an end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return end + 2, UNKNOWN_PEER
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6") or not words[4].isdigit():
        raise ProxyError("PROXY line malformed")
    return end + 2, _peer(words[2], int(words[4]))


def _decode_v2(data: bytes) -> tuple[int, str] | None:
    if len(data) < _V2_HEAD.size:
        return None
    _, version_and_command, family, size = _V2_HEAD.unpack_from(data)
    if version_and_command >> 4 != 2:
        raise ProxyError(f"PROXY version {version_and_command >> 4}")
    command = version_and_command & 15
    if command not in (_LOCAL, _PROXY):
        raise ProxyError(f"PROXY command {command}")
    end = _V2_HEAD.size + size
    if len(data) < end:
        return None
    layout = _V2_ADDRESSES.get(family)
    if command == _LOCAL:
        return end, ""  # the proxy itself, such as its check of health
    if layout is None:
        return end, UNKNOWN_PEER
    if size < layout.size:
        raise ProxyError("PROXY addresses cut short")
    source, _, port, _ = layout.unpack_from(data, _V2_HEAD.size)
    return end, f"{ipaddress.ip_address(source)}:{port}"


def _peer(host: str, port: int) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise ProxyError(f"PROXY address {host[:64]!r}") from None
    if port > 65_535:
        raise ProxyError(f"PROXY port {port}")
    return f"{address}:{port}"
