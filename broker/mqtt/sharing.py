"""Shared subscriptions (section 4.8.2): which member of a group gets a message."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from broker.mqtt.subscription import Subscription
from protocols.mqtt.events import PublishRun


class ShareGroup:
    """The subscriptions of one share name and filter, in the order of joining.

    `balanced`: members take turns. `sticky`: one has everything until it leaves or has no room. `random`:
    anybody's guess. A member that has no room is passed over as long as another has.
    """

    __slots__ = ("_choose", "_turn", "members")

    def __init__(self, strategy: str) -> None:
        self.members: list[Subscription] = []
        self._turn = 0
        self._choose: Callable[[ShareGroup], int] = _STRATEGIES[strategy]

    def join(self, subscription: Subscription) -> None:
        """Add a member."""
        self.members.append(subscription)

    def leave(self, subscription: Subscription) -> None:
        """Take a member away."""
        self.members = [member for member in self.members if member is not subscription]

    def publish(self, run: PublishRun) -> None:
        """Give one publish to one member."""
        member = self._pick(run.shape.topic)
        if member is not None:
            member.subscriber.forward(run, member)

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
