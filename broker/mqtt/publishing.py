"""What becomes of a PUBLISH: plain subscribers, queues, or a control verb; worked out once per shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import structlog

from broker.mqtt import committing, control
from broker.mqtt.outbound import Outbound, takes_as_is
from broker.properties.mqtt import options_of, without_stage
from broker.pubsub import PubSub, Retained, Subscription
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.properties import Properties
from queue_manager import address, outcomes
from queue_manager.errors import InvalidArgument, LimitReached, PreconditionFailed, QueueManagerError
from queue_manager.identities import is_remembered
from queue_manager.journal import Journal
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER
from queue_manager.plan import PublishPlan
from storage.envelope import PROPERTIES_MQTT, PROPERTIES_NONE

if TYPE_CHECKING:
    from broker.hub import Hub
    from broker.mqtt.frontend import MqttFrontend

_log: Final = structlog.get_logger("sluicemq.mqtt")


_REFUSAL_CODES: Final[dict[type[QueueManagerError], int]] = {
    LimitReached: c.QUOTA_EXCEEDED,
    InvalidArgument: c.IMPLEMENTATION_SPECIFIC_ERROR,
    PreconditionFailed: c.IMPLEMENTATION_SPECIFIC_ERROR,
}
QUEUES_RETAIN_NOTHING: Final = "queued, not retained: queues keep their messages until they are consumed"
NOT_RETAINED: Final = "delivered, not retained: there is no room for more retained messages"

_WRONG_IDENTITY: Final = (REFUSED_IDENTITY, REFUSED_ORDER)


class Target(Protocol):
    """Where publishes of one shape go. `publisher` is None for wills, which nobody waits for."""

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """Take a run of publishes and answer it, now or when it is durable."""


def resolve(shape: PublishShape) -> Target:
    """The target of a shape; kept in `shape.context`."""
    topic = shape.topic
    if address.is_queue_topic(topic):
        try:
            parsed = address.parse(topic)
        except QueueManagerError as error:
            return Refusal(c.TOPIC_NAME_INVALID, error.reason)
        if parsed.verb == "$commit":
            return committing.CommitTarget(parsed, shape)
        if parsed.verb:
            return control.ControlTarget(parsed, shape)
        return QueueTarget(shape)
    if topic.startswith("$"):
        return Refusal(c.TOPIC_NAME_INVALID, f"topic {topic!r} belongs to the broker")
    return PlainTarget(shape)


class PlainTarget:
    """An ordinary topic.

    `_direct` are the clients who get publishes of this shape byte for byte, `_others` the subscriptions that
    need them rewritten or chosen among.
    """

    __slots__ = ("_direct", "_generation", "_others", "_shape")

    def __init__(self, shape: PublishShape) -> None:
        self._shape = shape
        self._direct: list[Outbound] = []
        self._others: tuple[Subscription, ...] = ()
        self._generation = -1

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """See `Target.publish`."""
        if self._generation != hub.pubsub.generation:
            self._aim(hub.pubsub, publisher, version)
        note = "" if not self._shape.retain or self._retain(hub, run) else NOT_RETAINED
        for outbound in self._direct:
            outbound.pass_on(run)
        if self._others:
            self._forward(hub.pubsub, publisher, run)
        if note:
            note_unretained(publisher, self._shape.topic, note)
        if publisher is not None:
            answer(publisher, run, note)

    def _aim(self, pubsub: PubSub, publisher: MqttFrontend | None, version: int) -> None:
        self._generation = pubsub.generation
        route = pubsub.route(self._shape.topic)
        if any(s.share for s in route):
            self._direct = []
            self._others = route
            return
        wanted = [s for s in route if not (s.no_local and s.client is publisher)]
        self._direct = [s.client.outbound for s in wanted if takes_as_is(s, self._shape, version)]
        self._others = tuple(s for s in wanted if not takes_as_is(s, self._shape, version))

    def _forward(self, pubsub: PubSub, publisher: MqttFrontend | None, run: PublishRun) -> None:
        if not any(s.share for s in self._others):
            for subscription in self._others:
                subscription.client.outbound.forward(run, subscription)
            return
        # members of a share group take turns message by message
        for single in _singles(run):
            for subscription in pubsub.pick(self._others):
                if not (subscription.no_local and subscription.client is publisher):
                    subscription.client.outbound.forward(single, subscription)

    def _retain(self, hub: Hub, run: PublishRun) -> bool:
        """Keep the last of the run; whether there was room."""
        shape = self._shape
        last = Retained(
            shape.topic,
            shape.topic_bytes,
            shape.qos,
            shape.properties,
            run.payloads[-1],
            hub.clock.now_ms(),
        )
        return hub.pubsub.retain(last)


def _singles(run: PublishRun) -> list[PublishRun]:
    if run.count == 1:
        return [run]
    ids = run.packet_ids or [0] * run.count
    return [
        PublishRun(run.shape, 1, [packet_id] if run.packet_ids else [], [payload], b"", 0, 0, 0)
        for packet_id, payload in zip(ids, run.payloads, strict=True)
    ]


class QueueTarget:
    """A `$queue/...` topic without a control verb."""

    __slots__ = ("_plan", "_shape")

    def __init__(self, shape: PublishShape) -> None:
        self._shape = shape
        self._plan: PublishPlan | None = None

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """See `Target.publish`: answered once the messages are durable."""
        manager = hub.shard.manager
        now_ms = hub.clock.now_ms()
        plan = self._plan
        try:
            if plan is None or plan.generation != manager.bindings.generation:
                plan = self._aim(hub, now_ms)
            outcome = manager.publish(plan, run.payloads, now_ms)
        except QueueManagerError as error:
            hub.counters.publishes_unrouted += run.count
            code = _REFUSAL_CODES.get(type(error), c.NOT_AUTHORIZED)
            refuse(publisher, run, code, error.reason)
            return
        if outcome == ACCEPTED:
            self._accepted(publisher, run, manager.journal if plan.durable else None)
            return
        if run.count > 1:
            # part of the run may fit
            for single in _singles(run):
                self.publish(hub, publisher, version, single)
            return
        hub.counters.publishes_refused += 1
        code = c.IMPLEMENTATION_SPECIFIC_ERROR if outcome in _WRONG_IDENTITY else c.QUOTA_EXCEEDED
        reason = outcomes.REASONS[outcome]
        if publisher is not None and run.packet_ids and is_remembered(plan, outcome):
            manager.journal.wait(LateRefusal(publisher, run, code, reason), 0)
        else:
            refuse(publisher, run, code, reason)

    def _accepted(self, publisher: MqttFrontend | None, run: PublishRun, journal: Journal | None) -> None:
        """Answer what was queued, as soon as `journal` is durable if there is one."""
        note = QUEUES_RETAIN_NOTHING if run.shape.retain else ""
        if note:
            note_unretained(publisher, run.shape.topic, note)
        if publisher is None:
            return
        if journal is None or not run.packet_ids:
            answer(publisher, run, note)
        elif note:
            journal.wait(NotedAnswer(publisher, run, note), 0)
        else:
            waiter = publisher.puback_waiter if run.shape.qos == 1 else publisher.pubrec_waiter
            journal.wait_for(waiter, run.packet_ids)

    def _aim(self, hub: Hub, now_ms: int) -> PublishPlan:
        shape = self._shape
        manager = hub.shard.manager
        queues = manager.route(shape.topic, now_ms)
        if self._plan is None:
            # without properties or QoS the kind still tells an AMQP consumer that the mode is 1
            options = options_of(shape.properties)
            block = shape.properties if options.stage is None else without_stage(shape.properties)
            kind = PROPERTIES_NONE if shape.qos and not block else PROPERTIES_MQTT
            self._plan = manager.plan(shape.topic, kind, block, shape.qos > 0, options)
        self._plan.aim(manager, queues)
        return self._plan


class LateRefusal:
    """Tells a publisher that his publish was refused, when that is durable."""

    __slots__ = ("_arguments", "_publisher")

    def __init__(self, publisher: MqttFrontend, run: PublishRun, reason_code: int, reason: str) -> None:
        self._publisher = publisher
        self._arguments = (publisher, run, reason_code, reason)

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`."""
        transport = self._publisher.transport
        transport.guard(refuse, *self._arguments)
        transport.want_flush()


class NotedAnswer:
    """Tells a publisher, when his publishes are durable, what was not done with them."""

    __slots__ = ("_arguments", "_publisher")

    def __init__(self, publisher: MqttFrontend, run: PublishRun, note: str) -> None:
        self._publisher = publisher
        self._arguments = (publisher, run, note)

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`."""
        transport = self._publisher.transport
        transport.guard(answer, *self._arguments)
        transport.want_flush()


class Refusal:
    """A topic nobody may publish to."""

    __slots__ = ("_reason", "_reason_code")

    def __init__(self, reason_code: int, reason: str) -> None:
        self._reason_code = reason_code
        self._reason = reason

    def publish(self, hub: Hub, publisher: MqttFrontend | None, version: int, run: PublishRun) -> None:
        """See `Target.publish`."""
        hub.counters.publishes_refused += run.count
        refuse(publisher, run, self._reason_code, self._reason)


def note_unretained(publisher: MqttFrontend | None, topic: str, reason: str) -> None:
    """Log that the retain flag had no effect: once for a connection, and for every will."""
    if publisher is None:
        _log.warning("mqtt.retain_refused", topic=topic, reason=reason)
    else:
        publisher.note_unretained(topic, reason)


def answer(publisher: MqttFrontend, run: PublishRun, note: str = "") -> None:
    """PUBACK or PUBREC with success; `note` is for who reads reason strings."""
    qos = run.shape.qos
    if note and qos:
        send = publisher.connection.send_puback if qos == 1 else publisher.connection.send_pubrec
        for packet_id in run.packet_ids:
            send(packet_id, c.SUCCESS, Properties(reason_string=note))
    elif qos == 1:
        publisher.connection.send_puback_run(run.packet_ids)
    elif qos == 2:
        publisher.connection.send_pubrec_run(run.packet_ids)


def refuse(publisher: MqttFrontend | None, run: PublishRun, reason_code: int, reason: str) -> None:
    """Tell the publisher that nothing was taken.

    MQTT 3.1.1 has no way to say so but ending the connection ([MQTT-3.3.5-2]); QoS 0 has none at all.
    """
    if publisher is None:
        _log.warning("mqtt.will_refused", topic=run.shape.topic, reason=reason)
        return
    publisher.note_refused(run.shape.topic, reason, run.count)
    qos = run.shape.qos
    if qos == 0:
        return
    connection = publisher.connection
    if connection.protocol_version != c.MQTT_5:
        publisher.disconnect(reason_code, reason)
        return
    for packet_id in run.packet_ids:
        properties = Properties(reason_string=reason)
        if qos == 1:
            connection.send_puback(packet_id, reason_code, properties)
        else:
            connection.send_pubrec(packet_id, reason_code, properties)
