"""Deliveries of a stream to an AMQP consumer: each message with its offset and the time of its publishing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from broker.amqp.connection import header_names as names
from broker.amqp.consuming.delivery import AmqpConsumer
from broker.engine.traffic import Consumer, Message

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
