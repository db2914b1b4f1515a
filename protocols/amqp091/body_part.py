"""A body frame that is taken as it comes, not kept until it is whole."""

from protocols.amqp091 import constants as c
from protocols.amqp091.channels import Channels
from protocols.errors import ProtocolError


class BodyPart:
    """The rest of a body frame of a large message: `left_bytes` of its payload are to come, 0 without one."""

    __slots__ = ("_channel", "_channels", "left_bytes")

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._channel = 0
        self.left_bytes = 0

    def begin(self, channel: int, data: bytes, start: int, payload_bytes: int) -> None:
        """Take what is here of a frame with that payload: the rest of `data`, from `start` on."""
        self._channels.check_body(channel, payload_bytes)
        self._channels.on_body(channel, data, start, len(data))
        self._channel = channel
        self.left_bytes = payload_bytes - (len(data) - start)

    def take(self, data: bytes) -> int:
        """Take more of the frame; gives the position of the first byte not used.

        The last of it is taken with the end octet, so that a body is whole only when its frames are: nothing
        is used while that octet is missing.
        """
        left = self.left_bytes
        size = len(data)
        if size == left:
            return 0
        if size < left:
            self.left_bytes = left - size
            self._channels.on_body(self._channel, data, 0, size)
            return size
        if data[left] != c.FRAME_END:
            raise ProtocolError(c.FRAME_ERROR, f"frame ends with 0x{data[left]:02x}")
        self.left_bytes = 0
        self._channels.on_body(self._channel, data, 0, left)
        return left + 1
