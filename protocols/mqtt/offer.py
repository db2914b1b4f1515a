"""What a server offers its clients, told in CONNACK, section 3.2.2.3."""

from dataclasses import dataclass
from typing import Final

from config import limits


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
        """The keep alive of a client who asked for this one."""
        if not self.keep_alive_s_max:
            return asked_s
        return min(asked_s or self.keep_alive_s_max, self.keep_alive_s_max)


DEFAULT_OFFER: Final = Offer()
