"""The neutral message, its properties, and one group's hold on it.

Messages are shared by every group of a queue; an `Entry` is one group's view of one message from the
moment it is claimed for the first time. Plain slotted classes: they are made once per message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Final

from storage.envelope import EnvelopeTemplate

if TYPE_CHECKING:
    from queue_manager.bucket import Bucket
    from queue_manager.consumer import Consumer
    from queue_manager.group import Group

AVAILABLE: Final = 0
IN_FLIGHT: Final = 1
DONE: Final = 2
FAILED: Final = 3
STALE: Final = 4  # replaced by a newer Entry of the same message: its ack comes too late

_pack_head: Final = struct.Struct("<2sQq").pack


class Message:
    """One message of one queue.

    `offset` counts the queue's messages from 0; `body` is None while only the store holds it. `template` is
    what it has in common with messages published alike: topic, properties, flags. Its `context` is
    for the front-ends, who keep their translations of the properties there.
    """

    __slots__ = ("body", "message_id", "offset", "received_at_ms", "template")

    def __init__(
        self,
        message_id: int,
        offset: int,
        body: bytes | None,
        template: EnvelopeTemplate,
        received_at_ms: int,
    ) -> None:
        self.message_id = message_id
        self.offset = offset
        self.body = body
        self.template = template
        self.received_at_ms = received_at_ms

    def envelope(self) -> bytes:
        """The metadata of the message as records hold it."""
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


class Entry:
    """One claimed message of one group: claim number, attempt, holder.

    A redelivery replaces the entry by a new one (`Group.requeue`), so that whoever still holds the old
    one holds something STALE (record-layout R-14).
    """

    __slots__ = (
        "attempts",
        "bucket",
        "claim_number",
        "claimed_at_ms",
        "consumer",
        "group",
        "lease_deadline_ms",
        "message",
        "packed",
        "state",
    )

    def __init__(
        self,
        message: Message,
        group: Group,
        claim_number: int,
        bucket: Bucket | None,
        attempts: int,
        state: int,
        consumer: Consumer | None,
        at_ms: int,
    ) -> None:
        self.message = message
        self.group = group
        self.claim_number = claim_number
        self.bucket = bucket
        self.attempts = attempts
        self.state = state
        self.consumer = consumer
        self.claimed_at_ms = at_ms  # when DONE or FAILED: the time of that
        # 0: claimed_at_ms + the consumer's lease; while AVAILABLE, when it may be claimed (0: at once)
        self.lease_deadline_ms = 0
        self.packed = b""  # the done or failed record, once written
