"""A client's subscription to a plain filter, and what several that match the same topic come to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from protocols.mqtt.events import PublishRun, PublishShape
from protocols.mqtt.wire import encode_varint

_SUBSCRIPTION_IDENTIFIER: Final = b"\x0b"


class Subscriber(Protocol):
    """Who gets what subscriptions match."""

    @property
    def protocol_version(self) -> int:
        """Of his connection."""

    @property
    def takes_rewritten(self) -> bool:
        """Whether publishes are to be encoded for him in any case: he allows topic aliases, or has a session
        that brings him some of them.
        """

    @property
    def has_room(self) -> bool:
        """Whether he takes one more message now."""

    def may_read(self, topic: str) -> bool:
        """Whether he is permitted to get what is published to a topic that his filter matches."""

    def pass_on(self, run: PublishRun) -> None:
        """Send publishes on as they came."""

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """Send publishes on as the subscription wants them."""


class Group(Protocol):
    """The group of a shared subscription, for who has to give a message back to it."""

    def publish(self, run: PublishRun, /) -> None:
        """Give one publish to one member."""

    def dropped(self, run: PublishRun, /) -> None:
        """The member it was given to has not taken it."""

    def finished(self, run: PublishRun, /) -> None:
        """A member acknowledged it."""

    def wake(self) -> None:
        """A member takes more."""


class Subscription:
    """One client's subscription to one filter; `share` is the name in a `$share/<name>/...` one, or "", and
    `group` what it is a member of, then. `identifiers` are the properties that deliveries carry for it.
    `is_own`: it stands for what its client itself publishes.
    """

    __slots__ = (
        "filter",
        "group",
        "identifiers",
        "is_own",
        "no_local",
        "qos",
        "retain_as_published",
        "share",
        "subscriber",
    )

    def __init__(
        self,
        subscriber: Subscriber,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifiers: bytes = b"",
        share: str = "",
        is_own: bool = False,
    ) -> None:
        self.subscriber = subscriber
        self.filter = filter
        self.qos = qos
        self.no_local = no_local
        self.retain_as_published = retain_as_published
        self.identifiers = identifiers
        self.share = share
        self.is_own = is_own
        self.group: Group | None = None

    def join(self, group: Group) -> None:
        """The group it is a member of."""
        self.group = group

    def takes_as_is(self, shape: PublishShape, version: int) -> bool:
        """Whether publishes of this shape, sent over `version`, may go to the subscriber byte for byte."""
        return (
            version == self.subscriber.protocol_version
            and self.qos >= shape.qos
            and not self.identifiers
            and not shape.dup
            and not shape.alias
            and (not shape.retain or self.retain_as_published)
            and not self.subscriber.takes_rewritten
        )


def encode_identifier(identifier: int | None) -> bytes:
    """A subscription identifier as a property (section 3.3.2.3.8); b"" for None."""
    return b"" if identifier is None else _SUBSCRIPTION_IDENTIFIER + encode_varint(identifier)


def one_for_each_client(
    subscriptions: Iterable[Subscription], publisher: Subscriber | None = None
) -> list[Subscription]:
    """What clients get who have several subscriptions to a topic, none of them shared: one copy with the
    highest of their QoS and all of their identifiers [MQTT-3.3.4-2] to [MQTT-3.3.4-4]; the publisher has none
    by those with "no local" [MQTT-3.8.3-3].
    """
    by_client: dict[Subscriber, list[Subscription]] = {}
    for subscription in subscriptions:
        if not (subscription.no_local and subscription.subscriber is publisher):
            by_client.setdefault(subscription.subscriber, []).append(subscription)
    return [_one_of(found, is_own=client is publisher) for client, found in by_client.items()]


def _one_of(found: list[Subscription], *, is_own: bool) -> Subscription:
    first = found[0]
    if len(found) == 1 and not is_own:
        return first
    return Subscription(
        first.subscriber,
        first.filter,
        max(one.qos for one in found),
        retain_as_published=any(one.retain_as_published for one in found),
        identifiers=b"".join(one.identifiers for one in found),
        is_own=is_own,
    )
