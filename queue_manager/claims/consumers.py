"""The consumers of one group, their turns, and which of those with credit come first.

A consumer that let a lease end is late: it stands back while another one could have what it would get, until
it settles something or has waited long enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from config import limits
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.log.queue_log import QueueLog


class Turns:
    """Consumers that take messages: those that may have credit, in turn, then those known to have none."""

    __slots__ = ("_ready", "_spent")

    def __init__(self) -> None:
        self._ready: OrderedDict[Consumer, None] = OrderedDict()
        self._spent: dict[Consumer, None] = {}

    def __iter__(self) -> Iterator[Consumer]:
        return iter((*self._ready, *self._spent))

    def join(self, consumer: Consumer) -> None:
        """Let a consumer have turns, after all others."""
        self._ready[consumer] = None

    def leave(self, consumer: Consumer) -> None:
        """Let it have none any more."""
        self._ready.pop(consumer, None)
        self._spent.pop(consumer, None)

    def credit_grew(self, consumer: Consumer) -> bool:
        """Note that a consumer may have credit again; give whether it was known to have none."""
        if consumer not in self._spent:
            return False
        del self._spent[consumer]
        self._ready[consumer] = None
        return True

    def is_spent(self, consumer: Consumer) -> bool:
        """Return whether it is known to have no credit."""
        return consumer in self._spent

    def ready_count(self) -> int:
        """Return how many may have credit."""
        return len(self._ready)

    def next(self) -> Consumer | None:
        """Return the one with credit whose turn it is; those before it are passed over until they have
        some.
        """
        while self._ready:
            consumer = next(iter(self._ready))
            if consumer.credit() > 0:
                return consumer
            del self._ready[consumer]
            self._spent[consumer] = None
        return None

    def had(self, consumer: Consumer) -> None:
        """Note that a consumer was given something: the next one comes first."""
        if len(self._ready) > 1 and consumer in self._ready:
            self._ready.move_to_end(consumer)


NO_TURNS: Final = Turns()
"""The turns of groups without consumers; no consumer joins it."""


Covers = Callable[[Consumer, Consumer], bool]
"""Whether the first consumer takes whatever the second wants."""


class Consumers:
    """The consumers of a group, in the order of joining.

    `members` take messages. `draining` were cancelled, or pull one by one; they may hold claims. `is_ranked`:
    not every consumer with credit may have messages. `active` is the one that may, where the queue wants a
    single one. `turns` are those of the members.
    """

    __slots__ = (
        "_is_single_wanted",
        "_log",
        "_timers",
        "active",
        "draining",
        "is_ranked",
        "members",
        "turns",
    )

    def __init__(self, log: QueueLog) -> None:
        self._log = log
        self._timers = log.context.timers
        self.members: tuple[Consumer, ...] = ()
        self.draining: tuple[Consumer, ...] = ()
        self.is_ranked = False
        self._is_single_wanted = False
        self.active: Consumer | None = None
        self.turns = NO_TURNS

    def __iter__(self) -> Iterator[Consumer]:
        """Yield all consumers that may hold claims."""
        return iter((*self.members, *self.draining))

    @property
    def is_single_active(self) -> bool:
        """Whether one consumer at a time is given messages: the queue wants it, or one of them."""
        return self._log.policy.single_active or self._is_single_wanted

    def has_exclusive(self) -> bool:
        """Return whether a consumer keeps others out."""
        return any(consumer.exclusive for consumer in self.members)

    def in_flight_count(self) -> int:
        """Count messages claimed and not settled."""
        return sum(len(consumer.in_flight) for consumer in self)

    def find_claim(self, offset: int) -> Claim | None:
        """Return the in-flight claim of the message at `offset`, of any holder."""
        for consumer in self:
            claim = consumer.in_flight.get(offset)
            if claim is not None:
                return claim
        return None

    # coming and going

    def add(self, consumer: Consumer) -> None:
        """Let a consumer take part. It takes over from no single active consumer."""
        if not self.members:
            self.turns = Turns()
        elif self.active is None and self.is_single_active:
            self.activate(self._next_in_line())
        self.members += (consumer,)
        self.turns.join(consumer)
        self._is_single_wanted |= consumer.is_single_active
        if self.is_single_active:
            self.is_ranked = True
            self.activate(self.active or self._next_in_line())
            if self.active is not consumer:
                consumer.tell_activity(False)
        elif consumer.priority:
            self.is_ranked = True

    def drain(self, consumer: Consumer) -> None:
        """Let a consumer take nothing by itself, though it may hold claims."""
        if consumer not in self.draining and consumer not in self.members:
            self.draining += (consumer,)

    def cancel(self, consumer: Consumer) -> bool:
        """Deliver nothing more to a consumer; give whether it took part."""
        if consumer not in self.members:
            return False
        self._leave(consumer)
        self.draining += (consumer,)
        return True

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer."""
        self._timers.forget(consumer)
        if consumer in self.members:
            self._leave(consumer)
        elif consumer in self.draining:
            self.draining = _without(self.draining, consumer)

    def activate(self, consumer: Consumer | None) -> None:
        """Give messages to this single active consumer from now on; both are told, if they want to be."""
        before, self.active = self.active, consumer
        if before is not consumer:
            if before is not None:
                before.tell_activity(False)
            if consumer is not None:
                consumer.tell_activity(True)

    def _leave(self, consumer: Consumer) -> None:
        self.members = _without(self.members, consumer)
        if consumer.is_single_active:
            self._is_single_wanted = any(member.is_single_active for member in self.members)
        self.turns.leave(consumer)
        if not self.members:
            self.turns = NO_TURNS

    def stop(self, consumer: Consumer) -> None:
        """Give a consumer no more messages."""
        consumer.stop()
        if consumer.late_held >= 0:
            self._timers.forget(consumer)
        if self.active is consumer:
            self.active = None
        if not self.members:
            self.is_ranked = False

    def forget_drained(self) -> None:
        """Forget those who take nothing and hold nothing any more."""
        if self.draining:
            self.draining = tuple([consumer for consumer in self.draining if consumer.in_flight])

    def clear(self) -> list[Consumer]:
        """Forget everybody; give who that was."""
        everybody = [*self.members, *self.draining]
        for consumer in everybody:
            self._timers.forget(consumer)
        self.members = ()
        self.turns = NO_TURNS
        self.draining = ()
        return everybody

    def take_over(self, other: Consumers) -> tuple[Consumer, ...]:
        """Drain here those of `other` that drain; give those that have yet to be added, in order."""
        members = other.members
        self.draining += tuple([consumer for consumer in other.draining if consumer.active])
        other.clear()
        return members

    def are_told_offsets(self) -> bool:
        """Return whether somebody is, of those who take messages or hold claims."""
        return any(c.is_told_offsets for c in self.members) or any(c.is_told_offsets for c in self.draining)

    def policy_changed(self) -> None:
        """Follow the queue, which may want a single active consumer now."""
        self.is_ranked |= self.is_single_active

    # ranks

    def first_takers(self) -> list[Consumer]:
        """Return, where not all consumers with credit may have messages, those that may now, in turn."""
        return self.entitled([consumer for consumer in self.turns if consumer.credit() > 0])

    def entitled(self, takers: list[Consumer]) -> list[Consumer]:
        """Return those of `takers` (which have credit) that come first.

        That is the single active one, or those of the highest priority that do not stand back.
        """
        if self.is_single_active:
            if self.active is None and not self._holds_keys_back():
                self.activate(self._next_in_line())
            return [self.active] if self.active in takers else []
        takers = [consumer for consumer in takers if not self.stands_back(consumer)]
        if not takers:
            return takers
        for consumer in takers:
            consumer.pardon()  # nobody else could, or it did what it had to
        highest = max(consumer.priority for consumer in takers)
        return [consumer for consumer in takers if consumer.priority == highest]

    def stands_back(self, consumer: Consumer, covers: Covers | None = None) -> bool:
        """Return whether it is late and another consumer that is not, with credit or without, may have its
        messages.
        """
        if not consumer.is_late():
            return False
        return any(
            not other.is_late() and (covers is None or covers(other, consumer)) for other in self.members
        )

    def rank_again(self) -> None:
        """Let a consumer take part again that stood back."""
        self.is_ranked = self.is_single_active or any(
            consumer.priority or consumer.is_late() for consumer in self.members
        )

    def lease_ended(self, consumer: Consumer, now_ms: int) -> None:
        """Note that the consumer let leases end, and does not hold these claims any more."""
        if self.is_single_active or len(self.members) < 2 or consumer not in self.members:
            return
        consumer.let_lease_end()
        self.is_ranked = True
        timers = self._log.context.timers
        timers.forget(consumer)  # it may have been late before
        timers.set(consumer, now_ms + min(consumer.lease_ms, limits.LATE_CONSUMER_WAIT_MS_MAX))

    def pass_on(self) -> bool:
        """Send the active consumer, which let a lease end, to the end of the line, so that another has its
        turn.

        False if there is no other.
        """
        active = following = self.active
        if active is None or active not in self.members:
            self.active = None
        else:
            self.members = _without(self.members, active)
            following = self._next_in_line() if self.members else active
            self.members += (active,)
            self.activate(following)
        return self.active is not active

    def _holds_keys_back(self) -> bool:
        """Return whether a cancelled consumer holds messages of keys that nobody else may have meanwhile."""
        if not self._log.policy.message_groups:
            return False
        return any(consumer.in_flight and not consumer.active for consumer in self.draining)

    def _next_in_line(self) -> Consumer:
        """Return the consumer of the highest priority; of equals the one waiting longest."""
        return max(self.members, key=lambda consumer: consumer.priority)


def _without(consumers: tuple[Consumer, ...], gone: Consumer) -> tuple[Consumer, ...]:
    at = consumers.index(gone)
    return consumers[:at] + consumers[at + 1 :]
