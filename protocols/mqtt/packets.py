"""One class per control packet, both versions; `properties` stay empty in 3.1.1.

These are for packets that come one at a time. Publishes and acknowledgements of a live connection go through
runs (`events`, `hot`) and never become objects of their own.
"""

from dataclasses import KW_ONLY, dataclass, field
from typing import ClassVar

from protocols.mqtt import constants as c
from protocols.mqtt.properties import Properties


class Packet:
    """A control packet; equal to another of its class with equal fields."""

    __slots__ = ()

    packet_type: ClassVar[int]


@dataclass(slots=True)
class Will:
    """The message the server publishes when the client is gone, section 3.1.2.5."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Connect(Packet):
    """Section 3.1. `clean_start` is Clean Session in 3.1.1; an empty `client_id` asks the server for one.

    `is_bridge`, in 3.1.1 only, to be sent: the protocol level has the bit 0x80, by which mosquitto knows that
    the client is a broker, which does not want back what it published.
    """

    packet_type = c.CONNECT

    protocol_version: int
    client_id: str
    _: KW_ONLY
    clean_start: bool = True
    keep_alive_s: int = 0
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = field(default_factory=Properties)
    is_bridge: bool = False


@dataclass(slots=True)
class ConnAck(Packet):
    """Section 3.2. In 3.1.1 `reason_code` holds the return code."""

    packet_type = c.CONNACK

    session_present: bool
    reason_code: int
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Publish(Packet):
    """Section 3.3. `packet_id` is 0 exactly at QoS 0."""

    packet_type = c.PUBLISH

    topic: str
    payload: bytes
    _: KW_ONLY
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class PublishAnswer(Packet):
    """The common part of PUBACK, PUBREC, PUBREL and PUBCOMP, sections 3.4 to 3.7."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = field(default_factory=Properties)


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


@dataclass(slots=True)
class SubscriptionRequest:
    """One topic filter of a SUBSCRIBE with its options, section 3.8.3.1 (3.1.1 has only the QoS)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(slots=True)
class Subscribe(Packet):
    """Section 3.8; at least one request."""

    packet_type = c.SUBSCRIBE

    packet_id: int
    requests: list[SubscriptionRequest]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Unsubscribe(Packet):
    """Section 3.10; at least one filter."""

    packet_type = c.UNSUBSCRIBE

    packet_id: int
    filters: list[str]
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class SubscriptionAnswer(Packet):
    """The common part of SUBACK and UNSUBACK: one reason code per topic filter, in order."""

    packet_id: int
    reason_codes: list[int]
    properties: Properties = field(default_factory=Properties)


class SubAck(SubscriptionAnswer):
    """Section 3.9."""

    __slots__ = ()
    packet_type = c.SUBACK


class UnsubAck(SubscriptionAnswer):
    """Section 3.11; 3.1.1 carries no reason codes."""

    __slots__ = ()
    packet_type = c.UNSUBACK


@dataclass(slots=True)
class PingReq(Packet):
    """Section 3.12."""

    packet_type = c.PINGREQ


@dataclass(slots=True)
class PingResp(Packet):
    """Section 3.13."""

    packet_type = c.PINGRESP


@dataclass(slots=True)
class Disconnect(Packet):
    """Section 3.14; 3.1.1 has neither reason code nor properties."""

    packet_type = c.DISCONNECT

    reason_code: int = 0
    properties: Properties = field(default_factory=Properties)


@dataclass(slots=True)
class Auth(Packet):
    """Section 3.15, MQTT 5 only."""

    packet_type = c.AUTH

    reason_code: int = 0
    properties: Properties = field(default_factory=Properties)
