"""Messages go out by filters: what nobody wants yet stays behind, what is wanted goes ahead.

Each filter has a view of the log (`filter_views`) with its own place in it. A cursor is
served so from the group's first consumer with a filter until there is no such consumer and nothing claimed
out of order any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from config import limits
from queue_manager.claims.claim import AVAILABLE, Claim, Consumer
from queue_manager.claims.consumers import Consumers
from queue_manager.cursor.cursor import Cursor
from queue_manager.dispatch.filter_views import EVERYTHING, View, Views
from queue_manager.dispatch.view_scan import OFFSET_END, Scan, Scanning
from queue_manager.errors import LimitReached
from queue_manager.filters import MessageFilter
from queue_manager.filters.consumer_filter import ConsumerFilter
from queue_manager.log.claimed import ClaimedBitmap
from queue_manager.model import Message
from queue_manager.shard.timers import Timers


@dataclass(eq=False, repr=False, slots=True)
class BySelector(Scanning):
    """Hands out the messages of one cursor.

    Consumers join and leave, messages are handed out, and what else happens to the cursor is a method each of
    `Dispatcher`: all of it is about the views and what waits in them.
    `_waiting` are claims that came back, by claim number. `_on_end` is called when the cursor can be served
    in order again.
    """

    _cursor: Cursor
    _consumers: Consumers
    _on_end: Callable[[Cursor], None]
    _claimed: ClaimedBitmap = field(init=False)
    _views: Views = field(init=False)
    _views_of: dict[Consumer, View] = field(default_factory=dict, init=False)
    _waiting: dict[int, Claim] = field(default_factory=dict, init=False)
    _turn: int = field(default=0, init=False)
    _scan: Scan = field(init=False)
    _timers: Timers = field(init=False)

    def __post_init__(self) -> None:
        cursor = self._cursor
        context = cursor.log.context
        self._timers = context.timers
        self._views = Views(context.fields)
        cursor.reader.forget()
        if cursor.progress.gaps is not None:
            cursor.stored.mark_dirty()
        self._claimed = cursor.progress.begin_bitmap()
        self._scan = Scan(cursor, self._claimed, self._views)
        cursor.backlog.pass_expired()
        for consumer in self._consumers.members:
            self.join(consumer)

    # what is wanted

    def join(self, consumer: Consumer) -> None:
        """Give a consumer its view."""
        wanted = consumer.wanted
        view = self._view(EVERYTHING) if wanted is None else self._view(wanted.key, wanted.condition)
        view.join()
        self._views_of[consumer] = view

    def _view(self, key: str, condition: MessageFilter | None = None) -> View:
        view = self._views.find(key)
        if view is not None:
            return view
        log = self._cursor.log
        view = View(key, condition, self._cursor.position)
        for claim in self._waiting.values():
            if view.wants(log.title, claim.message, claim.attempts + 1, log.context.fields):
                view.add_returned(claim)
        self._views.add(view)
        return view

    def leave(self, consumer: Consumer) -> None:
        """Give a consumer no more messages."""
        view = self._views_of.pop(consumer, None)
        if view is not None:
            view.leave()
        else:
            view = self._views.find(EVERYTHING)  # somebody who asked message by message
        if view is not None and not view.consumers:
            self._scan.forget_view(view)
        if not self._consumers.members:
            self._scan.forget_block()
        if self._is_over():
            self._cursor.stored.mark_dirty()  # it ends with the next flush, or dispatch

    def check_room(self, wanted: ConsumerFilter) -> None:
        """Raise LimitReached if the cursor cannot serve one more consumer with this filter."""
        count = sum(view.condition is not None for view in self._views)
        if count >= limits.SELECTORS_PER_GROUP_MAX and self._views.find(wanted.key) is None:
            raise LimitReached(
                f"group {self._cursor.group_id!r} has {limits.SELECTORS_PER_GROUP_MAX} different filters"
            )

    def _is_over(self) -> bool:
        """Return whether the cursor can be served in order."""
        return not self._claimed.count and all(view.condition is None for view in self._views)

    def _end(self) -> None:
        """End; the position has to be written already."""
        cursor = self._cursor
        self.forget_timer()
        self._views_of.clear()
        cursor.claims.returned.add_all(self._waiting.values())
        self._waiting = {}
        cursor.progress.end_bitmap()
        self._on_end(cursor)

    def forget_timer(self) -> None:
        """Do not ask for another dispatch."""
        self._timers.forget(self)

    # handing out

    def on_timer(self, now_ms: int) -> None:
        """Go on looking where the last dispatch stopped."""
        self._cursor.want_dispatch()

    def dispatch(self, cursor: Cursor, now_ms: int) -> None:
        budget = cursor.budget
        self._scan.begin()
        self._sort_returned()
        for level in self._levels():
            shares: dict[View, int] = {}
            for consumer in level:
                view = self._views_of.get(consumer)
                if view is not None:
                    shares[view] = shares.get(view, 0) + 1
            while not budget.is_spent and self._serve(level, shares, now_ms):
                pass
        if budget.is_spent:
            self._cursor.want_dispatch()  # and it is the turn of others
        self._finish(now_ms)

    def claim(self, cursor: Cursor, consumer: Consumer, count: int, now_ms: int) -> int:
        """See `InOrder.claim`; for a consumer that asks by itself."""
        self._scan.begin()
        self._sort_returned()
        view = self._views_of.get(consumer) or self._view(EVERYTHING)
        claimed = self._claim(consumer, view, count, now_ms)
        self._finish(now_ms)
        return claimed

    def _levels(self) -> list[list[Consumer]]:
        """Yield consumers with credit, in turn; those of a higher priority apart and first, late ones
        last.
        """
        members = self._consumers.members
        turn = self._turn % len(members) if members else 0
        takers = [c for c in members[turn:] + members[:turn] if c.credit() > 0]
        if not self._consumers.is_ranked:
            return [takers]
        if self._consumers.is_single_active:
            return [self._consumers.entitled(takers)]
        levels: dict[tuple[bool, int], list[Consumer]] = {}
        for consumer in takers:
            if not self._consumers.stands_back(consumer, self.covers):
                levels.setdefault((consumer.is_late(), -consumer.priority), []).append(consumer)
        return [levels[level] for level in sorted(levels)]

    def covers(self, consumer: Consumer, other: Consumer) -> bool:
        """Return whether `consumer` takes whatever `other` wants."""
        view = self._views_of.get(consumer)
        return view is not None and (view.condition is None or view is self._views_of.get(other))

    def _serve(self, level: list[Consumer], shares: dict[View, int], now_ms: int) -> bool:
        """Give each consumer its share of what is found for it; whether anybody got something."""
        members = self._consumers.members
        served = False
        for consumer in level:
            credit = consumer.credit()
            view = self._views_of.get(consumer)
            if credit <= 0 or view is None:
                continue
            self._scan.look_for(view)
            sharing = len(level) if view.condition is None else shares.get(view, 1)
            share = max(1, (len(view.found) + len(view.returned)) // sharing)
            if self._claim(consumer, view, min(share, credit), now_ms):
                served = True
                if consumer in members:
                    self._turn = members.index(consumer) + 1
        return served

    def _claim(self, consumer: Consumer, view: View, count: int, now_ms: int) -> int:
        scan = self._scan
        scan.look_for(view)
        while (claim := view.next_returned()) is not None and claim.message.offset < scan.returned_end(view):
            if claim.message.body is None:
                scan.want(view)
                return 0
            if claimed := self._claim_returned(consumer, view, count, now_ms):
                return claimed
            scan.look_for(view)  # what came back has expired or died meanwhile
        if not view.found or scan.is_held_up():
            return 0
        end = OFFSET_END if claim is None else claim.message.offset
        messages = self._choose(view, end, count, now_ms)
        if messages:
            scan.pass_messages(messages)
            self._cursor.hand_out_fresh(consumer, messages, now_ms)
        return len(messages)

    def _choose(self, view: View, end: int, count: int, now_ms: int) -> list[Message]:
        """Return the next up to `count` messages found for a view that lie before `end` and may be handed
        out.
        """
        while found := self._scan.pop_found(view, end, count):
            messages = self._cursor.rules.choose_found(self._cursor, found, now_ms)
            if messages:
                return messages
            self._scan.look_for(view)
        return []

    def _claim_returned(self, consumer: Consumer, view: View, count: int, now_ms: int) -> int:
        claims: list[Claim] = []
        end = self._scan.returned_end(view)
        while len(claims) < count:
            claim = view.next_returned()
            if claim is None or claim.message.body is None or claim.message.offset >= end:
                break
            if claims and (claim.attempts > 0) != (claims[0].attempts > 1):
                break  # a redriven message is at its first attempt again
            del self._waiting[claim.claim_number]
            if self._cursor.claim_again(claim, consumer, now_ms):
                claims.append(claim)
        if claims:
            self._cursor.hand_out(consumer, claims)
        return len(claims)

    def _finish(self, now_ms: int) -> None:
        log = self._cursor.log
        if self._scan.finish():
            log.context.timers.set(self, now_ms)
        if not log.durable and self._is_over():
            self._end()

    def _sort_returned(self) -> None:
        """Show the views what came back to the cursor."""
        log = self._cursor.log
        fields = log.context.fields
        if not self._cursor.claims.returned.heap:
            return
        for claim in self._cursor.claims.returned.take_all():
            self._waiting[claim.claim_number] = claim
            message = claim.message
            for view in self._views.candidates(message.template):
                if view.wants(log.title, message, claim.attempts + 1, fields):
                    view.add_returned(claim)

    # see `Dispatcher`

    def held(self, cursor: Cursor) -> list[Claim]:
        return list(self._waiting.values())

    def held_count(self, cursor: Cursor) -> int:
        return len(self._waiting)

    def take_out(self, cursor: Cursor, claim: Claim) -> bool:
        return self._waiting.pop(claim.claim_number, None) is not None

    def drop(self, cursor: Cursor, message_ids: set[int] | None = None) -> list[Claim]:
        gone = [
            claim
            for claim in self._waiting.values()
            if message_ids is None or claim.message.message_id in message_ids
        ]
        for claim in gone:
            del self._waiting[claim.claim_number]
        return gone

    def written(self, cursor: Cursor) -> None:
        if self._is_over():
            self._end()

    def unmatched_count(self) -> int:
        """Count messages that were shown to all filters and that none wants."""
        views = [view for view in self._views if view.consumers]
        if not views or any(view.condition is None for view in views):
            return 0
        claimed = self._claimed
        seen = max(claimed.position, min(view.cursor for view in views))
        fresh = seen - claimed.position - claimed.count_below(seen)
        wanted = {message.offset for view in views for message in view.found if message.offset < seen}
        returned = {
            claim.claim_number for view in views for _, _, claim in view.returned if claim.state == AVAILABLE
        }
        return (
            fresh
            - sum(not claimed.contains(offset) for offset in wanted)
            + len(self._waiting)
            - len(returned)
        )
