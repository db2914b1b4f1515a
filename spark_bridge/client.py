"""A blocking AMQP 0.9.1 connection with one channel: publishing with windowed confirms, calls, consuming.

Made inside tasks and commits, never pickled.
"""

from __future__ import annotations

import json
import struct
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spark_bridge import wire
from spark_bridge.address import queue_address
from spark_bridge.errors import BrokerUnreachable, Refused
from spark_bridge.link import CHANNEL, NACK, RETURN, Content, Link
from spark_bridge.settings import ConnectionSettings

WRITE_BYTES: Final = 65_536
CONSUMER_TAG: Final = "rows"
REPLY_TO: Final = "amq.rabbitmq.reply-to"  # straight to the channel that asks: no queue, no permission


class Message(NamedTuple):
    """A delivery."""

    delivery_tag: int
    exchange: str
    routing_key: str
    properties: dict[str, Any]
    body: bytes


class Connection(Link):
    """`unconfirmed` publishes are out when `published` is ahead of what the broker has confirmed."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.deliveries: deque[Message] = deque()
        self.published = 0
        self._is_confirming = False
        self._takes_replies = False
        self._confirmed = 0
        self._out_of_order: set[int] = set()
        self._address = (b"", "", "")
        super().__init__(settings)

    # calls

    def confirm_select(self) -> None:
        """Have publishes confirmed from now on, and counted."""
        if not self._is_confirming:
            self.call(85, 10, b"\0", answer=(85, 11))
            self._is_confirming = True
            self.published = 0

    def count(self, queue: str) -> int:
        """Return how many messages of a queue can be consumed (a passive declare); raises Refused."""
        arguments = b"\0\0" + wire.short(queue) + b"\1" + wire.table({})
        answer = wire.Reader(self.call(50, 10, arguments, answer=(50, 11)))
        answer.short()
        return int(answer.unpack("I"))

    def consume(self, queue: str, *, no_ack: bool, arguments: Mapping[str, Any], prefetch: int = 0) -> None:
        """Begin to take deliveries of a queue into `deliveries`."""
        if prefetch:
            self.call(60, 10, struct.pack(">IHB", 0, prefetch, 0), answer=(60, 11))
        flags = 2 if no_ack else 0
        self.call(
            60,
            20,
            b"\0\0"
            + wire.short(queue)
            + wire.short(CONSUMER_TAG if queue != REPLY_TO else "")
            + bytes((flags,))
            + wire.table(arguments),
            answer=(60, 21),
        )

    def poll_delivery(self) -> bool:
        """Wait until there is a delivery; False when none came within the time."""
        deadline = time.monotonic() + self.settings.confirm_timeout_s
        while not self.deliveries:
            if not self.poll(deadline - time.monotonic()):
                return False
        return True

    def ack(self, delivery_tag: int) -> None:
        """Acknowledge deliveries up to a tag."""
        self._send_now(wire.method(CHANNEL, 60, 80, struct.pack(">QB", delivery_tag, True)))

    def ask(self, address: str, headers: Mapping[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Publish to a control address and give the answer that comes back, as JSON."""
        mark = self.request(self.take_replies(), address, headers, body)
        return self.answer(mark, f"no answer from {address}")

    def take_replies(self) -> str:
        """Begin to take replies; gives the address that they are to go to, which needs no permission."""
        if not self._takes_replies:
            self.consume(REPLY_TO, no_ack=True, arguments={})
            self._takes_replies = True
        return REPLY_TO

    def request(self, reply_to: str, address: str, headers: Mapping[str, Any], body: bytes = b"") -> str:
        """Publish to a control address; gives the mark of its answer."""
        mark = uuid.uuid4().hex
        properties = {"headers": headers, "reply_to": reply_to, "correlation_id": mark}
        self.publish("", address, body, wire.encode_properties(properties))
        self.flush()
        return mark

    def answer(self, mark: str, missing: str) -> dict[str, Any]:
        """Wait for the answer to a request; raises BrokerUnreachable, which tells what is `missing`, when
        nothing comes for the time there is.
        """
        while True:
            while self.deliveries:
                message = self.deliveries.popleft()
                if message.properties.get("correlation_id") == mark:
                    answer: dict[str, Any] = json.loads(message.body)
                    return answer
            timeout_s = self.settings.confirm_timeout_s
            if not self.poll(timeout_s):
                raise BrokerUnreachable(f"{missing} within {timeout_s:g} s (option confirmTimeout)")

    def commit_offset(self, queue: str, group: str, offset: int) -> None:
        """Say that a group of a stream is done with everything up to an offset."""
        headers = {"x-group-id": group, "x-offset": offset}
        self.publish("", f"{queue_address(queue)}/$commit", b"", wire.encode_properties({"headers": headers}))

    # publishing

    def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: bytes, *, mandatory: bool = False
    ) -> None:
        """Publish one message; it leaves with the next `flush` or when enough has come together."""
        head = wire.method(
            CHANNEL, 60, 40, b"\0\0" + wire.short(exchange) + wire.short(routing_key) + bytes((mandatory,))
        )
        parts = [head, wire.content_header(CHANNEL, len(body), properties)]
        parts += [
            wire.frame(wire.BODY, CHANNEL, body[start : start + self.body_bytes_max])
            for start in range(0, len(body), self.body_bytes_max)
        ]
        self.send(parts, 1)

    def send(self, parts: list[bytes], message_count: int) -> None:
        """Send frames of whole messages, ready made; read confirms while too many are out."""
        self.published += message_count
        self._out += parts
        self._out_bytes += sum(map(len, parts))
        if self._out_bytes >= WRITE_BYTES:
            self.flush()

    @property
    def unconfirmed(self) -> int:
        """Publishes that are not confirmed yet."""
        return self.published - self._confirmed - len(self._out_of_order)

    def wait_confirmed(self, unconfirmed_max: int = 0) -> None:
        """Wait until at most so many publishes are unconfirmed."""
        if self.unconfirmed <= unconfirmed_max:
            return
        self.flush()
        timeout_s = self.settings.confirm_timeout_s
        while self.unconfirmed > unconfirmed_max:
            before = self.unconfirmed
            if not self.poll(timeout_s) and self.unconfirmed == before:
                raise BrokerUnreachable(
                    f"{self.unconfirmed} publishes were not confirmed within {timeout_s:g} s"
                    " (option confirmTimeout)"
                )

    # what comes in

    def delivered(self, content: Content) -> None:
        """Keep a delivery; raises Refused for a message that no queue receives."""
        head, parts = content.head, content.parts
        reader = wire.Reader(head, 4)
        if content.method == RETURN:
            code, text = reader.unpack("H"), reader.short()
            reader.short()
            raise Refused(
                f"no queue receives messages with routing key {reader.short()!r}: {code} {text}"
                " (options queue, routingKey, mandatory)"
            )
        reader.take(1 + head[4])  # the consumer's tag
        tag = reader.unpack("Q")
        reader.take(1)  # whether it came before
        address = head[reader.position :]
        if address != self._address[0]:  # of one stream most often the same
            self._address = (address, reader.short(), reader.short())
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        properties = wire.decode_properties(content.header, 12)
        self.deliveries.append(Message(tag, self._address[1], self._address[2], properties, body))

    def settled(self, method: tuple[int, int], tag: int, multiple: int) -> None:
        """Take a confirm; raises Refused for a message the broker did not take."""
        if method == NACK:
            raise Refused(
                "the broker refused a message (basic.nack): the queue is full, or a message_id came again"
                " with another body (delivery idempotent)"
            )
        if multiple:
            self._confirmed = max(self._confirmed, tag)
            self._out_of_order = {other for other in self._out_of_order if other > tag}
        elif tag == self._confirmed + 1:
            self._confirmed = tag
        else:
            self._out_of_order.add(tag)
        while self._confirmed + 1 in self._out_of_order:
            self._confirmed += 1
            self._out_of_order.discard(self._confirmed)
