"""What a queue's keeper knows, and the ways it lets go of messages."""

from __future__ import annotations

from heapq import heapify, heappush
from typing import TYPE_CHECKING, cast

from config import limits
from queue_manager.ahead import Ahead
from queue_manager.byte_count import ByteCount
from queue_manager.dead_letters import EXPIRED
from queue_manager.giving_up import dead_letters_wanted, give_up_entry
from queue_manager.keeping.oldest import Oldest, take_out
from queue_manager.loads import PayloadLoad
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.nobody import Nobody
from queue_manager.own_ttls import OwnTtls
from queue_manager.ranges import RangeSet
from queue_manager.removal import HeadRemoval
from queue_manager.retention import advance_head
from queue_manager.tail import RELEASED
from storage.envelope import expires_at_ms
from storage.records import queue_meta

if TYPE_CHECKING:
    from queue_manager.group import Group
    from queue_manager.journal import Journal
    from queue_manager.keeper import Keeper
    from queue_manager.queue import Queue


class KeeperState:
    """What expires when, what was given up already, and how much waits.

    `_waiting` are claims that came back, by the time they expire; `_frontier` is the offset below which
    nothing is left for groups to come.
    """

    __slots__ = (
        "_end_again_ms",
        "_frontier",
        "_is_loading",
        "_nobody",
        "_number",
        "_stand_ins",
        "_waiting",
        "_waiting_max",
        "ahead",
        "ahead_at_start",
        "bytes",
        "is_busy",
        "oldest",
        "own",
        "queue",
    )

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.own: OwnTtls | None = None
        self.ahead: Ahead | None = None
        self.ahead_at_start = RangeSet()  # what a restart found in it
        self.bytes: ByteCount | None = None
        self.oldest = Oldest()
        self._end_again_ms = 0
        self._frontier = 0
        self.is_busy = False
        self._is_loading = False
        self._nobody: Nobody | None = None
        self._stand_ins: dict[Group, Nobody] = {}
        self._waiting: list[tuple[int, int, Entry]] = []
        self._waiting_max = 1_000  # then too many of them do not wait any more
        self._number = 0

    def expires_at(self, message: Message) -> int:
        """When the message expires, in ms; 0: never."""
        own_ms = expires_at_ms(message.template, message.received_at_ms)
        ttl_ms = self.queue.policy.message_ttl_ms
        if not ttl_ms:
            return own_ms
        end_ms = message.received_at_ms + ttl_ms
        return min(own_ms, end_ms) if own_ms else end_ms

    def has_expired(self, message: Message, now_ms: int) -> bool:
        """Whether nobody may be given the message any more."""
        return 0 < self.expires_at(message) <= now_ms

    def was_given_up(self, offset: int) -> bool:
        """Whether groups that come to `offset` only now have let go of it, or nobody kept it for them."""
        if self.ahead is not None and self.ahead.contains(offset):
            return True
        return self.queue.released.contains(offset)

    def ahead_count(self, position: int) -> int:
        """How many messages at or above `position` were given up."""
        return 0 if self.ahead is None else self.ahead.count_from(position)

    def call_at(self, due_ms: int) -> None:
        """Have everything looked at again then; 0: as soon as may be."""
        self.queue.manager.timers.set(cast("Keeper", self), due_ms)

    def passed(self, group: Group, messages: list[Message]) -> None:
        """The group moved on over messages that were not given up before."""
        if self.bytes is not None:
            self.bytes.of(group).passed(messages)

    def group_written(self, group: Group, journal: Journal) -> None:
        """A group's position was put into the open commit."""
        if self.bytes is not None:
            self.bytes.write_taken(group, journal)

    def source(self, group: Group) -> Group:
        """Who goes through the log for the group: itself, or a stand-in if it does not take in order."""
        if group.selection is None:
            self._stand_ins.pop(group, None)
            return group
        stand_in = self._stand_ins.get(group)
        if stand_in is None:
            stand_in = self._stand_ins[group] = Nobody(self.queue)
            stand_in.position = group.position
            stand_in.cursor_sequence = group.cursor_sequence
        stand_in.pass_to(group.position)
        return stand_in

    def is_over_for(self, group: Group, message: Message) -> bool:
        """Whether the group has taken the message, or let go of it."""
        if message is RELEASED or self.was_given_up(message.offset):
            return True
        return group.selection is not None and group.has_taken(message.offset)

    def pass_over(self, group: Group, source: Group, count: int) -> None:
        """Move the group, or its stand-in, beyond so many messages, which are over for it."""
        start = group.position
        source.pass_by(count)
        self._frontier = max(self._frontier, source.position)
        if not isinstance(group, Nobody):
            return
        queue = self.queue
        if queue.durable:
            queue.released.add(start, group.position)
            advance_head(queue)
            group.pass_to(queue.head_offset)  # what follows may have been let go of before
            # with the commit that holds the dead letters
            queue.manager.journal.put(
                queue_meta.key(queue.name), queue_meta.encode(queue.head_offset, queue.head_sequence)
            )
            queue.manager.removals.append(HeadRemoval(queue))
            self.group_written(group, queue.manager.journal)
        else:
            queue.tail.drop_before(group.position)
            queue.head_offset = group.position

    def nobody(self) -> Nobody:
        """Who stands for the groups to come."""
        if self._nobody is None or self._nobody.position < self.queue.head_offset:
            self._nobody = Nobody(self.queue)
            if self.ahead is not None and self.queue.durable:
                self.queue.released.add_all(self.ahead.ranges_from(self.queue.head_offset))
        return self._nobody

    def _oldest_at_hand(self) -> bool:
        """Whether what groups to come would get first is in memory, in all parts of the queue."""
        parts = self.queue.whole().parts()
        return all(part.keep().nobody().position >= part.tail.first_offset for part in parts)

    def _groups(self) -> list[Group]:
        if self.queue.groups:
            self._nobody = None
            return list(self.queue.groups.values())
        return [self.nobody()]

    def _wait_for(self, entry: Entry, end_ms: int) -> None:
        self._number += 1
        heappush(self._waiting, (end_ms, self._number, entry))
        if len(self._waiting) > self._waiting_max:
            self._waiting = [item for item in self._waiting if item[2].state == AVAILABLE]
            heapify(self._waiting)
            self._waiting_max = 2 * len(self._waiting) + 1_000

    def give_up_waiting(self, group: Group, entries: list[Entry], reason: str, now_ms: int) -> bool:
        """Give up claims that came back; False: some once their payloads have been read."""
        missing: list[Entry] = []
        needs_body = dead_letters_wanted(self.queue.policy)
        for entry in entries:
            if needs_body and entry.message.body is None:
                missing.append(entry)
            else:
                if self.bytes is not None:
                    self.bytes.of(group).remove(entry)
                give_up_entry(group, entry, reason, now_ms)
        if not missing:
            take_out(group, entries)
            return True
        take_out(group, [entry for entry in entries if entry.state != AVAILABLE])
        self.oldest.forget(group)
        if reason == EXPIRED:
            for entry in missing:  # they are due again when their payloads have been read
                self._wait_for(entry, now_ms)
        if not group.loading:
            group.loading = True
            messages = [entry.message for entry in missing[: limits.LOAD_MESSAGES_MAX]]
            self.queue.manager.loads.append(PayloadLoad(group, messages))
        return False
