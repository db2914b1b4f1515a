"""Deliveries of a stream to an MQTT client: each message with its offset and the time of its publishing."""

from __future__ import annotations

from typing import Final, cast

import structlog

from broker.engine.local.traffic import Claim, Message, StreamGroup
from broker.mqtt.delivery import MqttConsumer, user_property
from broker.mqtt.outbound import Outgoing, with_identifier
from broker.properties.templates import as_mqtt_delivery

_log: Final = structlog.get_logger("sluicemq.mqtt")


class MqttStreamConsumer(MqttConsumer):
    """The sink of one subscription to a stream."""

    __slots__ = ()

    @property
    def group(self) -> StreamGroup:
        """The group the consumer is in."""
        return cast(StreamGroup, self.consumer.group)

    def _deliver(self, messages: list[Message], claims: list[Claim] | None) -> None:
        if self.group.gap and (claims is None or claims[0].attempts == 1):
            self._log_gap(self.group.gap)
        super()._deliver(messages, claims)
        if claims is None or claims[0].attempts == 1:
            self.group.take_gap()  # MQTT 3.1.1 has only the log line

    def _deliver_5(self, message: Message, claim: Claim | None, attempts: int, now_ms: int) -> None:
        group = self.group
        log = group.log
        offset = str(message.offset).encode()
        topic, original_topic = self._address(message.template)
        parts = [
            as_mqtt_delivery(message.template, message.received_at_ms, now_ms),
            user_property(b"message-id", log.title.encode() + b":" + offset),
            user_property(b"group-id", group.group_id.encode()),
            user_property(b"queue", log.title.encode()),
            user_property(b"offset", offset),
            user_property(b"attempts", str(attempts).encode()),
            user_property(b"x-stream-offset", offset),
            user_property(b"x-stream-timestamp", str(message.received_at_ms).encode()),
            original_topic,
        ]
        primary_group = log.policy.primary_group
        if primary_group:
            committed = self._client.hub.client.consuming.primary_committed(self.consumer)
            parts += (
                user_property(b"x-work-group", primary_group.encode()),
                user_property(b"x-work-committed-offset", str(committed).encode()),
                user_property(b"x-work-acked", b"true" if message.offset < committed else b"false"),
            )
        if group.gap and attempts == 1:
            parts.append(user_property(b"x-stream-gap", str(group.take_gap()).encode()))
        block = b"".join(parts)
        if self.identifier is not None:
            block = with_identifier(block, self.identifier)
        self._outbound.send(
            Outgoing(
                topic,
                self.qos,
                False,
                block,
                [message.body or b""],
                None if claim is None else [claim],
                by_ack=not self.explicit,
            )
        )

    def _log_gap(self, skipped: int) -> None:
        group = self.group
        _log.warning(
            "stream.gap",
            client=self._client.client_id,
            queue=group.log.title,
            group=group.group_id,
            skipped=skipped,
        )
