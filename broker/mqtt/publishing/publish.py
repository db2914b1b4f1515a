"""The ways of a PUBLISH: plain subscribers, queues, or a control verb; worked out once per shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from broker import topics
from broker.access.login import Identity, NotPermitted
from broker.access.rights import Action, Kind
from broker.engine.traffic import PublishPlan, Targets
from broker.mqtt.connection.errors import outcome_code, publish_code
from broker.mqtt.publishing.topic_audience import Audience, singles
from broker.mqtt.settling.publish_answers import Publisher
from broker.mqtt.settling.settle_topics import CommitTarget, ControlTarget, SettleTarget
from broker.mqtt.topology.subscription import Subscriber
from broker.properties.mqtt import options_of, read, without_stage
from broker.publication.publish_addresses import addressed
from config.name_rules import why_reserved
from protocols.mqtt import constants as c
from protocols.mqtt.events import PublishRun, PublishShape
from queue_manager import address, outcomes
from queue_manager.audience import tell
from queue_manager.errors import QueueManagerError
from queue_manager.outcomes import ACCEPTED, UNROUTED
from queue_manager.validity import Version
from storage.envelope import PROPERTIES_MQTT, PROPERTIES_NONE

QUEUES_RETAIN_NOTHING: Final = "queued, not retained: queues keep their messages until they are consumed"
NOT_RETAINED: Final = "delivered, not retained: {}"
NO_TEXT: Final = "the payload is not UTF-8, which the payload format indicator says it is"


class Target(Protocol):
    """Where publishes of one shape go."""

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """Take a run of publishes and answer it, now or when it is durable."""


def target_of(shape: PublishShape, identity: Identity) -> Target:
    """Return the target of a shape, kept in `shape.context` if the client is permitted to publish there."""
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
        return TopicTarget(shape)
    reserved = why_reserved(topic)
    return Refusal(c.TOPIC_NAME_INVALID, reserved) if reserved else TopicTarget(shape)


def refusal_of_will(run: PublishRun) -> tuple[int, str] | None:
    """Return reason code and reason if a client may not have this will, as far as that is known
    beforehand.
    """
    if run.shape.is_text and not _is_text(run.payloads[0]):
        return c.PAYLOAD_FORMAT_INVALID, NO_TEXT
    target = _resolve(run.shape)
    if isinstance(target, Refusal):
        return target.reason_code, target.reason
    if isinstance(target, ControlTarget):
        return c.TOPIC_NAME_INVALID, "a will cannot settle or commit"
    return None


@dataclass(slots=True)
class TextTarget:
    """Another target, for payloads that their publisher says to be UTF-8 (section 3.3.2.3.2)."""

    _target: Target

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`: what is no UTF-8 is refused, one by one."""
        if all(map(_is_text, run.payloads)):
            self._target.publish(publisher, run)
            return
        for single in singles(run):
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


class TopicTarget:
    """A topic that messages are published to: queues, and the subscribers of an ordinary one.

    `_targets` are the queues: those of a `$queue/...` topic, or what is bound to `amq.topic`. `_plan` is
    there once there are any. `_direct`: nothing is to be done but to pass publishes on to these, as long as
    `_targets` and `_direct_version` are current.
    """

    __slots__ = ("_audience", "_direct", "_direct_version", "_plan", "_shape", "_targets")

    def __init__(self, shape: PublishShape) -> None:
        self._shape = shape
        self._audience: Audience | None = None
        self._targets: Targets | None = None
        self._plan: PublishPlan | None = None
        self._direct: list[Subscriber] | None = None
        self._direct_version = Version()

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        """See `Target.publish`: what is stored is answered once it is durable."""
        direct = self.direct()
        if direct is not None:
            for subscriber in direct:
                subscriber.pass_on(run)
            publisher.accept(run.packet_ids, self._shape.qos)
            return
        targets = self._targets
        self._direct = None
        now_ms = publisher.hub.clock.now_ms()
        try:
            if targets is None or not targets.is_current:
                targets = self._aim(publisher, now_ms)
                if run.count > 1 and not targets.is_current:  # each may go elsewhere
                    self._publish_singly(publisher, run)
                    return
            outcome, is_stored = self._publish(publisher, run, targets, now_ms)
        except QueueManagerError as error:
            publisher.hub.counters.leave_unrouted(run.count)
            publisher.refuse(run, publish_code(error), error.reason)
            return
        if outcome == ACCEPTED:
            self._accept(publisher, run, is_stored=is_stored)
        elif outcome == UNROUTED:
            publisher.accept_unmatched(run.packet_ids, self._shape.qos)
        elif run.count > 1:  # part of the run may fit
            self._publish_singly(publisher, run)
        else:
            self._refuse(publisher, run, outcome)

    def direct(self) -> list[Subscriber] | None:
        """Return the subscribers if nothing is to be done but to pass publishes on to them, as of now."""
        targets = self._targets
        if targets is None or not targets.is_current or not self._direct_version.is_current:
            return None
        return self._direct

    def direct_until(self) -> tuple[Targets, Version]:
        """Return what has to be current for `direct` to give the same; it gave some just now."""
        assert self._targets is not None
        return self._targets, self._direct_version

    def _publish_singly(self, publisher: Publisher, run: PublishRun) -> None:
        for single in singles(run):
            self.publish(publisher, single)

    def _publish(
        self, publisher: Publisher, run: PublishRun, targets: Targets, now_ms: int
    ) -> tuple[int, bool]:
        """Publish to the queues and subscribers as they are now; the outcome, and whether it is stored."""
        audience, plan = self._audience, self._plan
        if audience is not None:
            audience.came(run)
            if not targets:
                self._note_direct(publisher, audience)
                return tell(audience, run.payloads)
        assert plan is not None
        outcome = publisher.core.publishing.publish(plan, run.payloads, now_ms)
        return outcome, plan.durable

    def _note_direct(self, publisher: Publisher, audience: Audience) -> None:
        self._direct_version = audience.version
        if audience.is_direct:
            self._direct = audience.direct
            publisher.publishes_directly = True

    def _accept(self, publisher: Publisher, run: PublishRun, *, is_stored: bool) -> None:
        shape = self._shape
        note = ""
        if shape.retain:
            if self._audience is None:
                note = QUEUES_RETAIN_NOTHING
            elif not self._audience.is_retained:
                note = NOT_RETAINED.format(publisher.core.retained.refusal)
            if note:
                publisher.note_unretained(shape.topic, note)
        if is_stored:
            publisher.accept_stored(run, note)
        else:
            publisher.accept(run.packet_ids, shape.qos, note)

    def _refuse(self, publisher: Publisher, run: PublishRun, outcome: int) -> None:
        """Answer one publish that was refused, by all of its targets or some."""
        plan = self._plan
        publisher.hub.counters.refuse_publishes(1)
        code = outcome_code(outcome)
        reason = outcomes.reason_of(outcome, () if plan is None else plan.full)
        by: dict[str, Any] = {}
        if outcome == outcomes.REFUSED_SESSION:
            by["session"] = publisher.core.sessions.full_session
        elif plan is not None and outcome in outcomes.FULL:
            by["queue"], *others = [queue.name for queue in plan.full]
            by |= {"also_full": others} if others else {}
        publishing = publisher.core.publishing
        if plan is not None and run.packet_ids and publishing.is_remembered(plan, outcome):
            publisher.refuse_when_durable(run, code, reason, by)
        elif outcome == outcomes.REFUSED_IN_PART:
            publisher.refuse_in_part(run, reason, by)
        else:
            publisher.refuse(run, code, reason, by)

    def _aim(self, publisher: Publisher, now_ms: int) -> Targets:
        """Find the queues."""
        shape = self._shape
        publishing = publisher.core.publishing
        if address.is_queue_topic(shape.topic):
            key, exchange = shape.topic, ""
            targets = addressed(publishing, publisher.identity, shape.topic, now_ms)
        else:
            key, exchange = topics.routing_key_of(shape.topic), topics.EXCHANGE
            targets = publishing.through(exchange, (key,), self._headers)
            if self._audience is None:
                self._audience = Audience(
                    publisher.hub,
                    publisher.pubsub,
                    shape,
                    subscriber=publisher.subscriber,
                    session=publisher.session,
                    protocol_version=publisher.client.connection.protocol_version if publisher.client else 0,
                    user=publisher.identity.user,
                )
        if targets:
            if self._plan is None:
                # without properties or QoS the kind still tells an AMQP consumer that the mode is 1
                options = options_of(shape.properties)
                block = shape.properties if options.stage is None else without_stage(shape.properties)
                kind = PROPERTIES_NONE if shape.qos and not block else PROPERTIES_MQTT
                self._plan = publishing.plan(key, kind, block, shape.qos > 0, options, exchange)
                self._plan.accompany(self._audience)
            publishing.aim(self._plan, targets)
        self._targets = targets
        return targets

    def _headers(self) -> Mapping[str, object]:
        return read(self._shape.properties).routed()


@dataclass(slots=True)
class Refusal:
    """A topic that clients may not publish to."""

    reason_code: int
    reason: str

    def publish(self, publisher: Publisher, run: PublishRun) -> None:
        publisher.hub.counters.refuse_publishes(run.count)
        publisher.refuse(run, self.reason_code, self.reason)
