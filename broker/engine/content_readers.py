"""The readers by which the core learns the content of messages, which it carries without looking at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queue_manager.dispatch.by_key.message_keys import GroupKeyOf
from queue_manager.filters.field_access import Fields
from queue_manager.manager import QueueManager
from queue_manager.routing.queue_directory import HeadersOf
from queue_manager.rules.dead_letters import CopiesOf, OnTrouble, OriginOf, Stamp
from storage.envelope import EnvelopeTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentReaders:
    """Functions that read, and write, the properties of messages.

    `fields_of`: what filters see; `group_key_of`: the key of a message group; `stamp_death`: the properties
    of a dead letter, and `origin_of`, what they say; `headers_of`: what exchanges route by; `copies_of`: the
    routing keys of CC; `note_refused_death` is called when a dead-letter queue does not take one.
    """

    fields_of: Callable[[EnvelopeTemplate], Fields]
    group_key_of: GroupKeyOf
    stamp_death: Stamp
    origin_of: OriginOf
    headers_of: HeadersOf
    copies_of: CopiesOf
    note_refused_death: OnTrouble

    def install(self, manager: QueueManager) -> None:
        """Have a manager read messages so."""
        manager.context.fields.read_by(self.fields_of)
        manager.queues.maker.find_group_keys_by(self.group_key_of)
        manager.queues.read_headers_by(self.headers_of)
        manager.queues.dead_letters.install(
            self.stamp_death, self.origin_of, self.copies_of, self.note_refused_death
        )
