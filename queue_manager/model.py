"""The neutral message. Messages are shared by every group of a queue."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final

from storage.envelope import EnvelopeTemplate

_pack_head: Final = struct.Struct("<2sQq").pack


@dataclass(eq=False, slots=True)
class Message:
    """One message of one queue.

    `offset` counts the queue's messages from 0; `body` is None while only the store holds it. `template` is
    what it has in common with messages published alike: topic, properties, flags. Its `context` is
    for the front-ends, who keep their translations of the properties there.
    """

    message_id: int
    offset: int
    body: bytes | None
    template: EnvelopeTemplate
    received_at_ms: int

    def read(self, body: bytes | None) -> None:
        """Take the payload that was read; None: there is none."""
        self.body = body

    def without_body(self) -> Message:
        """Return the same message with its body on the store only."""
        return replace(self, body=None)

    def envelope(self) -> bytes:
        """Return the metadata of the message as records hold it."""
        template = self.template
        return _pack_head(template.head, self.offset, self.received_at_ms) + template.suffix


@dataclass(eq=False, slots=True)
class MessageBatch:
    """Messages to be appended together: one for each body, with IDs from `first_id` on; payloads are stored.

    All have the `template`; or each has its own of `templates`, which ask for nothing and are all of one
    priority; `template` is one of them.
    """

    template: EnvelopeTemplate
    first_id: int
    bodies: list[bytes]
    body_bytes: int
    now_ms: int
    templates: list[EnvelopeTemplate] | None = None

    def messages(self, offset: int) -> list[Message]:
        """Make the messages, with offsets from this one on."""
        bodies, first_id = self.bodies, self.first_id
        count = len(bodies)
        return list(
            map(
                Message,
                range(first_id, first_id + count),
                range(offset, offset + count),
                bodies,
                repeat(self.template) if self.templates is None else self.templates,
                repeat(self.now_ms),
            )
        )

    def part(self, start: int, end: int) -> MessageBatch:
        """Return some of them, by their places."""
        bodies = self.bodies[start:end]
        own = None if self.templates is None else self.templates[start:end]
        first_id = self.first_id + start
        return MessageBatch(self.template, first_id, bodies, sum(map(len, bodies)), self.now_ms, own)
