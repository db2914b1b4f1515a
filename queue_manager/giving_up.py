"""Giving up messages nobody claimed: expired, or too many.

A message that a group has not got hold of is let go of with the group's position, or ahead of it; one that
came back, with its claim. Where the queue has a dead-letter queue, each group sends its own copy, in the same
commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from queue_manager import dead_letters
from queue_manager.model import AVAILABLE, DONE, Entry, Message
from queue_manager.nobody import Nobody

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.policy import QueuePolicy

RETENTION: Final = "retention"  # the reason when nobody came for messages in time: no dead letters


def dead_letters_wanted(policy: QueuePolicy) -> bool:
    """Whether what is given up goes to another queue."""
    return bool(policy.dead_letter) or policy.dead_letter_by_key


def give_up_fresh(group: Group, messages: list[Message], reason: str, now_ms: int) -> int:
    """Let go of messages `group` has not claimed; how many of them, from the first on, it were.

    Fewer than all only where there is no group to keep what the dead-letter queue does not take. Where there
    is such a queue the bodies must be in memory.
    """
    if reason == RETENTION or not dead_letters_wanted(group.queue.policy):
        group.let_go(messages)
        _pass(group, messages)
        return len(messages)
    done = []
    count = 0
    for message in messages:
        if not group.selects(message) or dead_letters.send(group, message, 0, reason, now_ms):
            done.append(message)
        elif isinstance(group, Nobody):
            break
        else:
            _keep_failed(group, message, now_ms)
        count += 1
    group.let_go(done)
    _pass(group, messages[:count])
    return count


def _pass(group: Group, messages: list[Message]) -> None:
    """Where the group does not take in order: note that it is done with these."""
    if group.selection is not None:
        group.selection.pass_over(messages)


def _keep_failed(group: Group, message: Message, now_ms: int) -> None:
    """Keep a message that was never claimed as a failed one."""
    entry = group.claim_number_for(message, now_ms)
    group.keep_failed(entry)
    group.mark_dirty()
    group.flush_soon()


def give_up_entry(group: Group, entry: Entry, reason: str, now_ms: int) -> None:
    """Let go of an available claim. Where dead letters are wanted its body must be in memory."""
    assert entry.state == AVAILABLE
    entry.lease_deadline_ms = 0
    bucket = entry.bucket
    if bucket is not None:
        bucket.plain = False
        group.touch(bucket)
        group.flush_soon()
    if dead_letters_wanted(group.queue.policy):
        group.fail(entry, reason, now_ms)
    else:
        entry.state = DONE
        if bucket is not None:
            bucket.open_count -= 1
    entry.claimed_at_ms = now_ms
