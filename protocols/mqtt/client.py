"""The client's side of MQTT, sans-IO: packets out of what a broker sends. `codec` encodes what is sent."""

from __future__ import annotations

from protocols.mqtt.constants import REMAINING_LENGTH_MAX
from protocols.mqtt.publishes import frame_at

_PACKET_BYTES_MAX = REMAINING_LENGTH_MAX + 5


class PacketReader:
    """Takes packets out of the bytes that come, in whatever pieces they come."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the packets that are whole now, each its first byte and what follows its length.

        Raises ProtocolError for a remaining length that is none.
        """
        data = self._buffer + data
        found = []
        position, end = 0, len(data)
        while position < end:
            body, stop = frame_at(data, position, end, _PACKET_BYTES_MAX)
            if stop > end:
                break
            found.append((data[position], data[body:stop]))
            position = stop
        self._buffer = data[position:]
        return found
