"""Refusals of publishes that are told when they are durable."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from protocols.amqp091 import hot

if TYPE_CHECKING:
    from broker.amqp.publishing import Publisher


class LateRefusals:
    """The numbers of a channel's publishes that are refused and not told yet, in order.

    Those below a number must be told before that is confirmed: a confirm may stand for all below it.
    """

    __slots__ = ("_publisher", "numbers")

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.numbers: deque[int] = deque()

    def add(self, number: int) -> None:
        """Tell this one when what was done so far is durable."""
        self.numbers.append(number)
        publisher = self._publisher
        if publisher.channel.frontend.hub.client.commits.wait_up_to(self, number):
            publisher.waiting += 1

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.journal.Waiter`."""
        self._publisher.waiting -= 1
        self._publisher.channel.frontend.transport.guard(self.tell, tokens[-1])

    def tell(self, last: int) -> None:
        """Send those up to `last`."""
        channel = self._publisher.channel
        connection = channel.frontend.connection
        is_open = not channel.closed and connection.channel_is_open(channel.number)
        numbers = self.numbers
        while numbers and numbers[0] <= last:
            number = numbers.popleft()
            if is_open:
                connection.output.append(hot.encode_nack(channel.number, number, False))
        channel.frontend.transport.want_flush()
