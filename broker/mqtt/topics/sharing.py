"""Shared subscriptions (section 4.8.2): which member of a group gets a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final, Protocol

from broker.mqtt.topics.subscription import Subscription
from protocols.mqtt.events import PublishRun


class Keeper(Protocol):
    """Who keeps what a group is published with QoS 1 and 2, since members of it have sessions that last.

    Such messages come by him and not by their publisher; he is told what becomes of them.
    """

    def joined(self, group: ShareGroup) -> None:
        """The group has one more member."""

    def left(self) -> None:
        """The last member of the group is gone."""

    def given(self, run: PublishRun, member: Subscription | None) -> None:
        """A member has it; None: nobody may read it."""

    def dropped(self, run: PublishRun) -> None:
        """The member had no room for it after all."""

    def finished(self, run: PublishRun) -> None:
        """The member acknowledged it."""

    def wake(self) -> None:
        """A member takes more."""


class ShareGroup:
    """The subscriptions of one share name and filter, in the order of joining.

    `balanced`: members take turns. `sticky`: one has everything until it leaves or has no room. `random`:
    anybody's guess. A member that has no room is passed over as long as another has.
    """

    __slots__ = ("_choose", "_keeper", "_turn", "members")

    def __init__(self, strategy: str) -> None:
        self._keeper: Keeper | None = None
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
        if self._keeper is not None:
            self._keeper.joined(self)

    def leave(self, subscription: Subscription) -> None:
        """Take a member away."""
        self.members = [member for member in self.members if member is not subscription]
        if self._keeper is not None and not self.members:
            self._keeper.left()

    def keep(self, keeper: Keeper | None) -> None:
        """Have publishes of QoS 1 and 2 come by that keeper, or by none."""
        self._keeper = keeper
        if keeper is not None and self.members:
            keeper.joined(self)

    @property
    def is_kept(self) -> bool:
        """Whether somebody keeps what is published with QoS 1 and 2."""
        return self._keeper is not None

    @property
    def has_room(self) -> bool:
        """Whether a member takes one more message now."""
        return any(member.subscriber.has_room for member in self.members)

    def publish(self, run: PublishRun) -> None:
        """Give one publish to one member."""
        member = self._pick(run.shape.topic)
        if member is not None:
            member.subscriber.forward(run, member)
        if self._keeper is not None and self.members:
            self._keeper.given(run, member)

    def dropped(self, run: PublishRun) -> None:
        """The member it was given to has not taken it."""
        if self._keeper is not None:
            self._keeper.dropped(run)

    def finished(self, run: PublishRun) -> None:
        """A member acknowledged it."""
        if self._keeper is not None:
            self._keeper.finished(run)

    def wake(self) -> None:
        """A member takes more."""
        if self._keeper is not None:
            self._keeper.wake()

    def _pick(self, topic: str) -> Subscription | None:
        """The member whose turn it is, of those that may read the topic."""
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
