"""`$ack`, `$nack`, `$reject`, `$extend`: settling by publishing to a control topic.

MQTT 5 user properties: `message-id` (`<queue>:<offset>` or the offset) and `group-id`, both required;
`attempts` (refused when it is not the current one), `reason` (logged), for `$extend` `lease` in ms.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import structlog

from broker import claims
from broker.properties.single import single_values
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import Properties, decode_properties
from queue_manager.address import CALL_VERBS, Address
from queue_manager.errors import InvalidArgument, QueueManagerError
from queue_manager.model import Entry

if TYPE_CHECKING:
    from broker.hub import Hub
    from broker.mqtt.frontend import MqttFrontend

_PROPERTIES: Final = ("message-id", "group-id", "attempts", "delay", "lease", "reason")
_log: Final = structlog.get_logger("sluicemq.mqtt")


class ControlTarget:
    """A control topic with the user properties of its shape."""

    __slots__ = ("_address", "_shape")

    def __init__(self, address: Address, shape: PublishShape) -> None:
        self._address = address
        self._shape = shape

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """See `broker.mqtt.publishing.Target.publish`."""
        if publisher is None:
            _log.warning("mqtt.will_refused", topic=self._shape.topic, reason="a will cannot settle")
            return
        ids = run.packet_ids
        for index in range(run.count):
            try:
                entry = self._settle(hub, publisher)
            except QueueManagerError as error:
                self._refuse(hub, publisher, ids[index : index + 1], version, error.reason)
            else:
                self._confirm(hub, publisher, ids[index : index + 1], entry)

    def _confirm(self, hub: Hub, publisher: MqttFrontend, packet_ids: list[int], entry: Entry) -> None:
        """PUBACK or PUBREC; for a durable queue once the verdict cannot be lost any more."""
        if not packet_ids:
            return
        is_qos_1 = self._shape.qos == 1
        if entry.group.queue.durable:
            manager = hub.shard.manager
            manager.flush_with_next_commit(entry.group)
            waiter = publisher.puback_waiter if is_qos_1 else publisher.pubrec_waiter
            manager.journal.wait_for(waiter, packet_ids)
        elif is_qos_1:
            publisher.connection.send_puback_run(packet_ids)
        else:
            publisher.connection.send_pubrec_run(packet_ids)

    def _refuse(
        self, hub: Hub, publisher: MqttFrontend, packet_ids: list[int], version: int, reason: str
    ) -> None:
        """MQTT 5 is told; 3.1.1, which could not name a message anyway, gets its PUBACK."""
        hub.counters.control_refused += 1
        publisher.note_refused(self._shape.topic, reason)
        code = c.TOPIC_NAME_INVALID if version == c.MQTT_5 else c.SUCCESS
        properties = Properties(reason_string=reason) if code else None
        for packet_id in packet_ids:
            if self._shape.qos == 1:
                publisher.connection.send_puback(packet_id, code, properties)
            else:
                publisher.connection.send_pubrec(packet_id, code, properties)

    def _settle(self, hub: Hub, publisher: MqttFrontend) -> Entry:
        """Do what the topic and its properties say; gives the claim. Raises QueueManagerError."""
        verb = self._address.verb
        if verb in CALL_VERBS:
            raise InvalidArgument(f"{verb} is for AMQP clients")
        values = user_properties(self._shape.properties, _PROPERTIES)
        manager = hub.shard.manager
        now_ms = hub.clock.now_ms()
        queue = manager.find(self._address.name, publisher)
        group_id = values.get("group-id")
        if group_id is None or "message-id" not in values:
            raise InvalidArgument(f"{verb} needs user properties message-id and group-id")
        entry = manager.find_claim(queue, group_id, offset_of(values["message-id"], queue.name))
        _check_attempts(entry, values.get("attempts"))
        claims.check_delay(values, verb, stream=queue.policy.stream)
        if verb == "$ack":
            manager.ack([entry], now_ms)
        elif verb == "$nack":
            claims.hand_back(manager, entry, values, now_ms)
        elif verb == "$reject":
            _log.info("queue.rejected", queue=queue.name, group=group_id, reason=values.get("reason", ""))
            manager.reject([entry], now_ms)
        else:
            claims.extend(manager, entry, values, queue.policy.visibility_timeout_ms, now_ms)
        return entry


def user_properties(block: bytes, names: Collection[str]) -> dict[str, str]:
    """Those of these names, from a PUBLISH; raises InvalidArgument if one is there twice."""
    if not block:
        return {}
    return single_values(decode_properties(block, c.PUBLISH).user_properties, "user property", names)


def offset_of(message_id: str, queue_name: str, name: str = "message-id") -> int:
    """The offset in a `message-id` (`<queue>:<offset>`, or the offset alone); raises InvalidArgument, which
    says that it is `name` that is wrong.
    """
    queue, separator, digits = message_id.rpartition(":")
    if separator and queue != queue_name:
        raise InvalidArgument(f"{name} {message_id!r} is not of queue {queue_name!r}")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        form = "<queue>:<offset>" if name == "message-id" else "a whole number from 0"
        raise InvalidArgument(f"{name} {message_id!r} is not {form}")
    return int(digits)


def _check_attempts(entry: Entry, attempts: str | None) -> None:
    if attempts is not None and attempts != str(entry.attempts):
        raise InvalidArgument(f"attempts {attempts} is stale: the message is at attempt {entry.attempts}")
