"""How a group serves consumers with filters: what nobody wants yet stays behind, what is wanted goes ahead.

Each filter has a view of the queue (`queue_manager.views`) with its own place in the log. What is looked at
for one view is looked at for all that stand at the same place, so that a message is read once and each filter
asked about it once. A group is in this mode from its first consumer with a filter until there is no such
consumer and nothing taken out of order any more.
"""

from __future__ import annotations

from heapq import heapify
from typing import TYPE_CHECKING

from config import limits
from queue_manager import ranking
from queue_manager.errors import LimitReached
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.scanning import OFFSET_END, Scanning
from queue_manager.views import EVERYTHING, View

if TYPE_CHECKING:
    from queue_manager.consumer import Consumer
    from queue_manager.filters import MessageFilter
    from queue_manager.filters.consumer_filter import ConsumerFilter
    from queue_manager.group import Group
    from queue_manager.journal import Journal
    from queue_manager.ranges import RangeSet


class Selection(Scanning):
    """The part of a group that hands out messages by filters."""

    __slots__ = ()

    def __init__(self, group: Group) -> None:
        super().__init__(group)
        group.forget_loaded()
        group.selection = self
        if group.holes is not None:
            self.pass_ranges(group.holes)
            group.holes = None
        group.apply_message_groups()
        if group.queue.keeper is not None:
            group.queue.keeper.selection_begins(group)
        for consumer in group.consumers:
            self.join(consumer)

    # who wants what

    def join(self, consumer: Consumer) -> None:
        """Give a consumer its view."""
        wanted = consumer.filter
        view = self._view(EVERYTHING) if wanted is None else self._view(wanted.key, wanted.condition)
        view.consumers += 1
        self.views_of[consumer] = view

    def _view(self, key: str, condition: MessageFilter | None = None) -> View:
        view = self.views.find(key)
        if view is not None:
            return view
        view = View(key, condition, self.taken.position)
        queue = self.group.queue
        for entry in self.waiting.values():
            if view.wants(queue, entry.message, entry.attempts + 1, queue.manager.fields):
                view.add_returned(entry)
        self.views.add(view)
        return view

    def leave(self, consumer: Consumer) -> None:
        """A consumer takes no more messages."""
        view = self.views_of.pop(consumer, None)
        if view is not None:
            view.consumers -= 1
        else:
            view = self.views.find(EVERYTHING)  # somebody who asked message by message
        if view is not None and not view.consumers:
            self._found_bytes -= sum(len(message.body or b"") for message in view.found)
            self.views.remove(view)
        if not self.group.consumers:
            self._forget_block()
        if self.is_over():
            self._moved()  # it ends with the next flush, or dispatch

    def check_room(self, wanted: ConsumerFilter) -> None:
        """Raise LimitReached if the group cannot take one more consumer with this filter."""
        count = sum(view.condition is not None for view in self.views)
        if count >= limits.SELECTORS_PER_GROUP_MAX and self.views.find(wanted.key) is None:
            raise LimitReached(
                f"group {self.group.group_id!r} has {limits.SELECTORS_PER_GROUP_MAX} different filters"
            )

    def is_over(self) -> bool:
        """Whether the group can do without this."""
        return not self.taken.count and all(view.condition is None for view in self.views)

    def end(self) -> None:
        """Let the group go on as groups without filters do; the position has to be written already."""
        group = self.group
        group.queue.manager.timers.forget(self)
        group.selection = None
        self.views_of.clear()
        group.returned += [(entry.message.offset, entry) for entry in self.waiting.values()]
        self.waiting = {}
        heapify(group.returned)
        group.apply_message_groups()
        group.mark_dispatch()

    # handing out

    def on_timer(self, now_ms: int) -> None:
        """Go on looking where the last dispatch stopped."""
        self.group.mark_dispatch()

    def dispatch(self, now_ms: int) -> None:
        """As `Group.dispatch`."""
        self._budget = limits.SELECTOR_SCAN_MESSAGES_MAX
        self._sort_returned()
        for level in self._levels():
            shares: dict[View, int] = {}
            for consumer in level:
                view = self.views_of.get(consumer)
                if view is not None:
                    shares[view] = shares.get(view, 0) + 1
            while self._serve(level, shares, now_ms):
                pass
        self._finish(now_ms)

    def claim(self, consumer: Consumer, count: int, now_ms: int) -> int:
        """As `Group.claim`, for a consumer that asks by itself."""
        self._budget = limits.SELECTOR_SCAN_MESSAGES_MAX
        self._sort_returned()
        view = self.views_of.get(consumer) or self._view(EVERYTHING)
        claimed = self._claim(consumer, view, count, now_ms)
        self._finish(now_ms)
        return claimed

    def _levels(self) -> list[list[Consumer]]:
        """Consumers with credit, in turn; those of a higher priority apart and first, late ones last."""
        group = self.group
        consumers = group.consumers
        turn = self._turn % len(consumers) if consumers else 0
        takers = [c for c in consumers[turn:] + consumers[:turn] if c.credit() > 0]
        if not group.is_ranked:
            return [takers]
        if group.queue.policy.single_active:
            return [ranking.entitled(group, takers)]
        levels: dict[tuple[bool, int], list[Consumer]] = {}
        for consumer in takers:
            if not ranking.stands_back(group, consumer):
                levels.setdefault((consumer.is_late(), -consumer.priority), []).append(consumer)
        return [levels[level] for level in sorted(levels)]

    def covers(self, consumer: Consumer, other: Consumer) -> bool:
        """Whether `consumer` takes whatever `other` wants."""
        view = self.views_of.get(consumer)
        return view is not None and (view.condition is None or view is self.views_of.get(other))

    def _serve(self, level: list[Consumer], shares: dict[View, int], now_ms: int) -> bool:
        """Give each consumer its share of what is found for it; whether anybody got something."""
        group = self.group
        served = False
        for consumer in level:
            credit = consumer.credit()
            view = self.views_of.get(consumer)
            if credit <= 0 or view is None:
                continue
            self._look_for(view)
            sharing = len(level) if view.condition is None else shares.get(view, 1)
            share = max(1, (len(view.found) + len(view.returned)) // sharing)
            if self._claim(consumer, view, min(share, credit), now_ms):
                served = True
                if consumer in group.consumers:
                    self._turn = group.consumers.index(consumer) + 1
        return served

    def _claim(self, consumer: Consumer, view: View, count: int, now_ms: int) -> int:
        self._look_for(view)
        entry = view.next_returned()
        found = view.found
        if entry is not None and entry.message.offset < self._returned_end(view):
            if entry.message.body is None:
                self._wanting[view] = None
                return 0
            return self._claim_returned(consumer, view, count, now_ms)
        if not found or self._is_held_up():
            return 0
        messages = self._pop_found(view, OFFSET_END if entry is None else entry.message.offset, count, now_ms)
        if not messages:
            return 0
        taken = self.taken
        taken.add([message.offset for message in messages])
        self._moved()
        self._let_go(messages)
        self.group.hand_out_fresh(consumer, messages, now_ms)
        return len(messages)

    def _pop_found(self, view: View, end: int, count: int, now_ms: int) -> list[Message]:
        """The next up to `count` messages found for a view that lie before `end` and may be handed out."""
        found = view.found
        taken = self.taken
        keeper = self.group.queue.keeper
        messages: list[Message] = []
        while not messages:
            while found and len(messages) < count and found[0].offset < end:
                message = found.popleft()
                self._found_bytes -= len(message.body or b"")
                if not taken.contains(message.offset):
                    messages.append(message)
            if not messages:
                break
            if keeper is not None:
                messages = keeper.choose_found(self.group, messages, now_ms)
                if not messages:
                    self._look_for(view)
        return messages

    def _claim_returned(self, consumer: Consumer, view: View, count: int, now_ms: int) -> int:
        entries: list[Entry] = []
        keeper = self.group.queue.keeper
        end = self._returned_end(view)
        while len(entries) < count:
            entry = view.next_returned()
            if entry is None or entry.message.body is None or entry.message.offset >= end:
                break
            if entries and (entry.attempts > 0) != (entries[0].attempts > 1):
                break  # a redriven message is at its first attempt again
            del self.waiting[entry.claim_number]
            if keeper is not None and not keeper.claims_again(self.group, entry, now_ms):
                continue
            self.group.claim_again(entry, consumer, now_ms)
            entries.append(entry)
        if entries:
            self.group.hand_out(consumer, entries)
        return len(entries)

    def _finish(self, now_ms: int) -> None:
        """Ask for what is missing, or for another turn."""
        group = self.group
        if self._wanting and not group.loading:
            view = min(self._wanting, key=lambda view: view.last_load)
            self._load_count += 1
            view.last_load = self._load_count
            self._request(view)
        elif self._budget <= 0:
            group.queue.manager.timers.set(self, now_ms)
        self._wanting.clear()
        if self._block and all(v.cursor >= self._block_end for v in self.views if v.consumers or not v.key):
            self._forget_block()
        if not group.queue.durable and self.is_over():
            self.end()

    # what is given up

    def pass_over(self, messages: list[Message]) -> None:
        """The group let go of these."""
        self.taken.add([message.offset for message in messages])
        self._moved()
        self._let_go(messages)

    def pass_ranges(self, ranges: RangeSet) -> None:
        """The group had let go of these offsets."""
        for start, end in ranges.pairs():
            self.taken.add_range(start, end)
        self._moved()

    # what came back

    def _sort_returned(self) -> None:
        """Show the views what came back to the group."""
        group = self.group
        if not group.returned:
            return
        queue = group.queue
        fields = queue.manager.fields
        for _, entry in group.returned:
            if entry.state != AVAILABLE:
                continue
            self.waiting[entry.claim_number] = entry
            message = entry.message
            for view in self.views.candidates(message.template):
                if view.wants(queue, message, entry.attempts + 1, fields):
                    view.add_returned(entry)
        group.returned = []

    def drop_gone(self, message_ids: set[int]) -> list[Entry]:
        """Forget what came back and has no payload any more; gives it."""
        gone = [entry for entry in self.waiting.values() if entry.message.message_id in message_ids]
        for entry in gone:
            del self.waiting[entry.claim_number]
        return gone

    # the rest of a group's life

    def purge(self, end: int) -> list[Entry]:
        """Everything below `end` is taken; gives the entries that waited."""
        self.taken.move(end)
        self._forget_block()
        for view in self.views:
            view.found.clear()
            view.returned = []
        self._found_bytes = 0
        waiting = list(self.waiting.values())
        self.waiting = {}
        return waiting

    def flush(self, storage_id: str, journal: Journal) -> None:
        """Write what was taken; the position goes with it."""
        self.taken.flush(storage_id, journal)
        if self.is_over():
            self.end()

    def ready_count(self) -> int:
        """How many more messages wait than position and end of the queue say."""
        return len(self.waiting) - self.taken.count

    def unmatched_count(self) -> int:
        """Messages that were shown to all filters and that none wants."""
        views = [view for view in self.views if view.consumers]
        if not views or any(view.condition is None for view in views):
            return 0
        taken = self.taken
        seen = max(taken.position, min(view.cursor for view in views))
        fresh = seen - taken.position - taken.count_below(seen)
        wanted = {message.offset for view in views for message in view.found if message.offset < seen}
        returned = {
            entry.claim_number for view in views for _, _, entry in view.returned if entry.state == AVAILABLE
        }
        return (
            fresh - sum(not taken.contains(offset) for offset in wanted) + len(self.waiting) - len(returned)
        )


def select(group: Group) -> Selection:
    """The group's selection, begun if need be."""
    return group.selection or Selection(group)
