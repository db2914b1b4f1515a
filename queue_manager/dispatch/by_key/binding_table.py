"""Which key is whose: consumers and bindings of one group, and what was placed for whom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop
from typing import Any, Final, Protocol, overload

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.dispatch.by_key.key_binding import Binding, Placed, Seat, rank
from queue_manager.log.levels import priority_of
from storage.envelope import EnvelopeTemplate

GroupKeyOf = Callable[[EnvelopeTemplate], tuple[str, bool]]
"""Gives the key of a message group, "" for none, and whether this message closes the group."""


def no_key(template: EnvelopeTemplate) -> tuple[str, bool]:
    """Return no key, for queue managers without a front-end."""
    return "", False


REBALANCE: Final = "rebalance"


class KeyedGroup(Protocol):
    """The group of the table."""

    def give_back_claim(self, claim: Claim) -> None:
        """Have an available claim wait at its place in the log."""

    def want_dispatch(self) -> None:
        """Have the group hand out messages."""


@dataclass(eq=False, repr=False, slots=True)
class BindingTable:
    """The keys and consumers of one group, in all priorities of its queue.

    `placed_count` and `placed_bytes` are what was taken and waits for a consumer, `_placed_in` how many of
    these are of which priority. `_ended` are bindings that may have come to their end.
    """

    _group: KeyedGroup
    _consumers: Consumers
    _key_of: GroupKeyOf
    bindings: dict[str, Binding] = field(default_factory=dict, init=False)
    seats: dict[Consumer, Seat] = field(default_factory=dict, init=False)
    placed_count: int = field(default=0, init=False)
    placed_bytes: int = field(default=0, init=False)
    _placed_in: dict[int, int] = field(default_factory=dict, init=False)
    _ended: dict[Binding, None] = field(default_factory=dict, init=False)
    _sweep_at: int = field(default_factory=lambda: limits.MESSAGE_GROUPS_BOUND_MAX, init=False)

    def key_of(self, claim: Claim) -> tuple[str, bool]:
        """Return the key of a message ("": it has none), and whether the binding ends with it."""
        return self._key_of(claim.message.template)

    # consumers come and go

    def leave(self, consumer: Consumer) -> None:
        """Give the consumer nothing more. Keys that it holds claims of are bound until those are settled."""
        seat = self.seats.get(consumer)
        if seat is None:
            return
        for binding in list(seat.bindings):
            self.release(binding)
        self.give_back_loose(seat)
        seat.close()
        if not seat.bindings:
            self.seats.pop(consumer, None)
        self._group.want_dispatch()

    def adopt(self) -> None:
        """Begin while there are consumers, who may hold claims already."""
        for consumer in self._consumers:
            claims = list(consumer.in_flight.items())
            seat = self.seat_of(consumer)
            for offset, claim in claims:
                key = self.key_of(claim)[0]
                if key and key not in self.bindings:
                    self.bind(key, seat).end_soon()
                consumer.in_flight[offset] = claim

    def dissolve(self) -> None:
        """End, and give back what was placed."""
        for seat in self.seats.values():
            for binding in seat.bindings:
                self._give_back(binding.placed)
            self.give_back_loose(seat)
        # who has left has no seat, but may hold claims still
        for consumer in {*self.seats, *self._consumers}:
            consumer.in_flight = dict(consumer.in_flight)
        self.bindings = {}
        self.seats = {}

    def seat_of(self, consumer: Consumer) -> Seat:
        """Return the consumer's seat, made if need be."""
        seat = self.seats.get(consumer)
        if seat is None:
            seat = self.seats[consumer] = Seat(consumer)
            if not isinstance(consumer.in_flight, KeyedClaims):
                consumer.in_flight = KeyedClaims(self)
        return seat

    def rebalance(self) -> None:
        """Forget who has which key where nothing is unsettled, and let go of keys above an even share.

        Of those, one whose messages are in flight changes its consumer when they are settled.
        """
        members = self._consumers.members
        busy = 0
        for binding in list(self.bindings.values()):
            if binding.is_idle():
                self.free(binding)
            elif not binding.is_ending():
                busy += 1
        share = -(-busy // max(1, len(members)))
        for consumer in members:
            seat = self.seats.get(consumer)
            if seat is None:
                continue
            bound = [binding for binding in seat.bindings if not binding.is_ending()]
            excess = len(bound) - share
            if excess > 0:
                bound.sort(key=lambda binding: binding.in_flight)
                for binding in bound[:excess]:
                    self.release(binding)

    # claims

    def claimed(self, claim: Claim) -> None:
        """Note that a consumer holds the claim now."""
        binding = self.bindings.get(self.key_of(claim)[0])
        if binding is not None:
            binding.claimed()

    def settled(self, claim: Claim) -> None:
        """Note that its consumer holds the claim no longer."""
        binding = self.bindings.get(self.key_of(claim)[0])
        if binding is not None and binding.settled():
            self._ended[binding] = None

    # bindings

    def bind(self, key: str, seat: Seat) -> Binding:
        """Bind a key that is nobody's."""
        if len(self.bindings) >= self._sweep_at:
            self._sweep()
        binding = self.bindings[key] = Binding(key, seat)
        seat.bindings[binding] = None
        return binding

    def _sweep(self) -> None:
        """Forget the bindings of keys that have nothing at the moment."""
        for binding in list(self.bindings.values()):
            if binding.is_idle():
                self.free(binding)
        # what is left is as many as there are unsettled messages; not looked at again for each new one
        self._sweep_at = max(limits.MESSAGE_GROUPS_BOUND_MAX, 2 * len(self.bindings))

    def end_bindings(self) -> bool:
        """Free the keys whose binding has ended; whether messages came back by that."""
        before = self.placed_count
        for binding in self._ended:
            if binding.is_over():
                self.free(binding)
        self._ended = {}
        return self.placed_count < before

    def release(self, binding: Binding) -> None:
        """Free the key, at once or when its unsettled messages are settled."""
        if binding.in_flight:
            binding.end_soon()
        else:
            self.free(binding)

    def free(self, binding: Binding) -> None:
        """Forget a binding; what was placed for it comes back."""
        seat = binding.seat
        assert seat is not None
        del self.bindings[binding.key]
        del seat.bindings[binding]
        self._give_back(binding.unbind())
        if not seat.bindings and not seat.consumer.active:
            self.seats.pop(seat.consumer, None)

    # what was placed

    def placed_in(self, priority: int) -> int:
        """Return how much of that priority waits for a consumer."""
        return self._placed_in.get(priority, 0)

    def put(self, seat: Seat, binding: Binding | None, claim: Claim, closes: bool) -> None:
        """Have a claim wait for the consumer of `seat`."""
        message = claim.message
        size = len(message.body or b"")
        place = rank(message.offset)
        priority = priority_of(message.offset)
        self.placed_count += 1
        self.placed_bytes += size
        self._placed_in[priority] = self._placed_in.get(priority, 0) + 1
        if closes and binding is not None:
            binding.close_at(place)
        seat.place(binding, (place, claim, size))

    def take_first(self, seat: Seat) -> None:
        """Take away what was first at `seat`, as it is about to be claimed."""
        item, binding = seat.take_first()
        self._uncount(item)
        if binding is not None and binding.is_ending():
            self._ended[binding] = None

    def give_back_loose(self, seat: Seat) -> None:
        """Give back what was placed at `seat` without a key."""
        self._give_back(seat.take_loose())

    def give_back_unproven(self, seat: Seat) -> None:
        """Give back the keys just bound to `seat` of which it claimed nothing."""
        for binding in seat.unproven:
            if binding.seat is seat and not binding.in_flight:
                self.free(binding)

    def _give_back(self, items: list[Placed]) -> None:
        for item in items:
            self._uncount(item)
            self._group.give_back_claim(item[1])

    def _uncount(self, item: Placed) -> None:
        _, claim, size = item
        self.placed_count -= 1
        self.placed_bytes -= size
        self._placed_in[priority_of(claim.message.offset)] -= 1

    def placed(self, priority: int) -> list[Claim]:
        """Return what waits for a consumer of that priority, in no particular order."""
        if not self._placed_in.get(priority):
            return []
        piles = [seat.loose for seat in self.seats.values()]
        piles += [binding.placed for binding in self.bindings.values()]
        return [
            claim for pile in piles for _, claim, _ in pile if priority_of(claim.message.offset) == priority
        ]

    def take_out(self, claim: Claim) -> bool:
        """Forget a claim if it is the first of its key, or of a seat's without one; whether it was."""
        binding = self.bindings.get(self.key_of(claim)[0])
        if binding is not None:
            piles = [binding.placed]
        else:
            piles = [seat.loose for seat in self.seats.values()]
        for pile in piles:
            if pile and pile[0][1] is claim:
                self._uncount(heappop(pile))
                if binding is not None and binding.seat is not None:
                    binding.seat.announce(binding)
                    if binding.is_ending():
                        self._ended[binding] = None
                self._group.want_dispatch()
                return True
        return False

    def forget_ended(self) -> None:
        """Let go of claims that do not wait any more."""
        self.drop(lambda claim: claim.state != AVAILABLE)

    def drop(self, goes: Callable[[Claim], bool]) -> list[Claim]:
        """Forget the claims for which `goes` is true, and give them."""
        claims: list[Claim] = []
        for seat in self.seats.values():
            dropped = seat.without(goes)
            for item in dropped:
                self._uncount(item)
                claims.append(item[1])
            if dropped:  # perhaps only that kept a binding from its end
                self._ended.update({binding: None for binding in seat.bindings if binding.is_ending()})
        if claims:
            self._group.want_dispatch()
        return claims


class KeyedClaims(dict[int, Claim]):
    """A consumer's claims by offset, in a queue with message groups: tells what comes and goes."""

    __slots__ = ("_table",)

    def __init__(self, table: BindingTable) -> None:
        super().__init__()
        self._table = table

    def __setitem__(self, offset: int, claim: Claim) -> None:
        super().__setitem__(offset, claim)
        self._table.claimed(claim)

    def __delitem__(self, offset: int) -> None:
        claim = self[offset]
        super().__delitem__(offset)
        self._table.settled(claim)

    def clear(self) -> None:
        claims = [*self.values()]
        super().clear()
        for claim in claims:
            self._table.settled(claim)

    @overload
    def pop(self, offset: int, /) -> Claim: ...
    @overload
    def pop(self, offset: int, default: Any, /) -> Any: ...
    def pop(self, offset: int, *default: Any) -> Any:
        claim = super().pop(offset, *default)
        if not default or claim is not default[0]:
            self._table.settled(claim)
        return claim
