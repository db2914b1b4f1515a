"""Making queues: of the kind that their policy asks for, on logs with IDs of their own."""

from __future__ import annotations

from collections.abc import Callable

from queue_manager.dispatch.by_key.binding_table import GroupKeyOf, no_key
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.stream_log import StreamLog
from queue_manager.queue.priority import PriorityQueue
from queue_manager.queue.queue import EphemeralMemory, Queue, Surroundings
from queue_manager.queue.stream import Stream
from queue_manager.rules.dead_letters import DeadLetterBook, Directory
from queue_manager.shard.context import Context
from queue_manager.spec_records import QueueDefinition
from storage.envelope import EnvelopeTemplate


class QueueMaker:
    """Makes queues, and those that a start finds."""

    __slots__ = ("_context", "_group_key_of", "_next_log_number", "_surroundings")

    def __init__(
        self,
        context: Context,
        directory: Directory,
        book: DeadLetterBook,
        memory: EphemeralMemory,
        on_unused: Callable[[Queue, int], None],
    ) -> None:
        self._context = context
        self._next_log_number = 1
        self._group_key_of: GroupKeyOf = no_key
        self._surroundings = Surroundings(context, directory, book, memory, self._key_of, on_unused)

    def find_group_keys_by(self, group_key_of: GroupKeyOf) -> None:
        """Have the keys of message groups found so."""
        self._group_key_of = group_key_of

    def _key_of(self, template: EnvelopeTemplate) -> tuple[str, bool]:
        return self._group_key_of(template)

    def make(self, definition: QueueDefinition, now_ms: int) -> Queue:
        """Make a queue with empty logs, which is not adopted yet."""
        policy = definition.policy
        sequence = self._context.metadata_log.next_sequence if definition.durable else 0
        make_log = StreamLog if policy.stream else QueueLog
        log = make_log(
            self._context,
            definition.name,
            definition.name,
            durable=definition.durable,
            policy=policy,
            log_id=self._log_id(),
            head_sequence=sequence,
            mixes_payloads=policy.priority_max > 0,
        )
        queue = self._on(log, definition, now_ms)
        if isinstance(queue, PriorityQueue):
            for priority in range(1, policy.priority_max + 1):
                queue.make_level(priority, self._log_id(), sequence)
        return queue

    def _on(self, log: QueueLog, definition: QueueDefinition, now_ms: int) -> Queue:
        """Make a queue of the kind that its policy asks for."""
        kind = (
            Stream if definition.policy.stream else PriorityQueue if definition.policy.priority_max else Queue
        )
        return kind(self._surroundings, definition, log, now_ms)

    def _log_id(self) -> str:
        """Return an ID of no other log, of those in memory either: by theirs, too, other shards tell queues
        apart.
        """
        log_id = f"q{self._next_log_number}"
        self._next_log_number += 1
        return log_id

    def note_log_id(self, log_id: str) -> None:
        """Do not give out a log ID again."""
        number = int(log_id[1:]) if log_id[1:].isdigit() else 0
        self._next_log_number = max(self._next_log_number, number + 1)

    def restore(self, log: QueueLog, definition: QueueDefinition, now_ms: int) -> Queue:
        """Make a queue on a log that was read back; it is not adopted yet."""
        self.note_log_id(log.log_id)
        return self._on(log, definition, now_ms)
