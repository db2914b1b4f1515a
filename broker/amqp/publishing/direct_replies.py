"""Direct reply-to: requests and replies without a queue between.

A requester consumes from `amq.rabbitmq.reply-to`, and publishes its requests on the same channel with that as
`reply_to`. The responder sees a routing key made up for the channel instead; what it publishes to the default
exchange with that key goes straight to the requester, or nowhere if that is gone.
"""

from __future__ import annotations

import secrets
from typing import Final

from pamqp import commands

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.amqp.settling.unacked import Unacked
from broker.engine.answers import Answer
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import content
from protocols.amqp091.hot import DeliverAddress, encode_deliver_varied
from protocols.amqp091.methods import BasicDeliver
from protocols.amqp091.names import REPLY_TO

_KEY_PREFIX: Final = REPLY_TO + "."
_REPLY_TO_BYTES: Final = REPLY_TO.encode()


def wants_direct_reply(raw: bytes) -> bool:
    """Return whether properties that were validated have `amq.rabbitmq.reply-to` as their reply_to."""
    return _REPLY_TO_BYTES in raw and content.reply_to(raw) == _REPLY_TO_BYTES


def may_want_direct_reply(properties: list[bytes]) -> bool:
    """Return whether some of these may have it."""
    return _REPLY_TO_BYTES in b"".join(properties)


class DirectReplies:
    """The requester of a channel: at most one consumer, which takes replies without acknowledging them.

    `takers` are those of all channels.
    """

    __slots__ = ("_address", "_channel", "_key", "_replies", "_tag", "_unacked", "takers")

    def __init__(self, channel: AmqpChannel, unacked: Unacked) -> None:
        self._channel = channel
        self._replies = channel.core.replies
        self.takers = self._replies.takers
        self._unacked = unacked
        self._tag = ""
        self._key = ""
        self._address: DeliverAddress | None = None

    def consume(self, method: commands.Basic.Consume, tag: str) -> Answer[None]:
        """Begin to take replies, which come once the answer is there; raises a channel error."""
        if not method.no_ack:
            raise channel_error(c.PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self._key:
            raise channel_error(c.PRECONDITION_FAILED, "reply consumer already set")
        channel = self._channel
        self._tag = tag
        self._key = f"{_KEY_PREFIX}{channel.client.caller}.{channel.number}.{secrets.token_urlsafe(16)}"
        self._address = DeliverAddress(channel.number, tag, "", self._key)
        return self._replies.begin(self._key, self.take_replies)

    def has(self, tag: str) -> bool:
        """Return whether that is the consumer's tag."""
        return bool(self._key) and self._tag == tag

    def end(self) -> None:
        """Take no more replies."""
        if self._key:
            self._replies.end(self._key)
            self._key = self._tag = ""
            self._address = None

    def address_request(self, raw: bytes) -> bytes:
        """Return the properties of a request as responders see them; raises a channel error."""
        if not self._key:
            raise channel_error(c.PRECONDITION_FAILED, "fast reply consumer does not exist")
        return content.with_reply_to(raw, self._key.encode())

    def take_replies(self, properties: list[bytes], bodies: list[bytes]) -> None:
        """Give the requester replies; what it does not read is not kept for ever."""
        self._channel.transport.guard(self._take_replies, properties, bodies)

    def _take_replies(self, properties: list[bytes], bodies: list[bytes]) -> None:
        channel = self._channel
        client = channel.client
        if not channel.is_open() or self._address is None:
            return
        if (
            client.transport.paused
            and client.transport.output.buffered_bytes() > limits.SUBSCRIBER_BUFFER_BYTES_MAX
        ):
            client.hub.counters.drop_slow(len(bodies))
            return
        connection = client.connection
        properties_max = connection.frame_max - limits.AMQP_ADDED_HEADERS_BYTES_MAX
        if max(map(len, properties)) > properties_max:
            fitting = [
                pair for pair in zip(properties, bodies, strict=True) if len(pair[0]) <= properties_max
            ]
            client.hub.counters.drop_too_large(len(bodies) - len(fitting))
            properties = [raw for raw, _ in fitting]
            bodies = [body for _, body in fitting]
        first_tag = self._unacked.number(len(bodies), None)
        body_bytes_max = connection.frame_max - c.FRAME_OVERHEAD_BYTES
        if all(0 < len(body) <= body_bytes_max for body in bodies):
            addresses = [self._address] * len(bodies)
            encode_deliver_varied(connection.output, channel.number, first_tag, addresses, properties, bodies)
        else:
            for tag, (raw, body) in enumerate(zip(properties, bodies, strict=True), first_tag):
                channel.send_content(BasicDeliver(self._tag, tag, False, "", self._key), raw, body)
        client.transport.want_flush()
