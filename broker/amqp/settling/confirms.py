"""Publisher confirms of a channel: what basic.ack and basic.nack tell, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.clients.late_refusals import note_refused
from broker.clients.when_durable import WhenDurable
from broker.engine.client.commits import CommitClient
from protocols.amqp091 import hot
from queue_manager.outcomes import UNROUTED


@dataclass(eq=False, repr=False, slots=True)
class Confirms:
    """In confirm mode publishes are numbered from 1; everything up to a number is confirmed at once when the
    commit holding it is durable.

    `_pending_nacks` are the numbers of publishes that are refused and not told yet, in order: those below a
    number must be told before it is confirmed, since a confirm may stand for all below it. `_refused` are the
    numbers, in order, of those that a queue elsewhere refused after all. `_waiting` counts the commits whose
    answers, confirms or nacks, are still to come.
    """

    _channel: AmqpChannel
    _commits: CommitClient = field(init=False)
    is_on: bool = field(default=False, init=False)
    _sequence: int = field(default=0, init=False)
    _confirmed: int = field(default=0, init=False)
    _waiting: int = field(default=0, init=False)
    _pending_nacks: deque[int] = field(default_factory=deque, init=False)
    _refused: deque[int] = field(default_factory=deque, init=False)
    _nack_waiter: WhenDurable = field(init=False)

    def __post_init__(self) -> None:
        self._commits = self._channel.core.commits
        # the commits of refusals may hold no publish that `self` waits for
        self._nack_waiter = WhenDurable(self._nacks_committed)

    def select(self) -> None:
        """Act on confirm.select: publishes are confirmed from the next one on."""
        self.is_on = True

    def confirm(self, count: int, *, durable: bool) -> None:
        """Confirm the next publishes: now, or when what was done so far is durable."""
        if not self.is_on:
            return
        self._sequence += count
        if durable or self._waiting:
            self._waiting += self._commits.wait_up_to(self, self._sequence)
        else:
            self._ack(self._sequence)

    def nack(self, count: int) -> None:
        """Refuse the next publishes."""
        if not self.is_on:
            return
        for _ in range(count):
            self._sequence += 1
            if not self._waiting:
                self._confirmed = self._sequence
            self._send_nack(self._sequence)
        self._channel.transport.want_answer()

    def nack_when_durable(self) -> None:
        """Refuse the next publish once what was done so far is durable."""
        if not self.is_on:
            return
        self._sequence += 1
        self._pending_nacks.append(self._sequence)
        self._waiting += self._commits.wait_up_to(self._nack_waiter, self._sequence)

    def refused(self, tokens: Sequence[int], outcome: int) -> None:
        """See `broker.engine.traffic.PublishWaiter`; told with the confirms of their commit."""
        if outcome != UNROUTED:
            channel = self._channel
            note_refused(channel.hub, channel.transport, outcome, len(tokens))
            self._refused = deque(sorted((*self._refused, *tokens)))

    def committed(self, tokens: list[int]) -> None:
        """See `queue_manager.shard.commit.Waiter`: everything up to the last token is durable."""
        last = tokens[-1]
        transport = self._channel.transport
        self._waiting -= 1
        if self._pending_nacks:
            transport.guard(self._send_pending_nacks, last)
        transport.guard(self._settle if self._refused else self._ack, last)

    def _nacks_committed(self, tokens: list[int]) -> None:
        """Note that the refusals up to the last of these numbers are durable."""
        self._waiting -= 1
        self._channel.transport.guard(self._send_pending_nacks, tokens[-1])

    def _settle(self, last: int) -> None:
        """Confirm and refuse what is not told yet, up to a number, in order."""
        refused = self._refused
        while refused and refused[0] <= last:
            sequence = refused.popleft()
            if sequence - 1 > self._confirmed:
                self._ack(sequence - 1)
            self._send_nack(sequence)
            self._confirmed = sequence
        if last > self._confirmed:
            self._ack(last)
        self._channel.transport.want_answer()

    def _ack(self, sequence: int) -> None:
        channel = self._channel
        client = channel.client
        if channel.closed or not client.connection.channel_is_open(channel.number):
            return
        multiple = sequence - self._confirmed > 1
        self._confirmed = sequence
        client.connection.output.append(hot.encode_ack(channel.number, sequence, multiple))
        client.transport.want_answer()

    def _send_pending_nacks(self, last: int) -> None:
        pending = self._pending_nacks
        while pending and pending[0] <= last:
            self._send_nack(pending.popleft())
        self._channel.transport.want_answer()

    def _send_nack(self, sequence: int) -> None:
        channel = self._channel
        if channel.is_open():
            channel.connection.output.append(hot.encode_nack(channel.number, sequence))
