"""Subscriptions to plain filters, what several that match the same topic come to, and which member of a group
gets a message (shared subscriptions, section 4.8.2).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from broker.engine.session_traffic import Log, Session
from protocols.mqtt.events import LonePublish, PublishRun, PublishShape
from protocols.mqtt.wire import encode_varint

_SUBSCRIPTION_IDENTIFIER: Final = b"\x0b"
HERE: Final = -1  # among the workers that have members of a group


class Subscriber(Protocol):
    """The receiver of the messages that subscriptions match."""

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
        """Return whether he is permitted to get what is published to a topic that his filter matches."""

    def pass_on(self, run: PublishRun) -> None:
        """Send publishes on as they came."""

    def pass_on_lone(self, lone: LonePublish) -> None:
        """Send a single publish on as it came, at the end of the loop turn."""

    def forward(self, run: PublishRun, subscription: Subscription) -> None:
        """Send publishes on as the subscription wants them."""


@dataclass(slots=True, eq=False)
class Subscription:
    """One client's subscription to one filter; `share` is the name in a `$share/<name>/...` one, or "", and
    `group` what it is a member of, then. `identifiers` are the properties that deliveries carry for it.
    `is_own`: it stands for what its client itself publishes. `is_kept`: for the log of lasting sessions.
    `session`: the client's, if that lasts.
    """

    subscriber: Subscriber
    filter: str
    qos: int
    _: KW_ONLY
    no_local: bool = False
    retain_as_published: bool = False
    identifiers: bytes = b""
    share: str = ""
    is_own: bool = False
    is_kept: bool = False
    session: Session | None = None
    group: ShareGroup | None = field(default=None, init=False)

    def join(self, group: ShareGroup) -> None:
        """Note the group it is a member of."""
        self.group = group

    def takes_as_is(self, shape: PublishShape, version: int) -> bool:
        """Return whether publishes of this shape, sent over `version`, may go to the subscriber byte for
        byte.
        """
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
    """Return a subscription identifier as a property (section 3.3.2.3.8); b"" for None."""
    return b"" if identifier is None else _SUBSCRIPTION_IDENTIFIER + encode_varint(identifier)


def one_for_each_client(
    subscriptions: Iterable[Subscription], publisher: Subscriber | None = None
) -> list[Subscription]:
    """Return what clients get that have several subscriptions to a topic, none of them shared: one copy with
    the highest of their QoS and all of their identifiers [MQTT-3.3.4-2] to [MQTT-3.3.4-4]; the publisher has
    none by those with "no local" [MQTT-3.8.3-3].
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


class ShareBacklog(Protocol):
    """Keeps what a group is published with QoS 1 and 2, since members of it have sessions that last.

    Such messages come by it and not by their publisher; it is told what becomes of them.
    """

    def joined(self, group: ShareGroup) -> None:
        """Note that the group has one more member."""

    def left(self) -> None:
        """Note that the last member of the group is gone."""

    def hand_over(self, run: PublishRun, member: Subscription) -> bool:
        """Let the member's session keep it from now on, if it has to [MQTT-4.8.2-4]; whether it does."""

    def given(self, run: PublishRun, member: Subscription | None) -> None:
        """Note the member that has it; None: no member may read it."""

    def take_back(self, run: PublishRun) -> bool:
        """Keep what a member was given before anything was kept, and gives back; whether that is so."""

    def dropped(self, run: PublishRun) -> None:
        """Take back what the member had no room for after all."""

    def finished(self, run: PublishRun) -> None:
        """Note that a member acknowledged it."""

    def wake(self) -> None:
        """Deliver again: a member takes more."""


class ShareGroup:
    """The subscriptions of one share name and filter, in the order of joining.

    `balanced`: members take turns. `sticky`: one has everything until it leaves or has no room. `random`:
    anybody's guess. A member that has no room is passed over as long as another has.

    `far` are the numbers of members at other workers, each with whether it keeps what they are not sent;
    `log` keeps it here, where there are other workers.
    """

    __slots__ = ("_choose", "_backlog", "_shares", "_turn", "far", "filter", "log", "members", "share")

    def __init__(self, strategy: str, share: str = "", topic_filter: str = "") -> None:
        self.share = share
        self.filter = topic_filter
        self.far: dict[int, tuple[int, bool]] = {}
        self.log: Log | None = None
        self._shares: dict[int, int] = {}
        self._backlog: ShareBacklog | None = None
        self.members: list[Subscription] = []
        self._turn = 0
        self._choose: Callable[[ShareGroup], int] = _STRATEGIES[strategy]

    def join(self, subscription: Subscription) -> None:
        """Add a member. Of one that subscribes anew only the options change: it keeps what it was given."""
        for place, member in enumerate(self.members):
            if member.subscriber is subscription.subscriber:
                self.members[place] = subscription
                return
        self.members.append(subscription)
        if self._backlog is not None:
            self._backlog.joined(self)

    def leave(self, subscription: Subscription) -> None:
        """Take a member away."""
        self.members = [member for member in self.members if member is not subscription]
        if self._backlog is not None and not self.members:
            self._backlog.left()

    def keep(self, backlog: ShareBacklog | None) -> None:
        """Have publishes of QoS 1 and 2 come by that backlog, or by none."""
        self._backlog = backlog
        if backlog is not None and self.members:
            backlog.joined(self)

    def know(self, worker: int, count: int, *, is_kept: bool) -> None:
        """Note how many members are at another worker, and whether it keeps what they are not sent."""
        self.far.pop(worker, None)
        if count or is_kept:
            self.far[worker] = count, is_kept

    def pick_worker(self) -> int:
        """Return the worker whose members have the turn, in even shares of all that are connected; HERE: this
        one. If none is, it is one that keeps what is published.
        """
        weights = {worker: count for worker, (count, _) in self.far.items() if count}
        if self.members:
            weights[HERE] = len(self.members)
        if not weights:
            kept = [worker for worker, (_, is_kept) in self.far.items() if is_kept]
            return HERE if self.log is not None or not kept else kept[0]
        shares = self._shares
        for worker, weight in weights.items():
            shares[worker] = shares.get(worker, 0) + weight
        chosen = max(weights, key=lambda worker: shares[worker])
        shares[chosen] -= sum(weights.values())
        return chosen

    @property
    def is_unused(self) -> bool:
        """Whether there is nobody in it, and nothing is kept for it."""
        return not (self.members or self.far or self.log is not None)

    @property
    def is_kept(self) -> bool:
        """Whether somebody keeps what is published with QoS 1 and 2."""
        return self._backlog is not None

    @property
    def has_room(self) -> bool:
        """Whether a member takes one more message now."""
        return any(member.subscriber.has_room for member in self.members)

    def publish(self, run: PublishRun) -> None:
        """Give one publish to one member."""
        member = self._pick(run.shape.topic)
        backlog = self._backlog
        if member is not None:
            if backlog is not None and backlog.hand_over(run, member):
                return
            member.subscriber.forward(run, member)
        if backlog is not None and self.members:
            backlog.given(run, member)

    def give_back(self, run: PublishRun) -> None:
        """Give what a member has not acknowledged in its session to another one."""
        if self._backlog is None or not self._backlog.take_back(run):
            self.publish(run)

    def dropped(self, run: PublishRun) -> None:
        """Take back what the member it was given to has not taken."""
        if self._backlog is not None:
            self._backlog.dropped(run)

    def finished(self, run: PublishRun) -> None:
        """Note that the member acknowledged it."""
        if self._backlog is not None:
            self._backlog.finished(run)

    def wake(self) -> None:
        """Deliver again: a member takes more."""
        if self._backlog is not None:
            self._backlog.wake()

    def _pick(self, topic: str) -> Subscription | None:
        """Pick the member whose turn it is, of those that may read the topic."""
        members = self.members
        if not members:
            return None
        first = self._choose(self)
        chosen: Subscription | None = None
        for step in range(len(members)):
            turn = (first + step) % len(members)
            member = members[turn]
            if not member.subscriber.may_read(topic):
                continue
            if member.subscriber.has_room:
                self._turn = turn
                return member
            chosen = chosen or member
        return chosen

    def _next(self) -> int:
        return (self._turn + 1) % len(self.members)

    def _same(self) -> int:
        return self._turn % len(self.members)

    def _any(self) -> int:
        return random.randrange(len(self.members))


_STRATEGIES: Final[dict[str, Callable[[ShareGroup], int]]] = {
    "balanced": ShareGroup._next,
    "sticky": ShareGroup._same,
    "random": ShareGroup._any,
}
