"""What becomes of a PUBLISH: plain subscribers, queues, or a control verb; worked out once per shape."""

from __future__ import annotations

from typing import Final, Protocol

from broker.access.login import Identity, NotPermitted
from broker.access.rights import Action, Kind
from broker.engine.traffic import PublishPlan
from broker.mqtt.bound_queues import NOT_STORED, REFUSED, REFUSED_TOGETHER, STORED, BoundQueues
from broker.mqtt.committing import CommitTarget
from broker.mqtt.control import SettleTarget
from broker.mqtt.errors import publish_code
from broker.mqtt.publisher import Publisher
from broker.mqtt.pubsub import Retained, Subscriber, Subscription
from broker.mqtt.sessions.logged import LoggedFilter
from broker.properties.mqtt import expiry_ms, options_of, without_stage
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from queue_manager import address, outcomes
from queue_manager.errors import QueueManagerError
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER
from storage.envelope import PROPERTIES_MQTT, PROPERTIES_NONE, RELATIVE_EXPIRY_MAX, EnvelopeTemplate

QUEUES_RETAIN_NOTHING: Final = "queued, not retained: queues keep their messages until they are consumed"
NOT_RETAINED: Final = "delivered, not retained: there is no room for more retained messages"

_WRONG_IDENTITY: Final = (REFUSED_IDENTITY, REFUSED_ORDER)


class Target(Protocol):
    """Where publishes of one shape go."""

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """Take a run of publishes and answer it, now or when it is durable."""


def target_of(shape: PublishShape, identity: Identity) -> Target:
    """The target of a shape, kept in `shape.context` if the client is permitted to publish there."""
    try:
        check_publish(identity, shape.topic)
    except NotPermitted as error:
        return Refusal(c.NOT_AUTHORIZED, error.reason)
    target: Target = _resolve(shape)
    shape.context = target
    return target


def check_publish(identity: Identity, topic: str) -> None:
    """Raise NotPermitted unless that may be published to; settling what was read takes reading."""
    if not address.is_queue_topic(topic):
        identity.check(Action.WRITE, Kind.TOPIC, topic)
        return
    settles = topic.rpartition("/")[2] in address.CONTROL_VERBS
    identity.check(Action.READ if settles else Action.WRITE, Kind.ADDRESS, topic)


def _resolve(shape: PublishShape) -> Target:
    topic = shape.topic
    if address.is_queue_topic(topic):
        try:
            parsed = address.parse(topic)
        except QueueManagerError as error:
            return Refusal(c.TOPIC_NAME_INVALID, error.reason)
        if parsed.verb == "$commit":
            return CommitTarget(parsed, shape)
        if parsed.verb:
            return SettleTarget(parsed, shape)
        return QueueTarget(shape)
    if topic.startswith("$"):
        return Refusal(c.TOPIC_NAME_INVALID, f"topic {topic!r} belongs to the broker")
    return PlainTarget(shape, BoundQueues(shape))


class PlainTarget:
    """An ordinary topic.

    `_direct` are the subscribers who get publishes of this shape byte for byte, `_others` the subscriptions
    that need them rewritten or chosen among, `_logged` the filters that keep them for lasting sessions,
    `_bound` the queues that take them, too.
    """

    __slots__ = ("_bound", "_direct", "_generation", "_logged", "_others", "_shape", "_template")

    def __init__(self, shape: PublishShape, bound: BoundQueues | None) -> None:
        self._shape = shape
        self._bound = bound
        self._template: EnvelopeTemplate | None = None
        self._logged: tuple[LoggedFilter, ...] = ()
        self._direct: list[Subscriber] = []
        self._others: tuple[Subscription, ...] = ()
        self._generation = -1

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`."""
        kept = NOT_STORED
        if self._bound is not None:
            try:
                kept = self._bound.publish(publisher.hub, run)
            except QueueManagerError as error:
                publisher.refuse(run, publish_code(error), error.reason)
                return
            if kept == REFUSED_TOGETHER:
                for single in _singles(run):
                    self.publish(publisher, single)
                return
        if self._generation != publisher.pubsub.generation:
            self._aim(publisher)
        note = "" if not self._shape.retain or self._retain(publisher, run) else NOT_RETAINED
        for subscriber in self._direct:
            subscriber.pass_on(run)
        if self._others:
            self._forward(publisher, run)
        if note:
            publisher.note_unretained(self._shape.topic, note)
        if self._logged and self._keep(publisher, run) and kept == NOT_STORED:
            kept = STORED
        if kept == NOT_STORED:
            publisher.accept(run.packet_ids, self._shape.qos, note)
        elif kept == REFUSED and self._bound is not None:
            publisher.refuse(run, c.QUOTA_EXCEEDED, self._bound.reason)
        else:
            publisher.accept_stored(run, note)

    def _keep(self, publisher: Publisher, run: PublishRun) -> bool:
        """Give publishes to lasting sessions; whether they were stored for them."""
        shape = self._shape
        if not shape.qos:
            for logged in self._logged:
                logged.forward_from(publisher.session, run)
            return False
        if self._template is None:
            self._template = _template_of(shape)
        logs = [logged.log for logged in self._logged]
        sessions = publisher.hub.client.sessions
        sessions.publish(logs, self._template, shape.qos, shape.retain, publisher.session, run.payloads)
        return True

    def _aim(self, publisher: Publisher) -> None:
        pubsub = publisher.pubsub
        self._generation = pubsub.generation
        route = pubsub.route(self._shape.topic)
        self._logged = tuple(s.subscriber for s in route if isinstance(s.subscriber, LoggedFilter))
        if self._logged:
            route = tuple(s for s in route if not isinstance(s.subscriber, LoggedFilter))
        if any(s.share for s in route):
            self._direct = []
            self._others = route
            return
        shape, version = self._shape, publisher.protocol_version
        wanted = [s for s in route if not (s.no_local and s.subscriber is publisher.subscriber)]
        self._direct = [s.subscriber for s in wanted if s.takes_as_is(shape, version)]
        self._others = tuple(s for s in wanted if not s.takes_as_is(shape, version))

    def _forward(self, publisher: Publisher, run: PublishRun) -> None:
        if not any(s.share for s in self._others):
            for subscription in self._others:
                subscription.subscriber.forward(run, subscription)
            return
        # members of a share group take turns message by message
        for single in _singles(run):
            for subscription in publisher.pubsub.pick(self._others):
                if not (subscription.no_local and subscription.subscriber is publisher.subscriber):
                    subscription.subscriber.forward(single, subscription)

    def _retain(self, publisher: Publisher, run: PublishRun) -> bool:
        """Keep the last of the run; whether there was room."""
        shape = self._shape
        last = Retained(
            shape.topic,
            shape.topic_bytes,
            shape.qos,
            shape.properties,
            run.payloads[-1],
            publisher.hub.clock.now_ms(),
        )
        return publisher.pubsub.retain(last)


def _template_of(shape: PublishShape) -> EnvelopeTemplate:
    """What publishes of a shape have in common where they are kept."""
    kind = PROPERTIES_MQTT if shape.properties else PROPERTIES_NONE
    ttl_ms = expiry_ms(shape.properties)
    # an interval of 0 has passed once a message has to wait; one of decades never does
    expires_at_ms = 0 if ttl_ms is None or ttl_ms >= RELATIVE_EXPIRY_MAX else max(1, ttl_ms)
    return EnvelopeTemplate(shape.topic, kind, shape.properties, persistent=True, expires_at_ms=expires_at_ms)


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

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`: answered once the messages are durable."""
        hub = publisher.hub
        publishing = hub.client.publishing
        now_ms = hub.clock.now_ms()
        plan = self._plan
        try:
            if plan is None or not publishing.is_current(plan):
                plan = self._aim(publisher, now_ms)
            outcome = publishing.publish(plan, run.payloads, now_ms)
        except QueueManagerError as error:
            hub.counters.leave_unrouted(run.count)
            publisher.refuse(run, publish_code(error), error.reason)
            return
        if outcome == ACCEPTED:
            qos = self._shape.qos
            if self._shape.retain:
                self._accept_unretained(publisher, run, is_durable=plan.durable)
            elif plan.durable:
                publisher.accept_stored(run)
            else:
                publisher.accept(run.packet_ids, qos)
            return
        if run.count > 1:
            # part of the run may fit
            for single in _singles(run):
                self.publish(publisher, single)
            return
        hub.counters.refuse_publishes(1)
        code = c.IMPLEMENTATION_SPECIFIC_ERROR if outcome in _WRONG_IDENTITY else c.QUOTA_EXCEEDED
        reason = outcomes.REASONS[outcome]
        if run.packet_ids and publishing.is_remembered(plan, outcome):
            publisher.refuse_when_durable(run, code, reason)
        else:
            publisher.refuse(run, code, reason)

    def _accept_unretained(self, publisher: Publisher, run: PublishRun, *, is_durable: bool) -> None:
        """Answer what was queued, and say that its retain flag had no effect."""
        publisher.note_unretained(self._shape.topic, QUEUES_RETAIN_NOTHING)
        if is_durable:
            publisher.accept_stored(run, QUEUES_RETAIN_NOTHING)
        else:
            publisher.accept(run.packet_ids, self._shape.qos, QUEUES_RETAIN_NOTHING)

    def _aim(self, publisher: Publisher, now_ms: int) -> PublishPlan:
        shape = self._shape
        publishing = publisher.hub.client.publishing
        targets = publishing.match(shape.topic)
        if not targets:
            if publishing.creates_queues:
                name = address.parse(shape.topic).name
                publisher.identity.check(Action.CONFIGURE, Kind.QUEUE, name)
            targets = publishing.route(shape.topic, now_ms)
        if self._plan is None:
            # without properties or QoS the kind still tells an AMQP consumer that the mode is 1
            options = options_of(shape.properties)
            block = shape.properties if options.stage is None else without_stage(shape.properties)
            kind = PROPERTIES_NONE if shape.qos and not block else PROPERTIES_MQTT
            self._plan = publishing.plan(shape.topic, kind, block, shape.qos > 0, options)
        publishing.aim(self._plan, targets)
        return self._plan


class Refusal:
    """A topic that clients may not publish to."""

    __slots__ = ("_reason", "_reason_code")

    def __init__(self, reason_code: int, reason: str) -> None:
        self._reason_code = reason_code
        self._reason = reason

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`."""
        publisher.hub.counters.refuse_publishes(run.count)
        publisher.refuse(run, self._reason_code, self._reason)
