"""Message groups in one consumer group: who is given what.

Messages are taken from the log in order. Each gets its claim number and an available claim with no attempts
(as a redriven message has), is placed for the consumer its key is bound to, and claimed when that one has
credit. So after a crash what was placed is there like messages that came back; no record tells of bindings.
"""

from __future__ import annotations

from collections.abc import Sequence

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor, Dispatcher
from queue_manager.dispatch.by_key.binding_table import REBALANCE, BindingTable, GroupKeyOf, KeyedGroup
from queue_manager.dispatch.by_key.key_binding import NEVER, Seat, rank
from queue_manager.dispatch.by_key.round import Round
from queue_manager.log.levels import priority_of
from queue_manager.model import Message


class ByKey(Dispatcher):
    """Places messages for consumers and delivers them, in the order of their ranks.

    Who is bound to which key, and what is placed for whom, is the table's; here is what moves messages into
    it and out of it, for consumers with credit and for those who pull, and the methods of `Dispatcher`.

    `cursors` are those of one group, the highest priority first.
    """

    __slots__ = ("_consumers", "_cursors", "_group", "_table", "_turn")

    def __init__(
        self, group: KeyedGroup, cursors: Sequence[Cursor], consumers: Consumers, key_of: GroupKeyOf
    ) -> None:
        self._group = group
        self._cursors = cursors
        self._consumers = consumers
        self._table = BindingTable(group, consumers, key_of)
        self._turn = 0
        self._table.adopt()

    def _cursor_of(self, claim: Claim) -> Cursor:
        return self._cursors[-1 - priority_of(claim.message.offset)]

    def join(self, consumer: Consumer) -> None:
        """Let a consumer have keys."""
        self._table.seat_of(consumer)
        if self._cursors[-1].log.policy.message_groups == REBALANCE:
            self._table.rebalance()

    def leave(self, consumer: Consumer) -> None:
        """Give the consumer nothing more."""
        self._table.leave(consumer)

    def dissolve(self) -> None:
        """End, and give back what was placed."""
        self._table.dissolve()

    def dispatch(self, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit."""
        table = self._table
        budget = self._cursors[0].budget
        while self._consumers.members:
            if budget.is_spent:
                self._group.want_dispatch()  # and it is the turn of others
                return
            self._turn += 1
            cursor, below = self._next()
            placed_before = table.placed_count
            self._serve_all(below, now_ms)
            if cursor is None and table.placed_count < placed_before:
                continue  # there may be room now
            seats = self._takers(below)
            if not seats:
                return
            if cursor is not None and cursor.claims.returned.heap:
                if not self._place_returned(cursor, Round(seats)):
                    return
            elif not table.end_bindings() and (
                cursor is None or not self._place_fresh(cursor, Round(seats), now_ms)
            ):
                return

    def _next(self) -> tuple[Cursor | None, int]:
        """Return the cursor of the next message that is not placed, and its rank (or one between it and those
        before).

        None: there is none, or it has to be read or to wait for room.
        """
        has_room = (
            self._table.placed_count < limits.PLACED_MESSAGES_PER_GROUP_MAX
            and self._table.placed_bytes < limits.PLACED_BYTES_PER_GROUP_MAX
        )
        for cursor in self._cursors:
            first = cursor.claims.returned.first()
            if first is not None:
                return cursor, rank(first.message.offset)
            if has_room and not cursor.claims.delays.is_full():
                if cursor.backlog.at_hand():
                    return cursor, rank(cursor.position)
                if cursor.reader.is_loading and cursor.position < cursor.log.next_offset:
                    return None, rank(cursor.position)
        return None, NEVER

    def _takers(self, below: int) -> list[Seat]:
        """Return the consumers that may have free keys: those with credit, but for those that get something
        older first.
        """
        members = self._consumers.members
        turn = self._turn % len(members) if members else 0
        takers = []
        for consumer in (*members[turn:], *members[:turn]):
            if consumer.credit() > 0:
                item = self._table.seats[consumer].first()
                if item is None or item[0] >= below:
                    takers.append(consumer)
        if self._consumers.is_ranked:
            takers = self._consumers.entitled(takers)
        return [self._table.seats[consumer] for consumer in takers]

    # placing

    def _place_returned(self, cursor: Cursor, chances: Round) -> bool:
        """Place what came back, in order, as far as there is credit for it; whether that was anything."""
        placed = False
        while (claim := cursor.claims.returned.first()) is not None:
            if claim.state == AVAILABLE and not self._place(claim, chances):
                break
            cursor.claims.returned.pop()
            placed = True
        return placed

    def _place_fresh(self, cursor: Cursor, chances: Round, now_ms: int) -> bool:
        """Take messages from the log and place them; whether it moved on, if only over what nobody wants."""
        position = cursor.position
        room = limits.PLACED_MESSAGES_PER_GROUP_MAX - self._table.placed_count
        count = min(chances.total, room, limits.PLACED_STEP_MESSAGES_MAX)
        for claim in self._enter(cursor, count, now_ms):
            if not self._place(claim, chances):
                cursor.claims.returned.add(claim)
        return cursor.position > position

    def _enter(self, cursor: Cursor, count: int, now_ms: int) -> list[Claim]:
        """Make claims of the next messages of the log, without those that have expired."""
        messages = cursor.rules.choose(cursor, cursor.backlog.take(count), now_ms)
        claims = cursor.claims.enter(messages, now_ms) if messages else []
        for claim in claims:
            cursor.rules.returned(cursor, claim, claim.message.body)
        return claims

    def _place(self, claim: Claim, chances: Round) -> bool:
        """Place a claim for whoever its key is bound to, or else who may have it; False if nobody may."""
        table = self._table
        key, closes = table.key_of(claim)
        binding = table.bindings.get(key) if key else None
        if binding is None:
            seat = chances.for_key() if key else chances.for_anybody()
            if seat is None:
                return False
            if key:
                binding = table.bind(key, seat)
                seat.unproven.append(binding)
        else:
            assert binding.seat is not None
            seat = binding.seat
        chances.spend(seat)
        table.put(seat, binding, claim, closes)
        return True

    # delivery

    def _serve_all(self, below: int, now_ms: int) -> None:
        """Claim and deliver what was placed, below that rank, as far as there is credit."""
        for consumer in list(self._consumers.members):
            seat = self._table.seats.get(consumer)
            if seat is not None and (seat.heads or seat.loose):
                self._serve(seat, below, now_ms)
                if (seat.loose or seat.unproven) and consumer.credit() <= 0:
                    self._table.give_back_loose(seat)  # others may have credit
                    self._table.give_back_unproven(seat)
                seat.take_unproven()

    def _serve(self, seat: Seat, below: int, now_ms: int) -> None:
        consumer = seat.consumer
        while consumer.active:
            claims = self._claim(seat, consumer.credit(), below, now_ms)
            if not claims:
                return
            self._cursor_of(claims[0]).hand_out(consumer, claims)

    def _claim(self, seat: Seat, count: int, below: int, now_ms: int) -> list[Claim]:
        """Claim up to `count` of what was placed below that rank: all first attempts, or all later ones."""
        claims: list[Claim] = []
        while len(claims) < count:
            item = seat.first()
            if item is None or item[0] >= below:
                break
            claim = item[1]
            cursor = self._cursor_of(claim)
            if claim.message.body is None:
                self._request_payloads(seat, cursor)
                break
            if claims and (claim.attempts > 0) != (claims[0].attempts > 1):
                break
            self._table.take_first(seat)
            if cursor.claim_again(claim, seat.consumer, now_ms):
                claims.append(claim)
        return claims

    def _request_payloads(self, seat: Seat, cursor: Cursor) -> None:
        """Have payloads read that the store holds, beginning with what the consumer gets next."""
        messages: list[Message] = []
        piles = [seat.loose, *[binding.placed for _, _, binding in sorted(seat.heads)]]
        for _, claim, _ in sorted(item for pile in piles for item in pile):
            if claim.message.body is None and self._cursor_of(claim) is cursor:
                messages.append(claim.message)
                if len(messages) == limits.LOAD_MESSAGES_MAX:
                    break
        cursor.read_back.request(messages)

    # one by one

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        """Claim and deliver up to `count` messages, the oldest ones that are nobody else's; give how many.

        None: what there is has to be read back first. Their keys are bound to the consumer until it has
        settled what it claimed.
        """
        table = self._table
        table.end_bindings()
        seat = table.seat_of(consumer)
        claims: list[Claim] = []
        while len(claims) < count:
            item = seat.first()
            cursor, below = self._next()
            if cursor is not None and (item is None or below < item[0]):
                if not self._place_next(cursor, seat, now_ms):
                    break
                continue
            if item is None or item[0] > below:
                break  # what comes first is being read
            if claims and (item[1].attempts > 0) != (claims[0].attempts > 1):
                break
            claimed = self._claim(seat, 1, item[0] + 1, now_ms)
            if not claimed and seat.first() is item:
                break  # its payload is being read; else it has expired
            claims += claimed
        if claims:
            self._group.want_dispatch()  # there may be room now for what others could have
            self._cursor_of(claims[0]).hand_out(consumer, claims)
            return len(claims)
        return None if any(cursor.is_waited_for() for cursor in self._cursors) else 0

    def _place_next(self, cursor: Cursor, puller: Seat, now_ms: int) -> bool:
        """Place the next message of a log, for `puller` if it is nobody else's; False if it must be read."""
        claim = cursor.claims.returned.first()
        if claim is None:
            position = cursor.position
            for entered in self._enter(cursor, 1, now_ms):
                self._place_for(entered, puller)
            return cursor.position > position
        if claim.message.body is None:
            cursor.read_back.request_returned()
            return False
        cursor.claims.returned.pop()
        if claim.state == AVAILABLE:
            self._place_for(claim, puller)
        return True

    def _place_for(self, claim: Claim, puller: Seat) -> None:
        table = self._table
        key, closes = table.key_of(claim)
        binding = table.bindings.get(key) if key else None
        if binding is not None:
            assert binding.seat is not None
            table.put(binding.seat, binding, claim, closes)
            self._group.want_dispatch()
            return
        if key and not puller.consumer.no_ack:
            binding = table.bind(key, puller)
            binding.begin(passing=True)
        table.put(puller, binding, claim, False)

    # see `Dispatcher`

    def held(self, cursor: Cursor) -> list[Claim]:
        return self._table.placed(priority_of(cursor.position))

    def held_count(self, cursor: Cursor) -> int:
        return self._table.placed_in(priority_of(cursor.position))

    def take_out(self, cursor: Cursor, claim: Claim) -> bool:
        return self._table.take_out(claim)

    def forget_ended(self) -> None:
        self._table.forget_ended()

    def drop(self, cursor: Cursor, message_ids: set[int] | None = None) -> list[Claim]:
        return self._table.drop(
            lambda claim: (
                self._cursor_of(claim) is cursor
                and (message_ids is None or claim.message.message_id in message_ids)
            )
        )
