"""MqttConnection: one MQTT client seen from the server, without I/O."""

from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from config import limits
from protocols.errors import LocalProtocolError, ProtocolError
from protocols.foreign import foreign_protocol
from protocols.mqtt import constants as c
from protocols.mqtt import events, hot
from protocols.mqtt.authenticating import Authenticating
from protocols.mqtt.codec import check_flags, decode_packet
from protocols.mqtt.handshake import answer_version, connack_reason, decode_connect, is_told_in_3_1_1
from protocols.mqtt.inbound import InboundQos2, InboundWindow
from protocols.mqtt.offer import DEFAULT_OFFER, Offer
from protocols.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    PingReq,
    PublishAnswer,
    Subscribe,
    Unsubscribe,
)
from protocols.mqtt.properties import NO_PROPERTIES, Properties
from protocols.mqtt.publishes import PublishDecoder, frame_at
from protocols.mqtt.sending import AnsweringConnection

__all__ = ["InboundQos2", "MqttConnection"]

# the life of a connection
_NEW: Final = 0  # waits for CONNECT
_ASKED: Final = 1  # waits for the front-end to accept or refuse
_LIVE: Final = 2
_CLOSED: Final = 3

_FROM_SERVER: Final = frozenset({c.CONNACK, c.SUBACK, c.UNSUBACK, c.PINGRESP})
_PINGRESP: Final = b"\xd0\x00"
_KEEP_ALIVE_GRACE: Final = 1.5  # [MQTT-3.1.2-22]

TakeFirst: TypeAlias = Callable[[bytes, dict[bytes, tuple[events.PublishShape, bytes]], int], tuple[int, int]]
"""Acts at once on publishes of QoS 1 that some bytes begin with, at most so many, each to another topic than
the next and to one that is known, with the shape and tail of that; gives how many, and where they stop.
"""


@dataclass(eq=False, repr=False, slots=True)
class MqttConnection(AnsweringConnection):
    """The rules of MQTT 3.1.1 and 5 for one client.

    `ConnectReceived` is answered with `accept` or `refuse`; what the client sends before that is kept, not
    decoded. From then on events are answered with the `send_` methods, and deliveries are encoded with `hot`
    straight into `output`. The driver calls `receive_eof` when the transport is gone, whatever the cause:
    `ConnectionLost` has come exactly once by then.

    Set by CONNECT: `protocol_version` (4 or 5; 0 before), `client_id`, `keep_alive_s`, and what the client
    allows the server: `client_receive_maximum` unacknowledged publishes, `client_maximum_packet_size` bytes,
    `client_topic_alias_maximum` aliases. `authentication` is by which method it authenticates. `offer` is
    what the client is told in CONNACK, and held to. `take_first`, if set, acts on publishes that need no
    event: it has answered them.
    """

    now: InitVar[float]
    offer: Offer = DEFAULT_OFFER
    authentication: Authenticating = field(default_factory=Authenticating, init=False)
    client_id: str = field(default="", init=False)
    keep_alive_s: int = field(default=0, init=False)
    client_receive_maximum: int = field(default=65_535, init=False)
    client_topic_alias_maximum: int = field(default=0, init=False)
    unfinished_bytes: int = field(default=0, init=False)
    take_first: TakeFirst | None = field(default=None, init=False)
    _state: int = field(default=_NEW, init=False)
    _buffer: bytearray = field(default_factory=bytearray, init=False)
    _started: float = field(init=False)
    _last_received: float = field(init=False)
    _cause: events.ConnectionLost | None = field(default=None, init=False)
    _session_expires: bool = field(default=False, init=False)
    _wants_response_information: bool = field(default=False, init=False)
    _publishes: PublishDecoder = field(init=False)

    def __post_init__(self, now: float) -> None:
        self._started = self._last_received = now
        self._publishes = PublishDecoder(c.MQTT_3_1_1, self.offer)

    @property
    def is_let_in(self) -> bool:
        return self._state == _LIVE

    def receive(self, data: bytes, now: float) -> list[Any]:
        """See `Connection.receive`; the events are those of `protocols.mqtt.events`."""
        state = self._state
        if state == _LIVE and not self._buffer:
            self._last_received = now
            if len(data) == c.LONE_ACK_BYTES and data.startswith(c.PUBACK_HEAD):
                packet_id = data[2] << 8 | data[3]
                if packet_id:
                    return [events.AckRun(c.PUBACK, [packet_id], c.SUCCESS)]
            lone = self._publishes.take_single(data)
            if lone is not None and self._window.admit_one():
                return [events.run_of(lone)]
            return self._decode(data)
        if state == _CLOSED or not data:
            return []
        self._last_received = now
        if state == _ASKED:
            return self._receive_auth(data) if self.authentication.is_awaited else self._hold_back(data)
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self.unfinished_bytes:
                return []
            data = bytes(self._buffer)
            self._buffer = bytearray()
            self.unfinished_bytes = 0
        return self._decode(data)

    def take_lone(self, data: bytes, now: float) -> events.LonePublish | int | None:
        """Take `data` if it is exactly one publish of QoS 1 and like the last, or one PUBACK, of which this
        gives the packet identifier; None: it is for `receive`.

        The publish has to be answered at once: it does not count for the Receive Maximum.
        """
        if self._state != _LIVE or self._buffer:
            return None
        self._last_received = now
        if len(data) == c.LONE_ACK_BYTES and data.startswith(c.PUBACK_HEAD):
            return (data[2] << 8 | data[3]) or None
        return self._publishes.take_single(data) if self._window.has_room() else None

    def receive_eof(self) -> list[Any]:
        """Take the end of the transport; gives `ConnectionLost` unless it has been given before."""
        if self._state != _CLOSED:
            self._state = _CLOSED
            self.closed = True
            return [events.ConnectionLost(c.UNSPECIFIED_ERROR, "transport closed", by_peer=True)]
        return self._take_cause()

    def forget_shapes(self) -> None:
        """Let go of the shapes of publishes, and of their contexts: nothing more is received."""
        self._publishes.forget_shapes()

    def next_deadline(self) -> float | None:
        """Return the end of the handshake's time, then of 1.5 keep-alive intervals of silence
        [MQTT-3.1.2-22].
        """
        if self._state == _LIVE:
            if not self.keep_alive_s:
                return None
            return self._last_received + _KEEP_ALIVE_GRACE * self.keep_alive_s
        if self._state == _CLOSED:
            return None
        return self._started + limits.MQTT_HANDSHAKE_TIMEOUT_S

    def handle_timeout(self, now: float) -> list[Any]:
        """Close when `next_deadline` has passed: MQTT 5 says 0x8D to a silent client."""
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return []
        if self._state == _LIVE:
            return self._end(c.KEEP_ALIVE_TIMEOUT, "keep-alive timed out")
        if self._state == _ASKED:
            return self._end(c.SERVER_BUSY, "no answer to CONNECT in time")
        return self._end(c.UNSPECIFIED_ERROR, "no CONNECT in time")

    def accept(
        self,
        session_present: bool,
        properties: Properties = NO_PROPERTIES,
        inbound_qos2: InboundQos2 | None = None,
    ) -> list[Any]:
        """Let the client in: CONNACK 0x00. Gives the events of what it sent behind its CONNECT, usually none.

        `properties` are for MQTT 5; what the offer says is filled in, and a Server Keep Alive in them is what
        holds. `inbound_qos2` is that of the resumed session.
        """
        if self._state == _CLOSED:
            return []
        if self._state != _ASKED:
            raise LocalProtocolError("accept wants a CONNECT to answer")
        version = self.protocol_version
        if version == c.MQTT_5:
            properties = self.offer.answer(
                properties,
                asked_keep_alive_s=self.keep_alive_s,
                authentication_method=self.authentication.method,
                wants_response_information=self._wants_response_information,
            )
            if properties.server_keep_alive_s is not None:
                self.keep_alive_s = properties.server_keep_alive_s
        self._window = InboundWindow(self.offer.receive_maximum if version == c.MQTT_5 else 0, inbound_qos2)
        self._publishes = PublishDecoder(version, self.offer)
        encoded = self._fitted(ConnAck(session_present, c.SUCCESS, properties))
        if not encoded:  # [MQTT-3.14.0-1]: a CONNACK says so, if anything
            self._close(c.PACKET_TOO_LARGE, "CONNACK exceeds the client's maximum packet size")
            return []
        self._state = _LIVE
        self.authentication.end()
        self.output.append(encoded)
        data = bytes(self._buffer)
        self._buffer = bytearray()
        return self._decode(data) if data and not self.closed else []

    def send_auth(self, reason_code: int, data: bytes | None) -> None:
        """Say AUTH: `CONTINUE_AUTHENTICATION` expects an `AuthReceived`, `SUCCESS` ends a re-authentication.

        Raises LocalProtocolError if the client named no authentication method.
        """
        if self._state == _CLOSED:
            return
        self._send(self.authentication.say(reason_code, data))

    def refuse(self, reason_code: int, reason: str = "", properties: Properties = NO_PROPERTIES) -> None:
        """Turn the client away: CONNACK with `reason_code` (3.1.1: its nearest return code), then closed."""
        if self._state == _CLOSED:
            return
        if self._state != _ASKED:
            raise LocalProtocolError("refuse wants a CONNECT to answer")
        self._close(reason_code, reason, properties)

    def disconnect(self, reason_code: int, reason: str = "", properties: Properties = NO_PROPERTIES) -> None:
        """End the connection: MQTT 5 gets DISCONNECT with the reason, 3.1.1 just sees the end.

        `ConnectionLost` comes from the `receive_eof` that follows.
        """
        if self._state != _CLOSED:
            self._close(reason_code, reason, properties)

    def _hold_back(self, data: bytes) -> list[Any]:
        """Keep, within bounds, what comes before the front-end has answered CONNECT."""
        self._buffer += data
        if len(self._buffer) <= limits.MQTT_CONNECT_BYTES_MAX:
            return []
        return self._end(c.QUOTA_EXCEEDED, "too much sent before the answer to CONNECT")

    def _receive_auth(self, data: bytes) -> list[Any]:
        """Take the client's answer to an AUTH of ours, before it is let in [MQTT-4.12.0-3]."""
        self._buffer += data
        try:
            data = bytes(self._buffer)
            body, stop = frame_at(data, 0, len(data), limits.MQTT_CONNECT_BYTES_MAX)
            if stop > len(data):
                return []
            if data[0] >> 4 not in (c.AUTH, c.DISCONNECT):
                raise ProtocolError(c.PROTOCOL_ERROR, "AUTH was expected")
            self._buffer = bytearray(data[stop:])
            found: list[Any] = []
            self._on_packet(data[0], data[body:stop], found)
            return found
        except ProtocolError as error:
            return self._end(error.code, error.reason)

    def _decode(self, data: bytes) -> list[Any]:
        """Decode the events of all complete packets in `data`; the rest is kept. The one error boundary."""
        found: list[Any] = []
        try:
            if self._state == _NEW:
                self._decode_first(data, found)
            elif self.take_first is None or len(self._publishes.by_topic) < 2:
                self._decode_live(data, 0, found)
            else:
                self._decode_behind(self.take_first, data, found)
        except ProtocolError as error:
            found += self._end(error.code, error.reason)
        return found

    def _decode_first(self, data: bytes, found: list[Any]) -> None:
        """Decode the first packet, which must be CONNECT [MQTT-3.1.0-1]."""
        foreign = foreign_protocol(data)
        if foreign and foreign != "MQTT":
            raise ProtocolError(c.PROTOCOL_ERROR, f"the client speaks {foreign}, this port plain MQTT")
        if data[0] >> 4 != c.CONNECT:
            raise ProtocolError(c.PROTOCOL_ERROR, "first packet is not CONNECT")
        bytes_max = min(self.offer.packet_bytes_max, limits.MQTT_CONNECT_BYTES_MAX)
        body, stop = frame_at(data, 0, len(data), bytes_max)
        if stop > len(data):
            self._keep(data, stop)
            return
        self.protocol_version = answer_version(data[body:stop])
        check_flags(data[0])
        packet = decode_connect(data[body:stop])
        self.offer.check_will(packet.will)
        self._state = _ASKED
        self._adopt(packet)
        found.append(events.ConnectReceived(packet))
        self._buffer += data[stop:]

    def _adopt(self, packet: Connect) -> None:
        self.client_id = packet.client_id
        self.keep_alive_s = packet.keep_alive_s
        properties = packet.properties
        if properties.receive_maximum is not None:
            self.client_receive_maximum = properties.receive_maximum
        if properties.maximum_packet_size_bytes is not None:
            self.client_maximum_packet_size = properties.maximum_packet_size_bytes
        if properties.topic_alias_maximum is not None:
            self.client_topic_alias_maximum = properties.topic_alias_maximum
        self._problem_information = properties.request_problem_information != 0
        self._wants_response_information = properties.request_response_information == 1
        self.authentication = Authenticating(properties.authentication_method)
        self._session_expires = not properties.session_expiry_interval_s

    def _decode_behind(self, take_first: TakeFirst, data: bytes, found: list[Any]) -> None:
        """Decode what is behind the publishes that were acted on at once; until then they count as not
        answered.
        """
        window = self._window
        count, position = take_first(data, self._publishes.by_topic, window.room())
        window.count(count)
        if not self.closed:
            self._decode_live(data, position, found)
        window.release(count)

    def _decode_live(self, data: bytes, position: int, found: list[Any]) -> None:
        end = len(data)
        while position < end:
            first_byte = data[position]
            packet_type = first_byte >> 4
            if packet_type == c.PUBLISH:
                run = self._publishes.take(data, position, end)
                if run is not None:
                    position += len(run.wire)
                    if run.shape.qos:
                        self._on_publishes(run, found)
                        if position < end:
                            position = self._take_each(data, position, end, run.shape, found)
                    else:
                        found.append(run)
                    continue
            elif c.PUBACK <= packet_type <= c.PUBCOMP:
                count = hot.ack_run_length(data, position, end)
                if count:
                    self._on_acks(first_byte, hot.packet_ids_at(data, position + 2, count, 4), found)
                    position += count * 4
                    continue
            body, stop = frame_at(data, position, end, self.offer.packet_bytes_max)
            if stop > end:
                self._keep(data[position:], stop - position)
                return
            self._on_packet(first_byte, data[body:stop], found)
            if self._state == _CLOSED:
                return
            position = stop

    def _take_each(
        self, data: bytes, start: int, end: int, before: events.PublishShape, found: list[Any]
    ) -> int:
        """Take publishes to known topics that take turns, as far as the Receive Maximum goes; gives their
        stop.
        """
        window = self._window
        runs, stop = self._publishes.take_each(data, start, end, before, window.room())
        if runs:
            window.count(len(runs))
            found += runs
        return stop

    def _keep(self, data: bytes, need: int) -> None:
        self._buffer += data
        self.unfinished_bytes = need

    def _on_publishes(self, run: events.PublishRun, found: list[Any]) -> None:
        """Take publishes of QoS 1 and 2: packet identifiers, duplicates, Receive Maximum."""
        ids = run.packet_ids
        zero_seen = not all(ids)
        fresh: events.PublishRun | None = run
        if zero_seen:
            count = ids.index(0)
            fresh = run.cut(count) if count else None
        if fresh is not None and run.shape.qos == 2:
            fresh, again = self._window.split_duplicates(fresh)
            self._send_run(c.PUBREC, again)
        if fresh is not None:
            admitted = self._window.admit(fresh)
            if admitted is not None:
                found.append(admitted)
            if admitted is not fresh:
                raise ProtocolError(c.RECEIVE_MAXIMUM_EXCEEDED, "receive maximum exceeded")
        if zero_seen:
            raise ProtocolError(c.PROTOCOL_ERROR, "packet identifier is 0")  # [MQTT-2.2.1-3]

    def _on_acks(self, first_byte: int, ids: list[int], found: list[Any]) -> None:
        check_flags(first_byte)
        if all(ids):
            found.append(events.AckRun(first_byte >> 4, ids, c.SUCCESS))
            return
        count = ids.index(0)
        if count:
            found.append(events.AckRun(first_byte >> 4, ids[:count], c.SUCCESS))
        raise ProtocolError(c.PROTOCOL_ERROR, "packet identifier is 0")  # [MQTT-2.2.1-3]

    def _on_packet(self, first_byte: int, body: bytes, found: list[Any]) -> None:
        packet_type = first_byte >> 4
        if packet_type in _FROM_SERVER:
            raise ProtocolError(c.PROTOCOL_ERROR, f"{c.PACKET_NAMES[packet_type]} from a client")
        if packet_type == c.CONNECT:
            raise ProtocolError(c.PROTOCOL_ERROR, "second CONNECT")  # [MQTT-3.1.0-2]
        packet = decode_packet(first_byte, body, self.protocol_version)
        if isinstance(packet, PublishAnswer):
            found.append(events.AckRun(packet_type, [packet.packet_id], packet.reason_code))
        elif isinstance(packet, PingReq):
            self.output.append(_PINGRESP)  # [MQTT-3.12.4-1]
        elif isinstance(packet, Subscribe):
            found += _subscribe_events(packet)
        elif isinstance(packet, Unsubscribe):
            found += _unsubscribe_events(packet)
        elif isinstance(packet, Disconnect):
            self._on_disconnect(packet, found)
        elif isinstance(packet, Auth):
            found.append(self.authentication.take(packet))

    def _on_disconnect(self, packet: Disconnect, found: list[Any]) -> None:
        if packet.reason_code not in c.CLIENT_DISCONNECT_REASONS:
            raise ProtocolError(
                c.PROTOCOL_ERROR, f"DISCONNECT reason code 0x{packet.reason_code:02x} from a client"
            )
        if self._session_expires and packet.properties.session_expiry_interval_s:
            # section 3.14.2.2.2
            raise ProtocolError(c.PROTOCOL_ERROR, "session expiry raised from 0 in DISCONNECT")
        if packet.properties.server_reference is not None:
            raise ProtocolError(c.PROTOCOL_ERROR, "server reference from a client")
        self._state = _CLOSED
        self.closed = True
        found.append(events.DisconnectReceived(packet.reason_code, packet.properties))
        found.append(events.ConnectionLost(packet.reason_code, "client disconnected", by_peer=True))

    def _end(self, reason_code: int, reason: str) -> list[Any]:
        self._close(reason_code, reason)
        return self._take_cause()

    def _take_cause(self) -> list[Any]:
        cause = self._cause
        self._cause = None
        return [cause] if cause is not None else []

    def _close(self, reason_code: int, reason: str, properties: Properties = NO_PROPERTIES) -> None:
        """End the connection from our side, the one way to do so: last words in the peer's version, then
        closed.
        """
        state = self._state
        self._state = _CLOSED
        self._cause = events.ConnectionLost(reason_code, reason, by_peer=False)
        self._buffer = bytearray()
        self.unfinished_bytes = 0
        last = self._last_words(state, reason_code, reason, properties)
        if last is not None:
            encoded = self._fitted(last)
            if encoded:
                self.output.append(encoded)
        self.closed = True

    def _last_words(
        self, state: int, reason_code: int, reason: str, answer: Properties
    ) -> ConnAck | Disconnect | None:
        version = self.protocol_version
        if reason and answer.reason_string is None:
            answer = answer.copy(reason_string=reason)
        if state == _LIVE:
            if version != c.MQTT_5:
                return None
            known = reason_code in c.SERVER_DISCONNECT_REASONS
            return Disconnect(reason_code if known else c.UNSPECIFIED_ERROR, answer)
        if version == c.MQTT_5:
            return ConnAck(False, connack_reason(reason_code), answer)
        if version == c.MQTT_3_1_1 and (state == _ASKED or is_told_in_3_1_1(reason_code)):
            return ConnAck(False, reason_code)
        return None


T = TypeVar("T")


def _parts(filters: list[T]) -> Iterator[tuple[list[T], bool]]:
    """Yield the filters of one packet, a part at a time, and whether that is the last."""
    size = limits.MQTT_FILTERS_PER_EVENT_MAX
    for begin in range(0, len(filters), size):
        yield filters[begin : begin + size], begin + size >= len(filters)


def _subscribe_events(packet: Subscribe) -> Iterator[events.SubscribeReceived]:
    properties = packet.properties
    identifiers = properties.subscription_identifiers
    identifier = identifiers[0] if identifiers else None
    for filters, is_last in _parts(packet.requests):
        yield events.SubscribeReceived(
            packet.packet_id, filters, properties.user_properties, identifier, is_last
        )


def _unsubscribe_events(packet: Unsubscribe) -> Iterator[events.UnsubscribeReceived]:
    for filters, is_last in _parts(packet.filters):
        yield events.UnsubscribeReceived(packet.packet_id, filters, is_last)
