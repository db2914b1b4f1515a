"""The half of a connection that answers: packets out, within what the client allows."""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Final

from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt.codec import encode_packet
from protocols.mqtt.inbound import InboundQos2, InboundWindow
from protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Disconnect,
    PubAck,
    PubComp,
    PubRec,
    PubRel,
    SubAck,
    UnsubAck,
)
from protocols.mqtt.properties import NO_PROPERTIES, Properties
from protocols.sans_io_connection import Connection

_Answer = Auth | ConnAck | Disconnect | PubAck | PubRec | PubRel | PubComp | SubAck | UnsubAck

_ALWAYS_INFORMED: Final = (c.CONNACK, c.DISCONNECT)


@dataclass(eq=False, repr=False, slots=True)
class AnsweringConnection(Connection):
    """Everything a live connection sends except CONNACK and DISCONNECT, which belong to its life.

    After the end these methods write nothing but still keep the session's QoS 2 state right.
    """

    protocol_version: int = field(default=0, init=False)
    client_maximum_packet_size: int = field(default=c.REMAINING_LENGTH_MAX + 5, init=False)
    _problem_information: bool = field(default=True, init=False)
    _window: InboundWindow = field(default_factory=lambda: InboundWindow(0), init=False)

    @property
    def inbound_qos2(self) -> InboundQos2:
        """The QoS 2 packet identifiers to keep with the session and to hand to the next `accept`."""
        return self._window.qos2

    @abstractmethod
    def disconnect(self, reason_code: int, reason: str = "", properties: Properties = NO_PROPERTIES) -> None:
        """End the connection for `reason_code`."""

    def send_suback(
        self, packet_id: int, reason_codes: list[int], properties: Properties = NO_PROPERTIES
    ) -> None:
        """Answer `SubscribeReceived`; 3.1.1 sees 0x80 for every refusal."""
        self._send(SubAck(packet_id, reason_codes, properties))

    def send_unsuback(
        self, packet_id: int, reason_codes: list[int], properties: Properties = NO_PROPERTIES
    ) -> None:
        """Answer `UnsubscribeReceived`; 3.1.1 carries no reason codes."""
        self._send(UnsubAck(packet_id, reason_codes, properties))

    def send_unmatched_run(self, qos: int, packet_ids: list[int]) -> None:
        """Answer success for publishes of QoS 1 or 2 without a subscriber: MQTT 5 is told so (0x10)."""
        if self.protocol_version != c.MQTT_5:
            if qos == 1:
                self.send_puback_run(packet_ids)
            else:
                self.send_pubrec_run(packet_ids)
            return
        if qos == 1:
            self._window.release(len(packet_ids))
        else:
            self._window.qos2.take(packet_ids)
        if packet_ids and not self.closed:
            kind = c.PUBACK if qos == 1 else c.PUBREC
            self.output.append(hot.encode_ack_run(kind, packet_ids, c.NO_MATCHING_SUBSCRIBERS))

    def send_puback_run(self, packet_ids: list[int]) -> None:
        """Answer success for QoS 1 publishes; they no longer count against the Receive Maximum."""
        count = len(packet_ids)
        self._window.release(count)
        if count != 1:
            self._send_run(c.PUBACK, packet_ids)
        elif not self.closed:
            self.output.append(c.PUBACK_HEAD + packet_ids[0].to_bytes(2, "big"))

    def send_pubrec_run(self, packet_ids: list[int]) -> None:
        """Answer success for QoS 2 publishes; duplicates are answered here from now on."""
        self._window.qos2.take(packet_ids)
        self._send_run(c.PUBREC, packet_ids)

    def send_pubrel_run(self, packet_ids: list[int]) -> None:
        """Release QoS 2 deliveries the client has received."""
        self._send_run(c.PUBREL, packet_ids)

    def send_pubcomp_run(self, packet_ids: list[int]) -> None:
        """Answer an `AckRun` of PUBREL. An identifier we do not know gets 0x92 in MQTT 5."""
        unknown = self._window.complete(packet_ids)
        if not unknown:
            self._send_run(c.PUBCOMP, packet_ids)
            return
        for packet_id in packet_ids:
            reason_code = c.PACKET_IDENTIFIER_NOT_FOUND if packet_id in unknown else c.SUCCESS
            self._send(PubComp(packet_id, reason_code))

    def send_puback(
        self, packet_id: int, reason_code: int = c.SUCCESS, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Answer one QoS 1 publish. 3.1.1 has no room for a reason code and takes any PUBACK for success: a
        front-end that may not claim that calls `disconnect` instead.
        """
        self._window.release(1)
        self._send(PubAck(packet_id, reason_code, properties))

    def send_pubrec(
        self, packet_id: int, reason_code: int = c.SUCCESS, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Answer one QoS 2 publish; 0x80 and above end its exchange, in MQTT 5 only (see `send_puback`)."""
        if reason_code >= c.UNSPECIFIED_ERROR and self.protocol_version == c.MQTT_5:
            self._window.drop(packet_id)
        else:
            self._window.qos2.take((packet_id,))
        self._send(PubRec(packet_id, reason_code, properties))

    def answer_publishes(
        self, qos: int, packet_ids: list[int], reason_code: int = c.SUCCESS, reason: str = ""
    ) -> None:
        """Answer publishes of QoS 1 or 2 one by one, as `send_puback` and `send_pubrec` do."""
        send = self.send_puback if qos == 1 else self.send_pubrec
        for packet_id in packet_ids:
            send(packet_id, reason_code, Properties(reason_string=reason) if reason else NO_PROPERTIES)

    def send_pubrel(self, packet_id: int, reason_code: int) -> None:
        """Release one QoS 2 delivery; 0x92 answers a PUBREC for an identifier not in use."""
        self._send(PubRel(packet_id, reason_code))

    def _send(self, packet: _Answer) -> None:
        """Write a packet; one the client cannot take although nothing can be left out ends the connection."""
        if self.closed:
            return
        encoded = self._fitted(packet)
        if encoded:
            self.output.append(encoded)
        else:
            self.disconnect(c.PACKET_TOO_LARGE, "an answer exceeds the client's maximum packet size")

    def _fitted(self, packet: _Answer) -> bytes:
        """Return the packet, without reason string and user properties where the client does not want them
        ([MQTT-3.1.2-29]) or has no room for them ([MQTT-3.1.2-25]); b"" when it has no room even so.
        """
        if self.protocol_version != c.MQTT_5:
            return encode_packet(packet, self.protocol_version)
        if not self._problem_information and packet.packet_type not in _ALWAYS_INFORMED:
            packet = replace(packet, properties=packet.properties.without_information())
        encoded = encode_packet(packet, self.protocol_version)
        if len(encoded) > self.client_maximum_packet_size:
            packet = replace(packet, properties=packet.properties.without_information())
            encoded = encode_packet(packet, self.protocol_version)
        return encoded if len(encoded) <= self.client_maximum_packet_size else b""

    def _send_run(self, packet_type: int, packet_ids: list[int]) -> None:
        if packet_ids and not self.closed:
            self.output.append(hot.encode_ack_run(packet_type, packet_ids))
