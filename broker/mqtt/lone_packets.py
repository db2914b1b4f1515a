"""Packets that come alone, from clients that say one thing at a time: answered at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.mqtt import native
from broker.mqtt.publishing.publish import TopicTarget
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.publish_answers import Publisher
from broker.mqtt.topology.subscription import Subscriber
from broker.network.transport import Transport
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import LonePublish

if TYPE_CHECKING:
    from broker.mqtt.native._lone import Door as CompiledDoor


class LonePackets:
    """Takes chunks of one client that are exactly one packet and need nothing but their answer: a publish of
    QoS 1 like the one before that is passed on as it is, and its PUBACK for a plain message.

    Where `native.Door` is, it takes the publishes that follow, as long as nothing else happens to the client.
    """

    __slots__ = ("_connection", "_door", "_outbound", "_publisher", "_transport")

    def __init__(
        self, transport: Transport, connection: MqttConnection, publisher: Publisher, outbound: Outbound
    ) -> None:
        self._transport = transport
        self._door: CompiledDoor | None = None
        self._connection = connection
        self._publisher = publisher
        self._outbound = outbound

    def take(self, data: bytes, now: float) -> bytes | None:
        """Act on the packet and return the answer to be written, b"" if there is none to it; None: nothing
        was done, and it goes the long way.
        """
        if len(data) != c.LONE_ACK_BYTES and not self._publisher.publishes_directly:
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
        if native.Door is not None:
            self._open_door(native.Door, lone, direct, target)
        return c.PUBACK_HEAD + data[at : at + 2]

    def _open_door(
        self, make: type[CompiledDoor], lone: LonePublish, direct: list[Subscriber], target: TopicTarget
    ) -> None:
        """Have publishes like this one, but for their size, go by the door."""
        transport = self._transport
        door = self._door
        if door is None:
            write, monotonic = transport.transport.write, transport.monotonic
            bytes_max = min(limits.LONE_CHUNK_BYTES_MAX, self._connection.offer.packet_bytes_max)
            gathered_max = limits.LONE_PUBLISHES_GATHERED_MAX
            door = make(transport, self._connection, write, monotonic, bytes_max, gathered_max)
            self._door = door
            transport.go_by(door)
        shape, wire, at, payload_at = lone
        head_bytes = 2 if wire[1] < 0x80 else 3
        door.expect(
            shape,
            wire[head_bytes:at],
            wire[at + 2 : payload_at],
            direct,
            *target.direct_until(),
            transport.share,
        )
