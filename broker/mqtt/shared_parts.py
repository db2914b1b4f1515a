"""The parts that MQTT clients share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from broker.engine.elsewhere import FarPlan, FilterFact
from broker.mqtt.bridges.bridge import has_bridges, start_bridges
from broker.mqtt.connection.first_packet import first_connect
from broker.mqtt.connection.mqtt_client import Clients, Rate
from broker.mqtt.consuming.retained_sending import RetainedTurns
from broker.mqtt.consuming.system_topics import SystemTopics
from broker.mqtt.publishing.topic_audience import Audience
from broker.mqtt.publishing.will import Wills
from broker.mqtt.sessions.lasting_sessions import LastingSessions
from broker.mqtt.sessions.shares import KeptShares
from broker.mqtt.topology.pubsub import PubSub
from broker.properties.templates import as_mqtt
from broker.topics import topic_of
from broker.vhosts.hub import Hub
from broker.vhosts.vhost import VhostNotFound
from config.mqtt_settings import MqttSettings
from protocols.errors import ProtocolError
from protocols.mqtt.events import PublishShape
from protocols.mqtt.offer import Offer
from protocols.mqtt.topic_filters import validate_topic_name
from storage.envelope import EnvelopeTemplate


class MqttTopics:
    """As `queue_manager.audience.Topics`, for the subscribers of MQTT."""

    __slots__ = ("_hub", "_pubsub")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub

    def audience(self, keys: Sequence[str], template: EnvelopeTemplate) -> Audience | None:
        """See `Topics.audience`. Persistent messages are of QoS 1."""
        topics = tuple([topic for topic in map(topic_of, keys) if _is_topic(topic)])
        topic = topic_of(template.topic)
        if not topics or not _is_topic(topic):
            return None
        first_byte = 0x30 | template.persistent << 1
        return Audience(
            self._hub, self._pubsub, PublishShape(first_byte, topic, as_mqtt(template), topics=topics)
        )


class TopicsHere:
    """As `broker.engine.elsewhere.Here`, for the subscribers of MQTT."""

    __slots__ = ("_hub", "_pubsub")

    def __init__(self, hub: Hub, pubsub: PubSub) -> None:
        self._hub = hub
        self._pubsub = pubsub

    def know(self, worker: int, facts: Collection[FilterFact]) -> None:
        """See `Here`."""
        self._pubsub.know(worker, facts)

    def audience(self, plan: FarPlan) -> Audience:
        """See `Here.audience`: publishes that came from another worker are not sent to a third one."""
        shape = PublishShape(plan.first_byte, plan.topic, plan.properties, topics=plan.topics)
        return Audience(self._hub, self._pubsub, shape, user=plan.user, sent_by=plan)


def _is_topic(topic: str) -> bool:
    """Return whether clients may publish to it."""
    try:
        validate_topic_name(topic)
    except ProtocolError:
        return False
    return not topic.startswith("$")


class Shared:
    """The parts that the MQTT clients in a virtual host share."""

    def __init__(self, hub: Hub, of_hubs: dict[Hub, Shared] | None = None) -> None:
        """`of_hubs` are those of all virtual hosts that clients came into."""
        self._of_hubs = {} if of_hubs is None else of_hubs
        self._of_hubs[hub] = self
        settings = hub.settings.mqtt
        self.hub = hub
        self.ignores_colons = settings.ignore_colons_in_username
        self.clients = Clients()
        self.pubsub = PubSub(settings.shared_subscriptions)
        self._elsewhere = hub.client.elsewhere
        if self._elsewhere is not None:
            self.pubsub.reach(self._elsewhere, hub.vhost.name)
        hub.access.on_reload(self.pubsub.forget_routes)
        self.wills = Wills(hub, self.pubsub)
        self.offer = offer_of(settings)
        self.connects = Rate(settings.connect_rate, hub.clock.monotonic()) if settings.connect_rate else None
        self._publishing = hub.client.publishing
        self._publishing.join(MqttTopics(hub, self.pubsub))
        self.sessions = LastingSessions(hub, self.pubsub)
        self.shares = KeptShares(hub, self.pubsub)
        self._bridges = start_bridges(hub, self.pubsub)
        self.retained = RetainedTurns(hub.loop)
        self.system = SystemTopics(hub, self.pubsub, self.clients)
        if self._elsewhere is not None:
            self._elsewhere.join(hub.vhost.name, TopicsHere(hub, self.pubsub))
        if of_hubs is None:
            hub.on_vhost(self._vhost_changed)

    def of_vhost(self, name: str) -> Shared:
        """Return what those in a virtual host share; raises VhostNotFound."""
        hub = self.hub.of_vhost(name)
        found = self._of_hubs.get(hub)
        if found is None:
            found = Shared(hub, self._of_hubs)
        return found

    def user_of(self, username: str) -> tuple[Shared, str]:
        """Return the user of a CONNECT, and where it leads: `vhost:user` into that virtual host, if there is
        one of that name.
        """
        vhost, colon, user = username.rpartition(":")
        if not colon or self.ignores_colons:
            return self, username
        try:
            return self.of_vhost(vhost), user
        except VhostNotFound:
            return self, username

    def home_of(self, said: bytes) -> int | None:
        """Return the worker that a client belongs to, one of several, by what it has said; None: it has to
        say more. Who has no client identifier belongs where it is.
        """
        elsewhere = self._elsewhere
        assert elsewhere is not None
        try:
            packet = first_connect(said, self.offer)
        except ProtocolError:
            return elsewhere.number
        if packet is None:
            return None
        if not packet.client_id:
            return elsewhere.number
        shared, _ = self.user_of(packet.username or "")
        return elsewhere.home_of(shared.hub.vhost.name, packet.client_id)

    def end(self) -> None:
        """End: the virtual host is deleted."""
        if self._elsewhere is not None:
            self._elsewhere.join(self.hub.vhost.name, None)
        self._publishing.join(None)
        self.wills.forget()
        for bridge in self._bridges:
            bridge.stop()

    def _vhost_changed(self, hub: Hub, begins: bool) -> None:
        """Begin or end with a virtual host. What sessions are subscribed to is kept for them, and wills that
        wait are published, before any client comes.
        """
        sessions = hub.client.sessions
        if not begins:
            gone = self._of_hubs.pop(hub, None)
            if gone is not None:
                gone.end()
        elif sessions.all() or sessions.wills.all or has_bridges(hub) or self._elsewhere is not None:
            self.of_vhost(hub.vhost.name)


def offer_of(settings: MqttSettings) -> Offer:
    """Return what clients are offered."""
    return Offer(
        receive_maximum=settings.receive_maximum,
        packet_bytes_max=settings.max_packet_size_bytes,
        topic_alias_maximum=settings.topic_alias_maximum,
        maximum_qos=settings.max_qos,
        retain_available=settings.retain,
        keep_alive_s_max=settings.keep_alive_s_max,
        response_information=settings.response_information,
    )
