"""Packets for a client, out of pieces of any size."""

import pytest

from protocols.errors import ProtocolError
from protocols.mqtt.client import PacketReader


@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
def test_packets_come_out_of_pieces_of_any_size(size: int) -> None:
    data = b"\x20\x02\x01\x00" + b"\x30\x81\x01" + bytes(129) + b"\xd0\x00"
    reader, packets = PacketReader(), []
    for start in range(0, len(data), size):
        packets += reader.feed(data[start : start + size])
    assert packets == [(0x20, b"\x01\x00"), (0x30, bytes(129)), (0xD0, b"")]


def test_a_bad_remaining_length_is_refused() -> None:
    with pytest.raises(ProtocolError):
        PacketReader().feed(b"\x30\xff\xff\xff\xff\x01")
