"""Messages of one group that came back and have to wait before they may be claimed again."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from config import limits
from queue_manager.model import AVAILABLE, Entry, Message

if TYPE_CHECKING:
    from queue_manager.group import Group


class Delays:
    """A heap of entries by due time; each is AVAILABLE, with the time in `lease_deadline_ms`.

    Made for a group at its first message that waits. Payloads the store has are let go of beyond
    `limits.DELAYED_BYTES_PER_GROUP_MAX`; they are read back when they are due.
    """

    __slots__ = ("_body_bytes", "_group", "_heap")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._heap: list[tuple[int, int, Entry]] = []
        self._body_bytes = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry, due_ms: int) -> None:
        """Have `entry` wait until `due_ms`."""
        entry.lease_deadline_ms = due_ms
        message = entry.message
        queue = self._group.queue
        if (
            message.body
            and self._body_bytes + len(message.body) > limits.DELAYED_BYTES_PER_GROUP_MAX
            and queue.durable
            and message.offset < queue.durable_offset
        ):
            # other groups and the tail may use the same object
            entry.message = Message(
                message.message_id, message.offset, None, message.template, message.received_at_ms
            )
        else:
            self._body_bytes += len(message.body or b"")
        heappush(self._heap, (due_ms, entry.claim_number, entry))
        queue.manager.timers.set(self, self._heap[0][0])

    def is_full(self) -> bool:
        """So much waits that the group has to stop claiming what it has not seen yet."""
        return (
            len(self._heap) >= limits.DELAYED_MESSAGES_PER_GROUP_MAX
            or self._body_bytes >= limits.EPHEMERAL_BYTES_PER_QUEUE_MAX
        )

    def on_timer(self, now_ms: int) -> None:
        """Give what is due back to the group, at its original place."""
        heap = self._heap
        group = self._group
        if group.queue.deleted:
            return
        while heap and heap[0][0] <= now_ms:
            _, _, entry = heappop(heap)
            self._body_bytes -= len(entry.message.body or b"")
            entry.lease_deadline_ms = 0
            if entry.state == AVAILABLE:
                heappush(group.returned, (entry.message.offset, entry))
        if heap:
            group.queue.manager.timers.set(self, heap[0][0])
        group.mark_dispatch()

    def forget_ended(self) -> None:
        """Let go of entries that do not wait any more."""
        kept = [item for item in self._heap if item[2].state == AVAILABLE]
        if len(kept) < len(self._heap):
            heapify(kept)
            self._heap = kept
            self._body_bytes = sum(len(entry.message.body or b"") for _, _, entry in kept)

    def entries(self) -> list[Entry]:
        """What waits, in no particular order."""
        return [entry for _, _, entry in self._heap if entry.state == AVAILABLE]

    def clear(self) -> list[Entry]:
        """Forget everything; give what waited."""
        entries = self.entries()
        self._heap = []
        self._body_bytes = 0
        self._group.queue.manager.timers.forget(self)
        return entries
