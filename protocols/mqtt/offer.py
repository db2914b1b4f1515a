"""The offer of a server to its clients, told in CONNACK, section 3.2.2.3."""

from dataclasses import dataclass
from typing import Final

from config import limits
from protocols.errors import ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import Properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The same for all clients of a listener; MQTT 3.1.1 is held to it too, as far as it can be.

    `receive_maximum` publishes of QoS 1 and 2 a client may leave unanswered by us (1 to 65,535, MQTT 5 only);
    `packet_bytes_max` bounds whole inbound packets. `keep_alive_s_max`: a longer keep alive, or none, becomes
    this one (MQTT 5); 0: clients have what they ask for. `response_information` goes to clients who ask.
    """

    receive_maximum: int = limits.MQTT_RECEIVE_MAXIMUM
    packet_bytes_max: int = limits.MQTT_PACKET_BYTES_MAX
    topic_alias_maximum: int = limits.MQTT_TOPIC_ALIAS_MAXIMUM
    maximum_qos: int = 2
    retain_available: bool = True
    keep_alive_s_max: int = 0
    response_information: str = ""

    def keep_alive_s(self, asked_s: int) -> int:
        """Return the keep alive of a client that asked for this one."""
        if not self.keep_alive_s_max:
            return asked_s
        return min(asked_s or self.keep_alive_s_max, self.keep_alive_s_max)

    def check_will(self, will: Will | None) -> None:
        """Raise ProtocolError if a client may not have this will here."""
        if will is None:
            return
        if will.qos > self.maximum_qos:  # [MQTT-3.2.2-12]
            raise ProtocolError(c.QOS_NOT_SUPPORTED, f"the maximum QoS is {self.maximum_qos}")
        if will.retain and not self.retain_available:  # [MQTT-3.2.2-13]
            raise ProtocolError(c.RETAIN_NOT_SUPPORTED, "retained messages are not available")

    def answer(
        self,
        properties: Properties,
        *,
        asked_keep_alive_s: int,
        authentication_method: str | None,
        wants_response_information: bool,
    ) -> Properties:
        """Return the properties of a CONNACK that lets a client in; a Server Keep Alive in `properties`
        holds.
        """
        keep_alive_s = properties.server_keep_alive_s
        if keep_alive_s is None:
            granted_s = self.keep_alive_s(asked_keep_alive_s)
            keep_alive_s = granted_s if granted_s != asked_keep_alive_s else None
        response_information = properties.response_information
        if wants_response_information and self.response_information:
            response_information = self.response_information  # section 3.2.2.3.15
        return properties.copy(
            receive_maximum=self.receive_maximum,
            maximum_packet_size_bytes=self.packet_bytes_max,
            topic_alias_maximum=self.topic_alias_maximum,
            maximum_qos=self.maximum_qos if self.maximum_qos < 2 else None,  # [MQTT-3.2.2-9]
            retain_available=None if self.retain_available else 0,
            authentication_method=authentication_method,  # [MQTT-4.12.0-5]
            response_information=response_information,
            server_keep_alive_s=keep_alive_s,
        )


DEFAULT_OFFER: Final = Offer()
