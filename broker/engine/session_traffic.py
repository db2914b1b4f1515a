"""The calls between front-ends and the core about MQTT sessions, as the front-ends see it.

As with `traffic`, sessions, their subscriptions and logs belong to the client that made them; a front-end
reads what is stated here, and what it says to a session is a call of it or of `SessionClient`. The local
client gives out what the core itself works with, so that nothing is looked up for a message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from queue_manager.sessions.common import Bounds, Losses
from queue_manager.sessions.session import Delivery, Link
from queue_manager.sessions.session_subscription import SubscriptionOptions
from queue_manager.sessions.vhost_sessions import Totals
from queue_manager.shard.commit import Waiter
from storage.records import CONNECTED, NEVER_S, WillValue

__all__ = [  # of the core's values, beside what is stated here
    "CONNECTED",
    "NEVER_S",
    "Bounds",
    "Delivery",
    "Link",
    "Losses",
    "SubscriptionOptions",
    "Totals",
    "WillValue",
]


class Unfinished(Protocol):
    """The deliveries that the client of a session has not acknowledged."""

    def packet_ids(self) -> Collection[int]:
        """Return all identifiers in use."""

    def unreceived(self) -> Collection[int]:
        """Return those of messages that the client may not have got."""


class Received(Protocol):
    """The packet identifiers of publishes of QoS 2 that the client of a session has not released."""

    def packet_ids(self) -> Collection[int]:
        """Return all of them."""

    def note(self, packet_ids: Iterable[int]) -> None:
        """Remember publishes that were taken and are kept nowhere, as long as the broker runs."""

    def take(self, packet_ids: Collection[int], now_ms: int) -> None:
        """Remember stored publishes with the open commit, as they are."""

    def complete(self, packet_ids: list[int], waiter: Waiter) -> bool:
        """Take PUBREL: `waiter` is told when it is durable that these are free; returns whether any was
        known.
        """


class SessionSubscription(Protocol):
    """A session's subscription to one filter."""

    @property
    def session(self) -> Session: ...

    @property
    def filter(self) -> str: ...

    @property
    def options(self) -> SubscriptionOptions: ...

    @property
    def is_logged(self) -> bool:
        """Whether messages are kept for it."""

    @property
    def is_own(self) -> bool:
        """Whether it is what brings the client retained messages for another subscription."""


class Matched(Protocol):
    """The subscriptions of a session that a topic matches."""

    @property
    def logged(self) -> Sequence[SessionSubscription]:
        """The subscriptions that messages are kept for."""

    @property
    def beside(self) -> Sequence[SessionSubscription]:
        """The subscriptions that none are kept for."""


class Log(Protocol):
    """The log of a filter that sessions are subscribed to with QoS 1 or 2."""

    @property
    def filter(self) -> str: ...

    @property
    def live(self) -> Iterable[SessionSubscription]:
        """The subscriptions of sessions whose client is connected."""


class Session(Protocol):
    """The state that outlives a connection of a client."""

    @property
    def number(self) -> int:
        """The number by which it is known for ever."""

    @property
    def client_id(self) -> str: ...

    @property
    def user(self) -> str:
        """The name of its user."""

    @property
    def link(self) -> object | None:
        """Its connection, as it was attached."""

    @property
    def is_over(self) -> bool: ...

    @property
    def expiry_s(self) -> int:
        """How long it outlives its connection."""

    @property
    def expires_at_ms(self) -> int | None:
        """When it ends, if nobody comes; None: not at all, or not while somebody is there."""

    @property
    def subscriptions(self) -> Mapping[str, SessionSubscription]:
        """By filter."""

    @property
    def keeps_any(self) -> bool:
        """Whether messages are kept for any of its subscriptions."""

    def matched(self, topics: tuple[str, ...], *, is_own: bool) -> Matched:
        """Return its subscriptions that bring it what is published to topics, by itself if that `is_own`."""

    @property
    def unfinished(self) -> Unfinished: ...

    @property
    def received(self) -> Received: ...

    @property
    def queued(self) -> tuple[int, int]:
        """Messages, and bytes of body, that wait; what several filters matched counts for each."""

    @property
    def bounds(self) -> Bounds:
        """How much may wait, by its policies, too."""

    @property
    def dropped_count(self) -> int:
        """Messages that had no room since the broker started."""

    def expect(self, expiry_s: int) -> None:
        """Note that a client is about to be attached: the session ends so long after that is gone, not
        before.
        """

    def attach(self, link: Link) -> None:
        """Take a connection: everything the client may not have is sent (again), then what waits."""

    def tell_end(self, call: Callable[[], None]) -> None:
        """Have `call` called when the session is over."""

    def expire_after(self, expiry_s: int) -> None:
        """Note the goodbye of a client: the session is to end so long after the connection does."""

    def wake(self) -> None:
        """Send more: the client takes it."""

    def acknowledge(self, packet_ids: list[int], now_ms: int, *, at_once: bool = False) -> None:
        """Take PUBACK or PUBCOMP, or a refusal: these are finished. `at_once`: it is written with the open
        commit, not a little later.
        """

    def receive(self, packet_ids: list[int], now_ms: int) -> list[int]:
        """Take PUBREC: PUBREL is sent once that is durable. Gives which of these are the session's."""


LogCall = Callable[[Log, bool], None]
"""Told of a log that begins and, with False, of one that ends."""
