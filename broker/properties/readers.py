"""How the core reads the properties of messages, whatever protocol they came by."""

from __future__ import annotations

from broker.properties import death_headers, filter_fields, message_groups, templates
from queue_manager.manager import QueueManager


def install_readers(manager: QueueManager) -> None:
    """Have a manager, which carries the content of messages without looking at it, read them so."""
    manager.context.fields.read_by(filter_fields.fields_of)
    manager.queues.maker.find_group_keys_by(message_groups.group_key)
    manager.queues.read_headers_by(templates.headers_of)
    manager.queues.dead_letters.install(
        death_headers.stamp, death_headers.origin_of, templates.copies_of, death_headers.note_refused
    )
