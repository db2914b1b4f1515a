"""One class per control packet, both versions; `properties` stay empty in 3.1.1.

These are for packets that come one at a time. Publishes and acknowledgements of a live connection go through
runs (`events`, `hot`) and never become objects of their own.
"""

from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties


class Packet:
    """A control packet; equal to another of its class with equal fields."""

    __slots__ = ()

    packet_type: int

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.fields())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields())
        return f"{type(self).__name__}({inside})"

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        return tuple(name for base in reversed(cls.__mro__) for name in getattr(base, "__slots__", ()))


class Will:
    """The message the server publishes when the client is gone, section 3.1.2.5."""

    __slots__ = ("payload", "properties", "qos", "retain", "topic")

    def __init__(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties | None = None
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties if properties is not None else Properties()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Will):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Will({inside})"


class Connect(Packet):
    """Section 3.1. `clean_start` is Clean Session in 3.1.1; an empty `client_id` asks the server for one.

    `is_bridge`, in 3.1.1 only, to be sent: the protocol level has the bit 0x80, by which mosquitto knows that
    the client is a broker, which does not want back what it published.
    """

    __slots__ = (
        "clean_start",
        "client_id",
        "is_bridge",
        "keep_alive_s",
        "password",
        "properties",
        "protocol_version",
        "username",
        "will",
    )
    packet_type = c.CONNECT

    def __init__(
        self,
        protocol_version: int,
        client_id: str,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        username: str | None = None,
        password: bytes | None = None,
        will: Will | None = None,
        properties: Properties | None = None,
        is_bridge: bool = False,
    ) -> None:
        self.protocol_version = protocol_version
        self.is_bridge = is_bridge
        self.client_id = client_id
        self.clean_start = clean_start
        self.keep_alive_s = keep_alive_s
        self.username = username
        self.password = password
        self.will = will
        self.properties = properties if properties is not None else Properties()


class ConnAck(Packet):
    """Section 3.2. In 3.1.1 `reason_code` holds the return code."""

    __slots__ = ("properties", "reason_code", "session_present")
    packet_type = c.CONNACK

    def __init__(self, session_present: bool, reason_code: int, properties: Properties | None = None) -> None:
        self.session_present = session_present
        self.reason_code = reason_code
        self.properties = properties if properties is not None else Properties()


class Publish(Packet):
    """Section 3.3. `packet_id` is 0 exactly at QoS 0."""

    __slots__ = ("dup", "packet_id", "payload", "properties", "qos", "retain", "topic")
    packet_type = c.PUBLISH

    def __init__(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        dup: bool = False,
        packet_id: int = 0,
        properties: Properties | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties if properties is not None else Properties()


class PublishAnswer(Packet):
    """What PUBACK, PUBREC, PUBREL and PUBCOMP have in common, sections 3.4 to 3.7."""

    __slots__ = ("packet_id", "properties", "reason_code")

    def __init__(self, packet_id: int, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_code = reason_code
        self.properties = properties if properties is not None else Properties()


class PubAck(PublishAnswer):
    """Section 3.4."""

    __slots__ = ()
    packet_type = c.PUBACK


class PubRec(PublishAnswer):
    """Section 3.5."""

    __slots__ = ()
    packet_type = c.PUBREC


class PubRel(PublishAnswer):
    """Section 3.6."""

    __slots__ = ()
    packet_type = c.PUBREL


class PubComp(PublishAnswer):
    """Section 3.7."""

    __slots__ = ()
    packet_type = c.PUBCOMP


class SubscriptionRequest:
    """One topic filter of a SUBSCRIBE with its options, section 3.8.3.1 (3.1.1 has only the QoS)."""

    __slots__ = ("filter", "no_local", "qos", "retain_as_published", "retain_handling")

    def __init__(
        self,
        filter: str,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> None:
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.retain_handling = retain_handling

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SubscriptionRequest):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"SubscriptionRequest({self.filter!r}, qos={self.qos}, no_local={self.no_local}, "
            f"retain_as_published={self.retain_as_published}, retain_handling={self.retain_handling})"
        )


class Subscribe(Packet):
    """Section 3.8; at least one request."""

    __slots__ = ("packet_id", "properties", "requests")
    packet_type = c.SUBSCRIBE

    def __init__(
        self, packet_id: int, requests: list[SubscriptionRequest], properties: Properties | None = None
    ) -> None:
        self.packet_id = packet_id
        self.requests = requests
        self.properties = properties if properties is not None else Properties()


class SubAck(Packet):
    """Section 3.9; one reason code per request, in order."""

    __slots__ = ("packet_id", "properties", "reason_codes")
    packet_type = c.SUBACK

    def __init__(self, packet_id: int, reason_codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = properties if properties is not None else Properties()


class Unsubscribe(Packet):
    """Section 3.10; at least one filter."""

    __slots__ = ("filters", "packet_id", "properties")
    packet_type = c.UNSUBSCRIBE

    def __init__(self, packet_id: int, filters: list[str], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.filters = filters
        self.properties = properties if properties is not None else Properties()


class UnsubAck(Packet):
    """Section 3.11; 3.1.1 carries no reason codes."""

    __slots__ = ("packet_id", "properties", "reason_codes")
    packet_type = c.UNSUBACK

    def __init__(self, packet_id: int, reason_codes: list[int], properties: Properties | None = None) -> None:
        self.packet_id = packet_id
        self.reason_codes = reason_codes
        self.properties = properties if properties is not None else Properties()


class PingReq(Packet):
    """Section 3.12."""

    __slots__ = ()
    packet_type = c.PINGREQ


class PingResp(Packet):
    """Section 3.13."""

    __slots__ = ()
    packet_type = c.PINGRESP


class Disconnect(Packet):
    """Section 3.14; 3.1.1 has neither reason code nor properties."""

    __slots__ = ("properties", "reason_code")
    packet_type = c.DISCONNECT

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = properties if properties is not None else Properties()


class Auth(Packet):
    """Section 3.15, MQTT 5 only."""

    __slots__ = ("properties", "reason_code")
    packet_type = c.AUTH

    def __init__(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        self.reason_code = reason_code
        self.properties = properties if properties is not None else Properties()
