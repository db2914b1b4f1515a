"""Enhanced authentication on the wire (MQTT 5, section 4.12): whose turn it is, and by which method."""

from protocols.errors import LocalProtocolError, ProtocolError
from protocols.mqtt import constants as c
from protocols.mqtt.events import AuthReceived
from protocols.mqtt.packets import Auth
from protocols.mqtt.properties import Properties


class Authenticating:
    """AUTH of one client. `method` is what its CONNECT named, None: nothing. `is_awaited`: the client has to
    answer an AUTH of ours.
    """

    __slots__ = ("is_awaited", "method")

    def __init__(self, method: str | None = None) -> None:
        self.method = method
        self.is_awaited = False

    def end(self) -> None:
        """End the login: the client is let in."""
        self.is_awaited = False

    def say(self, reason_code: int, data: bytes | None) -> Auth:
        """Encode an AUTH of ours; raises LocalProtocolError if the client named no method."""
        if self.method is None:
            raise LocalProtocolError("AUTH without an authentication method")
        self.is_awaited = reason_code == c.CONTINUE_AUTHENTICATION
        # [MQTT-4.12.0-5]
        return Auth(reason_code, Properties(authentication_method=self.method, authentication_data=data))

    def take(self, packet: Auth) -> AuthReceived:
        """Take an AUTH of the client; raises ProtocolError where the client may not send it."""
        properties = packet.properties
        if self.method is None:  # [MQTT-4.12.0-7]
            raise ProtocolError(c.PROTOCOL_ERROR, "AUTH without an authentication method")
        if properties.authentication_method != self.method:  # [MQTT-4.12.0-5], [MQTT-4.12.1-1]
            raise ProtocolError(c.PROTOCOL_ERROR, "AUTH with another authentication method than CONNECT")
        wanted = c.CONTINUE_AUTHENTICATION if self.is_awaited else c.REAUTHENTICATE
        if packet.reason_code != wanted:  # section 4.12
            raise ProtocolError(c.PROTOCOL_ERROR, f"AUTH reason code 0x{packet.reason_code:02x} out of turn")
        self.is_awaited = False
        return AuthReceived(packet.reason_code, properties.authentication_data or b"")
