"""`$queue/<stream>/$commit`: a group's offset, committed by a publish.

MQTT 5 user properties: `group-id` (else the client's own group), and `offset` or `message-id` (also with `x-`
before them, as over AMQP); without any of these the payload is the offset.
"""

from __future__ import annotations

from typing import Final

from broker.engine.answers import Answer
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.controls.control_topics import ControlTarget, check_group, offset_of, user_properties
from broker.properties.single import aliased_value
from config import limits
from protocols.mqtt import constants as c
from queue_manager.errors import InvalidArgument

OFFSET_PROPERTIES: Final = ("offset", "x-offset", "message-id")
GROUP_PROPERTIES: Final = ("group-id", "x-group-id")


class CommitTarget(ControlTarget):
    """A `$commit` topic; answered once the offset is durable."""

    __slots__ = ()

    def _perform(self, client: MqttClient, payload: bytes) -> Answer[bool]:
        queue = self._address.name
        values = user_properties(self._shape.properties, (*GROUP_PROPERTIES, *OFFSET_PROPERTIES))
        _, group_id = aliased_value(values, GROUP_PROPERTIES)
        if group_id is None:
            group_id = client.own_group()
        check_group(client, group_id)
        name, text = aliased_value(values, OFFSET_PROPERTIES)
        if text is None:
            name, text = "offset", payload.decode("ascii", "replace")
            if not text:
                raise InvalidArgument("$commit needs a user property offset, or the offset as payload")
        offset = offset_of(text, queue, name)
        if offset > limits.STREAM_OFFSET_MAX:
            raise InvalidArgument(f"offset {offset} is beyond the stream")
        committed = client.hub.client.streams.commit_offset(queue, client.caller, group_id, offset)
        return committed.map(lambda _: True)

    def _refuse(self, client: MqttClient, packet_ids: list[int], reason: str) -> None:
        """MQTT 3.1.1 has no other way to be told than the end of the connection ([MQTT-3.3.5-2])."""
        if client.connection.protocol_version == c.MQTT_5 or not packet_ids:
            super()._refuse(client, packet_ids, reason)
        else:
            client.end(c.TOPIC_NAME_INVALID, reason)
