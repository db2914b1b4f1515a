"""Which key is whose: consumers and bindings of one group, and what was placed for whom."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager.model import AVAILABLE
from queue_manager.sticky.binding import AT_ONCE, Binding, KeyedClaims, Placed, Seat, rank

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group
    from queue_manager.model import Entry

STICKY: Final = "sticky"
REBALANCE: Final = "rebalance"


class BindingTable:
    """The keys and consumers of one group, the lanes of its queue's priorities included.

    `placed_count` and `placed_bytes` are what was taken and waits for a consumer, `placed_in` how many of
    these are of which lane. `ended` are bindings that may have come to their end.
    """

    __slots__ = (
        "_sweep_at",
        "bindings",
        "ended",
        "group",
        "placed_bytes",
        "placed_count",
        "placed_in",
        "seats",
    )

    def __init__(self, group: Group) -> None:
        self.group = group
        self.bindings: dict[str, Binding] = {}
        self.seats: dict[Consumer, Seat] = {}
        self.placed_count = 0
        self.placed_bytes = 0
        self.placed_in: dict[Group, int] = {}
        self.ended: dict[Binding, None] = {}
        self._sweep_at = limits.MESSAGE_GROUPS_BOUND_MAX

    def bound_count(self) -> int:
        """Keys that are bound to a consumer."""
        return len(self.bindings)

    def key_of(self, entry: Entry) -> tuple[str, bool]:
        """The key of a message ("": it has none), and whether the binding ends with it."""
        return self.group.queue.manager.group_key_of(entry.message.template)

    # consumers come and go

    def join(self, consumer: Consumer) -> None:
        """Let a consumer have keys."""
        self.seat_of(consumer)
        if self.group.queue.policy.message_groups == REBALANCE:
            self._rebalance()

    def leave(self, consumer: Consumer) -> None:
        """The consumer gets nothing more. Keys that it holds claims of are bound until those are settled."""
        seat = self.seats.get(consumer)
        if seat is None:
            return
        for binding in list(seat.bindings):
            self.release(binding)
        self.give_back_loose(seat)
        seat.heads = []
        if not seat.bindings:
            self.seats.pop(consumer, None)
        self.group.mark_dispatch()

    def adopt(self) -> None:
        """Begin while there are consumers, who may hold claims already."""
        group = self.group
        for consumer in (*group.consumers, *group.draining):
            claims = list(consumer.in_flight.items())
            seat = self.seat_of(consumer)
            for offset, entry in claims:
                key = self.key_of(entry)[0]
                if key and key not in self.bindings:
                    self.bind(key, seat).ends_at = AT_ONCE
                consumer.in_flight[offset] = entry

    def dissolve(self) -> None:
        """End, and give back what was placed."""
        for seat in self.seats.values():
            for binding in seat.bindings:
                self._give_back(binding.placed)
            self.give_back_loose(seat)
        # who has left has no seat, but may hold claims still
        for consumer in {*self.seats, *self.group.consumers, *self.group.draining}:
            consumer.in_flight = dict(consumer.in_flight)
        self.bindings = {}
        self.seats = {}

    def seat_of(self, consumer: Consumer) -> Seat:
        """The consumer's seat, made if need be."""
        seat = self.seats.get(consumer)
        if seat is None:
            seat = self.seats[consumer] = Seat(consumer)
            if not isinstance(consumer.in_flight, KeyedClaims):
                consumer.in_flight = KeyedClaims(self)
        return seat

    def _rebalance(self) -> None:
        """Forget who has which key where nothing is unsettled, and let go of keys above an even share.

        Of those, one whose messages are in flight changes its consumer when they are settled.
        """
        consumers = self.group.consumers
        busy = 0
        for binding in list(self.bindings.values()):
            if binding.is_idle():
                self.free(binding)
            elif not binding.is_ending():
                busy += 1
        share = -(-busy // max(1, len(consumers)))
        for consumer in consumers:
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

    def claimed(self, entry: Entry) -> None:
        """A consumer holds `entry` now."""
        binding = self.bindings.get(self.key_of(entry)[0])
        if binding is not None:
            binding.in_flight += 1

    def settled(self, entry: Entry) -> None:
        """Its consumer holds `entry` no longer."""
        binding = self.bindings.get(self.key_of(entry)[0])
        if binding is not None:
            binding.in_flight -= 1
            if not binding.in_flight and binding.is_ending():
                self.ended[binding] = None

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
        for binding in self.ended:
            if binding.is_over():
                self.free(binding)
        self.ended = {}
        return self.placed_count < before

    def release(self, binding: Binding) -> None:
        """Free the key, at once or when its unsettled messages are settled."""
        if binding.in_flight:
            binding.ends_at = AT_ONCE
        else:
            self.free(binding)

    def free(self, binding: Binding) -> None:
        """Forget a binding; what was placed for it comes back."""
        seat = binding.seat
        assert seat is not None
        binding.seat = None
        del self.bindings[binding.key]
        del seat.bindings[binding]
        self._give_back(binding.placed)
        binding.placed = []
        if not seat.bindings and not seat.consumer.active:
            self.seats.pop(seat.consumer, None)

    # what was placed

    def put(self, seat: Seat, binding: Binding | None, entry: Entry, closes: bool) -> None:
        """Have an entry wait for the consumer of `seat`."""
        message = entry.message
        size = len(message.body or b"")
        place = rank(message.offset)
        self.placed_count += 1
        self.placed_bytes += size
        self.placed_in[entry.group] = self.placed_in.get(entry.group, 0) + 1
        if closes and binding is not None and not binding.passing and place < binding.ends_at:
            binding.ends_at = place
        seat.place(binding, (place, entry, size))

    def take_first(self, seat: Seat) -> None:
        """What was first at `seat` is about to be claimed."""
        item, binding = seat.take_first()
        self._uncount(item)
        if binding is not None and binding.is_ending():
            self.ended[binding] = None

    def give_back_loose(self, seat: Seat) -> None:
        """Give back what was placed at `seat` without a key."""
        items, seat.loose = seat.loose, []
        self._give_back(items)

    def give_back_unproven(self, seat: Seat) -> None:
        """Give back the keys just bound to `seat` of which it claimed nothing."""
        for binding in seat.unproven:
            if binding.seat is seat and not binding.in_flight:
                self.free(binding)

    def put_back(self, entry: Entry) -> None:
        """Have an entry placed again, at its place."""
        heappush(entry.group.returned, (entry.message.offset, entry))

    def _give_back(self, items: list[Placed]) -> None:
        for item in items:
            self._uncount(item)
            self.put_back(item[1])

    def _uncount(self, item: Placed) -> None:
        _, entry, size = item
        self.placed_count -= 1
        self.placed_bytes -= size
        self.placed_in[entry.group] -= 1

    def entries(self, group: Group) -> list[Entry]:
        """What was placed of that lane, in no order."""
        items = [
            item
            for seat in self.seats.values()
            for item in (*seat.loose, *(item for binding in seat.bindings for item in binding.placed))
        ]
        return [item[1] for item in items if item[1].group is group]

    def drop(self, group: Group, message_ids: set[int] | None = None) -> list[Entry]:
        """Forget what was placed of that lane (None: all of it), and give it."""
        return self._drop(
            lambda entry: (
                entry.group is group and (message_ids is None or entry.message.message_id in message_ids)
            )
        )

    def take_out(self, entry: Entry) -> bool:
        """Forget an entry if it is the first of its key, or of a seat's without one; whether it was."""
        binding = self.bindings.get(self.key_of(entry)[0])
        if binding is not None:
            piles = [binding.placed]
        else:
            piles = [seat.loose for seat in self.seats.values()]
        for pile in piles:
            if pile and pile[0][1] is entry:
                self._uncount(heappop(pile))
                if binding is not None and binding.seat is not None:
                    binding.seat.announce(binding)
                    if binding.is_ending():
                        self.ended[binding] = None
                self.group.mark_dispatch()
                return True
        return False

    def forget_ended(self) -> None:
        """Let go of entries that do not wait any more."""
        self._drop(lambda entry: entry.state != AVAILABLE)

    def _drop(self, goes: Callable[[Entry], bool]) -> list[Entry]:
        entries: list[Entry] = []
        for seat in self.seats.values():
            dropped = seat.without(goes)
            for item in dropped:
                self._uncount(item)
                entries.append(item[1])
            if dropped:  # perhaps only that kept a binding from its end
                self.ended.update({binding: None for binding in seat.bindings if binding.is_ending()})
        if entries:
            self.group.mark_dispatch()
        return entries

    def placed_of(self, group: Group) -> list[Entry]:
        """What waits for a consumer of that lane, in no particular order."""
        if not self.placed_in.get(group):
            return []
        piles = [seat.loose for seat in self.seats.values()]
        piles += [binding.placed for binding in self.bindings.values()]
        return [entry for pile in piles for _, entry, _ in pile if entry.group is group]
