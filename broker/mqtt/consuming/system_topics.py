"""`$SYS/...`: what the broker says of itself, under mosquitto's names where it has them.

Published every few seconds to who is subscribed, and sent to who subscribes as if it were retained; that a
client came or went is told when it does, under EMQX's names. It is never stored, and no wildcard at the first
level matches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from broker.access.credentials import host_of
from broker.access.login import Identity, NotPermitted
from broker.connections.connection_views import NODE, ConnectionView
from broker.engine.traffic import RetainedMessage
from broker.mqtt.connection.mqtt_client import Clients
from broker.mqtt.publishing.topic_audience import Audience
from broker.mqtt.topology.pubsub import PubSub
from broker.version import VERSION
from broker.vhosts.hub import Hub
from config.name_rules import why_reserved
from protocols.mqtt.events import PublishShape
from protocols.mqtt.topic_filters import matches
from queue_manager.errors import InvalidAddress
from storage.envelope import EnvelopeTemplate

ROOT: Final = "$SYS/"
EVERYONE: Final = "everyone"
_PRESENCE: Final = f"{ROOT}brokers/{NODE}/clients/{{}}/{{}}"
_AS_A_LEVEL: Final = str.maketrans({"%": "%25", "/": "%2F", "+": "%2B", "#": "%23"})
_QOS_0: Final = 0x30
_VERSIONS: Final = {"MQTT 5": 5, "MQTT 3.1.1": 4}


class SystemTopics:
    """The topics, their values, and who may read them. `interval` 0 in the settings: nobody."""

    def __init__(self, hub: Hub, pubsub: PubSub, clients: Clients) -> None:
        settings = hub.settings.mqtt
        self._hub = hub
        self._pubsub = pubsub
        self._clients = clients
        self._interval_s = settings.sys_interval_ms / 1000
        self._is_open = settings.sys_readers == EVERYONE
        self._tells_presence = False  # once somebody asked for it
        self._began = hub.clock.monotonic()
        if self._interval_s:
            hub.loop.call_later(self._interval_s, self._tick)

    def check(self, identity: Identity, topic_filter: str) -> None:
        """Raise NotPermitted for a filter of these topics that is not for the client, InvalidAddress for one
        of other topics that are reserved.
        """
        if not topic_filter.startswith(ROOT):
            if reserved := why_reserved(topic_filter):
                raise InvalidAddress(reserved)
            return
        if not self._interval_s:
            raise NotPermitted(f"{ROOT}# is off: mqtt.sys_interval is 0")
        if not (self._is_open or identity.login.is_monitoring):
            raise NotPermitted(f"{ROOT}# is for users with the tag monitoring")
        if not topic_filter.startswith(f"{ROOT}broker/"):
            self._follow_presence()

    def _follow_presence(self) -> None:
        if not self._tells_presence:
            self._tells_presence = True
            self._hub.events.follow(self._hub.vhost.name, self._tell_presence)

    def _tell_presence(self, view: ConnectionView, reason: str | None) -> None:
        """Tell that a client was let in, or that it is gone."""
        told = view.description
        if not told.protocol.startswith("MQTT"):
            return
        is_there = reason is None
        what = "connected" if is_there else "disconnected"
        fact = {
            "clientid": told.client_id,
            "username": told.user,
            "ipaddress": host_of(view.peer),
            **({"proto_ver": _VERSIONS.get(told.protocol, 3)} if is_there else {"reason": reason}),
            f"{what}_at": self._hub.clock.now_ms(),
        }
        self._publish(_PRESENCE.format(told.client_id.translate(_AS_A_LEVEL), what), json.dumps(fact))

    def matching(self, topic_filter: str) -> Iterator[RetainedMessage]:
        """Return the topics a filter matches, as they are."""
        if not topic_filter.startswith(ROOT):
            return
        now_ms = self._hub.clock.now_ms()
        for topic, value in self._values().items():
            if matches(topic_filter, topic):
                yield RetainedMessage(EnvelopeTemplate(topic), 0, value.encode(), now_ms)

    def _tick(self) -> None:
        if not self._hub.is_there:
            return
        self._hub.loop.call_later(self._interval_s, self._tick)
        routed = [topic for topic in self._values() if self._pubsub.route(topic)]
        if not routed:
            return
        values = self._values()
        for topic in routed:
            self._publish(topic, values[topic])
        self._hub.settle_turn()

    def _publish(self, topic: str, value: str) -> None:
        Audience(self._hub, self._pubsub, PublishShape(_QOS_0, topic, b"")).hear([value.encode()])

    def _values(self) -> dict[str, str]:
        client = self._hub.client
        counters = self._hub.counters
        sessions = client.sessions.totals()
        retained_count, retained_bytes = client.retained.extent
        connected = len(self._clients)
        losses = client.sessions.losses
        dropped = counters.dropped_slow_consumer + counters.dropped_too_large + losses.dropped
        values: dict[str, object] = {
            "version": f"SluiceMQ {VERSION}",
            "uptime": f"{int(self._hub.clock.monotonic() - self._began)} seconds",
            "clients/connected": connected,
            "clients/active": connected,
            "clients/disconnected": sessions.away,
            "clients/inactive": sessions.away,
            "clients/total": connected + sessions.away,
            "clients/expired": sessions.expired,
            "retained messages/count": retained_count,
            "retained messages/bytes": retained_bytes,
            "store/messages/count": sessions.messages,
            "store/messages/bytes": sessions.body_bytes,
            "publish/messages/dropped": dropped,
            "publish/messages/dropped/slow": counters.dropped_slow_consumer,
            "publish/messages/dropped/too large": counters.dropped_too_large,
            "publish/messages/dropped/sessions": losses.dropped,
            "publish/messages/expired": losses.expired,
            "sessions/count": sessions.session_count,
            "sessions/filters": sessions.filters,
        }
        return {f"{ROOT}broker/{name}": str(value) for name, value in values.items()}
