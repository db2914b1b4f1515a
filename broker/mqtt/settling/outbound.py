"""The output to one MQTT client: plain messages and queue deliveries, within its Receive Maximum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from broker.access.rights import Action, Kind
from broker.engine.client.message_flow import SettlingClient
from broker.engine.session_traffic import Session
from broker.engine.traffic import Claim, Places, RetainedMessage
from broker.mqtt import native
from broker.mqtt.connection.mqtt_client import MqttClient
from broker.mqtt.settling.outgoing import Outgoing, WaitingRoom
from broker.mqtt.settling.window import OutboundWindow
from broker.mqtt.topology.subscription import ShareGroup, Subscription
from broker.network.transport import Transport
from broker.process.counters import Counters
from broker.properties.templates import as_mqtt_at
from config import limits
from protocols.mqtt import constants as c
from protocols.mqtt import hot
from protocols.mqtt.aliases import OutboundAliases, encode_alias
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.events import AckRun, LonePublish, PublishRun, run_of

_log: Final = structlog.get_logger("sluicemq.mqtt")

_HELD_BYTES: Final = 1 << 62
RECEIVE_MAXIMUM_DEFAULT: Final = 65_535  # section 3.1.2.11.3


@dataclass(eq=False, repr=False, slots=True)
class Outbound:
    """The sending half of a client; a `Subscriber`.

    `claims`: what the acknowledgement of a packet identifier settles. `_places`: the window as the credit of
    consumers, once there was one. `_shared`: what of share groups is sent and not acknowledged, by packet
    identifier. Implements `Subscriber`.
    """

    _client: MqttClient
    _connection: MqttConnection = field(init=False)
    _counters: Counters = field(init=False)
    _settling: SettlingClient = field(init=False)
    _transport: Transport = field(init=False)
    _want_flush: Callable[[], None] = field(init=False)
    _is_stall_noted: bool = field(default=False, init=False)
    _on_room: Callable[[], None] | None = field(default=None, init=False)
    window: OutboundWindow = field(init=False)
    claims: dict[int, Claim] = field(default_factory=dict, init=False)
    _places: Places | None = field(default=None, init=False)
    _shared: dict[int, tuple[ShareGroup, PublishRun, int]] = field(default_factory=dict, init=False)
    _aliases: OutboundAliases | None = field(default=None, init=False)
    _session: Session | None = field(default=None, init=False)
    _waiting: WaitingRoom | None = field(default=None, init=False)
    """As long as something waits there."""
    _unchecked_bytes: int = field(default=0, init=False)
    _held: deque[tuple[PublishRun, Subscription | None]] | None = field(default=None, init=False)
    _held_bytes: int = field(default=0, init=False)
    _gathered: list[LonePublish] = field(default_factory=list, init=False)
    _unsent_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        client, hub = self._client, self._client.hub
        self._connection = client.connection
        self._counters = hub.counters
        self._settling = client.core.settling
        self._transport = client.transport
        self._want_flush = client.transport.want_flush
        self.window = OutboundWindow(RECEIVE_MAXIMUM_DEFAULT)
        self._unsent_bytes_max = hub.settings.mqtt.max_unsent_bytes

    @property
    def protocol_version(self) -> int:
        return self._client.connection.protocol_version

    def may_read(self, topic: str) -> bool:
        identity = self._client.identity
        return identity.may_all_topics(Action.READ) or identity.may(Action.READ, Kind.TOPIC, topic)

    @property
    def is_waiting(self) -> bool:
        """Whether anything waits for the client's Receive Maximum."""
        return self._waiting is not None

    @property
    def takes_rewritten(self) -> bool:
        return self._aliases is not None or (self._session is not None and self._session.keeps_any)

    @property
    def has_room(self) -> bool:
        client = self._client
        if self._waiting is not None or client.transport.paused or client.connection.closed:
            return False
        session = self._session
        queued = session.queued[0] if session is not None and session.keeps_any else 0
        return queued < self.window.free()

    def limit(self, receive_maximum: int, topic_alias_maximum: int) -> None:
        """Set what the client allows: QoS 1 and 2 deliveries at a time (section 3.1.2.11.3), and topic
        aliases (3.1.2.11.5).
        """
        self.window.limit(receive_maximum)
        if topic_alias_maximum:
            self._aliases = OutboundAliases(topic_alias_maximum)

    def belong_to(self, session: Session) -> None:
        """Note the client's session, which outlives the connection."""
        self._session = session

    def tell_room(self, call: Callable[[], None] | None) -> None:
        """Have `call` called, or nothing, when no message waits for the client any more: what found no room
        may go on.
        """
        self._on_room = call

    def places(self) -> Places:
        """Return the credit of a consumer whose deliveries the client acknowledges."""
        if self._places is None:
            consuming = self._client.core.consuming
            self._places = consuming.places(self.window, self._fill, self._session)
        return self._places

    def dissolve(self) -> None:
        """End the circle of references: the client is gone."""
        self._places = None

    def caught_up(self) -> None:
        """Go on: the client reads again."""
        self._is_stall_noted = False

    def pass_on_lone(self, lone: LonePublish) -> None:
        """See `Subscriber`: what many devices said in this turn is sent together."""
        gathered = self._gathered
        gathered.append(lone)
        count = len(gathered)
        if count == 1:
            self._client.hub.before_write(self._end_gathering)
        elif count == limits.LONE_PUBLISHES_GATHERED_MAX:
            self._send_gathered()

    def _end_gathering(self) -> None:
        self._client.transport.guard(self._send_gathered)

    def _send_gathered(self) -> None:
        gathered = self._gathered
        if not gathered:
            return
        self._gathered = []
        connection = self._connection
        if (
            self._held is not None
            or self._waiting is not None
            or self.window.free() < len(gathered)
            or connection.closed
            or connection.client_maximum_packet_size < limits.LONE_CHUNK_BYTES_MAX
            or self._transport.share.is_paced
        ):
            for lone in gathered:
                self.pass_on(run_of(lone))
            return
        unchecked_bytes = self._unchecked_bytes + sum([len(lone[1]) for lone in gathered])
        if unchecked_bytes > limits.ROOM_CHECK_BYTES:
            if not self._has_room(len(gathered)):
                return
            unchecked_bytes = 0
        self._unchecked_bytes = unchecked_bytes
        connection.output.append(native.joined(gathered, self.window.take(len(gathered))))
        self._want_flush()

    def pass_on(self, run: PublishRun) -> None:
        """See `Subscriber`: byte for byte, but for packet identifiers."""
        if self._gathered:
            self._send_gathered()
        connection = self._connection
        if connection.closed:
            return
        if self._transport.share.is_paced:
            self._resend(run)
            self._want_flush()
            return
        wire = run.wire
        size = len(wire)
        self._unchecked_bytes += size
        if self._unchecked_bytes > limits.ROOM_CHECK_BYTES:
            if self._held is not None:
                self._add_held(run, None)
                return
            if not self._has_room(run.count):
                return
            self._unchecked_bytes = 0
        stride = run.stride_bytes
        if (stride or size) > connection.client_maximum_packet_size:
            self._resend(run)
        elif size and not run.packet_ids:
            connection.output.append(wire)
        elif not (stride or run.places) or self._waiting is not None:
            self._resend(run)
        elif size == stride:
            packet_id = self.window.take_free()
            if packet_id:
                at = run.packet_id_offset
                connection.output.append(wire[:at] + packet_id.to_bytes(2, "big") + wire[at + 2 :])
            else:
                self._resend(run)
        elif self.window.free() < run.count:
            self._resend(run)
        else:
            ids = self.window.take(run.count)
            if stride:
                connection.output.append(hot.restamp_packet_ids(wire, stride, run.packet_id_offset, ids))
            else:
                offsets = [place[0] for place in run.places]
                connection.output.append(hot.restamp_each(wire, offsets, ids))
        self._want_flush()

    def _resend(self, run: PublishRun) -> None:
        if self._has_room(run.count):
            shape = run.shape
            self.send(Outgoing(shape.topic_bytes, shape.qos, shape.retain, shape.properties, run.payloads))

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """See `Subscriber`: unless the client's session brings it, for this subscription, too."""
        session = self._session
        if (
            session is not None
            and subscription.group is None
            and session.matched(run.shape.topics, is_own=subscription.is_own).logged
        ):
            return
        self.rewrite(run, subscription)

    def rewrite(self, run: PublishRun, subscription: Subscription) -> None:
        """Send publishes on as the subscription and the client's version want them."""
        client = self._client
        connection = client.connection
        group = subscription.group
        if self._held is not None and group is None:
            self._add_held(run, subscription)
            return
        if connection.closed or not self._has_room(run.count):
            if group is not None:
                group.dropped(run)
            return
        shape = run.shape
        retain = shape.retain and subscription.retain_as_published
        properties = b""
        if connection.protocol_version == c.MQTT_5:
            properties = shape.properties + subscription.identifiers
        qos = min(shape.qos, subscription.qos)
        shared = (group, run, qos) if group is not None and qos else None
        self.send(Outgoing(shape.topic_bytes, qos, retain, properties, run.payloads, shared=shared))
        client.transport.want_flush()

    def send_retained(self, message: RetainedMessage, subscription: Subscription, now_ms: int) -> None:
        """Send a retained message to a new subscription."""
        client = self._client
        if client.connection.closed:
            return
        properties = b""
        if client.connection.protocol_version == c.MQTT_5:
            properties = (
                as_mqtt_at(message.template, message.received_at_ms, now_ms) + subscription.identifiers
            )
        qos = min(message.qos, subscription.qos)
        if self._has_room(1):
            self.send(Outgoing(message.topic.encode(), qos, True, properties, [message.body]))

    def guard_retained(self, call: Callable[[], None]) -> bool:
        """Call what sends, and have it written; False: that failed, and the connection ends."""
        transport = self._client.transport
        is_well = transport.guard(call)
        self._want_flush()
        return is_well

    def hold(self) -> None:
        """Have plain messages wait for older ones that are sent in steps."""
        self._send_gathered()
        if self._held is None:
            self._held = deque()
            self._unchecked_bytes = _HELD_BYTES  # has it looked at: others pay nothing for it

    def _add_held(self, run: PublishRun, subscription: Subscription | None) -> None:
        assert self._held is not None
        if self._held_bytes > self._unsent_bytes_max:
            self._counters.drop_slow(run.count)
            return
        self._held_bytes += sum(map(len, run.payloads)) + limits.HELD_RUN_BYTES
        self._held.append((run, subscription))

    def release(self) -> bool:
        """Send a part of what `hold` had wait; give whether that was all, and nothing waits any more."""
        held = self._held
        if held is None:
            return True
        self._held = None
        self._unchecked_bytes = 0
        for _ in range(min(len(held), limits.HELD_RUNS_RELEASED_MAX)):
            run, subscription = held.popleft()
            self._held_bytes -= sum(map(len, run.payloads)) + limits.HELD_RUN_BYTES
            if subscription is None:
                self.pass_on(run)
            else:
                self.forward(run, subscription)
        if held:
            self._held = held
            self._unchecked_bytes = _HELD_BYTES
        return not held

    def send(self, outgoing: Outgoing) -> None:
        """Send messages, or keep those that the client's Receive Maximum has no room for."""
        self._send_gathered()
        if outgoing.qos == 0:
            self._write(outgoing)
            return
        if self._waiting is not None:
            self._waiting.add(outgoing)
            return
        count = len(outgoing.payloads)
        sent = self._send_first(outgoing)
        if sent < count:
            self._waiting = WaitingRoom(self._client.clock.now_ms)
            self._waiting.add(outgoing.part(sent, count) if sent else outgoing)

    def send_claimed(self, outgoing: Outgoing) -> None:
        """Send deliveries of a queue; those that found their places taken meanwhile, by what their group gave
        up while it was asked for them, go back.
        """
        self._send_gathered()
        claims = outgoing.claims
        if claims is None:
            self._write(outgoing)
        elif (sent := self._send_first(outgoing)) < len(claims):
            self._settling.unclaim(claims[sent:], self._client.clock.now_ms())

    def _send_first(self, outgoing: Outgoing) -> int:
        """Send as many messages as there are places for; give how many. What is too large takes none."""
        start = 0
        count = len(outgoing.payloads)
        while start < count and (free := self.window.free()) > 0:
            end = min(start + free, count)
            self._write(outgoing.part(start, end) if end - start < count else outgoing)
            start = end
        return start

    def _fill(self) -> None:
        if self._connection.closed:
            return
        if self._waiting is not None:
            self._client.transport.guard(self._send_waiting)
        else:
            self.note_room()

    def free_up(self, packet_ids: list[int]) -> None:
        """Free the places of deliveries that are finished."""
        self.window.release(packet_ids)
        if self._places is not None:
            self._places.freed()
        elif self._waiting is not None:
            self._send_waiting()
        elif self._session is not None:
            self.note_room()

    # what the client says

    def take_lone_ack(self, packet_id: int) -> bool:
        """Take a PUBACK that does nothing but free the place of a message; False: it is for `on_acks`."""
        if (
            self._session is not None
            or self._waiting is not None
            or self._places is not None
            or self.claims
            or self._shared
        ):
            return False
        self.window.in_use.discard(packet_id)
        return True

    def on_acks(self, event: AckRun) -> None:
        """Take PUBACK, PUBREC or PUBCOMP of what was sent; a PUBREL ends the exchange of what was
        received.
        """
        kind = event.packet_type
        ids = event.packet_ids
        if kind == c.PUBACK and not (
            self.claims or self._shared or self._waiting is not None or self._places is not None
        ):
            self.window.release(ids)
            return
        connection = self._connection
        failed = event.reason_code >= c.UNSPECIFIED_ERROR
        if kind == c.PUBREL:
            connection.send_pubcomp_run(ids)
        elif kind == c.PUBREC and not failed:
            in_use = self.window.in_use
            if in_use.issuperset(ids):
                connection.send_pubrel_run(ids)
                return
            for packet_id in ids:
                known = packet_id in in_use
                connection.send_pubrel(packet_id, c.SUCCESS if known else c.PACKET_IDENTIFIER_NOT_FOUND)
        else:
            claims = self.finished(ids)
            if claims:
                self._settle(claims, failed)

    def _settle(self, claims: list[Claim], failed: bool) -> None:
        settling, now_ms = self._settling, self._client.clock.now_ms()
        late = settling.requeue(claims, now_ms) if failed else settling.ack(claims, now_ms)
        if late:
            self._counters.settle_late(late)

    def finished(self, packet_ids: list[int]) -> list[Claim]:
        """Take those that the client acknowledged for good; gives the claims that settles."""
        if self._shared:
            self._finish_shared(packet_ids)
        held = self.claims
        claims = [held.pop(i) for i in packet_ids if i in held] if held else []
        self.free_up(packet_ids)
        return claims

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting and (free := self.window.free()) > 0 and (outgoing := waiting.take(free)) is not None:
            self._write(outgoing)
            self._client.transport.want_flush()
        if not waiting:
            self._waiting = None
        self.note_room()

    def note_room(self) -> None:
        """Have what found no room go on, if nothing waits any more."""
        if self._on_room is not None and self._waiting is None:
            self._on_room()

    def _finish_shared(self, packet_ids: Iterable[int]) -> None:
        for packet_id in packet_ids:
            shared = self._shared.pop(packet_id, None)
            if shared is not None:
                shared[0].finished(shared[1])

    def give_back(self) -> None:
        """Give what share groups gave this client, and it did not acknowledge before its session ended, to
        other members, but for QoS 2 publishes it may have received [MQTT-4.8.2-4], [MQTT-4.8.2-5].
        """
        waiting = self._waiting.clear() if self._waiting is not None else []
        self._waiting = None
        unsent = [outgoing.shared for outgoing in waiting if outgoing.shared is not None]
        sent = list(self._shared.values())
        self._shared.clear()
        for group, run, qos in sent:
            if qos == 1:
                group.give_back(run)
            else:
                group.finished(run)
        for group, run, _ in unsent:
            group.give_back(run)

    def forget_ended(self) -> None:
        """Drop claims that ended otherwise (lease over, unsubscribed, queue deleted): acknowledging what was
        sent settles nothing. It keeps its place until then.
        """
        for packet_id in [i for i, claim in self.claims.items() if not claim.is_in_flight]:
            del self.claims[packet_id]

    def _has_room(self, count: int) -> bool:
        """Return whether a plain message may still be added; a client that reads too slowly loses
        messages.
        """
        client = self._client
        output = client.transport.output
        is_taken = not output.held_by and output.buffered_bytes() <= self._unsent_bytes_max
        if is_taken and (self._waiting is None or self._waiting.has_room(self._unsent_bytes_max)):
            return True
        self._counters.drop_slow(count)
        if not self._is_stall_noted:
            self._is_stall_noted = True
            _log.warning("mqtt.slow_client", peer=client.transport.peer, client_id=client.client_id)
        return False

    def _write(self, outgoing: Outgoing) -> None:
        """Write messages the window has room for."""
        payloads = outgoing.payloads
        count = len(payloads)
        packet_ids = self.window.take(count) if outgoing.qos else []
        if outgoing.claims is not None and outgoing.by_ack:
            self.claims.update(zip(packet_ids, outgoing.claims, strict=True))
        if outgoing.shared is not None:
            self._shared[packet_ids[0]] = outgoing.shared
        start = 0
        while start < count:
            size = len(payloads[start])
            end = start + 1
            while end < count and len(payloads[end]) == size:
                end += 1
            ids = packet_ids[start:end]
            topic, properties = outgoing.topic_bytes, outgoing.properties
            if not self.encode(
                topic, outgoing.qos, outgoing.retain, False, properties, ids, payloads[start:end]
            ):
                self._skip_too_large(outgoing.part(start, end), ids)
            start = end

    def encode(
        self,
        topic: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        properties: bytes,
        packet_ids: list[int],
        payloads: list[bytes],
    ) -> bool:
        """Write messages alike, of one size; False: they are too large for the client. Topics have aliases
        where it allows some.
        """
        self._send_gathered()
        connection = self._connection
        version = connection.protocol_version
        aliases = self._aliases
        known = None if aliases is None else aliases.find(topic)
        alias = 0 if aliases is None else known or aliases.next_free()
        if alias:
            properties = encode_alias(alias) + properties
        size = len(payloads[0])
        head = hot.encode_publish_head(version, b"" if known else topic, qos, retain, dup, properties, size)
        tail = hot.encode_publish_tail(version, properties)
        if len(head) + len(tail) + size + 2 > connection.client_maximum_packet_size:
            return False
        hot.encode_publish_run(connection.output, head, packet_ids, tail, payloads)
        if self._transport.share.is_paced:
            self._transport.sent(len(payloads))
        if aliases is not None and topic and not known:
            aliases.take(topic)
        return True

    def _skip_too_large(self, skipped: Outgoing, packet_ids: list[int]) -> None:
        """Pass over one that is too large as if it had been sent [MQTT-3.1.2-25]. Claims fail, or they would
        come back again and again.
        """
        self._finish_shared(packet_ids)
        for packet_id in packet_ids:
            self.claims.pop(packet_id, None)
        self.window.release(packet_ids)
        client = self._client
        count = len(skipped.payloads)
        self._counters.drop_too_large(count)
        if skipped.claims:
            _log.warning("mqtt.message_too_large", client_id=client.client_id, count=count)
            self._settling.reject(skipped.claims, client.clock.now_ms())
