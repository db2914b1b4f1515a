"""The stand-in for a queue's groups while there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queue_manager.group import Group
from queue_manager.patterns import MATCH_ALL

if TYPE_CHECKING:
    from queue_manager.queue import Queue


class Nobody(Group):
    """Stands for the groups to come of a queue that has none: has no records of its own."""

    __slots__ = ()

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue, "", MATCH_ALL, queue.head_offset, queue.head_sequence)
        self.sticky = None  # nothing is placed for nobody

    def mark_dirty(self) -> None:
        """There is nothing to write."""
