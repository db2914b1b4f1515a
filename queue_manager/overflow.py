"""What a queue does with more than its policy lets wait in it: it refuses it, or the oldest goes."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING, Final

from config import limits
from queue_manager import dead_letters
from queue_manager.dead_letters import MAXLEN
from queue_manager.giving_up import RETENTION, give_up_fresh
from queue_manager.group import Group
from queue_manager.model import Entry, Message
from queue_manager.nobody import Nobody
from queue_manager.policy import REJECT_DLX
from queue_manager.scanning import OFFSET_END

if TYPE_CHECKING:
    from queue_manager.keeping.state import KeeperState
    from queue_manager.queue import Queue
    from storage.envelope import EnvelopeTemplate

    Reader = tuple[KeeperState, Group]

FRONT_MESSAGES_MIN: Final = 16  # of the log are looked at for what is too much


def dead_letter_refused(queue: Queue, template: EnvelopeTemplate, body: bytes, now_ms: int) -> None:
    """A publish was refused: where the policy says so a copy goes to the dead-letter queue."""
    if queue.policy.overflow == REJECT_DLX:
        message = Message(0, queue.tail.next_offset, body, template, now_ms)
        dead_letters.send(Nobody(queue), message, 0, MAXLEN, now_ms)


def readers_of(queue: Queue) -> list[list[Reader]]:
    """For each group (or nobody yet) what it reads: the parts of the queue, the least urgent first."""
    if queue.groups:
        return [
            [(part.queue.keep(), part) for part in reversed(group.parts())] for group in queue.groups.values()
        ]
    return [[(part.keep(), part.keep().nobody()) for part in queue.parts()]]


def waiting_bytes(queue: Queue) -> int:
    """The bytes of payload that wait, in the group with most of them; of a queue whose bytes are bounded."""
    return max(sum(map(_bytes, readers)) for readers in readers_of(queue))


def _bytes(reader: Reader) -> int:
    keeper, group = reader
    return 0 if keeper.bytes is None else keeper.bytes.of(group).total()


def _count(reader: Reader) -> int:
    keeper, group = reader
    if isinstance(group, Nobody):
        return keeper.queue.kept_count()
    return Group.ready_count(group) + Group.delayed_count(group)


class _Excess:
    """How much more waits for a group than its queue's policy lets, or (`RETENTION`) keeps for nobody."""

    __slots__ = ("body_bytes", "count")

    def __init__(self, readers: list[Reader], reason: str) -> None:
        policy = readers[0][0].queue.policy
        count_max, bytes_max = policy.depth_max, policy.bytes_max
        if reason == RETENTION:
            count_max, bytes_max = policy.retention_count, policy.retention_bytes
        self.count = self.body_bytes = 0
        if count_max:
            self.count = sum(map(_count, readers)) - count_max
        if bytes_max:
            self.body_bytes = sum(map(_bytes, readers)) - bytes_max

    def is_over(self) -> bool:
        """Whether there is none."""
        return self.count <= 0 and self.body_bytes <= 0

    def less(self, body_bytes: int) -> None:
        """One message of that size goes."""
        self.count -= 1
        self.body_bytes -= body_bytes


def is_too_much(readers: list[Reader], reason: str) -> bool:
    """Whether more waits for a group than the policy lets."""
    return not _Excess(readers, reason).is_over()


def drop_oldest(readers: list[Reader], reason: str, now_ms: int) -> None:
    """Give up the oldest messages a group has waiting until the rest is no more than the policy lets it be.

    `readers` are the group in the parts of the queue; what is less urgent goes first. What has to be read for
    that is asked for; the keeper calls again then. `reason` is `MAXLEN` or, of nobody, `RETENTION`.
    """
    for keeper, group in readers:
        while not (excess := _Excess(readers, reason)).is_over():
            source = keeper.source(group)
            step = min(max(excess.count, FRONT_MESSAGES_MIN), limits.EXPIRY_STEP_MESSAGES)
            # with filters, something older than what came back may never have been claimed
            front = source.at_hand(step) if group.selection is not None else []
            if group.selection is not None and not front and source.loading:
                return
            fresh = next((m.offset for m in front if not keeper.is_over_for(group, m)), OFFSET_END)
            if front and fresh == OFFSET_END:
                keeper.pass_over(group, source, len(front))
                continue
            if entries := _too_many(keeper, group, fresh, excess):
                if not keeper.give_up_waiting(group, entries, reason, now_ms):
                    return
                continue
            front = front or source.at_hand(step)
            if not front:
                if source.loading:
                    return
                break
            waiting = keeper.oldest.of(group)
            end = waiting[0][0] if waiting else OFFSET_END
            too_many, passed = _front_to_drop(keeper, group, front, end, excess)
            given_up = give_up_fresh(group, too_many, reason, now_ms)
            keeper.passed(group, too_many[:given_up])
            if given_up < len(too_many):
                passed = front.index(too_many[given_up])
            if passed:
                keeper.pass_over(group, source, passed)
            if given_up < len(too_many):
                keeper.call_at(now_ms + limits.EXPIRY_RETRY_MS)
                return


def _front_to_drop(
    keeper: KeeperState, group: Group, front: list[Message], end: int, excess: _Excess
) -> tuple[list[Message], int]:
    """What is too much of the messages next for the group, below `end`; how many it has to pass for that."""
    too_many: list[Message] = []
    for index, message in enumerate(front):
        if not keeper.is_over_for(group, message):
            if excess.is_over() or message.offset > end:
                return too_many, index
            too_many.append(message)
            excess.less(len(message.body or b""))
    return too_many, len(front)


def _too_many(keeper: KeeperState, group: Group, end: int, excess: _Excess) -> list[Entry]:
    """The oldest of what waits and was taken from the log, below `end`, as many as are too much."""
    found: list[Entry] = []
    sizes = keeper.bytes.of(group).waiting if keeper.bytes is not None else {}
    while len(found) < limits.EXPIRY_STEP_MESSAGES and not excess.is_over():
        heap = keeper.oldest.of(group)
        if not heap or heap[0][0] > end:
            break
        entry = heappop(heap)[2]
        found.append(entry)
        excess.less(sizes.get(entry.claim_number, 0))
    return found
