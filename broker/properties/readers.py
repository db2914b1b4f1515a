"""How the core reads the properties of messages, whatever protocol they came by."""

from __future__ import annotations

from typing import Final

from broker.engine.content_readers import ContentReaders
from broker.properties import death_headers, filter_fields, message_groups, templates

READERS: Final = ContentReaders(
    fields_of=filter_fields.fields_of,
    group_key_of=message_groups.group_key,
    stamp_death=death_headers.stamp,
    origin_of=death_headers.origin_of,
    headers_of=templates.headers_of,
    copies_of=templates.copies_of,
    note_refused_death=death_headers.note_refused,
)
