"""Drivers of the connections of each listener of a messaging protocol: a transport with a front-end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from broker.amqp.connection.shared import Shared
from broker.amqp.frontend import AmqpFrontends, OtherVersions
from broker.amqp10.frontend import HEADERS, Amqp10Frontends
from broker.mqtt.connection.first_packet import redirection, unavailable
from broker.mqtt.frontend import MqttFrontends
from broker.network.frontend_base import Frontend
from broker.network.listening import MakeProtocol
from broker.network.transport import Transport
from broker.vhosts.hub import Hub
from config.settings import AnyMqttListenerSettings, ListenersSettings
from protocols.amqp10.constants import WEBSOCKET_SUBPROTOCOLS as AMQP_SUBPROTOCOLS
from protocols.mqtt.constants import WEBSOCKET_SUBPROTOCOLS as MQTT_SUBPROTOCOLS
from queue_manager.address import DEFAULT_VHOST

if TYPE_CHECKING:
    from broker.network.home_gate import ClientHomes


class Frontends(Protocol):
    """The maker of the front-ends of a protocol."""

    def accept(self, transport: Transport) -> Frontend:
        """Return the front-end of a client that connected."""

    def of_vhost(self, name: str) -> Frontends:
        """Return what makes those of clients that come into a virtual host."""


def _amqp_frontends(hub: Hub) -> AmqpFrontends:
    """Return what makes those of AMQP, of the version that a client begins with."""
    shared = Shared()
    others = Amqp10Frontends(hub, shared)
    return AmqpFrontends(hub, OtherVersions(HEADERS, others.accept), shared)


FRONTENDS: Final[dict[str, Callable[[Hub], Frontends]]] = {"mqtt": MqttFrontends, "amqp": _amqp_frontends}


_SUBPROTOCOLS: Final = {"mqtt": MQTT_SUBPROTOCOLS, "amqp": AMQP_SUBPROTOCOLS}


class Drivers:
    """The front-ends of one broker, by protocol, and what leads to them."""

    def __init__(self, hub: Hub, settings: ListenersSettings, homes: ClientHomes | None = None) -> None:
        """`homes` lead clients of MQTT to the worker, of several, that they belong to."""
        self._hub = hub
        self._homes = homes
        self._settings = settings
        self.frontends = {name: make(hub) for name, make in FRONTENDS.items()}

    def makers(self) -> dict[str, MakeProtocol]:
        """Return what drives new connections, by listener: plainly, over TLS, or by WebSocket."""
        plain: dict[str, MakeProtocol] = {
            listener: self._transport_maker(name, listener)
            for name in FRONTENDS
            for listener in (name, f"{name}s")
        }
        return plain | self._websocket_makers()

    def _websocket_makers(self) -> dict[str, MakeProtocol]:
        settings = self._settings
        makers: dict[str, MakeProtocol] = {}
        for protocol, name, listener in (
            ("mqtt", "mqtt_ws", settings.mqtt_ws),
            ("mqtt", "mqtt_wss", settings.mqtt_wss),
            ("amqp", "amqp_ws", settings.amqp_ws),
            ("amqp", "amqp_wss", settings.amqp_wss),
        ):
            if listener is not None:
                from broker.network.websocket import gate_maker  # brings a library along

                make = self._transport_maker(protocol, name)
                subprotocols = _SUBPROTOCOLS[protocol]
                makers[name] = gate_maker(self._hub, make, subprotocols, listener.path, listener.origins)
        return makers

    def _transport_maker(self, protocol: str, listener: str) -> Callable[[Callable[[], None]], Any]:
        """Return what serves the clients of a listener, in its virtual host, or leads them to the worker that
        does.
        """
        settings = self._settings.opened().get(listener)
        vhost = settings.vhost if isinstance(settings, AnyMqttListenerSettings) else DEFAULT_VHOST
        frontends = self.frontends[protocol].of_vhost(vhost)
        make = partial(Transport, self._hub.of_vhost(vhost), frontends.accept)
        if self._homes is None or not isinstance(frontends, MqttFrontends):
            return make
        is_framed = listener.endswith(("_ws", "_wss"))
        return self._homes.leading(
            listener, make, frontends.home_of, unavailable, redirection, is_framed=is_framed
        )
