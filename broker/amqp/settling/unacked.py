"""Delivery tags: what a channel's client was given and has not settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog

from broker.amqp.connection.amqp_channel import AmqpChannel
from broker.amqp.connection.errors import channel_error
from broker.engine.client.message_flow import SettlingClient
from broker.engine.traffic import Claim, Consumer
from broker.process.counters import Counters
from config import limits
from protocols.amqp091 import constants as c
from protocols.amqp091 import events as ev
from protocols.errors import ProtocolError

_log: Final = structlog.get_logger("sluicemq.amqp")


class Settlement(NamedTuple):
    """A settlement by a client: how, and its claims."""

    kind: int
    requeue: bool
    claims: list[Claim]


@dataclass(eq=False, repr=False, slots=True)
class Unacked:
    """Claims by delivery tag, in order of delivery; `_late`: tags whose lease ended, with their consumers.

    `_aside`: claims that a transaction settles, by their tags; `_lost_count`: how many of them lost their
    leases.
    """

    _channel: AmqpChannel
    _counters: Counters = field(init=False)
    _settling: SettlingClient = field(init=False)
    _now_ms: Callable[[], int] = field(init=False)
    _claims: dict[int, Claim] = field(default_factory=dict, init=False)
    _late: dict[int, Consumer] = field(default_factory=dict, init=False)
    _aside: dict[int, Claim] = field(default_factory=dict, init=False)
    _lost_count: int = field(default=0, init=False)
    _next_tag: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        hub = self._channel.hub
        self._counters = hub.counters
        self._settling = self._channel.core.settling
        self._now_ms = hub.clock.now_ms

    def __len__(self) -> int:
        return len(self._claims)

    def number(self, count: int, claims: Sequence[Claim] | None) -> int:
        """Give numbers to so many deliveries, and return the first tag; None: they need no
        acknowledgement.
        """
        first = self._next_tag
        self._next_tag = first + count
        if claims is not None:
            self._claims.update(zip(range(first, first + count), claims, strict=True))
        return first

    def claim(self, tag: int) -> Claim | None:
        """Return the claim that a tag stands for, None if it stands for none any more."""
        return self._claims.get(tag)

    def is_late(self, tag: int) -> bool:
        """Return whether the lease of that delivery ended before it was settled."""
        return tag in self._late

    def release(self, tag: int) -> None:
        """Forget a claim that was settled otherwise."""
        del self._claims[tag]

    def release_all(self) -> list[Claim]:
        """Give all claims, in order; their tags mean nothing any more."""
        claims = list(self._claims.values())
        self._claims.clear()
        return claims

    def forget(self, consumer: Consumer, claims: Sequence[Claim]) -> None:
        """Forget claims whose leases ended; settling them late is no error."""
        gone = set(map(id, claims))
        for tag in [tag for tag, claim in self._claims.items() if id(claim) in gone]:
            del self._claims[tag]
            self._late[tag] = consumer
        while len(self._late) > limits.AMQP_LATE_TAGS_MAX:
            del self._late[next(iter(self._late))]
        for tag in [tag for tag, claim in self._aside.items() if id(claim) in gone]:
            del self._aside[tag]
            self._lost_count += 1

    def fail(self, tags: range) -> None:
        """Fail claims among deliveries that do not fit the client's frames, or they would come back for
        ever.
        """
        channel = self._channel
        self._counters.drop_too_large(len(tags))
        _log.warning(
            "amqp.properties_too_large",
            peer=channel.transport.peer,
            channel=channel.number,
            count=len(tags),
        )
        claims = self._claims
        self._settling.reject([claims.pop(tag) for tag in tags if tag in claims], self._now_ms())

    def settle(self, event: ev.SettleRun) -> None:
        """Act on basic.ack, nack and reject; raises a channel error for a tag that means nothing, after those
        before it.
        """
        claims, unknown_tag = self._take_multiple(event) if event.multiple else self._take_single(event)
        if claims:
            self._settle(event.kind, event.requeue, claims)
        if unknown_tag is not None:
            raise _unknown(unknown_tag)

    def _settle(self, kind: int, requeue: bool, claims: list[Claim]) -> None:
        settling, now_ms = self._settling, self._now_ms()
        if kind == ev.ACK:
            late = settling.ack(claims, now_ms)
        elif requeue:
            late = settling.requeue(claims, now_ms, is_spared=kind == ev.NACK)
        else:
            late = settling.reject(claims, now_ms)
        if late:
            self._counters.settle_late(late)

    # transactions

    def set_aside(self, event: ev.SettleRun) -> Settlement:
        """Take what an event settles, for `apply` or `restore_aside`; raises a channel error for a tag that
        means nothing.
        """
        first = event.delivery_tags[0]
        if event.multiple:
            tags = self._tags_up_to(first)
            if first and not tags and first not in self._late:
                raise _unknown(first)
        else:
            tags = event.delivery_tags
        claims: list[Claim] = []
        for tag in tags:
            claim = self._claims.pop(tag, None)
            if claim is not None:
                self._aside[tag] = claim
                claims.append(claim)
            elif self._late.pop(tag, None) is not None:
                self._lost_count += 1
            else:
                raise _unknown(tag)
        return Settlement(event.kind, event.requeue, claims)

    def check_aside(self) -> None:
        """Raise a channel error if a lease of what was set aside ended: another consumer may have it."""
        if self._lost_count:
            raise channel_error(
                c.PRECONDITION_FAILED,
                f"the leases of {self._lost_count} deliveries ended before the transaction that settles them",
            )

    def apply(self, settlements: list[Settlement]) -> None:
        """Settle all that was set aside, within the open commit."""
        settling = self._settling
        for settlement in settlements:
            groups = {settling.durable_group_of(claim): None for claim in settlement.claims}
            self._settle(*settlement)
            for group in groups:
                if group is not None:
                    settling.write_soon(group)
        self._aside = {}

    def restore_aside(self) -> None:
        """Make unacknowledged again what was set aside."""
        self._lost_count = 0
        if self._aside:
            self._claims = dict(sorted((self._claims | self._aside).items()))
            self._aside = {}

    def _take_single(self, event: ev.SettleRun) -> tuple[list[Claim], int | None]:
        """Take the claims of the tags, up to the first that means nothing, and that one."""
        pop = self._claims.pop
        found = [pop(tag, None) for tag in event.delivery_tags]
        if all(found):
            return found, None  # type: ignore[return-value]
        claims: list[Claim] = []
        unknown_tag: int | None = None
        for tag, claim in zip(event.delivery_tags, found, strict=True):
            if claim is None:
                if unknown_tag is None and tag in self._late:
                    self._late.pop(tag).came_late()
                    self._counters.settle_late(1)
                elif unknown_tag is None:
                    unknown_tag = tag
            elif unknown_tag is None:
                claims.append(claim)
            else:
                self._claims[tag] = claim  # came behind the unknown one: not settled
        return claims, unknown_tag

    def _take_multiple(self, event: ev.SettleRun) -> tuple[list[Claim], int | None]:
        """Take the claims of all tags up to the one given, or that one if it means nothing."""
        tag = event.delivery_tags[0]
        claims = self._claims
        if tag == 0 or (claims and tag == next(reversed(claims))):
            return self.release_all(), None
        tags = self._tags_up_to(tag)
        if tag in self._late:
            self._late[tag].came_late()
        elif not tags:
            return [], tag
        return [claims.pop(candidate) for candidate in tags], None

    def _tags_up_to(self, tag: int) -> list[int]:
        """Return the tags that `multiple` stands for: none if that one was not given out yet."""
        if tag >= self._next_tag:
            return []
        tags = []
        for candidate in self._claims:
            if candidate > tag > 0:
                break
            tags.append(candidate)
        return tags


def _unknown(tag: int) -> ProtocolError:
    return channel_error(c.PRECONDITION_FAILED, f"unknown delivery tag {tag}")
