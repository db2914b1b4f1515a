"""Done records whose retention has passed, and the payloads that go with them."""

from __future__ import annotations

import struct
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from queue_manager.claims.attempts import AttemptLog
from queue_manager.claims.claim import DONE, Bucket
from queue_manager.log.payloads import Run, add_to_runs
from storage.envelope import SHARED, read_head

_MESSAGE_ID: Final = struct.Struct("<Q").unpack_from
_ENVELOPE_AT: Final = 30
_ATTEMPTS: Final = struct.Struct("<H").unpack_from
_ATTEMPTS_AT: Final = 24

NO_BUCKET: Final = -1  # a purge that only releases payloads


class PurgeOwner(Protocol):
    """The owner of a done record."""

    def apply_purge(self, purge: Purge, references: dict[int, int]) -> None:
        """Put the purge into the open commit, if it is still to be done."""


@dataclass(eq=False, slots=True)
class Purge:
    """A done record that goes at `due_ms`.

    `items` are runs of payloads of this queue alone, `shared_items` of those that other queues hold too,
    `attempt_ids` the messages with an attempts record. `was_open`: the bucket was in use, its record stays,
    without them.
    """

    owner: PurgeOwner
    bucket_id: int
    due_ms: int
    shared_items: list[Run] = field(default_factory=list)
    _: KW_ONLY
    items: list[Run] = field(default_factory=list)
    was_open: bool = False
    attempt_ids: list[int] = field(default_factory=list, init=False)

    @classmethod
    def of_bucket(cls, owner: PurgeOwner, bucket: Bucket, attempt_log: AttemptLog, due_ms: int) -> Purge:
        """Return the purge of a closed bucket."""
        if bucket.is_plain:
            return cls(owner, bucket.bucket_id, due_ms, items=bucket.runs)
        packed = [claim.packed for claim in bucket.claims if claim is not None and claim.state == DONE]
        return cls.of_packed(owner, bucket.bucket_id, packed, attempt_log, due_ms)

    @classmethod
    def of_open_bucket(
        cls, owner: PurgeOwner, bucket: Bucket, attempt_log: AttemptLog, retention_ms: int, now_ms: int
    ) -> Purge | None:
        """Take out of a bucket in use what is due already; return its purge, None if nothing is due."""
        packed = []
        for index, claim in enumerate(bucket.claims):
            if (
                claim is not None
                and claim.state == DONE
                and claim.packed
                and claim.at_ms + retention_ms <= now_ms
            ):
                packed.append(claim.packed)
                bucket.drop(index)
        if not packed:
            return None
        return cls.of_packed(owner, bucket.bucket_id, packed, attempt_log, now_ms, was_open=True)

    @classmethod
    def of_packed(
        cls,
        owner: PurgeOwner,
        bucket_id: int,
        packed: list[bytes],
        attempt_log: AttemptLog,
        due_ms: int,
        *,
        was_open: bool = False,
    ) -> Purge:
        """Return the purge of the elements of a done record."""
        purge = cls(owner, bucket_id, due_ms, was_open=was_open)
        for element in packed:
            message_id: int = _MESSAGE_ID(element, 0)[0]
            flags, offset, _ = read_head(element[_ENVELOPE_AT : _ENVELOPE_AT + 18])
            add_to_runs(purge.shared_items if flags & SHARED else purge.items, offset, message_id)
            if _ATTEMPTS(element, _ATTEMPTS_AT)[0] > 1 or message_id in attempt_log:
                purge.attempt_ids.append(message_id)
        return purge

    def message_count(self) -> int:
        """How many messages it lets go of."""
        return sum(count for _, _, count in self.items) + sum(count for _, _, count in self.shared_items)

    def apply(self, references: dict[int, int]) -> None:
        """Write the purge. `references` holds the stored counts of all `shared_items`; they are updated."""
        self.owner.apply_purge(self, references)
