"""The CONNECT of a client, looked at before it is served: it says to which of several workers it belongs."""

from __future__ import annotations

from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.handshake import decode_connect
from protocols.mqtt.offer import Offer
from protocols.mqtt.packets import Connect
from protocols.mqtt.properties import Properties
from protocols.mqtt.publishes import frame_at


def first_connect(said: bytes, offer: Offer) -> Connect | None:
    """Return the CONNECT that a client begins with; None: it has not come wholly. Raises ProtocolError for
    anything else.
    """
    body, stop = frame_at(said, 0, len(said), min(offer.packet_bytes_max, limits.MQTT_CONNECT_BYTES_MAX))
    if said[0] >> 4 == c.CONNECT and stop > len(said):
        return None
    return decode_connect(said[body:stop])


def redirection(said: bytes, reference: str) -> bytes:
    """Return the CONNACK that sends a client to another server; nothing for one that would not understand it
    (section 4.11).
    """
    connection = MqttConnection(0.0)
    connection.receive(said, 0.0)
    if connection.protocol_version != c.MQTT_5:
        return b""
    properties = Properties(server_reference=reference)
    connection.refuse(c.USE_ANOTHER_SERVER, "the session of this client is there", properties)
    return b"".join(connection.take_output())


def unavailable(said: bytes) -> bytes:
    """Return the CONNACK for a client whose worker is not there."""
    connection = MqttConnection(0.0)
    connection.receive(said, 0.0)
    connection.refuse(c.SERVER_UNAVAILABLE, "the worker of this client is starting again")
    return b"".join(connection.take_output())
