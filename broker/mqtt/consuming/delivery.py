"""Deliveries from a queue to an MQTT client, with the user properties an MQTT 5 client settles by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog

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


@dataclass(eq=False, repr=False, slots=True)
class MqttConsumer:
    """The sink of one `$queue` subscription.

    `explicit`: settled by `$ack` and friends; otherwise by PUBACK, or at QoS 0 by being sent.
    Implements `broker.clients.client_consumers.ConsumerSink` and `broker.engine.traffic.Sink`.
    """

    _client: MqttClient
    _outbound: Outbound
    filter: str
    qos: int
    _: KW_ONLY
    explicit: bool
    identifiers: bytes
    consumer: Consumer = field(init=False)
    _topic_filter: str = field(init=False)
    _message_id: bytes = field(init=False)
    _constant: bytes = field(init=False)
    _addresses: dict[str, tuple[bytes, bytes]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._topic_filter = split_shared(self.filter)[1]

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


_log: Final = structlog.get_logger("sluicemq.mqtt")


class MqttStreamConsumer(MqttConsumer):
    """The sink of one subscription to a stream."""

    __slots__ = ()

    def _deliver(self, messages: Sequence[Message], claims: Sequence[Claim] | None) -> None:
        consuming = self._client.core.consuming
        is_first = claims is None or claims[0].attempts == 1
        if is_first and (gap := consuming.gap(self.consumer)):
            group = self.consumer.group
            _log.warning(
                "stream.gap",
                client=self._client.client_id,
                queue=group.queue_name,
                group=group.group_id,
                skipped=gap,
            )
        super()._deliver(messages, claims)
        if is_first:
            consuming.take_gap(self.consumer)  # MQTT 3.1.1 has only the log line

    def _added(self, message: Message, offset: bytes, attempts: int, original_topic: bytes) -> bytes:
        consuming = self._client.core.consuming
        parts = [
            encode_user_property(b"x-stream-offset", offset),
            encode_user_property(b"x-stream-timestamp", str(message.received_at_ms).encode()),
            original_topic,
        ]
        primary_group = consuming.primary_group(self.consumer)
        if primary_group:
            committed = consuming.primary_committed(self.consumer)
            parts += (
                encode_user_property(b"x-work-group", primary_group.encode()),
                encode_user_property(b"x-work-committed-offset", str(committed).encode()),
                encode_user_property(b"x-work-acked", b"true" if message.offset < committed else b"false"),
            )
        if attempts == 1 and (gap := consuming.take_gap(self.consumer)):
            parts.append(encode_user_property(b"x-stream-gap", str(gap).encode()))
        return b"".join(parts)
