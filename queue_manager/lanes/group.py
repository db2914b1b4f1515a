"""A group of a queue with priorities: one group per lane, with the same consumers, served from the top."""

from __future__ import annotations

from typing import Any, cast

from queue_manager.consumer import Consumer
from queue_manager.group import Group
from queue_manager.groups.state import GroupState
from queue_manager.loads import LogLoad, PayloadLoad
from queue_manager.model import Entry, Message


class LanedGroup(Group):
    """What a group has to do with one lane.

    The group of priority 0, `lead`, is the one consumers belong to; it acts for all of `lanes`, which are
    ordered from the highest priority to the lowest.
    """

    __slots__ = ("lanes", "lead")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.lead = self
        self.lanes: list[LanedGroup] = [self]

    def join(self, groups: list[Group]) -> None:
        """Act for the groups of all lanes; `groups` begins with this one."""
        self.lanes = [cast(LanedGroup, group) for group in reversed(groups)]
        for lane in self.lanes:
            lane.lead = self
            lane.consumers = self.consumers
            lane.draining = self.draining
            lane.sticky = self.sticky
        self.apply_message_groups()

    def binds_keys(self) -> bool:
        return all(lane.selection is None for lane in self.lanes) and self.queue.policy.binds_keys()

    def apply_message_groups(self) -> None:
        lead = self.lead
        GroupState.apply_message_groups(lead)
        for lane in lead.lanes:
            lane.sticky = lead.sticky

    def parts(self) -> list[Group]:
        """See `Group.parts`."""
        return [*self.lanes]

    # serving

    def dispatch(self, now_ms: int) -> None:
        lead = self.lead
        for lane in () if lead.sticky is not None else lead.lanes:
            lane.active_consumer = lead.active_consumer
            lane.is_ranked = lead.is_ranked
            lane._turn = lead._turn
            Group.dispatch(lane, now_ms)
            lead.active_consumer = lane.active_consumer
            lead._turn = lane._turn
            if lane.is_waited_for():
                break  # what is less urgent has to wait for what is being read
        if lead.sticky is not None:
            lead.sticky.dispatch(now_ms)
        if not lead.queue.durable:
            for lane in lead.lanes:
                lane.queue.trim_tail(0)

    def is_waited_for(self) -> bool:
        """Whether messages of this lane are being read back."""
        return self.loading and Group.ready_count(self) > 0

    def pull(self, consumer: Consumer, count: int, now_ms: int) -> int | None:
        for lane in self.lanes:
            if claimed := Group.claim(lane, consumer, count, now_ms):
                return claimed
            if lane.is_waited_for():
                return None
        return 0

    def _join_selection(self, consumer: Consumer) -> None:
        for lane in self.lanes:
            Group._join_selection(lane, consumer)

    def _forget(self, consumer: Consumer) -> None:
        for lane in self.lanes:
            if lane.selection is not None and lane is not self:
                lane.selection.leave(consumer)
        super()._forget(consumer)
        if not self.consumers:
            for lane in self.lanes:
                lane.forget_loaded()

    # what comes back

    def requeue(
        self, entries: list[Entry], now_ms: int, *, failed: bool = False, delay_ms: int | None = None
    ) -> None:
        for lane in self.lead.lanes:
            part = [entry for entry in entries if entry.group is lane]
            if part:
                Group.requeue(lane, part, now_ms, failed=failed, delay_ms=delay_ms)

    def expire(self, now_ms: int) -> int:
        count = super().expire(now_ms)
        for lane in self.lanes:
            lane.draining = self.draining
        return count

    def log_loaded(self, load: LogLoad, rows: list[Message], next_offset: int, sequence: int) -> None:
        super().log_loaded(load, rows, next_offset, sequence)
        self._tell_pullers()

    def payloads_loaded(self, load: PayloadLoad, bodies: dict[int, bytes], read_count: int) -> None:
        super().payloads_loaded(load, bodies, read_count)
        self._tell_pullers()

    def _tell_pullers(self) -> None:
        """Who waits for a load waits at the lead."""
        if self.lead is not self:
            self.on_loaded += self.lead.on_loaded
            self.lead.on_loaded = []

    # counting

    def ready_count(self) -> int:
        return sum(Group.ready_count(lane) for lane in self.lanes)

    def unmatched_count(self) -> int:
        return sum(Group.unmatched_count(lane) for lane in self.lanes)

    def delayed_count(self) -> int:
        return sum(Group.delayed_count(lane) for lane in self.lanes)
