"""The neutral message. Messages are shared by every group of a queue."""

from __future__ import annotations

import struct
from collections.abc import Iterable
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


def make_messages(
    first_id: int, offset: int, bodies: list[bytes], templates: Iterable[EnvelopeTemplate], now_ms: int
) -> list[Message]:
    """Messages with IDs and offsets that follow on, one for each body."""
    count = len(bodies)
    return list(
        map(
            Message,
            range(first_id, first_id + count),
            range(offset, offset + count),
            bodies,
            templates,
            repeat(now_ms),
        )
    )
