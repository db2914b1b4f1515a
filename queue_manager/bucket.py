"""Buckets of claims: what one active, done and failed record holds (record layout, section 5.3).

A claim number is given once per message and group and never again; `number // capacity` names the bucket.
A bucket is written when something in it changed since it was last written, never per claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queue_manager.model import AVAILABLE, DONE, IN_FLIGHT, Message
from storage.envelope import EnvelopeTemplate
from storage.records import active, done
from storage.visible_at import with_visible_at

Run = tuple[int, int, int]  # first offset, first message ID, count of consecutive ones

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.model import Entry


SETTLED_MESSAGE: Final = Message(0, 0, None, EnvelopeTemplate(""), 0)


class Bucket:
    """The claims `first .. first + capacity - 1` of one group.

    `entries[i]` is claim `first + i`; None once its done record was purged. `open_count` counts entries
    neither done nor failed. `runs` are the messages as they were claimed; as long as the bucket is `plain`
    (nothing of it returned, failed, was purged, or is shared with other queues) they are what goes with it.
    """

    __slots__ = (
        "active_written",
        "capacity",
        "claim_base",
        "dirty",
        "done_written",
        "entries",
        "failed_written",
        "first",
        "group",
        "open_count",
        "plain",
        "runs",
    )

    def __init__(self, group: Group, first: int, capacity: int, claim_base: int) -> None:
        self.group = group
        self.first = first
        self.capacity = capacity
        self.claim_base = claim_base
        self.entries: list[Entry | None] = []
        self.open_count = 0
        self.dirty = False
        self.active_written = False
        self.done_written = False
        self.failed_written = False
        self.plain = True
        self.runs: list[Run] = []

    @property
    def bucket_id(self) -> int:
        """The ID of the bucket in record keys."""
        return self.claim_base | self.first

    def add_run(self, messages: list[Message]) -> None:
        """Note messages that were just claimed into it, in order of their offsets."""
        if not self.plain:
            return
        first = messages[0]
        last = messages[-1]
        span = len(messages) - 1
        contiguous = last.offset - first.offset == span and last.message_id - first.message_id == span
        if not contiguous or self.group.queue.mixes_payloads:
            self.plain = False
        else:
            self.runs.append((first.offset, first.message_id, span + 1))

    def is_closed(self) -> bool:
        """Every message of it is settled and no claim number will be given out from it any more."""
        group = self.group
        return self.open_count == 0 and (
            group.next_claim >= self.first + self.capacity or group.claim_base != self.claim_base
        )

    def encode_active(self) -> bytes | None:
        """The value of the active record, or None when nothing is available or in flight."""
        if not self.open_count:
            return None
        base = self.claim_base
        available = []
        in_flight = []
        for entry in self.entries:
            if entry is None:
                continue
            message = entry.message
            if entry.state == AVAILABLE:
                envelope = message.envelope()
                if entry.lease_deadline_ms:
                    envelope = with_visible_at(envelope, entry.lease_deadline_ms)
                available.append(
                    active.pack_available(
                        message.message_id, base | entry.claim_number, entry.attempts, envelope
                    )
                )
            elif entry.state == IN_FLIGHT:
                deadline = entry.lease_deadline_ms
                if not deadline and entry.consumer is not None:
                    deadline = entry.claimed_at_ms + entry.consumer.lease_ms
                in_flight.append(
                    active.pack_in_flight(
                        message.message_id,
                        base | entry.claim_number,
                        entry.claimed_at_ms,
                        deadline,
                        entry.attempts,
                        message.envelope(),
                    )
                )
        return active.encode_packed(available, in_flight)

    def encode_settled(self, state: int) -> bytes | None:
        """The value of the done (state DONE) or failed (FAILED) record, or None when there is none such."""
        base = self.claim_base
        packed = []
        for entry in self.entries:
            if entry is None or entry.state != state:
                continue
            if not entry.packed:
                message = entry.message
                entry.packed = done.pack_done(
                    message.message_id,
                    base | entry.claim_number,
                    entry.claimed_at_ms,
                    entry.attempts,
                    message.envelope(),
                )
                if state == DONE:
                    entry.message = SETTLED_MESSAGE  # lets go of the payload
            packed.append(entry.packed)
        return done.encode_packed(packed) if packed else None
