"""Messages go out in the order of the log, in even shares to the consumers with credit, in turn."""

from __future__ import annotations

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor, Dispatcher


class InOrder(Dispatcher):
    """Hands out the messages of cursors; holds nothing itself."""

    __slots__ = ("_consumers",)

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers

    def dispatch(self, cursor: Cursor, now_ms: int) -> None:
        """Hand out messages while there are both messages and credit."""
        claims = cursor.claims
        returned = claims.returned
        backlog = cursor.backlog
        tail = cursor.log.tail
        budget = cursor.budget
        while self._consumers.members:
            if budget.left <= 0:
                cursor.want_dispatch()  # and it is the turn of others
                return
            waiting = len(returned.heap) or backlog.at_hand()
            if not waiting or (claims.delays.heap and not returned.heap and claims.delays.is_full()):
                return
            is_newest = not returned.heap and backlog.progress.position >= tail.first_offset
            all_served = self._share(cursor, waiting, now_ms)
            if all_served is None:
                return
            if is_newest and backlog.progress.position == tail.next_offset and not returned.heap:
                return  # nothing is left, and nothing that was read back
            if all_served:
                continue
            first = returned.first()
            if not backlog.at_hand() or (first is not None and first.message.body is None):
                return

    def _share(self, cursor: Cursor, waiting: int, now_ms: int) -> bool | None:
        """Give consumers with credit even shares, in turn; whether there was something for all of them.

        None: nobody has credit. Costs what is handed out, however many consumers there are.
        """
        consumers = self._consumers
        first_takers = consumers.first_takers() if consumers.is_ranked else None
        turns = consumers.turns
        count = turns.ready_count() if first_takers is None else len(first_takers)
        share = waiting // count if 1 < count <= waiting else 1 if count > waiting else waiting
        budget = cursor.budget
        served = None
        for turn in range(count):
            consumer = turns.next() if first_takers is None else first_takers[turn]
            if consumer is None:
                break
            served = True
            left = budget.left
            if left <= 0:
                break
            wanted = share if share < left else left
            if wanted > 1 or first_takers is not None:
                wanted = min(wanted, consumer.credit())
                if wanted <= 0:
                    continue  # who shares its credit had it
            if not self.claim(cursor, consumer, wanted, now_ms):
                return False
            if count > 1:
                turns.had(consumer)
        return served

    def claim(self, cursor: Cursor, consumer: Consumer, count: int, now_ms: int) -> int:
        """Claim and deliver up to `count` messages; give how many it were."""
        while cursor.claims.returned.heap:
            claims = self._claim_returned(cursor, consumer, count, now_ms)
            if claims:
                cursor.hand_out(consumer, claims)
            if claims or cursor.reader.is_loading:
                return len(claims)
        messages = cursor.rules.choose(cursor, cursor.backlog.take(count), now_ms)
        if messages:
            cursor.hand_out_fresh(consumer, messages, now_ms)
        return len(messages)

    def _claim_returned(self, cursor: Cursor, consumer: Consumer, count: int, now_ms: int) -> list[Claim]:
        waiting = cursor.claims.returned
        first = waiting.first()
        if first is not None and first.message.body is None:
            cursor.read_back.request_returned()
            return []
        count = min(count, max(1, cursor.budget.left // limits.REDELIVERY_COST))
        claims: list[Claim] = []
        while (claim := waiting.first()) is not None and len(claims) < count:
            if claim.message.body is None:
                break
            if claims and (claim.attempts > 0) != (claims[0].attempts > 1):
                break  # a redriven message is at its first attempt again
            waiting.pop()
            if claim.state == AVAILABLE and cursor.claim_again(claim, consumer, now_ms):
                claims.append(claim)
        return claims
