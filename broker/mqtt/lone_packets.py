"""Packets that come alone, from clients that say one thing at a time: answered at once."""

from __future__ import annotations

from broker.mqtt.publishing.publish import TopicTarget
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.publish_answers import Publisher
from protocols.mqtt import constants as c
from protocols.mqtt.connection import MqttConnection


class LonePackets:
    """Takes chunks of one client that are exactly one packet and need nothing but their answer: a publish of
    QoS 1 like the one before that is passed on as it is, and its PUBACK for a plain message.
    """

    __slots__ = ("_connection", "_outbound", "_publisher")

    def __init__(self, connection: MqttConnection, publisher: Publisher, outbound: Outbound) -> None:
        self._connection = connection
        self._publisher = publisher
        self._outbound = outbound

    def take(self, data: bytes, now: float) -> bytes | None:
        """Act on the packet and return the answer to be written, b"" if there is none to it; None: nothing
        was done, and it goes the long way.
        """
        if not self._publisher.publishes_directly and len(data) != c.LONE_ACK_BYTES:
            return None
        lone = self._connection.take_lone(data, now)
        if lone is None:
            return None
        if isinstance(lone, int):
            return b"" if self._outbound.take_lone_ack(lone) else None
        shape, _, at, _ = lone
        target = shape.context
        direct = target.direct() if type(target) is TopicTarget else None
        if direct is None:
            return None
        for subscriber in direct:
            subscriber.pass_on_lone(lone)
        return c.PUBACK_HEAD + data[at : at + 2]
