"""`$queue/<stream>/$commit`: a group's offset, committed by a publish.

MQTT 5 user properties: `group-id` (else the client's own group), and `offset` or `message-id` (also with `x-`
before them, as over AMQP); without any of these the payload is the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from broker.mqtt.control import ControlTarget, offset_of, user_properties
from broker.properties.single import aliased_value
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun
from queue_manager.errors import InvalidArgument, QueueManagerError

if TYPE_CHECKING:
    from broker.hub import Hub
    from broker.mqtt.frontend import MqttFrontend

_log = structlog.get_logger("sluicemq.mqtt")
OFFSET_PROPERTIES = ("offset", "x-offset", "message-id")
GROUP_PROPERTIES = ("group-id", "x-group-id")


class CommitTarget(ControlTarget):
    """A `$commit` topic with the user properties of its shape."""

    __slots__ = ()

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """See `broker.mqtt.publishing.Target.publish`: answered once the offset is durable."""
        if publisher is None:
            _log.warning("mqtt.will_refused", topic=self._shape.topic, reason="a will cannot commit")
            return
        for index in range(run.count):
            packet_ids = run.packet_ids[index : index + 1]
            try:
                self._commit(hub, publisher, run.payloads[index])
            except QueueManagerError as error:
                if version == c.MQTT_5 or not packet_ids:
                    self._refuse(hub, publisher, packet_ids, version, error.reason)
                    continue
                # MQTT 3.1.1 has no other way to say so ([MQTT-3.3.5-2])
                hub.counters.control_refused += 1
                publisher.note_refused(self._shape.topic, error.reason)
                publisher.disconnect(c.TOPIC_NAME_INVALID, error.reason)
                return
            if packet_ids:
                is_qos_1 = self._shape.qos == 1
                waiter = publisher.puback_waiter if is_qos_1 else publisher.pubrec_waiter
                hub.shard.manager.journal.wait_for(waiter, packet_ids)

    def _commit(self, hub: Hub, publisher: MqttFrontend, payload: bytes) -> None:
        manager = hub.shard.manager
        queue = manager.find(self._address.name, publisher)
        values = user_properties(self._shape.properties, (*GROUP_PROPERTIES, *OFFSET_PROPERTIES))
        _, group_id = aliased_value(values, GROUP_PROPERTIES)
        if group_id is None:
            group_id = publisher.own_group()
        name, text = aliased_value(values, OFFSET_PROPERTIES)
        if text is None:
            name, text = "offset", payload.decode("ascii", "replace")
            if not text:
                raise InvalidArgument("$commit needs a user property offset, or the offset as payload")
        offset = offset_of(text, queue.name, name)
        if offset > limits.STREAM_OFFSET_MAX:
            raise InvalidArgument(f"offset {offset} is beyond the stream")
        manager.commit_offset(queue, group_id, offset)
