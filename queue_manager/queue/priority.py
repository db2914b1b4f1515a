"""A queue with priorities: messages of each have a log of their own.

So the next message is found at once however deep the queue is.
"""

from __future__ import annotations

from queue_manager.log.levels import first_offset, level_name
from queue_manager.log.queue_log import QueueLog
from queue_manager.model import MessageBatch
from queue_manager.queue.part import Part
from queue_manager.queue.queue import Queue
from storage.envelope import EnvelopeTemplate


class PriorityQueue(Queue):
    """A queue whose `parts[p]` holds what has priority p."""

    __slots__ = ()

    def part_of(self, template: EnvelopeTemplate) -> Part:
        """See `Queue`; a priority above the highest counts as the highest."""
        return self.parts[min(template.priority, len(self.parts) - 1)]

    def append(self, batch: MessageBatch) -> None:
        self.part_of(batch.template).append(batch)

    def make_level(self, priority: int, log_id: str, head_sequence: int) -> None:
        """Make the log of a priority of a queue that is new."""
        log = QueueLog(
            self.context,
            level_name(self.name, priority),
            self.name,
            durable=self.durable,
            policy=self.policy,
            log_id=log_id,
            durable_offset=first_offset(priority),
            head_offset=first_offset(priority),
            head_sequence=head_sequence,
            mixes_payloads=True,
        )
        self.parts.append(self.make_part(log))
