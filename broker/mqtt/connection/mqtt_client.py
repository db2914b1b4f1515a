"""One MQTT client, as the parts of its front-end see it, and all that are connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from broker.access.login import Identity
from broker.clients.client_consumers import Consumers
from broker.clients.entrance import Presence
from broker.clients.when_durable import WhenDurable
from broker.clock import Clock
from broker.engine.client import ShardClient
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from protocols.mqtt import constants as c
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.properties import NO_PROPERTIES, Properties
from queue_manager.address import PREFIX

_log: Final = structlog.get_logger("sluicemq.mqtt")

NOBODY: Final[Mapping[str, Any]] = {}


@dataclass(eq=False, repr=False, slots=True)
class MqttClient:
    """The client, how it is spoken to, and its consumers of queues by topic filter.

    `caller` is what the core knows it by, `core` the way there, `vhost` where its queues and topics are.
    `end_reason` is why it ended, for who follows presence.
    """

    hub: Hub
    transport: Transport
    connection: MqttConnection
    core: ShardClient = field(init=False)
    clock: Clock = field(init=False)
    caller: str = field(init=False)
    consumers: Consumers = field(init=False)
    vhost: str = field(init=False)
    identity: Identity = field(init=False)
    client_id: str = field(default="", init=False)
    has_assigned_id: bool = field(default=False, init=False)
    end_reason: str = field(default="closed", init=False)
    _is_end_logged: bool = field(default=False, init=False)
    _presence: Presence | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.core = self.hub.client
        self.clock = self.hub.clock
        self.caller = self.hub.new_caller()
        self.consumers = Consumers(self.hub, self.transport)
        self.vhost = self.hub.vhost.name

    def identify(self, identity: Identity, client_id: str, *, is_assigned: bool) -> None:
        """Note who it is, and the client identifier of the CONNECT, or what the broker assigned instead.

        Raises LimitReached.
        """
        self._presence = Presence(self.hub, self.transport, identity, self.caller)
        self.identity = identity
        self.client_id = client_id
        self.has_assigned_id = is_assigned

    def announce(self) -> None:
        """Tell that the client was let in."""
        if self._presence is not None:
            self._presence.announce()

    def leave(self) -> None:
        """Forget a client that is gone."""
        if self._presence is not None:
            self._presence.end(self.end_reason)
            self._presence = None

    def when_durable(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call what answers the client, when what was done so far is durable."""
        self.core.commits.wait(WhenDurable(lambda tokens: call(*arguments), self.transport), 0)

    def own_group(self) -> str:
        """Return the group this client is by itself; '@' stands before a pattern in group IDs."""
        return self.client_id.replace("%", "%25").replace("@", "%40").replace("\x1f", "%1F")

    def refuse(self, client_id: str, reason_code: int, reason: str, told: str | None = None) -> None:
        """Turn the client away at its CONNECT; one log line says who and why, the client is `told` that or
        less.
        """
        self._is_end_logged = True
        _log.warning("mqtt.connect_refused", peer=self.transport.peer, client_id=client_id, reason=reason)
        self.connection.refuse(reason_code, reason if told is None else told)
        self.transport.want_flush()

    def disconnect(self, reason_code: int, reason: str) -> None:
        """End the connection from this side; one log line says who and why."""
        self._log_end("mqtt.disconnected", reason_code, reason)
        self.end(reason_code, reason)

    def end(self, reason_code: int, reason: str, properties: Properties = NO_PROPERTIES) -> None:
        """Disconnect as `disconnect`, where something else was logged; `properties` are for MQTT 5."""
        self._is_end_logged = True
        self.end_reason = reason
        self.connection.disconnect(reason_code, reason, properties)
        self.consumers.pause()
        self.transport.want_flush()

    def lost(self, reason_code: int, reason: str) -> None:
        """Note that the connection ended over what the client sent, or did not; logged unless that was
        done.
        """
        if not self._is_end_logged:
            self.end_reason = reason
            self._log_end("mqtt.connection_closed", reason_code, reason)

    def _log_end(self, event: str, reason_code: int, reason: str) -> None:
        _log.warning(
            event,
            peer=self.transport.peer,
            client_id=self.client_id,
            code=f"0x{reason_code:02x}",
            reason=reason,
        )

    def note_refused(self, topic: str, reason: str, count: int = 1, by: Mapping[str, Any] = NOBODY) -> None:
        """Log publishes that were not taken; `by`: fields of the line that say by what, if anything."""
        fields = dict(by)
        if "queue" not in fields and topic.startswith(PREFIX):
            fields["queue"] = topic.split("/", 2)[1]
        self.hub.refusals.note(
            fields.get("queue", topic),
            self.clock.now_ms(),
            count,
            peer=self.transport.peer,
            client_id=self.client_id,
            topic=topic,
            reason=reason,
            **fields,
        )


class Clients:
    """The connected clients, one for each client identifier."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, MqttClient] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, client_id: str) -> MqttClient | None:
        """Return the client of that identifier."""
        return self._by_id.get(client_id)

    def enter(self, client: MqttClient) -> None:
        """Enter a client that connects; another of its identifier is disconnected [MQTT-3.1.4-3], and gone as
        far as its session goes.
        """
        other = self._by_id.get(client.client_id)
        if other is not None:
            other.transport.catch_up()
            other.disconnect(c.SESSION_TAKEN_OVER, "another connection uses this client identifier")
            other.transport.flush()
        self._by_id[client.client_id] = client

    def leave(self, client: MqttClient) -> None:
        """Leave: the client is gone."""
        if self._by_id.get(client.client_id) is client:
            del self._by_id[client.client_id]


class Rate:
    """A bucket that fills with `per_s` a second and holds as many."""

    __slots__ = ("_left", "_per_s", "_seen_at")

    def __init__(self, per_s: int, now: float) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._seen_at = now

    def take(self, count: int, now: float) -> bool:
        """Return whether so many are allowed now; if not, none are taken."""
        self._left = min(self._per_s, self._left + (now - self._seen_at) * self._per_s)
        self._seen_at = now
        if count > self._left:
            return False
        self._left -= count
        return True
