"""Overflow: of more than the policy lets wait in a queue the oldest goes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop
from typing import Final

from config import limits
from queue_manager.claims.claim import Claim
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.failures import RETENTION
from queue_manager.dispatch.view_scan import OFFSET_END
from queue_manager.model import Message
from queue_manager.rules.expiry.front import Front, Holder
from queue_manager.rules.expiry.fronts import Source
from queue_manager.rules.expiry.level import Level

FRONT_MESSAGES_MIN: Final = 16  # of the log are looked at for what is too much


Reader = tuple[Level, Holder]


def waiting_bytes(readers: Sequence[Reader]) -> int:
    """Return the bytes of payload that wait for a group."""
    return sum(map(_bytes, readers))


def _bytes(reader: Reader) -> int:
    level, holder = reader
    return 0 if level.bytes is None else level.bytes.of(holder).total()


def _count(reader: Reader) -> int:
    _, holder = reader
    return holder.ready_count() + (holder.delayed_count() if isinstance(holder, Cursor) else 0)


class Excess:
    """How much more waits for a group than its queue's policy lets, or (`RETENTION`) keeps for groups to
    come.
    """

    __slots__ = ("body_bytes", "count")

    def __init__(self, readers: Sequence[Reader], reason: str) -> None:
        policy = readers[0][0].log.policy
        count_max, bytes_max = policy.depth_max, policy.bytes_max
        if reason == RETENTION:
            count_max, bytes_max = policy.retention_count, policy.retention_bytes
        self.count = self.body_bytes = 0
        if count_max:
            self.count = sum(map(_count, readers)) - max(0, count_max)
        if bytes_max:
            self.body_bytes = waiting_bytes(readers) - max(0, bytes_max)

    def is_over(self) -> bool:
        """Return whether there is none."""
        return self.count <= 0 and self.body_bytes <= 0

    def less(self, body_bytes: int) -> None:
        """Count one message of that size less."""
        self.count -= 1
        self.body_bytes -= body_bytes


def drop_oldest(readers: Sequence[Reader], reason: str, now_ms: int) -> None:
    """Give up the oldest messages a group has waiting until the rest is no more than the policy lets it be.

    `readers` are the group in the priorities of the queue; what is less urgent goes first. What has to be
    read for that is asked for; the rule calls again then. `reason` is `MAXLEN` or, for groups to come,
    `RETENTION`.
    """
    for level, holder in readers:
        while not level.budget.is_spent and not (excess := Excess(readers, reason)).is_over():
            source = level.fronts.source(holder)
            step = min(max(excess.count, FRONT_MESSAGES_MIN), limits.EXPIRY_STEP_MESSAGES)
            # out of order, something older than what came back may never have been claimed
            is_out_of_order = isinstance(source, Front) and source is not holder
            front = source.reader.peek(step) if is_out_of_order else []
            if is_out_of_order and not front and source.reader.is_loading:
                return
            fresh = next((m.offset for m in front if not level.fronts.is_over_for(holder, m)), OFFSET_END)
            if front and fresh == OFFSET_END:
                level.pass_over(holder, source, len(front))
                continue
            if isinstance(holder, Cursor) and (claims := _too_many(level, holder, fresh, excess)):
                if not level.discard_waiting(holder, claims, reason, now_ms):
                    return
                continue
            front = front or source.reader.peek(step)
            if not front:
                if source.reader.is_loading:
                    return
                break
            if not _drop_front(level, holder, source, front, excess, reason, now_ms):
                return


def _drop_front(
    level: Level,
    holder: Holder,
    source: Source,
    front: list[Message],
    excess: Excess,
    reason: str,
    now_ms: int,
) -> bool:
    """Give up what is too much of the messages next for the group; False: not all of it could be."""
    waiting = level.oldest.of(holder) if isinstance(holder, Cursor) else []
    end = waiting[0][0] if waiting else OFFSET_END
    too_many, passed = _front_to_drop(level, holder, front, end, excess)
    count = holder.discard_fresh(too_many, reason, now_ms, level.budget)
    level.note_passed(holder, too_many[:count])
    if count < len(too_many):
        passed = front.index(too_many[count])
    if passed:
        level.pass_over(holder, source, passed)
    if count < len(too_many):
        if not level.budget.is_spent:
            level.call_at(now_ms + limits.EXPIRY_RETRY_MS)
        return False
    return True


def _front_to_drop(
    level: Level, holder: Holder, front: list[Message], end: int, excess: Excess
) -> tuple[list[Message], int]:
    """Return what is too much of the messages next for the group, below `end`; and how many it has to pass
    for that.
    """
    too_many: list[Message] = []
    for index, message in enumerate(front):
        if not level.fronts.is_over_for(holder, message):
            if excess.is_over() or message.offset > end:
                return too_many, index
            too_many.append(message)
            excess.less(len(message.body or b""))
    return too_many, len(front)


def _too_many(level: Level, cursor: Cursor, end: int, excess: Excess) -> list[Claim]:
    """Return the oldest of what waits and was taken from the log, below `end`, as many as are too much."""
    found: list[Claim] = []
    sizes = level.bytes.of(cursor).waiting if level.bytes is not None else {}
    while len(found) < limits.EXPIRY_STEP_MESSAGES and not excess.is_over():
        heap = level.oldest.of(cursor)
        if not heap or heap[0][0] > end:
            break
        claim = heappop(heap)[2]
        found.append(claim)
        excess.less(sizes.get(claim.claim_number, 0))
    return found
