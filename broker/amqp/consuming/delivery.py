"""Deliveries to an AMQP consumer: basic.deliver, as many as possible in one go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from pamqp import commands

from broker.amqp.connection import header_names as names
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.settling.unacked import Unacked
from broker.clients.client_consumers import Consumers
from broker.engine.client.message_flow import ConsumingClient
from broker.engine.traffic import Claim, Consumer, Message
from broker.network.transport import Transport
from broker.properties.amqp import routing_key
from broker.properties.templates import as_amqp
from config import limits
from protocols.amqp091.connection import AmqpConnection
from protocols.amqp091.constants import FRAME_OVERHEAD_BYTES
from protocols.amqp091.content import NumberAppender, append_headers
from protocols.amqp091.hot import (
    DeliverAddress,
    DeliverTemplate,
    NumberedTemplate,
    encode_deliver_numbered,
    encode_deliver_parts,
    encode_deliver_run,
    encode_deliver_varied,
)
from protocols.amqp091.methods import BasicDeliver, BasicGetOk
from storage.envelope import PROPERTIES_AMQP, EnvelopeTemplate


@dataclass(eq=False, repr=False, slots=True)
class AmqpConsumer:
    """The sink of one consumer, which is one of `consumers` by its `name`. That of basic.get has `tag` "".

    The delivery template of the last message's properties is kept: runs alike cost one `join`.
    Implements `broker.clients.client_consumers.ConsumerSink` and `broker.engine.traffic.Sink`.
    """

    _channel: AmqpChannel
    _unacked: Unacked
    _consumers: Consumers
    _name: str
    _tag: str
    _calls: ConsumingClient = field(init=False)
    _connection: AmqpConnection = field(init=False)
    _transport: Transport = field(init=False)
    consumer: Consumer = field(init=False)
    _last_template: EnvelopeTemplate | None = field(default=None, init=False)
    _last: DeliverTemplate | None = field(default=None, init=False)
    _numbered: NumberedTemplate | None = field(default=None, init=False)
    _named: list[tuple[str, object]] = field(default_factory=list, init=False)
    _numbered_names: list[str] = field(default_factory=list, init=False)
    _addresses: dict[tuple[str, str], DeliverAddress] = field(default_factory=dict, init=False)
    _appender: NumberAppender | None = field(default=None, init=False)
    _unflushed_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._calls = self._channel.core.consuming
        self._connection = self._channel.connection
        self._transport = self._channel.transport

    def attach(self, consumer: Consumer) -> None:
        self.consumer = consumer
        group = consumer.group
        if group.name:
            self._named.append((names.GROUP, group.group_id))
            self._numbered_names.append(names.OFFSET)

    def deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> bool:
        return self._transport.guard(self._deliver, consumer, messages, claims)

    def _deliver(
        self, consumer: Consumer, messages: Sequence[Message], claims: Sequence[Claim] | None
    ) -> None:
        first_tag = self._unacked.number(len(messages), None if consumer.no_ack else claims)
        if not self._tag:
            self._answer_get(first_tag, messages[0], None if claims is None else claims[0])
        elif claims is not None and claims[0].attempts > 1:
            for index, message in enumerate(messages):
                counts = self._counts(claims[index])
                self._deliver_alone(first_tag + index, message, counts, is_redelivered=True)
        else:
            self._deliver_first(first_tag, messages)
        if self._transport.share.is_paced:
            self._transport.sent(len(messages))
        self._transport.want_flush()

    def revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        self._transport.guard(self._revoked, consumer, claims)

    def _revoked(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """Forget claims; the consumer of a quorum queue whose lease ended is cancelled, as in RabbitMQ 4."""
        self._unacked.forget(consumer, claims)
        if self._tag and self._channel.client.cancel_notify and self._calls.ends_late(consumer):
            self._consumers.end(self._name, keep_claims=True)
            self.cancelled(consumer, "its lease ended")

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `broker.engine.traffic.Sink`: tell clients who understand it."""
        channel = self._channel
        self._consumers.forget(self._name)
        if self._tag and channel.client.cancel_notify and not channel.closed:
            channel.send(commands.Basic.Cancel(self._tag, True))
            self._transport.want_flush()

    def _deliver_first(self, tag: int, messages: Sequence[Message]) -> None:
        output = self._connection.output
        body_bytes_max = self._connection.frame_max - FRAME_OVERHEAD_BYTES
        count = len(messages)
        start = 0
        while start < count:
            first = messages[start]
            template = first.template
            size = len(first.body)  # type: ignore[arg-type]
            bodies: list[Any] = [first.body]
            for index in range(start + 1, count):
                message = messages[index]
                body = message.body
                if message.template is not template or len(body) != size:  # type: ignore[arg-type]
                    break
                bodies.append(body)
            if len(bodies) == 1 and (varied := self._deliver_varied(tag, messages, start, body_bytes_max)):
                start += varied
                tag += varied
                continue
            if template is not self._last_template and not self._fits(template):
                self._unacked.fail(range(tag, tag + len(bodies)))
            elif size > body_bytes_max:
                for index in range(len(bodies)):
                    self._deliver_alone(tag + index, messages[start + index])
            elif self._numbered_names:
                numbered = self._numbered_template(template, size)
                columns = self._numbers(messages[start : start + len(bodies)])
                encode_deliver_numbered(output, numbered, tag, columns, bodies)
            elif size > limits.JOINED_BODY_BYTES_MAX:
                encode_deliver_parts(output, self._template(template, size), tag, bodies)
                self._connection.note_large_output()
            else:
                encode_deliver_run(output, self._template(template, size), tag, bodies)
            start += len(bodies)
            tag += len(bodies)

    def _deliver_varied(self, tag: int, messages: Sequence[Message], start: int, body_bytes_max: int) -> int:
        """Deliver messages from `start` on as long as each differs from the one before.

        Gives how many it were: 0 where that is not worth it, or something is out of the ordinary.
        """
        properties_max = self._properties_max()
        run: list[Message] = []
        found: list[bytes] = []
        addresses: list[DeliverAddress] = []
        known = self._addresses
        previous = None
        for index in range(start, len(messages)):
            message = messages[index]
            template = message.template
            if template is previous:
                break
            raw = template.properties
            if template.properties_kind != PROPERTIES_AMQP:
                raw = as_amqp(template)
            if len(raw) > properties_max or not 0 < len(message.body) <= body_bytes_max:  # type: ignore[arg-type]
                break
            previous = template
            run.append(message)
            found.append(raw)
            addresses.append(known.get((template.exchange, template.topic)) or self._address_of(template))
        if len(run) < 2:
            return 0
        output = self._connection.output
        bodies: list[Any] = [message.body for message in run]
        encode_deliver_varied(
            output, self._channel.number, tag, addresses, self._with_added(run, found), bodies
        )
        return len(run)

    def _address_of(self, template: EnvelopeTemplate) -> DeliverAddress:
        known = self._addresses.get((template.exchange, template.topic))
        if known is not None:
            return known
        if len(self._addresses) >= limits.AMQP_ADDRESSES_PER_CONSUMER_MAX:
            self._addresses.clear()
        key = routing_key(template.topic)
        address = DeliverAddress(self._channel.number, self._tag, template.exchange, key)
        self._addresses[template.exchange, template.topic] = address
        return address

    def _numbers(self, messages: Sequence[Message]) -> list[list[int]]:
        """Return the numbers of these messages for each of `_numbered_names`."""
        return [[message.offset for message in messages]]

    def _with_added(self, messages: Sequence[Message], found: list[bytes]) -> list[bytes]:
        """Return the properties `found` of first deliveries, with what these add."""
        if not self._numbered_names:
            return found
        if self._appender is None:
            self._appender = NumberAppender(self._named, self._numbered_names)
        return self._appender.append(found, self._numbers(messages))

    def _template(self, template: EnvelopeTemplate, size: int) -> DeliverTemplate:
        last = self._last
        if template is not self._last_template or last is None:
            last = self._last = self._make(template, size)
            self._last_template = template
        elif last.body_bytes != size:
            last = self._last = last.resized(size)
        return last

    def _numbered_template(self, template: EnvelopeTemplate, size: int) -> NumberedTemplate:
        numbered = self._numbered
        last = self._last
        current = self._template(template, size)
        if numbered is None or current is not last:
            numbered = self._numbered = NumberedTemplate(current, self._numbered_names)
        return numbered

    def _make(self, template: EnvelopeTemplate, size: int) -> DeliverTemplate:
        """Make the bytes of first deliveries; numbers that each has of its own are 0."""
        raw = as_amqp(template)
        if self._numbered_names:
            raw = append_headers(raw, [*self._named, *((name, 0) for name in self._numbered_names)])
        return DeliverTemplate(self._channel.number, self._address_of(template), raw, size)

    def _fits(self, template: EnvelopeTemplate) -> bool:
        """Return whether the properties fit one frame, as they must (4.2.6.1)."""
        return len(as_amqp(template)) <= self._properties_max()

    def _properties_max(self) -> int:
        added_bytes = limits.AMQP_ADDED_HEADERS_BYTES_MAX + len(self.consumer.group.group_id.encode())
        return self._connection.frame_max - added_bytes

    def _counts(self, claim: Claim) -> list[tuple[str, object]]:
        """Return what a redelivery tells of the deliveries before it."""
        earlier = claim.attempts - 1
        failed = self._calls.failed_attempts(self.consumer, claim)
        if failed is None:
            return [(names.DELIVERY_COUNT, earlier)]
        counts: list[tuple[str, object]] = [(names.ACQUIRED_COUNT, earlier)]
        return [*counts, (names.DELIVERY_COUNT, failed)] if failed else counts

    def _headers(self, message: Message, added: Sequence[tuple[str, object]] = ()) -> bytes:
        """Return the message's properties with what this delivery adds."""
        extra: list[tuple[str, object]] = []
        if self._numbered_names:
            extra += self._named
            extra += zip(
                self._numbered_names, (number for (number,) in self._numbers([message])), strict=True
            )
        extra += added
        raw = as_amqp(message.template)
        return append_headers(raw, extra) if extra else raw

    def _deliver_alone(
        self,
        tag: int,
        message: Message,
        added: Sequence[tuple[str, object]] = (),
        *,
        is_redelivered: bool = False,
    ) -> None:
        """Deliver one message by itself, with headers besides those of its kind."""
        template = message.template
        if not self._fits(template):
            self._unacked.fail(range(tag, tag + 1))
            return
        method = BasicDeliver(self._tag, tag, is_redelivered, template.exchange, routing_key(template.topic))
        headers = self._headers(message, added)
        self._connection.send_content(self._channel.number, method, headers, message.body or b"")

    def _answer_get(self, tag: int, message: Message, claim: Claim | None) -> None:
        is_redelivered = claim is not None and claim.attempts > 1
        counts = self._counts(claim) if claim is not None and is_redelivered else []
        template = message.template
        if not self._fits(template):
            self._unacked.fail(range(tag, tag + 1))
            self._channel.send(commands.Basic.GetEmpty())
            return
        waiting = self._calls.ready_count(self.consumer)
        method = BasicGetOk(tag, is_redelivered, template.exchange, routing_key(template.topic), waiting)
        body = message.body or b""
        self._connection.send_content(self._channel.number, method, self._headers(message, counts), body)
        self._unflushed_bytes += len(body)
        if self._unflushed_bytes > limits.ANSWERS_BYTES_PER_FLUSH:
            # many gets in one chunk: the transport has to see how much the client leaves unread
            self._unflushed_bytes = 0
            self._transport.flush()


PLACE_BYTES_MAX: Final = 24  # the header x-timestamp


class AmqpPlacedConsumer(AmqpConsumer):
    """The sink of a consumer that is told, besides, where in its classic queue each message is, and when it
    was published.
    """

    __slots__ = ()

    def attach(self, consumer: Consumer) -> None:
        super().attach(consumer)
        self._numbered_names[:] = [names.OFFSET, names.TIMESTAMP]

    def _numbers(self, messages: Sequence[Message]) -> list[list[int]]:
        return [[message.offset for message in messages], [message.received_at_ms for message in messages]]

    def _properties_max(self) -> int:
        return super()._properties_max() - PLACE_BYTES_MAX


_log: Final = structlog.get_logger("sluicemq.amqp")

ADDED_BYTES_MAX: Final = 384  # frame, content header and all that a delivery adds but the names of groups


class AmqpStreamConsumer(AmqpConsumer):
    """The sink of one consumer of a stream."""

    __slots__ = ()

    def attach(self, consumer: Consumer) -> None:
        super().attach(consumer)
        self._numbered_names += [names.STREAM_TIMESTAMP, names.STREAM_OFFSET]

    def _numbers(self, messages: Sequence[Message]) -> list[list[int]]:
        offsets = [message.offset for message in messages]
        numbers = [[message.received_at_ms for message in messages], offsets]
        return [offsets, *numbers] if self._named else numbers

    def _deliver_first(self, tag: int, messages: Sequence[Message]) -> None:
        if self._calls.gap(self.consumer):
            self._deliver_alone(tag, messages[0], [(names.STREAM_GAP, self._take_gap())])
            tag += 1
            messages = messages[1:]
        if self._calls.primary_group(self.consumer):
            for index, message in enumerate(messages):
                self._deliver_alone(tag + index, message)
        else:
            super()._deliver_first(tag, messages)

    def _headers(self, message: Message, added: Sequence[tuple[str, object]] = ()) -> bytes:
        primary_group = self._calls.primary_group(self.consumer)
        if primary_group:
            committed = self._calls.primary_committed(self.consumer)
            added = [
                (names.WORK_GROUP, primary_group),
                (names.WORK_COMMITTED, committed),
                (names.WORK_ACKED, message.offset < committed),
                *added,
            ]
        return super()._headers(message, added)

    def _properties_max(self) -> int:
        consumer = self.consumer
        primary_group = self._calls.primary_group(consumer)
        group_names = consumer.group.group_id + primary_group
        added_bytes = ADDED_BYTES_MAX + len(group_names.encode())
        return self._connection.frame_max - added_bytes

    def _take_gap(self) -> int:
        group = self.consumer.group
        gap = self._calls.take_gap(self.consumer)
        _log.warning(
            "stream.gap",
            peer=self._transport.peer,
            queue=group.queue_name,
            group=group.group_id,
            skipped=gap,
        )
        return gap
