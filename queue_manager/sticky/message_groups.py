"""Message groups in one consumer group: who is given what.

Messages are taken from the log in order. Each gets its claim number and an available entry with no attempts
(as a redriven message has), is placed for the consumer its key is bound to, and claimed when that one has
credit. So after a crash what was placed is there like messages that came back; no record tells of bindings.
"""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from config import limits
from queue_manager import ranking
from queue_manager.loads import PayloadLoad
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.sticky.binding import NEVER, Seat, rank
from queue_manager.sticky.entering import enter
from queue_manager.sticky.round import Round
from queue_manager.sticky.table import BindingTable

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group


class MessageGroups(BindingTable):
    """Places messages for consumers and delivers them, in the order of their ranks."""

    __slots__ = ("_turn",)

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        self._turn = 0

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit."""
        group = self.group
        while group.consumers:
            self._turn += 1
            lane, below = self._next()
            placed_before = self.placed_count
            self._serve_all(below, now_ms)
            if lane is None and self.placed_count < placed_before:
                continue  # there may be room now
            seats = self._takers(below)
            if not seats:
                return
            if lane is not None and lane.returned:
                if not self._place_returned(lane, Round(seats)):
                    return
            elif not self.end_bindings() and (
                lane is None or not self._place_fresh(lane, Round(seats), now_ms)
            ):
                return

    def _next(self) -> tuple[Group | None, int]:
        """The lane of the next message that is not placed, and its rank (or one between it and those before).

        No lane: there is none, or it has to be read or to wait for room.
        """
        has_room = (
            self.placed_count < limits.PLACED_MESSAGES_PER_GROUP_MAX
            and self.placed_bytes < limits.PLACED_BYTES_PER_GROUP_MAX
        )
        for lane in self.group.parts():
            if lane.returned:
                return lane, rank(lane.returned[0][1].message.offset)
            if has_room and (lane.delays is None or not lane.delays.is_full()):
                if lane._fresh_at_hand():
                    return lane, rank(lane.position)
                if lane.loading and lane.position < lane.queue.tail.next_offset:
                    return None, rank(lane.position)
        return None, NEVER

    def _takers(self, below: int) -> list[Seat]:
        """Who may have keys that are nobody's: those with credit, but for who gets something older first."""
        group = self.group
        consumers = group.consumers
        turn = self._turn % len(consumers) if consumers else 0
        takers = []
        for consumer in (*consumers[turn:], *consumers[:turn]):
            if consumer.credit() > 0:
                item = self.seats[consumer].first()
                if item is None or item[0] >= below:
                    takers.append(consumer)
        if group.is_ranked:
            takers = ranking.entitled(group, takers)
        return [self.seats[consumer] for consumer in takers]

    # placing

    def _place_returned(self, lane: Group, chances: Round) -> bool:
        """Place what came back, in order, as far as there is credit for it; whether that was anything."""
        returned = lane.returned
        placed = False
        while returned:
            entry = returned[0][1]
            if entry.state == AVAILABLE and not self._place(entry, chances):
                break
            heappop(returned)
            placed = True
        return placed

    def _place_fresh(self, lane: Group, chances: Round, now_ms: int) -> bool:
        """Take messages from the log and place them; whether it moved on, if only over what nobody wants."""
        position = lane.position
        room = limits.PLACED_MESSAGES_PER_GROUP_MAX - self.placed_count
        messages = _take(lane, min(chances.total, room, limits.PLACED_STEP_MESSAGES_MAX), now_ms)
        for entry in enter(lane, messages, now_ms):
            if not self._place(entry, chances):
                self.put_back(entry)
        return lane.position > position

    def _place(self, entry: Entry, chances: Round) -> bool:
        """Place an entry for whoever its key is bound to, or else who may have it; False if nobody may."""
        key, closes = self.key_of(entry)
        binding = self.bindings.get(key) if key else None
        if binding is None:
            seat = chances.for_key() if key else chances.for_anybody()
            if seat is None:
                return False
            if key:
                binding = self.bind(key, seat)
                seat.unproven.append(binding)
        else:
            assert binding.seat is not None
            seat = binding.seat
        chances.spend(seat)
        self.put(seat, binding, entry, closes)
        return True

    # delivery

    def _serve_all(self, below: int, now_ms: int) -> None:
        """Claim and deliver what was placed, below that rank, as far as there is credit."""
        for consumer in list(self.group.consumers):
            seat = self.seats.get(consumer)
            if seat is not None and (seat.heads or seat.loose):
                self._serve(seat, below, now_ms)
                if (seat.loose or seat.unproven) and consumer.credit() <= 0:
                    self.give_back_loose(seat)  # others may have credit
                    self.give_back_unproven(seat)
                seat.unproven = []

    def _serve(self, seat: Seat, below: int, now_ms: int) -> None:
        consumer = seat.consumer
        while consumer.active:
            entries = self._claim(seat, consumer.credit(), below, now_ms)
            if not entries:
                return
            self.group.hand_out(consumer, entries)

    def _claim(self, seat: Seat, count: int, below: int, now_ms: int) -> list[Entry]:
        """Claim up to `count` of what was placed below that rank: all first attempts, or all later ones."""
        entries: list[Entry] = []
        while len(entries) < count:
            item = seat.first()
            if item is None or item[0] >= below:
                break
            entry = item[1]
            if entry.message.body is None:
                self._request_payloads(seat, entry.group)
                break
            if entries and (entry.attempts > 0) != (entries[0].attempts > 1):
                break
            self.take_first(seat)
            keeper = entry.group.queue.keeper
            if keeper is not None and not keeper.claims_again(entry.group, entry, now_ms):
                continue
            entry.group.claim_again(entry, seat.consumer, now_ms)
            entries.append(entry)
        return entries

    def _request_payloads(self, seat: Seat, lane: Group) -> None:
        """Have payloads read that the store holds, beginning with what the consumer gets next."""
        if lane.loading:
            return
        messages: list[Message] = []
        piles = [seat.loose, *[binding.placed for _, _, binding in sorted(seat.heads)]]
        for _, entry, _ in sorted(item for pile in piles for item in pile):
            if entry.message.body is None and entry.group is lane:
                messages.append(entry.message)
                if len(messages) == limits.LOAD_MESSAGES_MAX:
                    break
        lane.loading = True
        lane.queue.manager.loads.append(PayloadLoad(lane, messages))

    # one by one

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int:
        """Claim and deliver up to `count` messages, the oldest ones that are nobody else's; give how many.

        Their keys are bound to the consumer until it has settled what it claimed.
        """
        self.end_bindings()
        seat = self.seat_of(consumer)
        entries: list[Entry] = []
        while len(entries) < count:
            item = seat.first()
            lane, below = self._next()
            if lane is not None and (item is None or below < item[0]):
                if not self._place_next(lane, seat, now_ms):
                    break
                continue
            if item is None or item[0] > below:
                break  # what comes first is being read
            if entries and (item[1].attempts > 0) != (entries[0].attempts > 1):
                break
            claimed = self._claim(seat, 1, item[0] + 1, now_ms)
            if not claimed and seat.first() is item:
                break  # its payload is being read; else it has expired
            entries += claimed
        if entries:
            self.group.mark_dispatch()  # there may be room now for what others could have
            self.group.hand_out(consumer, entries)
        return len(entries)

    def _place_next(self, lane: Group, puller: Seat, now_ms: int) -> bool:
        """Place the next message of a lane, for `puller` if it is nobody else's; False if it must be read."""
        if not lane.returned:
            position = lane.position
            messages = _take(lane, 1, now_ms)
            for entry in enter(lane, messages, now_ms):
                self._place_for(entry, puller)
            return lane.position > position
        entry = lane.returned[0][1]
        if entry.message.body is None:
            lane._request_payloads()
            return False
        heappop(lane.returned)
        if entry.state == AVAILABLE:
            self._place_for(entry, puller)
        return True

    def _place_for(self, entry: Entry, puller: Seat) -> None:
        key, closes = self.key_of(entry)
        binding = self.bindings.get(key) if key else None
        if binding is not None:
            assert binding.seat is not None
            self.put(binding.seat, binding, entry, closes)
            self.group.mark_dispatch()
            return
        if key and not puller.consumer.no_ack:
            binding = self.bind(key, puller)
            binding.passing = True
        self.put(puller, binding, entry, False)


def _take(lane: Group, count: int, now_ms: int) -> list[Message]:
    """The next messages of a lane's log, without those that have expired."""
    messages = lane._take(count)
    keeper = lane.queue.keeper
    return messages if keeper is None else keeper.choose(lane, messages, now_ms)
