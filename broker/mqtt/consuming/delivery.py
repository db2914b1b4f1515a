"""Deliveries from a queue to an MQTT client, with the user properties an MQTT 5 client settles by."""

from __future__ import annotations

from collections.abc import Sequence

from broker.engine.traffic import Claim, Consumer, Message
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.settling.outgoing import Outgoing
from broker.properties.templates import as_mqtt_delivery
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.properties import encode_user_property
from protocols.mqtt.topic_filters import matches, split_shared
from queue_manager.address import routing_key
from storage.envelope import EnvelopeTemplate


class MqttConsumer:
    """The sink of one `$queue` subscription.

    `explicit`: settled by `$ack` and friends; otherwise by PUBACK, or at QoS 0 by being sent.
    Implements `broker.clients.client_consumers.ConsumerSink` and `broker.engine.traffic.Sink`.
    """

    __slots__ = (
        "_addresses",
        "_client",
        "_constant",
        "_message_id",
        "_outbound",
        "_topic_filter",
        "consumer",
        "explicit",
        "filter",
        "identifiers",
        "qos",
    )

    def __init__(
        self,
        client: MqttClient,
        outbound: Outbound,
        topic_filter: str,
        qos: int,
        *,
        explicit: bool,
        identifiers: bytes,
    ) -> None:
        self._client = client
        self._outbound = outbound
        self.filter = topic_filter
        self.qos = qos
        self.explicit = explicit
        self.identifiers = identifiers
        self.consumer: Consumer
        self._topic_filter = split_shared(topic_filter)[1]
        self._addresses: dict[str, tuple[bytes, bytes]] = {}

    def attach(self, consumer: Consumer) -> None:
        self.consumer = consumer
        group = consumer.group
        queue = group.queue_name.encode()
        self._message_id = queue + b":"
        self._constant = encode_user_property(b"group-id", group.group_id.encode()) + encode_user_property(
            b"queue", queue
        )

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        return self._client.transport.guard(self._deliver, messages, claims)

    def _deliver(self, messages: Sequence[Message], claims: Sequence[Claim] | None) -> None:
        client = self._client
        held = None if self.consumer.no_ack else claims
        if client.connection.protocol_version == c.MQTT_5:
            now_ms = client.clock.now_ms()
            for index, message in enumerate(messages):
                attempts = 1 if claims is None else claims[index].attempts
                self._deliver_5(message, None if held is None else held[index], attempts, now_ms)
        else:
            self._deliver_3(messages, held)
        client.transport.want_flush()

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        self._client.transport.guard(self._outbound.forget_ended)

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `broker.engine.traffic.Sink`: the queue or the group is gone.

        MQTT has no word for the end of one subscription, and a client that takes itself for subscribed would
        wait for ever: so it is disconnected, subscribes anew, and sees by the SUBACK where it is.
        """
        client = self._client
        client.consumers.forget(self.filter)
        self._outbound.forget_ended()
        if not client.connection.closed:
            client.disconnect(c.ADMINISTRATIVE_ACTION, f"the subscription {self.filter!r} ended: {reason}")

    def _deliver_3(self, messages: Sequence[Message], claims: Sequence[Claim] | None) -> None:
        start = 0
        count = len(messages)
        while start < count:
            template = messages[start].template
            end = start + 1
            while end < count and messages[end].template is template:
                end += 1
            self._outbound.send_claimed(
                Outgoing(
                    self._address(template)[0],
                    self.qos,
                    False,
                    b"",
                    [m.body or b"" for m in messages[start:end]],
                    None if claims is None else claims[start:end],
                )
            )
            start = end

    def _deliver_5(self, message: Message, claim: Claim | None, attempts: int, now_ms: int) -> None:
        offset = str(message.offset).encode()
        topic, original_topic = self._address(message.template)
        properties = b"".join(
            (
                as_mqtt_delivery(message.template, message.received_at_ms, now_ms),
                encode_user_property(b"message-id", self._message_id + offset),
                self._constant,
                encode_user_property(b"offset", offset),
                encode_user_property(b"attempts", str(attempts).encode()),
                self._added(message, offset, attempts, original_topic),
                self.identifiers,
            )
        )
        claims = None if claim is None else [claim]
        payloads = [message.body or b""]
        by_ack = not self.explicit
        self._outbound.send_claimed(
            Outgoing(topic, self.qos, False, properties, payloads, claims, by_ack=by_ack)
        )

    def _added(self, message: Message, offset: bytes, attempts: int, original_topic: bytes) -> bytes:
        """Return the user properties behind those that all deliveries have."""
        return original_topic

    def _address(self, template: EnvelopeTemplate) -> tuple[bytes, bytes]:
        """Return the topic of a delivery, and the user property that has the topic published to if it is
        another.

        Client libraries choose by the topic which callback of theirs gets a message, so it has to match the
        filter that was subscribed to.
        """
        found = self._addresses.get(template.topic)
        if found is None:
            if len(self._addresses) > limits.MQTT_ADDRESSES_PER_CONSUMER_MAX:
                self._addresses.clear()
            found = self._addresses[template.topic] = self._address_of(template.topic)
        return found

    def _address_of(self, published_to: str) -> tuple[bytes, bytes]:
        title = self.consumer.group.queue_name
        key = routing_key(published_to, title)
        root = "/".join(self._topic_filter.split("/", 2)[:2])  # the name as the client writes it
        topic = _valid(f"{root}/{key}") if key else root
        if not matches(self._topic_filter, topic) or len(topic.encode()) > limits.MQTT_TOPIC_BYTES_MAX:
            topic = root
        if published_to in (topic, title):
            return topic.encode(), b""
        return topic.encode(), encode_user_property(b"original-topic", published_to.encode())


def _valid(topic: str) -> str:
    """Return the topic without what AMQP routing keys may hold and topics may not."""
    return topic.replace("+", "%2B").replace("#", "%23").replace("\0", "%00")
