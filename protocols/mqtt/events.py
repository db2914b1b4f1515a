"""The events of a connection for its front-end, in the order the client caused them."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

from protocols.mqtt.hot import payloads_at
from protocols.mqtt.packets import Connect, SubscriptionRequest
from protocols.mqtt.properties import Properties


@dataclass(slots=True, eq=False)
class ConnectReceived:
    """A valid CONNECT. Answer it with `MqttConnection.accept` or `refuse`: nothing is decoded until then."""

    packet: Connect


@dataclass(eq=False, repr=False, slots=True)
class PublishShape:
    """The common part of consecutive publishes: everything but packet identifier and payload.

    `properties` are the raw bytes of an MQTT 5 property block without its length (b"" in 3.1.1), validated,
    and without a topic alias: `alias`, which is 0 if there was none, is the client's own. `is_text`: payloads
    are said to be UTF-8, which nobody has checked (section 3.3.2.3.2). `topics`: subscribers are found by
    them; the topic alone, or several of another protocol. The same object comes back while first byte, topic
    and properties repeat on one connection, so `context` can hold what the front-end worked out for them
    (routes, permissions).
    """

    first_byte: int
    topic: str
    properties: bytes
    _: KW_ONLY
    alias: int = 0
    is_text: bool = False
    topics: tuple[str, ...] = ()
    topic_bytes: bytes = field(init=False)
    qos: int = field(init=False)
    retain: bool = field(init=False)
    dup: bool = field(init=False)
    context: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.topic_bytes = self.topic.encode()
        self.topics = self.topics or (self.topic,)
        self.qos = (self.first_byte >> 1) & 3
        self.retain = bool(self.first_byte & 1)
        self.dup = bool(self.first_byte & 8)


Place: TypeAlias = tuple[int, int, int]
"""Where in a run a packet has its packet identifier, where its payload begins, and where it ends."""


@dataclass(eq=False, repr=False, slots=True)
class PublishRun:
    """Consecutive PUBLISH packets of one shape, at least one.

    `count` packets; `packet_ids` has one each for QoS 1 and 2 and is empty for QoS 0. `wire` is their exact
    bytes as they came, b"" when publishes of QoS 1 or 2 had to be left out. When all packets have the same
    size, `stride_bytes` is that size, packet identifiers lie `packet_id_offset` into each packet (what
    `hot.restamp_packet_ids` wants), otherwise both are 0. `places` are those of packets of different sizes.
    Payloads are cut out of `wire` only when asked for.
    """

    shape: PublishShape
    count: int
    packet_ids: list[int]
    _payloads: list[bytes] | None
    wire: bytes = b""
    stride_bytes: int = 0
    packet_id_offset: int = 0
    _payload_offset: int = 0
    places: Sequence[Place] = ()

    @property
    def payloads(self) -> list[bytes]:
        """One payload per packet, in order."""
        payloads = self._payloads
        if payloads is None:
            wire = self.wire
            if self.places:
                payloads = [wire[begin:end] for _, begin, end in self.places]
            else:
                payloads = payloads_at(wire, 0, self.count, self.stride_bytes, self._payload_offset)
            self._payloads = payloads
        return payloads

    def cut(self, count: int) -> "PublishRun":
        """Return the first `count` publishes of the run, fewer than all of them."""
        ids = self.packet_ids[:count]
        if not self.stride_bytes:
            return PublishRun(self.shape, count, ids, self.payloads[:count])
        wire = self.wire[: count * self.stride_bytes]
        offset = self._payload_offset
        return PublishRun(
            self.shape, count, ids, None, wire, self.stride_bytes, self.packet_id_offset, offset
        )


LonePublish: TypeAlias = tuple[PublishShape, bytes, int, int]
"""A single publish of QoS 1: its shape, its bytes as they came, where in them its packet identifier lies, and
where its payload begins. A tuple, for there is one for each message.
"""


def run_of(lone: LonePublish) -> PublishRun:
    """Return a single publish as a run."""
    shape, wire, at, payload_offset = lone
    return PublishRun(shape, 1, [wire[at] << 8 | wire[at + 1]], None, wire, len(wire), at, payload_offset)


@dataclass(slots=True, eq=False)
class AckRun:
    """Consecutive PUBACK, PUBREC, PUBREL or PUBCOMP (`packet_type`) with the same reason code.

    Successes are gathered; a packet with another reason code comes alone. PUBREL wants `send_pubcomp_run`.
    """

    packet_type: int
    packet_ids: list[int]
    reason_code: int


@dataclass(slots=True, eq=False)
class SubscribeReceived:
    """A valid SUBSCRIBE, or a part of its filters; answer the last with `send_suback`, one reason code per
    filter of all in order.
    """

    packet_id: int
    filters: list[SubscriptionRequest]
    user_properties: list[tuple[str, str]]
    subscription_identifier: int | None
    is_last: bool = True


@dataclass(slots=True, eq=False)
class UnsubscribeReceived:
    """A valid UNSUBSCRIBE, or a part of its filters; answer the last with `send_unsuback`, one reason code
    per filter of all in order.
    """

    packet_id: int
    filters: list[str]
    is_last: bool = True


@dataclass(slots=True, eq=False)
class DisconnectReceived:
    """The client said DISCONNECT; a will is due only for reason code 0x04. `ConnectionLost` follows."""

    reason_code: int
    properties: Properties


@dataclass(slots=True, eq=False)
class AuthReceived:
    """An AUTH: `CONTINUE_AUTHENTICATION` answers our `send_auth`, `REAUTHENTICATE` begins anew on a live
    connection. Its method is the one of the CONNECT.
    """

    reason_code: int
    data: bytes


@dataclass(slots=True, eq=False)
class ConnectionLost:
    """Always the last event, exactly once: why the connection ended and whose doing it was.

    `reason_code` is 0 for a clean DISCONNECT, 0x80 for a bare end of the transport.
    """

    reason_code: int
    reason: str
    by_peer: bool
