"""Deliveries on a link that the client receives on: as many as possible in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from broker.amqp10.connection.amqp10_session import Session
from broker.amqp10.settling.unsettled import Unsettled
from broker.clients.client_consumers import Consumers
from broker.engine.client.message_flow import ConsumingClient
from broker.engine.traffic import Claim, Consumer, LinkCredit, Message
from broker.network.transport import Transport
from broker.properties.amqp import ACQUIRED_COUNT_HEADER, DELIVERY_COUNT_HEADER
from broker.properties.templates import as_amqp10, first_amqp10
from broker.vhosts.hub import Hub
from protocols.amqp10 import constants as c
from protocols.amqp10.connection import Amqp10Connection
from protocols.amqp10.errors import AmqpError
from protocols.amqp10.link import Link

_OFFSET: Final = "x-stream-offset"
_GAP: Final = "x-stream-gap"
_log: Final = structlog.get_logger("sluicemq.amqp")


@dataclass(eq=False, repr=False, slots=True)
class LinkSink:
    """The sink of the consumer of a link.

    Implements `broker.clients.client_consumers.ConsumerSink` and `broker.engine.traffic.Sink`.
    """

    _session: Session
    _unsettled: Unsettled
    _consumers: Consumers
    _name: str
    _link: Link
    _connection: Amqp10Connection = field(init=False)
    _transport: Transport = field(init=False)
    _hub: Hub = field(init=False)
    _calls: ConsumingClient = field(init=False)
    _is_stream: bool = field(default=False, init=False)
    consumer: Consumer = field(init=False)

    def __post_init__(self) -> None:
        self._connection = self._session.connection
        self._transport = self._session.transport
        self._hub = self._session.hub
        self._calls = self._session.core.consuming

    def attach(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def tell_offsets(self) -> None:
        """Have each message say its offset: they are a stream's."""
        self._is_stream = True

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        return self._transport.guard(self._deliver, consumer, messages, claims)

    def _deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> None:
        attempts = 1 if claims is None else claims[0].attempts
        if self._is_stream:
            payloads = self._of_stream(messages, () if attempts > 1 else self._gap_told())
        elif attempts > 1:
            assert claims is not None
            payloads = [self._again(message, claim) for message, claim in zip(messages, claims, strict=True)]
        else:
            payloads = list(map(_first, messages))
        bytes_max = self._link.attach.max_message_size
        if bytes_max and max(map(len, payloads)) > bytes_max:
            size = max(map(len, payloads))
            text = f"message size ({size} bytes) > maximum message size ({bytes_max} bytes)"
            self._session.detach(self._link, AmqpError(c.MESSAGE_SIZE_EXCEEDED, text))
            self._end_soon(claims)
            return
        link = self._link
        # credit may be taken back by what is read and not acted on yet: these cross that on the way
        link.credit = max(link.credit, len(payloads))
        first_id = self._connection.deliver(self._link, payloads)
        if first_id < 0:  # it is detached, and the client has not answered yet
            self._end_soon(claims)
            return
        if claims is not None and not consumer.no_ack:
            self._unsettled.add(first_id, claims)
        if not self._connection.session_room(self._session.channel):
            self._consumers.pause()
        if self._transport.share.is_paced:
            self._transport.sent(len(payloads))
        self._transport.want_flush()

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        self._transport.guard(self._unsettled.forget, claims)

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `broker.engine.traffic.Sink`: the node of the link is gone, or the way to it."""
        self._consumers.forget(self._name)
        if self._link.is_attached:
            condition = c.DETACH_FORCED if consumer.is_cut_off else c.RESOURCE_DELETED
            self._session.detach(self._link, AmqpError(condition, reason))

    def _of_stream(self, messages: Sequence[Message], told: Sequence[tuple[str, int]]) -> list[bytes]:
        """Encode messages of a stream, the first of which tells of a gap before it."""
        payloads = []
        for message in messages:
            body = message.body or b""
            added = [(_OFFSET, message.offset), *told]
            payloads.append(as_amqp10(message.template, body).message(body, added=added))
            told = ()
        return payloads

    def _gap_told(self) -> Sequence[tuple[str, int]]:
        """Return what the next message tells of those that retention took before they were read."""
        gap = self._calls.take_gap(self.consumer)
        if not gap:
            return ()
        group, peer = self.consumer.group, self._transport.peer
        _log.warning("stream.gap", peer=peer, queue=group.queue_name, group=group.group_id, skipped=gap)
        return ((_GAP, gap),)

    def _again(self, message: Message, claim: Claim) -> bytes:
        body = message.body or b""
        earlier = claim.attempts - 1
        failed = self._calls.failed_attempts(self.consumer, claim)
        counts = []
        if failed is not None:
            counts.append((ACQUIRED_COUNT_HEADER, earlier))
            if failed:
                counts.append((DELIVERY_COUNT_HEADER, failed))
        return as_amqp10(message.template, body).message(
            body,
            delivery_count=earlier if failed is None else failed,
            first_acquirer=False,
            added=counts,
        )

    def _end_soon(self, claims: Sequence[Claim] | None) -> None:
        """Return what could not be given, and give nothing more."""
        self._hub.loop.call_soon(self._end, claims or ())

    def _end(self, claims: Sequence[Claim]) -> None:
        hub = self._hub
        hub.client.settling.unclaim(claims, hub.clock.now_ms())
        self._consumers.end(self._name, keep_claims=True)


def _first(message: Message) -> bytes:
    """Return a message that is delivered for the first time."""
    return first_amqp10(message.template, message.body or b"")


class WantedCredit:
    """The credit that a link's client gives, as the core has it."""

    __slots__ = ("_session", "credit", "link")

    def __init__(self, session: Session, link: Link) -> None:
        self._session = session
        self.link = link
        self.credit: LinkCredit = session.core.consuming.link_credit(self._dried)

    def _dried(self) -> None:
        self._session.transport.guard(self._tell_dried)

    def _tell_dried(self) -> None:
        self.credit.set(0)
        self._session.connection.drained(self.link)
        self._session.transport.want_flush()
