"""CONNECT and the sessions that are to last: found, begun, ended, and their logs among subscriptions."""

from __future__ import annotations

from typing import NamedTuple, Protocol, cast

from broker.engine.session_traffic import NEVER_S, Bounds, Log, Matched, Session
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.sessions.session_link import SessionLink
from broker.mqtt.settling.outbound import Outbound
from broker.mqtt.topology.pubsub import PubSub
from broker.mqtt.topology.subscription import Subscription
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt.constants import SHARED_PREFIX
from protocols.mqtt.events import LonePublish, PublishRun
from protocols.mqtt.packets import Connect
from protocols.mqtt.topic_filters import split_shared
from queue_manager.errors import AccessRefused


class PlainLink(Protocol):
    """The connection of a session."""

    def pass_on(self, run: PublishRun, matched: Matched) -> None:
        """Send publishes of QoS 0, which are kept for nobody, as the subscriptions together want them."""


class LoggedFilter:
    """A filter that sessions are subscribed to with QoS 1 or 2: one entry in the tree for all of them."""

    __slots__ = ("log", "subscription")

    protocol_version = 0
    takes_rewritten = False
    has_room = True

    def __init__(self, log: Log) -> None:
        self.log = log
        self.subscription = Subscription(self, log.filter, 2, retain_as_published=True, is_kept=True)

    def may_read(self, topic: str) -> bool:
        """See `Subscriber`: each session is asked when it is sent something."""
        return True

    def pass_on(self, run: PublishRun) -> None:
        """See `Subscriber`: nothing goes to a log as it came by wire."""

    def pass_on_lone(self, lone: LonePublish) -> None:
        """See `pass_on`."""

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """See `Subscriber`: publishes of QoS 0 go to sessions that are connected."""
        self.forward_from(None, run)

    def forward_from(self, publisher: Session | None, run: PublishRun) -> bool:
        """Forward as `forward`, but for the publisher's own subscriptions that want no local ones; returns
        whether a session is connected. Of a session's filters that match, the first sends for all of them.
        """
        is_heard = False
        for subscription in list(self.log.live):
            session = subscription.session
            matched = session.matched(run.shape.topics, is_own=session is publisher)
            is_heard = is_heard or bool(matched.logged)
            if matched.logged and matched.logged[0] is subscription:
                cast(PlainLink, session.link).pass_on(run, matched)
        return is_heard


class Opened(NamedTuple):
    """The result of a CONNECT.

    `link` None: the session goes with the connection. `is_present`: there was one. `waits`: the client may be
    told only once what was done is durable. `expiry_s`: when it is not what MQTT 5 asked for.
    """

    link: SessionLink | None
    is_present: bool
    waits: bool
    expiry_s: int | None


class LastingSessions:
    """The sessions of a broker's MQTT clients."""

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        settings = hub.settings.mqtt.sessions
        self._expiry_s = _seconds(settings.expiry_ms)
        self._max_expiry_s = _seconds(settings.max_expiry_ms)
        self._sessions = hub.client.sessions
        self._sessions.limit(Bounds(settings.max_queued_messages, settings.max_queued_bytes, settings.drop))
        self._pubsub = pubsub
        self._logged: dict[Log, LoggedFilter] = {}
        for log in self._sessions.logs:
            self._log_changed(log, True)
        self._sessions.on_log(self._log_changed)

    def _log_changed(self, log: Log, begins: bool) -> None:
        """Keep the subscription tree as the logs of filters come and go."""
        if log.filter.startswith(SHARED_PREFIX):
            self._pubsub.keep_log(*split_shared(log.filter), log if begins else None)
        elif begins:
            logged = self._logged[log] = LoggedFilter(log)
            self._pubsub.subscribe(logged.subscription)
        else:
            self._pubsub.unsubscribe(self._logged.pop(log).subscription)

    def open(self, client: MqttClient, outbound: Outbound, packet: Connect) -> Opened:
        """Open the session of a client that connects, once the earlier connection is gone, and so with what
        an earlier CONNECT said of its end; raises AccessRefused, LimitReached.
        """
        wanted_s, given_s = self._expiry(packet)
        found = self._sessions.find(client.client_id)
        waits = found is not None
        if found is not None and found.user != client.identity.user:
            raise AccessRefused("another user's session has this client identifier")
        if found is not None and packet.clean_start:
            self._sessions.end(found)
            found = None
        told_s = given_s if given_s != wanted_s else None
        if found is None and not given_s:
            return Opened(None, False, waits, told_s)
        if found is not None:
            found.expect(given_s)
            session = found
        else:
            session = self._sessions.begin(client.client_id, client.identity.user, given_s)
        return Opened(SessionLink(client, outbound, session), found is not None, waits, told_s)

    def close(self, link: SessionLink) -> None:
        """Close the connection of a session, whether or not it was attached."""
        if not link.session.is_over:
            self._sessions.leave(link.session)

    def change_expiry(self, session: Session, expiry_s: int) -> None:
        """Note how long a DISCONNECT says the session is to last from now on."""
        session.expire_after(min(expiry_s, self._max_expiry_s))

    def _expiry(self, packet: Connect) -> tuple[int, int]:
        """Return how long the session is to last, and how long it will."""
        if packet.protocol_version == c.MQTT_5:
            wanted_s = packet.properties.session_expiry_interval_s or 0
            return wanted_s, min(wanted_s, self._max_expiry_s)
        if packet.clean_start:
            return 0, 0
        return NEVER_S, min(self._expiry_s, self._max_expiry_s)


def _seconds(duration_ms: int | None) -> int:
    return NEVER_S if duration_ms is None else -(-duration_ms // 1000)
