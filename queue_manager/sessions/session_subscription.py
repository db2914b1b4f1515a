"""The subscription of a session to a filter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from queue_manager.sessions.blocks import END
from queue_manager.sessions.filter_log import ENDED, OWN, FilterLog
from storage.records import NO_LOG, SubscriptionValue, session_subscription

_NO_LOCAL: Final = 4
_RETAIN_AS_PUBLISHED: Final = 8


class SubscriptionOptions(NamedTuple):
    """How a client subscribed; `identifier` 0: none, `properties`: user properties as an MQTT 5 block."""

    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    identifier: int
    properties: bytes

    def encode(self) -> int:
        """Return the options byte of a SUBSCRIBE."""
        flags = self.no_local * _NO_LOCAL | self.retain_as_published * _RETAIN_AS_PUBLISHED
        return self.qos | flags | self.retain_handling << 4


class Subscriber(Protocol):
    """The session, as its subscriptions see it."""

    @property
    def number(self) -> int:
        """The number that its records are stored under."""

    @property
    def position(self) -> int:
        """Everything with a lower ID is done."""

    def has_more(self, subscription: SessionSubscription) -> None:
        """Tell that something came into the log of a subscription, or was read back."""

    def lost(self, subscription: SessionSubscription, count: int) -> None:
        """Count so many messages of its log that were dropped before they were read."""


@dataclass(eq=False, repr=False, slots=True)
class SessionSubscription:
    """One session's subscription to one filter, as it was subscribed to.

    `log` keeps its messages of QoS 1 and 2; None for filters of QoS 0, shared ones and queues. Messages with
    IDs below `from_id`, or of `end_id` and above, are not for it. `read_count` and `read_bytes`: how much of
    what the log ever got the session has been given.
    Implements `queue_manager.sessions.filter_log.LogReader`.
    """

    session: Subscriber
    filter: str
    options: SubscriptionOptions
    log: FilterLog | None
    from_id: int
    end_id: int = field(init=False)
    _ended_at: tuple[int, int] | None = field(init=False)
    read_count: int = field(default=0, init=False)
    read_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        log = self.log
        self.end_id = int(self.filter.rpartition(OWN)[2]) if self.filter.startswith(ENDED) else END
        self._ended_at = None if log is None or self.end_id == END else (log.end_count, log.end_bytes)

    @property
    def is_logged(self) -> bool:
        """Whether messages are kept for it."""
        return self.log is not None

    @property
    def low_id(self) -> int:
        """The session needs nothing of the log below this ID."""
        return max(self.from_id, self.session.position)

    @property
    def is_own(self) -> bool:
        """Whether it is what brings the client retained messages for another subscription."""
        return self.filter.startswith(OWN)

    @property
    def is_ended(self) -> bool:
        """Whether it only brings what came before it ended."""
        return self.end_id != END

    @property
    def waiting(self) -> tuple[int, int]:
        """Messages, and bytes of body, that the session has yet to be given."""
        log = self.log
        if log is None:
            return 0, 0
        end_count, end_bytes = self._ended_at or (log.end_count, log.end_bytes)
        return end_count - self.read_count, end_bytes - self.read_bytes

    @property
    def is_drained(self) -> bool:
        """Whether the session was given everything in its log."""
        return self.log is None or self.read_count >= self.log.end_count

    def begin_at(self, count: int, body_bytes: int) -> None:
        """Note how much of what the log ever got is not for it, or done."""
        self.read_count = count
        self.read_bytes = body_bytes

    def note_read(self, body_bytes: int) -> None:
        """Count one more that was given to the session, or dropped."""
        self.read_count += 1
        self.read_bytes += body_bytes

    def note_all_read(self) -> None:
        """Note that it has ended, and everything before was given to the session."""
        if self._ended_at is not None:
            self.begin_at(*self._ended_at)

    def head_moved(self) -> None:
        log = self.log
        if log is not None and self.read_count < log.head_count:
            lost = log.head_count - self.read_count
            self.begin_at(log.head_count, max(self.read_bytes, log.head_bytes))
            self.session.lost(self, lost)

    def has_more(self) -> None:
        self.session.has_more(self)

    def goes_on_as(self, options: SubscriptionOptions) -> bool:
        """Return whether what waits would not be lost, nor anything more be given, with these options."""
        return self.log is None or self.options.no_local == options.no_local

    def change(self, options: SubscriptionOptions) -> None:
        """Have it as subscribed to anew; what waits stays [MQTT-3.8.4-3]."""
        self.options = options

    def record(self) -> tuple[bytes, bytes]:
        """Return key and value."""
        options = self.options
        value = SubscriptionValue(
            NO_LOG if self.log is None else self.log.number,
            options.encode(),
            options.identifier,
            self.from_id,
            self.read_count,
            self.read_bytes,
            options.properties,
        )
        key = session_subscription.key(self.session.number, self.filter)
        return key, session_subscription.encode(*value)


def options_of(value: SubscriptionValue) -> SubscriptionOptions:
    """Return the options a record holds."""
    flags = value.options
    return SubscriptionOptions(
        flags & 3,
        bool(flags & _NO_LOCAL),
        bool(flags & _RETAIN_AS_PUBLISHED),
        flags >> 4 & 3,
        value.identifier,
        value.properties,
    )
