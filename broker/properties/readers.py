"""How the core reads the properties of messages, whatever protocol they came by."""

from __future__ import annotations

from typing import Final

from broker.engine.content import ContentReaders
from broker.properties import dead_letters, filter_fields, message_groups, templates

READERS: Final = ContentReaders(
    fields_of=filter_fields.fields_of,
    group_key_of=message_groups.group_key,
    stamp_death=dead_letters.stamp,
    origin_of=dead_letters.origin_of,
    headers_of=templates.headers_of,
    copies_of=templates.copies_of,
    note_refused_death=dead_letters.note_refused,
)
