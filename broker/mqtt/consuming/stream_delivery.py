"""Deliveries of a stream to an MQTT client: each message with its offset and the time of its publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from broker.engine.traffic import Claim, Message
from broker.mqtt.consuming.delivery import MqttConsumer, user_property
from broker.mqtt.settling.outgoing import Outgoing
from broker.properties.templates import as_mqtt_delivery

_log: Final = structlog.get_logger("sluicemq.mqtt")


class MqttStreamConsumer(MqttConsumer):
    """The sink of one subscription to a stream."""

    __slots__ = ()

    def _deliver(self, messages: Sequence[Message], claims: Sequence[Claim] | None) -> None:
        consuming = self._client.hub.client.consuming
        is_first = claims is None or claims[0].attempts == 1
        if is_first and (gap := consuming.gap(self.consumer)):
            self._log_gap(gap)
        super()._deliver(messages, claims)
        if is_first:
            consuming.take_gap(self.consumer)  # MQTT 3.1.1 has only the log line

    def _deliver_5(self, message: Message, claim: Claim | None, attempts: int, now_ms: int) -> None:
        group = self.consumer.group
        consuming = self._client.hub.client.consuming
        offset = str(message.offset).encode()
        topic, original_topic = self._address(message.template)
        parts = [
            as_mqtt_delivery(message.template, message.received_at_ms, now_ms),
            user_property(b"message-id", group.queue_name.encode() + b":" + offset),
            user_property(b"group-id", group.group_id.encode()),
            user_property(b"queue", group.queue_name.encode()),
            user_property(b"offset", offset),
            user_property(b"attempts", str(attempts).encode()),
            user_property(b"x-stream-offset", offset),
            user_property(b"x-stream-timestamp", str(message.received_at_ms).encode()),
            original_topic,
        ]
        primary_group = consuming.primary_group(self.consumer)
        if primary_group:
            committed = consuming.primary_committed(self.consumer)
            parts += (
                user_property(b"x-work-group", primary_group.encode()),
                user_property(b"x-work-committed-offset", str(committed).encode()),
                user_property(b"x-work-acked", b"true" if message.offset < committed else b"false"),
            )
        if attempts == 1 and (gap := consuming.take_gap(self.consumer)):
            parts.append(user_property(b"x-stream-gap", str(gap).encode()))
        block = b"".join(parts)
        block += self.identifiers
        self._outbound.send_claimed(
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
        group = self.consumer.group
        _log.warning(
            "stream.gap",
            client=self._client.client_id,
            queue=group.queue_name,
            group=group.group_id,
            skipped=skipped,
        )
