"""A queue with priorities, and its lanes.

Messages of each priority have a log of their own, so that the next message is found at once however deep the
queue is. The queue itself is the lane of priority 0. Offsets of lane p begin at p * 2**56: no two messages of
the queue share one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from queue_manager.lanes.group import LanedGroup
from queue_manager.queue import Queue
from storage.envelope import EnvelopeTemplate
from storage.layout import LANE_SEPARATOR

if TYPE_CHECKING:
    from queue_manager.group import Group

LANE_SHIFT: Final = 56


def lane_name(name: str, priority: int) -> str:
    """The name a lane is stored under."""
    return f"{name}{LANE_SEPARATOR}{priority}"


def priority_of(offset: int) -> int:
    """The priority of the lane that has this offset; 0 in queues without."""
    return offset >> LANE_SHIFT


def split_lane_name(name: str) -> tuple[str, int]:
    """A queue's name and the priority of its lane; 0 for a queue itself."""
    queue_name, separator, priority = name.partition(LANE_SEPARATOR)
    return queue_name, int(priority) if separator else 0


class LanedQueue(Queue):
    """A queue with priorities; `lanes[p]` holds what has priority p, `lanes[0]` is the queue itself."""

    __slots__ = ("lanes",)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lanes: list[Queue] = [self]
        self.mixes_payloads = True

    def parts(self) -> list[Queue]:
        """See `Queue.parts`."""
        return self.lanes

    def join(self, lane: Lane) -> None:
        """Take in the lane of the next priority."""
        lane.lead = self
        self.lanes.append(lane)

    def join_groups(self) -> None:
        """After a start: let the groups of the lanes work together."""
        for group in self.groups.values():
            assert isinstance(group, LanedGroup)
            group.join([lane.group(group.name, group.pattern, group.selector) for lane in self.lanes])

    def lane_of(self, template: EnvelopeTemplate) -> Queue:
        """Where a message belongs; a priority above the highest counts as the highest."""
        return self.lanes[min(template.priority, len(self.lanes) - 1)]

    # as a queue

    def new_group(
        self, name: str, pattern: str, position: int, cursor_sequence: int, selector: str = ""
    ) -> Group:
        return LanedGroup(self, name, pattern, position, cursor_sequence, selector)

    def group(self, name: str, pattern: str = "#", selector: str = "") -> Group:
        group_id = name if pattern == "#" else f"{name}@{pattern}"
        known = self.groups.get(group_id)
        if known is not None:
            return known
        for lane in reversed(self.lanes):  # the longest name first: it says whether the group's fits
            Queue.group(lane, name, pattern, selector)
        lead = cast(LanedGroup, self.groups[group_id])
        lead.join([lane.groups[group_id] for lane in self.lanes])
        return lead

    def append(
        self, template: EnvelopeTemplate, first_id: int, bodies: list[bytes], body_bytes: int, now_ms: int
    ) -> None:
        Queue.append(self.lane_of(template), template, first_id, bodies, body_bytes, now_ms)

    def append_varied(
        self,
        templates: list[EnvelopeTemplate],
        first_id: int,
        bodies: list[bytes],
        body_bytes: int,
        now_ms: int,
    ) -> None:
        lane = self.lane_of(templates[0])  # all have the same priority
        Queue.append_varied(lane, templates, first_id, bodies, body_bytes, now_ms)

    def ready_count(self) -> int:
        if self.groups:
            return super().ready_count()
        return sum(Queue.ready_count(lane) for lane in self.lanes)

    def depth(self) -> int:
        if not self.groups:
            return self.ready_count()
        return max(group.ready_count() + group.delayed_count() for group in self.groups.values())

    def waiting_count(self) -> int:
        return super().waiting_count() if self.groups else self.ready_count()


class Lane(Queue):
    """What a queue holds of one priority above 0."""

    __slots__ = ("lead",)

    is_lane = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lead: LanedQueue
        self.mixes_payloads = True

    def whole(self) -> Queue:
        """See `Queue.whole`."""
        return self.lead

    @property
    def title(self) -> str:
        """See `Queue.title`."""
        return split_lane_name(self.name)[0]

    def new_group(
        self, name: str, pattern: str, position: int, cursor_sequence: int, selector: str = ""
    ) -> Group:
        return LanedGroup(self, name, pattern, position, cursor_sequence, selector)
