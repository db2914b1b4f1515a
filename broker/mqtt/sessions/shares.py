"""Share groups with members whose sessions last: what is published waits while none of them is there.

Such a group has a session of its own, subscribed to the filter; members that are there are its connection.
With several workers it is one among those that each worker with such members has, so what the filter matches
is not for all of them: the session reads a log of the group's name, to which its share is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final

import structlog

from broker.clock import Clock
from broker.engine.client.sessions import SessionClient
from broker.engine.session_traffic import NEVER_S, Delivery, Matched, Session, SubscriptionOptions
from broker.mqtt.settling.window import OutboundWindow
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import ShareGroup, Subscription
from broker.properties.templates import as_mqtt_at, of_mqtt
from broker.vhosts.hub import Hub
from config import limits
from protocols.mqtt.constants import SHARED_PREFIX
from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.topic_filters import split_shared
from queue_manager import address
from storage.envelope import expires_at_ms

SHARE_USER: Final = "\x1fshare"
"""The user of the sessions of share groups: no client can log in under that name."""

# QoS 1 whatever the members want: they get each message with its own, and the session is told of the end only
_OPTIONS: Final = SubscriptionOptions(1, False, True, 2, 0, b"")

_log: Final = structlog.get_logger("sluicemq.mqtt")


@dataclass(eq=False, repr=False, slots=True)
class KeptShare:
    """One such group: a `ShareBacklog`, and the `Link` of its session."""

    hub: InitVar[Hub]
    session: Session
    log_filter: str
    _sessions: SessionClient = field(init=False)
    _clock: Clock = field(init=False)
    _members: set[int] = field(default_factory=set, init=False)
    _group: ShareGroup | None = field(default=None, init=False)
    _deliveries: dict[PublishRun, Delivery] = field(default_factory=dict, init=False)
    _undelivered: list[PublishRun] = field(default_factory=list, init=False)
    _window: OutboundWindow = field(init=False)

    def __post_init__(self, hub: Hub) -> None:
        self._sessions = hub.client.sessions
        self._clock = hub.clock
        self._window = OutboundWindow(limits.MQTT_SESSION_INFLIGHT_MAX)

    def admit(self, session: int) -> bool:
        """Make a session that lasts a member; returns whether it was none."""
        is_new = session not in self._members
        self._members.add(session)
        return is_new

    def dismiss(self, session: int) -> bool:
        """Dismiss a member; returns whether none is left."""
        self._members.discard(session)
        return not self._members

    # as a backlog

    def joined(self, group: ShareGroup) -> None:
        self._group = group
        if self.session.link is self:
            self.wake()
            return
        unfinished = self.session.unfinished
        self._window = OutboundWindow(limits.MQTT_SESSION_INFLIGHT_MAX)
        self._window.occupy(unfinished.packet_ids(), unfinished.unreceived())
        self._deliveries.clear()
        self._undelivered.clear()
        self.session.attach(self)

    def left(self) -> None:
        self._group = None
        if self.session.link is self and not self.session.is_over:
            self._sessions.leave(self.session)

    def hand_over(self, run: PublishRun, member: Subscription) -> bool:
        session, name = member.session, self.session.client_id
        delivery = self._deliveries.get(run)
        if delivery is None or session is None or min(run.shape.qos, member.qos) < 2:
            return False
        message = delivery.merged.message
        own = (message.template, message.qos, message.received_at_ms, message.body)
        retain = delivery.retain and member.retain_as_published
        if not self._sessions.send_own(session, name, [own], retain=retain):
            return False
        self._finish(run, at_once=True)  # in the commit that gives it to the member's session
        return True

    def take_back(self, run: PublishRun) -> bool:
        if run in self._deliveries:
            return False
        shape = run.shape
        template, now_ms = of_mqtt(shape.topic, shape.properties), self._clock.now_ms()
        messages = [(template, shape.qos, now_ms, body) for body in run.payloads]
        return self._sessions.send_own(self.session, self.log_filter, messages, retain=shape.retain)

    def given(self, run: PublishRun, member: Subscription | None) -> None:
        if member is None or member.qos == 0:
            self.finished(run)

    def dropped(self, run: PublishRun) -> None:
        self._undelivered.append(run)

    def finished(self, run: PublishRun) -> None:
        self._finish(run)

    def _finish(self, run: PublishRun, *, at_once: bool = False) -> None:
        delivery = self._deliveries.pop(run, None)
        if delivery is not None:
            self.session.acknowledge([delivery.packet_id], self._clock.now_ms(), at_once=at_once)
            self._window.release([delivery.packet_id])
        self.wake()

    def wake(self) -> None:
        group, now_ms = self._group, self._clock.now_ms()
        while self._undelivered and group is not None and group.has_room:
            run = self._undelivered.pop(0)
            delivery = self._deliveries.get(run)
            if delivery is None or not self._drop_expired(delivery, now_ms):
                group.publish(run)
            else:
                del self._deliveries[run]
        if self.session.link is self:
            self.session.wake()

    # as a link

    def room(self) -> int:
        group = self._group
        return self._window.room() if group is not None and group.has_room and not self._undelivered else 0

    def take_packet_id(self) -> int:
        return self._window.take_one()

    def _drop_expired(self, delivery: Delivery, now_ms: int) -> bool:
        """Be done with a message that has expired before a member took it [MQTT-3.3.2-5]; whether it has."""
        message = delivery.merged.message
        due_ms = expires_at_ms(message.template, message.received_at_ms)
        if not due_ms or due_ms > now_ms:
            return False
        self.session.acknowledge([delivery.packet_id], now_ms)
        self._window.release([delivery.packet_id])
        return True

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        now_ms = self._clock.now_ms()
        for delivery in deliveries:
            if delivery.is_repeated and self._drop_expired(delivery, now_ms):
                continue
            message = delivery.merged.message
            template = message.template
            first_byte = 0x30 | message.qos << 1 | delivery.retain
            properties = as_mqtt_at(template, message.received_at_ms, now_ms)
            shape = PublishShape(first_byte, template.topic, properties)
            run = PublishRun(shape, 1, [], [message.body])
            if delivery.is_repeated:
                self._window.sent_again((delivery.packet_id,))
            self._deliveries[run] = delivery
            group = self._group
            if group is not None and (self._undelivered or not group.has_room):
                self._undelivered.append(run)  # for who has room first, or joins
            elif group is not None:
                group.publish(run)

    def release(self, packet_ids: list[int]) -> None:
        """See `Link`: of QoS 2 nothing is sent by the session."""

    def forget(self, packet_ids: list[int]) -> None:
        self._window.release(packet_ids)

    def pass_on(self, run: PublishRun, matched: Matched) -> None:
        """See `PlainLink`: QoS 0 goes to members at once, by the group."""


class KeptShares:
    """The groups of a virtual host that have members whose sessions last, by `$share/<group>/<filter>`."""

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub
        self._by_name: dict[str, KeptShare] = {}
        self._sessions = sessions = hub.client.sessions
        for session in sessions.all():
            if session.user == SHARE_USER:
                continue
            for each in session.subscriptions.values():
                if each.filter.startswith(SHARED_PREFIX):
                    self.join(session, each.filter, each.options.qos)
        for session in sessions.of_user(SHARE_USER):
            if session.client_id not in self._by_name:
                sessions.end(session)

    def join(self, session: Session, name: str, qos: int) -> None:
        """Subscribe a session that lasts to `name`; raises LimitReached."""
        share, topic_filter = split_shared(name)
        if address.is_queue_topic(topic_filter):
            return
        if not qos:
            self.part(session, name)
            return
        kept = self._by_name.get(name)
        if kept is None:
            log_filter = topic_filter if self._pubsub.elsewhere is None else name
            own = self._session_of(name, log_filter)
            if own is None:
                return
            kept = self._by_name[name] = KeptShare(self._hub, own, log_filter)
            self._pubsub.keep_share(share, topic_filter, kept)
        if kept.admit(session.number):
            session.tell_end(partial(self.part, session, name))

    def _session_of(self, name: str, log_filter: str) -> Session | None:
        sessions = self._sessions
        session = sessions.find(name) or sessions.begin(name, SHARE_USER, NEVER_S)
        if session.user != SHARE_USER:
            _log.warning("mqtt.share_not_kept", share=name, reason="a client has this identifier")
            return None
        if log_filter not in session.subscriptions:
            for before in (name, split_shared(name)[1]):  # of another number of workers
                sessions.unsubscribe(session, before, keeps_waiting=True)
            sessions.subscribe(session, log_filter, _OPTIONS, is_logged=True)
            sessions.leave(session)
        return session

    def part(self, session: Session, name: str) -> None:
        """Note that a session is subscribed to it no more, or has ended."""
        kept = self._by_name.get(name)
        if kept is not None and kept.dismiss(session.number):
            del self._by_name[name]
            self._pubsub.keep_share(*split_shared(name), None)
            self._sessions.end(kept.session)
