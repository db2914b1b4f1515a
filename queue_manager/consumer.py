"""Consumers of a group and the credit they give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from config import limits
from queue_manager import ranking

if TYPE_CHECKING:
    from queue_manager.filters.consumer_filter import ConsumerFilter
    from queue_manager.group import Group
    from queue_manager.model import Entry, Message

UNLIMITED: Final = 1 << 62


class Sink(Protocol):
    """What a front-end gives for each consumer: where deliveries go."""

    def deliver(self, consumer: Consumer, messages: list[Message], entries: list[Entry] | None) -> bool:
        """Send `messages`, in order; give whether that could be done.

        `entries` are their claims; None: first deliveries to a `no_ack` consumer. Claims of a `no_ack`
        consumer are done once this gives True, and not to be kept. All messages of one call are either first
        deliveries or all redeliveries (`entries[0].attempts > 1`). A consumer whose sink gives False had
        better go: what it could not send returns when it does.
        """

    def revoked(self, consumer: Consumer, entries: list[Entry]) -> None:
        """The leases of `entries` ended: their delivery tags mean nothing any more."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """The consumer is gone because its queue or group is."""


class CreditPool:
    """A limit on unsettled messages that several consumers share (AMQP `basic.qos` global)."""

    __slots__ = ("consumers", "credit_max", "in_flight")

    def __init__(self, credit_max: int) -> None:
        self.credit_max = credit_max
        self.in_flight = 0
        self.consumers: list[Consumer] = []

    def adopt(self, consumer: Consumer) -> None:
        """Count a consumer that was there before the pool; what it holds counts too."""
        if not consumer.no_ack and consumer.pool is None:
            consumer.pool = self
            self.consumers.append(consumer)
            self.in_flight += len(consumer.in_flight)


class Consumer:
    """One consumer of one group.

    `credit_max` is how many unsettled messages it may hold (UNLIMITED when it set no bound). `in_flight`
    maps message offset to Entry in order of claiming. `no_ack` consumers hold only what is being sent, or
    could not be. Of consumers with credit only those of the highest `priority` are given messages.
    `late_held`: how many claims it had left when it last let a lease end; -1 if that does not count any more.
    """

    __slots__ = (
        "active",
        "bytes_in_flight",
        "consumer_id",
        "credit_max",
        "exclusive",
        "extended",
        "filter",
        "group",
        "in_flight",
        "late_held",
        "lease_ms",
        "no_ack",
        "paused",
        "pool",
        "priority",
        "sink",
    )

    def __init__(
        self,
        group: Group,
        consumer_id: str,
        sink: Sink,
        *,
        credit_max: int,
        no_ack: bool,
        exclusive: bool,
        lease_ms: int,
        pool: CreditPool | None,
        priority: int = 0,
        wanted: ConsumerFilter | None = None,
    ) -> None:
        self.group = group
        self.consumer_id = consumer_id
        self.sink = sink
        self.credit_max = credit_max
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.lease_ms = lease_ms
        self.pool = pool
        self.priority = priority
        self.filter = wanted
        self.in_flight: dict[int, Entry] = {}
        self.bytes_in_flight = 0
        self.extended = False  # some claim has a lease of its own
        self.late_held = -1
        self.paused = False
        self.active = True
        if pool is not None:
            pool.consumers.append(self)

    def credit(self) -> int:
        """How many messages may be claimed for it now."""
        if self.paused or not self.active:
            return 0
        if self.no_ack:
            return limits.NO_ACK_BURST_MAX
        held = len(self.in_flight)
        free = min(self.credit_max, limits.CLAIMS_PER_CONSUMER_MAX) - held
        if self.pool is not None:
            free = min(free, self.pool.credit_max - self.pool.in_flight)
        if held and self.bytes_in_flight >= limits.CLAIMED_BYTES_PER_CONSUMER_MAX:
            return 0
        return free

    def is_late(self) -> bool:
        """Whether it let a lease end and has neither settled anything nor waited long since."""
        return 0 <= self.late_held <= len(self.in_flight)

    def on_timer(self, now_ms: int) -> None:
        """It was late for long enough."""
        self.forgive()

    def came_late(self) -> None:
        """It settled a claim it does not hold any more: it is slow, but at work."""
        if self.late_held >= 0:
            self.forgive()

    def forgive(self) -> None:
        """Let it take part again, though it was late."""
        self.late_held = -1
        if self.active:
            self.group.is_ranked = ranking.is_ranked(self.group)
            self.group.mark_dispatch()
