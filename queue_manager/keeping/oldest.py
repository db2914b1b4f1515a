"""Which claims that came back, or were placed for a consumer, are a group's oldest."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from queue_manager.model import AVAILABLE
from queue_manager.nobody import Nobody

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.model import Entry

Heap: TypeAlias = "list[tuple[int, int, Entry]]"  # offset, a number that is never the same, entry


class Oldest:
    """Heaps by group, of groups that were asked for; what does not wait any more is passed over."""

    __slots__ = ("_heaps", "_lengths_max", "_number")

    def __init__(self) -> None:
        self._heaps: dict[Group, Heap] = {}
        self._lengths_max: dict[Group, int] = {}  # then too much of a heap does not wait any more
        self._number = 0

    def add(self, group: Group, entry: Entry) -> None:
        """An entry waits now."""
        heap = self._heaps.get(group)
        if heap is None:
            return
        self._number += 1
        heappush(heap, (entry.message.offset, self._number, entry))
        if len(heap) > self._lengths_max[group]:
            self.forget(group)

    def of(self, group: Group) -> Heap:
        """The group's heap; its first entry waits."""
        if isinstance(group, Nobody):
            return []
        heap = self._heaps.get(group)
        if heap is None:
            self._number += 1
            heap = [(e.message.offset, self._number + i, e) for i, e in enumerate(_waiting(group))]
            self._number += len(heap)
            heapify(heap)
            self._heaps[group] = heap
            self._lengths_max[group] = 2 * len(heap) + 1_000
        while heap and heap[0][2].state != AVAILABLE:
            heappop(heap)
        return heap

    def forget(self, group: Group) -> None:
        """Look at the group anew when it is asked for again."""
        self._heaps.pop(group, None)


def _waiting(group: Group) -> list[Entry]:
    waiting = [entry for _, entry in group.returned if entry.state == AVAILABLE] + group.delayed()
    if group.selection is not None:
        waiting += group.selection.waiting.values()
    if group.sticky is not None:
        waiting += group.sticky.placed_of(group)
    return waiting


def take_out(group: Group, entries: list[Entry]) -> None:
    """Take entries that do not wait any more from where they did."""
    rest = False
    for entry in entries:
        if group.returned and group.returned[0][1] is entry:
            heappop(group.returned)
        elif group.selection is not None and entry.claim_number in group.selection.waiting:
            del group.selection.waiting[entry.claim_number]
        elif group.sticky is None or not group.sticky.take_out(entry):
            rest = True
    if not rest:
        return
    group.returned[:] = [item for item in group.returned if item[1].state == AVAILABLE]
    heapify(group.returned)
    if group.sticky is not None:
        group.sticky.forget_ended()
    if group.delays is not None:
        group.delays.forget_ended()
