"""Deliveries of a stream to an AMQP consumer: each message with its offset and the time of its publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from broker.amqp.connection import header_names as names
from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.consuming.delivery import AmqpConsumer
from broker.amqp.settling.unacked import Unacked
from broker.clients.client_consumers import Consumers
from broker.engine.traffic import Message
from broker.properties.templates import as_amqp
from protocols.amqp091.constants import FRAME_OVERHEAD_BYTES
from protocols.amqp091.content import NumberAppender, append_headers
from protocols.amqp091.hot_stamped import StampedTemplate, encode_deliver_stamped
from storage.envelope import EnvelopeTemplate

_log: Final = structlog.get_logger("sluicemq.amqp")

ADDED_BYTES_MAX: Final = 384  # frame, content header and all that a delivery adds but the names of groups


class AmqpStreamConsumer(AmqpConsumer):
    """The sink of one consumer of a stream."""

    __slots__ = ("_stamped",)

    def __init__(
        self, channel: AmqpChannel, unacked: Unacked, consumers: Consumers, name: str, tag: str
    ) -> None:
        super().__init__(channel, unacked, consumers, name, tag)
        self._stamped: StampedTemplate | None = None

    def _deliver_first(self, tag: int, messages: Sequence[Message]) -> None:
        consuming = self._calls
        if consuming.gap(self.consumer):
            self._deliver_alone(tag, messages[0], 1, [(names.STREAM_GAP, self._take_gap())])
            tag += 1
            messages = messages[1:]
        if consuming.primary_group(self.consumer):
            for index, message in enumerate(messages):
                self._deliver_alone(tag + index, message, 1)
        else:
            self._deliver_runs(tag, messages)

    def _deliver_runs(self, tag: int, messages: Sequence[Message]) -> None:
        output = self._connection.output
        body_bytes_max = self._connection.frame_max - FRAME_OVERHEAD_BYTES
        named = bool(self.consumer.group.name)
        count = len(messages)
        start = 0
        while start < count:
            first = messages[start]
            template = first.template
            size = len(first.body)  # type: ignore[arg-type]
            end = start + 1
            while end < count:
                message = messages[end]
                if message.template is not template or len(message.body) != size:  # type: ignore[arg-type]
                    break
                end += 1
            run = messages[start:end] if end - start < count else messages
            if len(run) == 1 and (varied := self._deliver_varied(tag, messages, start, body_bytes_max)):
                start += varied
                tag += varied
                continue
            if template is not self._last_template and not self._fits(template):
                self._skip(range(tag, tag + len(run)))
            elif size > body_bytes_max:
                for index, message in enumerate(run):
                    self._deliver_alone(tag + index, message, 1)
            else:
                offsets = [message.offset for message in run]
                columns = [[message.received_at_ms for message in run], offsets]
                if named:
                    columns.insert(0, offsets)
                stamped = self._stamped_template(template, size)
                bodies = [message.body for message in run]
                encode_deliver_stamped(output, stamped, tag, columns, bodies)  # type: ignore[arg-type]
            tag += len(run)
            start = end

    def _stamped_template(self, template: EnvelopeTemplate, size: int) -> StampedTemplate:
        stamped = self._stamped
        last = self._last
        current = self._template(template, size)
        if stamped is None or current is not last:
            numbered = [names.STREAM_TIMESTAMP, names.STREAM_OFFSET]
            if self.consumer.group.name:
                numbered.insert(0, names.OFFSET)
            stamped = self._stamped = StampedTemplate(current, numbered)
        return stamped

    def _block(self, template: EnvelopeTemplate) -> bytes:
        headers: list[tuple[str, object]] = [(names.STREAM_TIMESTAMP, 0), (names.STREAM_OFFSET, 0)]
        if self.consumer.group.name:
            headers[:0] = [(names.GROUP, self.consumer.group.group_id), (names.OFFSET, 0)]
        return append_headers(as_amqp(template), headers)

    def _headers(self, message: Message, attempts: int) -> bytes:
        consuming = self._calls
        extra: list[tuple[str, object]] = [
            (names.STREAM_TIMESTAMP, message.received_at_ms),
            (names.STREAM_OFFSET, message.offset),
        ]
        primary_group = consuming.primary_group(self.consumer)
        if primary_group:
            committed = consuming.primary_committed(self.consumer)
            extra += [
                (names.WORK_GROUP, primary_group),
                (names.WORK_COMMITTED, committed),
                (names.WORK_ACKED, message.offset < committed),
            ]
        return append_headers(super()._headers(message, attempts), extra)

    def _with_added(self, messages: Sequence[Message], found: list[bytes]) -> list[bytes]:
        offsets = [message.offset for message in messages]
        columns = [[message.received_at_ms for message in messages], offsets]
        group_id = self.consumer.group.group_id if self.consumer.group.name else ""
        if group_id:
            columns.insert(0, offsets)
        if self._appender is None:
            numbered = [names.STREAM_TIMESTAMP, names.STREAM_OFFSET]
            fixed = [(names.GROUP, group_id)] if group_id else []
            self._appender = NumberAppender(fixed, [names.OFFSET, *numbered] if group_id else numbered)
        return self._appender.append(found, columns)

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
