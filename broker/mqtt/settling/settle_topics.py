"""Control topics: what a publish to `$queue/<queue>/<verb>` does to the claims or the position of a group.

`$ack`, `$nack`, `$reject`, `$extend` settle. MQTT 5 user properties: `message-id` (`<queue>:<offset>` or the
offset) and `group-id`, both required; `attempts` (refused when it is not the current one; without it the
message must be in flight at this client), `reason` (logged), for `$nack` `delay`, for `$extend` `lease` in
ms.

`$commit` commits an offset of a stream's group: `group-id` (else the client's own group), and `offset` or
`message-id` (also with `x-` before them, as over AMQP); without any of these the payload is the offset.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from functools import partial
from typing import Final

import structlog

from broker.access.login import NotPermitted
from broker.access.rights import Action, Kind
from broker.clients import claim_controls
from broker.engine.answers import Answer
from broker.engine.traffic import Claim, Source
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.settling.publish_answers import Publisher
from broker.properties.single import aliased_value, single_values
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import decode_properties
from queue_manager.address import CALL_VERBS, Address
from queue_manager.errors import InvalidArgument, QueueManagerError

_PROPERTIES: Final = ("message-id", "group-id", "attempts", "delay", "lease", "reason")
OFFSET_PROPERTIES: Final = ("offset", "x-offset", "message-id")
GROUP_PROPERTIES: Final = ("group-id", "x-group-id")
_log: Final = structlog.get_logger("sluicemq.mqtt")


class ControlTarget(ABC):
    """A control topic with the user properties of its shape; a target of `broker.mqtt.publishing.publish`."""

    __slots__ = ("_address", "_shape")

    def __init__(self, address: Address, shape: PublishShape) -> None:
        self._address = address
        self._shape = shape

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """Do what each publish of the run asks, and answer it."""
        client = publisher.client
        if client is None:
            publisher.refuse(run, c.TOPIC_NAME_INVALID, f"a will cannot {self._address.verb}")
            return
        for index in range(run.count):
            packet_ids = run.packet_ids[index : index + 1]
            try:
                answer = self._perform(client, run.payloads[index])
            except QueueManagerError as error:
                answer = Answer.failed(error)
            if answer.is_done:
                self._finish(publisher, client, packet_ids, answer)
            else:
                answer.then(partial(self._finish_later, publisher, client, packet_ids))
            if client.connection.closed:
                return

    def _finish(
        self, publisher: Publisher, client: MqttClient, packet_ids: list[int], answer: Answer[bool]
    ) -> None:
        try:
            waits = answer.result()
        except QueueManagerError as error:
            publisher.hub.counters.refuse_control()
            client.note_refused(self._shape.topic, error.reason)
            if isinstance(error, NotPermitted):
                publisher.deny(packet_ids, self._shape.qos, c.NOT_AUTHORIZED, error.reason)
            else:
                self._refuse(client, packet_ids, error.reason)
            return
        if packet_ids and waits:
            publisher.answer_when_durable(packet_ids, self._shape.qos)
        else:
            publisher.accept(packet_ids, self._shape.qos)

    def _finish_later(
        self, publisher: Publisher, client: MqttClient, packet_ids: list[int], answer: Answer[bool]
    ) -> None:
        if not client.connection.closed:
            client.transport.guard(self._finish, publisher, client, packet_ids, answer)
            client.transport.want_flush()
            publisher.hub.settle_turn()

    @abstractmethod
    def _perform(self, client: MqttClient, payload: bytes) -> Answer[bool]:
        """Do what one publish asks; whether the client is to be told only when that is durable.

        May raise QueueManagerError.
        """

    def _refuse(self, client: MqttClient, packet_ids: list[int], reason: str) -> None:
        """Refuse over MQTT 5; 3.1.1, which could not name a message anyway, gets its PUBACK."""
        connection = client.connection
        if connection.protocol_version == c.MQTT_5:
            connection.answer_publishes(self._shape.qos, packet_ids, c.TOPIC_NAME_INVALID, reason)
        else:
            connection.answer_publishes(self._shape.qos, packet_ids)


class SettleTarget(ControlTarget):
    """`$ack`, `$nack`, `$reject` or `$extend`; answered once the verdict cannot be lost any more."""

    __slots__ = ()

    def _perform(self, client: MqttClient, payload: bytes) -> Answer[bool]:
        verb = self._address.verb
        if verb in CALL_VERBS:
            raise InvalidArgument(f"{verb} is for AMQP clients")
        values = user_properties(self._shape.properties, _PROPERTIES)
        queue = client.core.consuming.find(self._address.name, client.caller)
        group_id = values.get("group-id")
        if group_id is None or "message-id" not in values:
            raise InvalidArgument(f"{verb} needs user properties message-id and group-id")
        check_group(client, group_id)
        offset = offset_of(values["message-id"], queue.name)
        found = client.core.settling.find_claim(queue, group_id, offset)
        if found.is_done:
            return Answer.given(self._settle(client, queue, values, found.result()))
        return found.map(partial(self._settle, client, queue, values))

    def _settle(self, client: MqttClient, queue: Source, values: dict[str, str], claim: Claim) -> bool:
        """Do with a claim what was asked; whether it is to be durable."""
        settling, verb = client.core.settling, self._address.verb
        now_ms = client.clock.now_ms()
        _check_meant(client, claim, values.get("attempts"))
        claim_controls.check_delay(values, verb, stream=queue.policy.stream)
        group = settling.durable_group_of(claim) if self._shape.qos > 0 else None
        if verb == "$ack":
            settling.ack([claim], now_ms)
        elif verb == "$nack":
            claim_controls.hand_back(settling, claim, values, now_ms)
        elif verb == "$reject":
            _log.info(
                "queue.rejected", queue=queue.name, group=values["group-id"], reason=values.get("reason", "")
            )
            settling.reject([claim], now_ms)
        else:
            claim_controls.extend(settling, claim, values, queue.policy.visibility_timeout_ms, now_ms)
        if group is not None:
            settling.write_soon(group)
        return group is not None


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
        committed = client.core.streams.commit_offset(queue, client.caller, group_id, offset)
        return committed.map(lambda _: True)

    def _refuse(self, client: MqttClient, packet_ids: list[int], reason: str) -> None:
        """Refuse by the end of the connection: MQTT 3.1.1 has no other way to tell ([MQTT-3.3.5-2])."""
        if client.connection.protocol_version == c.MQTT_5 or not packet_ids:
            super()._refuse(client, packet_ids, reason)
        else:
            client.end(c.TOPIC_NAME_INVALID, reason)


def check_group(client: MqttClient, group_id: str) -> None:
    """Raise NotPermitted unless the client may use a group; behind `@` stands its pattern."""
    client.identity.check(Action.READ, Kind.GROUP, group_id.partition("@")[0])


def user_properties(block: bytes, names: Collection[str]) -> dict[str, str]:
    """Return those of these names, from a PUBLISH; raises InvalidArgument if one is there twice."""
    if not block:
        return {}
    return single_values(decode_properties(block, c.PUBLISH).user_properties, "user property", names)


def offset_of(message_id: str, queue_name: str, name: str = "message-id") -> int:
    """Return the offset in a `message-id` (`<queue>:<offset>`, or the offset alone); raises InvalidArgument,
    which says that it is `name` that is wrong.
    """
    queue, separator, digits = message_id.rpartition(":")
    if separator and queue != queue_name:
        raise InvalidArgument(f"{name} {message_id!r} is not of queue {queue_name!r}")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19:
        form = "<queue>:<offset>" if name == "message-id" else "a whole number from 0"
        raise InvalidArgument(f"{name} {message_id!r} is not {form}")
    return int(digits)


def _check_meant(client: MqttClient, claim: Claim, attempts: str | None) -> None:
    """Raise InvalidArgument if the client may mean an earlier claim of the message than the one in flight.

    `attempts` tells them apart, whoever says it; without it the claim has to be the client's own.
    """
    if not claim.is_in_flight:
        raise InvalidArgument("the message is not in flight any more")
    if attempts is None:
        if not client.consumers.holds(claim):
            raise InvalidArgument(
                "the message is in flight at another client: say by attempts which delivery is meant"
            )
    elif attempts != str(claim.attempts):
        raise InvalidArgument(f"attempts {attempts} is stale: the message is at attempt {claim.attempts}")
