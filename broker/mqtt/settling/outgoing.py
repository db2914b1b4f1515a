"""Messages on their way to one MQTT client, and those that wait for the client's Receive Maximum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.engine.traffic import Claim
from broker.mqtt.topology.subscription import ShareGroup
from broker.properties.mqtt import expiry_ms, with_expiry
from config import limits
from protocols.mqtt.events import PublishRun


@dataclass(slots=True, eq=False)
class Outgoing:
    """Messages alike but for their payloads. `claims` are their claims, which QoS 0 has not; `by_ack`: a
    PUBACK (QoS 2: PUBCOMP) settles them. `shared`: of a single message that a share group gave to this
    client, the group, what was published, and with which QoS it is sent.
    """

    topic_bytes: bytes
    qos: int
    retain: bool
    properties: bytes
    payloads: list[bytes]
    claims: Sequence[Claim] | None = None
    by_ack: bool = True
    shared: tuple[ShareGroup, PublishRun, int] | None = None

    def part(self, start: int, end: int) -> Outgoing:
        """Return some of the messages."""
        claims = None if self.claims is None else self.claims[start:end]
        payloads = self.payloads[start:end]
        return Outgoing(
            self.topic_bytes, self.qos, self.retain, self.properties, payloads, claims, self.by_ack
        )

    def wait_until(self, left_ms: int) -> None:
        """Tell the client that so much is left of the message expiry interval [MQTT-3.3.2-6]."""
        self.properties = with_expiry(self.properties, left_ms)


class _Entry(NamedTuple):
    """`expires_at_ms`: None for what has no message expiry interval."""

    outgoing: Outgoing
    expires_at_ms: int | None


class WaitingRoom:
    """The messages that the client's Receive Maximum has no room for, in order, counted: no deliveries of
    queues, which are claimed only for free places.
    """

    __slots__ = ("_bytes", "_count", "_entries", "_now_ms")

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._entries: deque[_Entry] = deque()
        self._count = 0
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._entries)

    def has_room(self, bytes_max: int) -> bool:
        """Return whether one more may wait."""
        return self._count < limits.SESSION_PENDING_MESSAGES_MAX and self._bytes <= bytes_max

    def add(self, outgoing: Outgoing) -> None:
        """Have messages wait behind the others."""
        left_ms = expiry_ms(outgoing.properties)
        expires_at_ms = None if left_ms is None else self._now_ms() + left_ms
        self._entries.append(_Entry(outgoing, expires_at_ms))
        self._account(outgoing, 1)

    def take(self, count_max: int) -> Outgoing | None:
        """Take the first messages, at most so many, that have not expired meanwhile [MQTT-3.3.2-5]."""
        while self._entries:
            outgoing, expires_at_ms = self._entries.popleft()
            self._account(outgoing, -1)
            if expires_at_ms is not None:
                left_ms = expires_at_ms - self._now_ms()
                if left_ms <= 0:
                    if outgoing.shared is not None:
                        outgoing.shared[0].dropped(outgoing.shared[1])
                    continue
                outgoing.wait_until(left_ms)
            count = len(outgoing.payloads)
            if count > count_max:
                rest = outgoing.part(count_max, count)
                self._entries.appendleft(_Entry(rest, expires_at_ms))
                self._account(rest, 1)
                outgoing = outgoing.part(0, count_max)
            return outgoing
        return None

    def clear(self) -> list[Outgoing]:
        """Let nothing wait any more; gives what did."""
        waited = [entry.outgoing for entry in self._entries]
        self._entries.clear()
        self._count = self._bytes = 0
        return waited

    def _account(self, outgoing: Outgoing, sign: int) -> None:
        self._count += sign * len(outgoing.payloads)
        self._bytes += sign * (sum(map(len, outgoing.payloads)) + len(outgoing.properties))
