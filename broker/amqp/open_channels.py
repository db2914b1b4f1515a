"""The channels of one AMQP connection that are open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.amqp.channel_frontend import ChannelFrontend
from broker.amqp.connection.amqp_client import AmqpClient
from broker.connections.connection_views import ChannelView
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from queue_manager.errors import LimitReached
from queue_manager.quota_accounts import CHANNELS

_CHANNEL_OPEN: Final = (20, 10)  # class and method


class OpenChannels(dict[int, ChannelFrontend]):
    """Channels by number, as they come and go."""

    def __init__(self, client: AmqpClient, fail: Callable[[int, str, int, int], None]) -> None:
        """`fail` closes the connection with a reply code."""
        super().__init__()
        self._client = client
        self._fail = fail

    def on_opened(self, event: ev.ChannelOpened) -> None:
        """Add one that the client opened, if it may have it."""
        try:
            self._client.transport.share.take(CHANNELS)
        except LimitReached as reached:
            self._fail(c.NOT_ALLOWED, reached.reason, *_CHANNEL_OPEN)
            return
        self[event.channel] = ChannelFrontend(self._client, event.channel, self._fail)
        self._client.tell_channel("channel.created", event.channel)

    def on_closed(self, event: ev.ChannelClosed) -> None:
        """Forget one that is closed on both sides."""
        channel = self.pop(event.channel, None)
        if channel is not None:
            self._client.transport.share.give(CHANNELS)
            channel.end()
            self._client.tell_channel("channel.closed", event.channel)

    def clear(self) -> None:
        """Forget all: the client is gone."""
        self._client.transport.share.give(CHANNELS, len(self))
        for number in self:
            self._client.tell_channel("channel.closed", number)
        super().clear()

    def on_failed(self, event: ev.ChannelFailed) -> None:
        """End one that we closed for an error of the client's."""
        channel = self.get(event.channel)
        if channel is not None:
            channel.failed(event.code, event.reason)

    def pause(self) -> None:
        """Deliver nothing more."""
        for channel in self.values():
            channel.set_paused(True)

    def resume(self) -> None:
        """Go on with deliveries, until the peer has too much to read again."""
        transport = self._client.transport
        for channel in self.values():
            channel.set_paused(transport.paused)  # what the one before was waiting for may have filled it

    def close(self) -> None:
        """Give nothing any more to a client that was told that the connection ends."""
        for channel in list(self.values()):
            channel.close()

    def end(self) -> None:
        """End all: the connection is lost, and what channels held returns."""
        for channel in list(self.values()):
            channel.end()

    def describe(self) -> tuple[ChannelView, ...]:
        """Return what each of them does."""
        return tuple([channel.describe() for channel in self.values()])
