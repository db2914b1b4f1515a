"""The client's side of an AMQP 0.9.1 connection with one channel, for links."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from pamqp import base, commands

from broker.links.amqp_uri import AmqpUri
from broker.links.supervised_link import LinkLost
from config import limits
from protocols.amqp091.client import FRAME_BYTES_MAX, Frame, FrameReader, encode_frame, start_ok
from protocols.amqp091.constants import FRAME_HEARTBEAT, FRAME_OVERHEAD_BYTES, PROTOCOL_HEADER
from protocols.amqp091.methods import encode_method
from protocols.errors import ProtocolError

CHANNEL: Final = 1
_NOT_FOUND: Final = 404
_READ_BYTES: Final = 256 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OpenHere = Callable[[str], Awaitable[Streams]]
"""Opens a connection to this broker, for the link of that name."""


class NotThere(LinkLost):
    """What is asked for is not there (404); the channel is closed."""


class AmqpPeer:
    """A broker, this one or another. Raises LinkLost once it is lost, or refuses."""

    def __init__(self, streams: Streams, place: str) -> None:
        """`place` is how errors call it."""
        self._reader, self._writer = streams
        self._frames = FrameReader()
        self._place = place
        self._beat_s = 0.0
        self._beating: asyncio.TimerHandle | None = None
        self.body_frame_bytes_max = FRAME_BYTES_MAX - FRAME_OVERHEAD_BYTES
        self.is_blocked = False
        self._is_over = False  # the broker said goodbye, or is gone
        self.server: dict[str, Any] = {}

    async def log_in(self, uri: AmqpUri, connection_name: str) -> None:
        """Log in, enter the virtual host, and open the channel."""
        self._writer.write(PROTOCOL_HEADER)
        start = await self._expect(commands.Connection.Start)
        self.server = start.server_properties
        said = start_ok(uri.user, uri.password, product="SluiceMQ")
        said.client_properties["connection_name"] = connection_name
        self._send_on(0, said)
        tune = await self._expect(commands.Connection.Tune)
        frame_max = min(tune.frame_max or FRAME_BYTES_MAX, FRAME_BYTES_MAX)
        beat_s = min(filter(None, (tune.heartbeat, uri.heartbeat_s)), default=0)
        self._send_on(0, commands.Connection.TuneOk(tune.channel_max, frame_max, beat_s))
        self.body_frame_bytes_max = frame_max - FRAME_OVERHEAD_BYTES
        self._send_on(0, commands.Connection.Open(uri.vhost))
        await self._expect(commands.Connection.OpenOk)
        self._beat_s = beat_s
        if beat_s:
            self._beat()
        await self.call(commands.Channel.Open(), commands.Channel.OpenOk)

    def _beat(self) -> None:
        self._writer.write(encode_frame(FRAME_HEARTBEAT, 0, b""))
        self._beating = asyncio.get_running_loop().call_later(self._beat_s / 2, self._beat)

    def _send_on(self, channel: int, method: base.Frame) -> None:
        self._writer.write(encode_method(channel, method))

    def say(self, method: base.Frame) -> None:
        """Send a method on the channel."""
        self._send_on(CHANNEL, method)

    def send(self, data: bytes) -> None:
        """Send frames."""
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the peer takes more."""
        await self._writer.drain()

    async def call(self, method: base.Frame, answer: type) -> Any:
        """Send a method on the channel and return its answer, before anything is consumed."""
        self.say(method)
        return await self._expect(answer)

    async def is_there(self, method: base.Frame, answer: type) -> Any:
        """Return the answer to a passive declaration, None where it is not there."""
        try:
            return await self.call(method, answer)
        except NotThere:
            self.say(commands.Channel.CloseOk())
            await self.call(commands.Channel.Open(), commands.Channel.OpenOk)
            return None

    async def _expect(self, answer: type) -> Any:
        while True:
            frame = self._frames.next()
            if frame is None:
                await self._read()
            elif isinstance(frame.method, answer):
                return frame.method
            else:
                self._look_at(frame)

    async def frames(self) -> list[Frame]:
        """Return what comes next, at least one frame."""
        found: list[Frame] = []
        while True:
            while (frame := self._frames.next()) is not None:
                self._look_at(frame)
                found.append(frame)
            if found:
                return found
            await self._read()

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(2 * self._beat_s if self._beat_s else None):
                data = await self._reader.read(_READ_BYTES)
        except TimeoutError:
            raise LinkLost(f"{self._place} is silent") from None
        if not data:
            self._is_over = True
            raise LinkLost(f"{self._place} closed the connection")
        try:
            self._frames.feed(data)
        except ProtocolError as error:
            raise LinkLost(f"{self._place}: {error}") from None

    def _look_at(self, frame: Frame) -> None:
        """Act on what ends the connection or the channel, or holds it up."""
        method = frame.method
        if isinstance(method, commands.Channel.Close):
            kind = NotThere if method.reply_code == _NOT_FOUND else LinkLost
            raise kind(f"{self._place} refused: {method.reply_code} {method.reply_text}")
        if isinstance(method, commands.Connection.Close):
            self._send_on(0, commands.Connection.CloseOk())
            self._is_over = True
            raise LinkLost(f"{self._place} refused: {method.reply_code} {method.reply_text}")
        if isinstance(method, commands.Basic.Cancel):
            raise LinkLost(f"{self._place} ended the consumer: its queue is gone")
        if isinstance(method, commands.Connection.Blocked | commands.Connection.Unblocked):
            self.is_blocked = isinstance(method, commands.Connection.Blocked)
        elif frame.kind == 0:
            raise LinkLost(f"{self._place} does not speak AMQP 0.9.1")

    async def close(self) -> None:
        """Say goodbye, and wait a moment until it is heard."""
        if self._beating is not None:
            self._beating.cancel()
        if not self._is_over:
            with suppress(OSError, LinkLost, TimeoutError):
                async with asyncio.timeout(limits.LINK_GOODBYE_S):
                    self._send_on(0, commands.Connection.Close(200, "bye", 0, 0))
                    await self._writer.drain()
                    await self._farewell()
        self._writer.close()

    async def _farewell(self) -> None:
        """Wait until the broker has taken leave, whatever it says before that."""
        while True:
            while (frame := self._frames.next()) is not None:
                if isinstance(frame.method, commands.Connection.CloseOk | commands.Connection.Close):
                    return
            await self._read()


async def connect(uri: AmqpUri, open_here: OpenHere, connection_name: str, place: str) -> AmqpPeer:
    """Connect to a broker and log in. Raises LinkLost, OSError, TimeoutError."""
    async with asyncio.timeout(uri.timeout_s):
        if uri.is_here:
            streams = await open_here(connection_name)
        else:
            context = uri.context()
            name = uri.tls.get("server_name_indication") if context else None
            streams = await asyncio.open_connection(uri.host, uri.port, ssl=context, server_hostname=name)
        peer = AmqpPeer(streams, place)
        try:
            await peer.log_in(uri, connection_name)
        except BaseException:
            await peer.close()
            raise
    return peer


async def connect_any(
    uris: tuple[AmqpUri, ...], open_here: OpenHere, connection_name: str, place: str
) -> tuple[int, AmqpPeer]:
    """Connect to the first of several that is there, as `connect`; the number of which it was, too."""
    for number, uri in enumerate(uris):
        try:
            return number, await connect(uri, open_here, connection_name, place)
        except (LinkLost, OSError, TimeoutError):
            if number + 1 == len(uris):
                raise
    raise AssertionError("a link has at least one URI")
