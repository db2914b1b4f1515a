"""Loads in lockstep: publish a batch, have it confirmed, delivered and acknowledged, begin again.

The broker gets the same bytes in the same pieces, however quick or busy the machine is, so its processor time
for a message can be compared between two ways to come in. It is no measure of throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from benchmarks.load import amqp_wire, mqtt_wire
from benchmarks.load.crew import LoadError
from benchmarks.load.payloads import make_bodies
from benchmarks.load.target import Target

BODY_BYTES: Final = 100
WAIT_S: Final = 20.0


class Steps(Protocol):
    """A publisher and a consumer that are connected."""

    def step(self) -> None:
        """One batch, from its publish to its acknowledgement; raises LoadError."""

    def close(self) -> None:
        """Say goodbye; what was made is deleted."""


class AmqpSteps:
    """Durable messages with confirms through a queue of their own."""

    def __init__(self, target: Target, name: str, batch: int) -> None:
        self._batch = batch
        self._queue = f"bench-{name}"
        self._publisher = self._client(target)
        self._consumer = self._client(target)
        self._publisher.declare_queue(self._queue, durable=True)
        self._publisher.select_confirms()
        self._consumer.consume(self._queue, prefetch=2 * batch, no_ack=False)
        bodies = make_bodies(BODY_BYTES, batch)
        self._blob = amqp_wire.publish_batch(self._queue, bodies, delivery_mode=2)
        self._confirms = amqp_wire.ConfirmCounter()
        self._deliveries = amqp_wire.DeliveryCounter(self._consumer.take_buffered(), bodies)
        self._published = 0

    @staticmethod
    def _client(target: Target) -> amqp_wire.AmqpClient:
        return amqp_wire.AmqpClient(target.host, target.amqp_port, WAIT_S, target.login)

    def step(self) -> None:
        """See `Steps`."""
        self._publisher.sock.sendall(self._blob)
        self._published += self._batch
        while self._confirms.confirmed < self._published:
            self._confirms.feed(self._publisher.sock.recv(1 << 16))
        if self._confirms.refused:
            raise LoadError("the broker refused a publish")
        while self._deliveries.count < self._published:
            self._deliveries.receive(self._consumer.sock)
        self._consumer.sock.sendall(amqp_wire.encode_ack_multiple(self._published))

    def close(self) -> None:
        """See `Steps`."""
        self._consumer.close()
        self._publisher.delete_queue(self._queue)
        self._publisher.close()


class MqttSteps:
    """QoS 1 from one client to another."""

    def __init__(self, target: Target, name: str, batch: int) -> None:
        self._batch = batch
        clients = [
            mqtt_wire.MqttClient(target.host, target.mqtt_port, client_id, WAIT_S, target.login)
            for client_id in (f"{name}-from", f"{name}-to")
        ]
        self._publisher, self._subscriber = clients
        topic = f"bench/{name}"
        self._subscriber.subscribe(topic, 1)
        bodies = make_bodies(BODY_BYTES, batch)
        self._blob = b"".join(
            mqtt_wire.publish_packet(topic, body, 1, number + 1) for number, body in enumerate(bodies)
        )
        self._confirms = mqtt_wire.AckCounter()
        self._deliveries = mqtt_wire.PublishCounter(topic, BODY_BYTES, 1, bodies)
        self._published = 0

    def step(self) -> None:
        """See `Steps`."""
        self._publisher.sock.sendall(self._blob)
        self._published += self._batch
        while self._confirms.confirmed < self._published:
            self._confirms.feed(self._publisher.sock.recv(1 << 16))
        acks = b""
        while self._deliveries.count < self._published:
            acks += self._deliveries.receive(self._subscriber.sock)
        self._subscriber.sock.sendall(acks)

    def close(self) -> None:
        """See `Steps`."""
        self._publisher.close()
        self._subscriber.close()


LOADS: Final[dict[str, Callable[[Target, str, int], Steps]]] = {
    # by name; to be called with a name of its own for what it makes, and how many messages are a batch
    "AMQP durable, confirms": AmqpSteps,
    "MQTT QoS 1": MqttSteps,
}
