"""Deliveries of a stream to an MQTT client: each message with its offset and the time of its publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from broker.engine.traffic import Claim, Message
from broker.mqtt.consuming.delivery import MqttConsumer
from protocols.mqtt.properties import encode_user_property

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
