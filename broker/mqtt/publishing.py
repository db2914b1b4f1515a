"""What becomes of a PUBLISH: plain subscribers, queues, or a control verb; worked out once per shape."""

from __future__ import annotations

from typing import Final, Protocol

from broker.access.login import Identity, NotPermitted
from broker.access.rights import Action, Kind
from broker.engine.traffic import PublishPlan, Targets
from broker.mqtt.bound_queues import (
    NOT_STORED,
    REFUSED,
    REFUSED_IN_PART,
    REFUSED_TOGETHER,
    STORED,
    BoundQueues,
)
from broker.mqtt.committing import CommitTarget
from broker.mqtt.control import ControlTarget, SettleTarget
from broker.mqtt.errors import publish_code
from broker.mqtt.publisher import Publisher
from broker.mqtt.sessions.logged import LoggedFilter
from broker.mqtt.sharing import ShareGroup
from broker.mqtt.subscription import Subscriber, Subscription, one_for_each_client
from broker.properties.mqtt import expiry_ms, options_of, without_stage
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from queue_manager import address, outcomes
from queue_manager.errors import QueueManagerError
from queue_manager.outcomes import ACCEPTED, REFUSED_IDENTITY, REFUSED_ORDER
from storage.envelope import PROPERTIES_MQTT, PROPERTIES_NONE, RELATIVE_EXPIRY_MAX, EnvelopeTemplate

QUEUES_RETAIN_NOTHING: Final = "queued, not retained: queues keep their messages until they are consumed"
NOT_RETAINED: Final = "delivered, not retained: there is no room for more retained messages"
SESSION_FULL: Final = "the session of a subscriber has no room"
NO_TEXT: Final = "the payload is not UTF-8, which the payload format indicator says it is"

_OWN_ROOTS: Final = frozenset({"$queue", "$share", "$SYS"})
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
    target = _resolve(shape)
    if shape.is_text:
        target = TextTarget(target)
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
    if topic.startswith("$") and topic.partition("/")[0] in _OWN_ROOTS:
        return Refusal(c.TOPIC_NAME_INVALID, f"topic {topic!r} belongs to the broker")
    return PlainTarget(shape, BoundQueues(shape))


def refusal_of_will(run: PublishRun) -> tuple[int, str] | None:
    """Reason code and reason if a client may not have this will, as far as that is known beforehand."""
    if run.shape.is_text and not _is_text(run.payloads[0]):
        return c.PAYLOAD_FORMAT_INVALID, NO_TEXT
    target = _resolve(run.shape)
    if isinstance(target, Refusal):
        return target.reason_code, target.reason
    if isinstance(target, ControlTarget):
        return c.TOPIC_NAME_INVALID, "a will cannot settle or commit"
    return None


class TextTarget:
    """Another target, for payloads that their publisher says to be UTF-8 (section 3.3.2.3.2)."""

    __slots__ = ("_target",)

    def __init__(self, target: Target) -> None:
        self._target = target

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`: what is no UTF-8 is refused, one by one."""
        if all(map(_is_text, run.payloads)):
            self._target.publish(publisher, run)
            return
        for single in _singles(run):
            if _is_text(single.payloads[0]):
                self._target.publish(publisher, single)
            else:
                publisher.hub.counters.refuse_publishes(1)
                publisher.refuse(single, c.PAYLOAD_FORMAT_INVALID, NO_TEXT)


def _is_text(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


class PlainTarget:
    """An ordinary topic.

    `_direct` are the subscribers who get publishes of this shape byte for byte, `_others` the subscriptions
    that need them rewritten, `_groups` those that choose among their members, `_logged` the filters that keep
    them for lasting sessions, `_bound` the queues that take them, too. `_is_direct`: of those only `_direct`
    has any. `_nowhere`: then, what says that no queues take them either, as long as it is current.
    """

    __slots__ = (
        "_bound",
        "_direct",
        "_generation",
        "_groups",
        "_is_direct",
        "_logged",
        "_nowhere",
        "_others",
        "_shape",
        "_template",
    )

    def __init__(self, shape: PublishShape, bound: BoundQueues | None) -> None:
        self._shape = shape
        self._bound = bound
        self._template: EnvelopeTemplate | None = None
        self._logged: tuple[LoggedFilter, ...] = ()
        self._direct: list[Subscriber] = []
        self._others: list[Subscription] = []
        self._groups: tuple[ShareGroup, ...] = ()
        self._is_direct = False
        self._nowhere: Targets | None = None
        self._generation = -1

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`."""
        nowhere = self._nowhere
        if nowhere is None or not nowhere.is_current or self._generation != publisher.pubsub.generation:
            self._publish_anywhere(publisher, run)
            return
        for subscriber in self._direct:
            subscriber.pass_on(run)
        publisher.accept(run.packet_ids, self._shape.qos)

    def _publish_anywhere(self, publisher: Publisher, run: PublishRun) -> None:
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
        if self._is_direct and self._bound is not None:
            self._nowhere = self._bound.nowhere
        shape = self._shape
        if self._logged:
            if not self._keep(publisher, run):
                publisher.refuse(run, c.QUOTA_EXCEEDED, SESSION_FULL)
                return
            if shape.qos and kept == NOT_STORED:
                kept = STORED
        note = ""
        if shape.retain:
            if not self._retain(publisher, run):
                note = NOT_RETAINED
            if kept == NOT_STORED:
                kept = STORED
        for subscriber in self._direct:
            subscriber.pass_on(run)
        for subscription in self._others:
            subscription.subscriber.forward(run, subscription)
        if self._groups:
            for single in _singles(run):
                for group in self._groups:
                    group.publish(single)
        if note:
            publisher.note_unretained(shape.topic, note)
        if kept != NOT_STORED:
            self._answer(publisher, run, kept, note)
        elif note or self._has_takers():
            publisher.accept(run.packet_ids, shape.qos, note)
        else:
            publisher.accept_unmatched(run.packet_ids, shape.qos)

    def _has_takers(self) -> bool:
        if self._direct or self._others or self._groups or self._logged:
            return True
        return self._bound is not None and self._bound.has_queues

    def _answer(self, publisher: Publisher, run: PublishRun, kept: int, note: str) -> None:
        """Answer what was stored, or what a queue of several refused."""
        bound = self._bound
        if kept == REFUSED and bound is not None:
            publisher.refuse(run, c.QUOTA_EXCEEDED, bound.reason, bound.full)
        elif kept == REFUSED_IN_PART and bound is not None:
            publisher.refuse_in_part(run, bound.reason, bound.full)
        else:
            publisher.accept_stored(run, note)

    def _keep(self, publisher: Publisher, run: PublishRun) -> bool:
        """Give publishes to lasting sessions; False: one has no room, and publishers are to be told."""
        shape = self._shape
        if not shape.qos:
            for logged in self._logged:
                logged.forward_from(publisher.session, run)
            return True
        if self._template is None:
            self._template = _template_of(shape)
        logs = [logged.log for logged in self._logged]
        sessions = publisher.hub.client.sessions
        return sessions.publish(
            logs, self._template, shape.qos, shape.retain, publisher.session, run.payloads
        )

    def _aim(self, publisher: Publisher) -> None:
        pubsub = publisher.pubsub
        self._generation = pubsub.generation
        route = pubsub.route(self._shape.topic)
        plain: list[Subscription] = []
        logged: list[LoggedFilter] = []
        for subscription in route.subscriptions:
            if isinstance(subscription.subscriber, LoggedFilter):
                logged.append(subscription.subscriber)
            else:
                plain.append(subscription)
        self._logged = tuple(logged)
        shape, version = self._shape, publisher.protocol_version
        wanted = one_for_each_client(plain, publisher.subscriber)
        self._direct = [s.subscriber for s in wanted if s.takes_as_is(shape, version)]
        self._others = [s for s in wanted if not s.takes_as_is(shape, version)]
        self._groups = route.groups
        if shape.qos:  # those that are kept have it from the log of their filter
            self._groups = tuple(group for group in route.groups if not group.is_kept)
        elsewhere = shape.retain or self._others or self._groups or self._logged
        self._is_direct = bool(self._direct) and not elsewhere

    def _retain(self, publisher: Publisher, run: PublishRun) -> bool:
        """Keep the last of the run; whether there was room."""
        if self._template is None:
            self._template = _template_of(self._shape)
        return publisher.hub.client.retained.keep(self._template, self._shape.qos, run.payloads[-1])


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
        full = plan.full if outcome in outcomes.FULL else ()
        if run.packet_ids and publishing.is_remembered(plan, outcome):
            publisher.refuse_when_durable(run, code, reason, full)
        elif outcome == outcomes.REFUSED_IN_PART:
            publisher.refuse_in_part(run, reason, full)
        else:
            publisher.refuse(run, code, reason, full)

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

    __slots__ = ("reason", "reason_code")

    def __init__(self, reason_code: int, reason: str) -> None:
        self.reason_code = reason_code
        self.reason = reason

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`."""
        publisher.hub.counters.refuse_publishes(run.count)
        publisher.refuse(run, self.reason_code, self.reason)
