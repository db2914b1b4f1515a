"""The consumer groups of one queue: made, found, reset, deleted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from config import limits
from queue_manager.address import local_name
from queue_manager.cursor.cursor import Cursor
from queue_manager.cursor.reset_keep import keep_passed
from queue_manager.dispatch.by_key.binding_table import GroupKeyOf
from queue_manager.errors import GroupNotFound, InvalidAddress, LimitReached, PreconditionFailed
from queue_manager.group.group import Group, group_id_of
from queue_manager.group.group_audience import Audience
from queue_manager.group.keeper import KEPT, Keeper
from queue_manager.log.members import others_than, released_by_all
from queue_manager.log.range_set import RangeSet
from queue_manager.log.removals import GroupRemoval
from queue_manager.model import Message
from queue_manager.policy import DROP_UNMATCHED
from queue_manager.queue.part import Part
from storage.layout import GROUP_SEPARATOR, QUEUE_ID_BYTES_MAX
from storage.records import (
    DELETE,
    RESET,
    claim_state,
    group_position,
    log_cursor,
    queue_spec,
    skipped_offsets,
)

Place = tuple[int, int]  # an offset, and a metadata-log sequence at or before its entry (0: not known)


class GroupedQueue(Protocol):
    """The queue."""

    name: str

    def write_spec(self) -> None:
        """Put its specs into the open commit, which the default group is part of."""

    def note_dropped(self, count: int) -> None:
        """Count so many messages that were let go of because no group wanted them."""


class Groups:
    """The groups by ID (name, or `name@pattern`).

    `parts` are the logs of the queue, that of priority 0 first. `audience` knows what the groups want.
    `keeper` holds what none of them wants, while that can be; it is none of those that can be asked for.
    """

    __slots__ = ("_groups", "_key_of", "_parts", "_queue", "audience", "keeper")

    def __init__(self, queue: GroupedQueue, parts: list[Part], key_of: GroupKeyOf) -> None:
        self._queue = queue
        self._parts = parts
        self._key_of = key_of
        self._groups: dict[str, Group] = {}
        self.audience = Audience(parts[0].log, self)
        self.keeper: Keeper | None = None

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._groups

    def get(self, group_id: str) -> Group | None:
        """Return the group of that ID."""
        return self._groups.get(group_id)

    def ids(self) -> list[str]:
        """Return the IDs of all groups."""
        return list(self._groups)

    def with_keeper(self) -> list[Group]:
        """Return all groups, and the keeper if there is one."""
        return [*self._groups.values()] if self.keeper is None else [*self._groups.values(), self.keeper]

    def find(self, group_id: str) -> Group:
        """Return the group of that ID; raises GroupNotFound."""
        group = self._groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"queue {self._queue.name!r} has no consumer group {group_id!r}")
        return group

    # making

    def blank(self, name: str, pattern: str, selector: str) -> Group:
        """Make a group that is not known yet, without cursors."""
        if name == KEPT:
            return self._blank_keeper()
        return Group(self._parts[0].log, name, pattern, selector, self._key_of)

    def ensure(self, name: str, pattern: str, selector: str, places: Sequence[Place] | None = None) -> Group:
        """Return the group, made if it is not there: at `places`, one for each log of the queue, or (None) at
        the oldest message that is kept for it. Its spec is in the open commit then.

        Raises LimitReached, InvalidAddress.
        """
        group = self._groups.get(group_id_of(name, pattern))
        if group is None:
            self._check_room(group_id_of(name, pattern))
            held = [part.kept_before_head() for part in self._parts]
            begins = [(part.beginning(), 0) for part in self._parts] if places is None else places
            group = self._make(name, pattern, selector)
            if places is not None or any(part.is_purged for part in self._parts):
                self._begin_at(group, begins)
            for part, place, messages in zip(self._parts, places or [(0, 0)] * len(held), held, strict=True):
                cursor = part.cursors[group.group_id]
                cursor.begin_with(message for message in messages if message.offset >= place[0])
            self._put_spec(group)
        return group

    def _check_room(self, group_id: str) -> None:
        if len(self._groups) >= limits.GROUPS_PER_QUEUE_MAX:
            raise LimitReached(
                f"queue {self._queue.name!r} has {limits.GROUPS_PER_QUEUE_MAX} consumer groups"
            )
        longest = self._parts[-1].log.name
        if len(f"{longest}{GROUP_SEPARATOR}{group_id}".encode()) > QUEUE_ID_BYTES_MAX:
            raise InvalidAddress(
                f"queue, group and pattern have together at most {QUEUE_ID_BYTES_MAX - 1} bytes"
            )

    def _make(self, name: str, pattern: str, selector: str) -> Group:
        group = self.blank(name, pattern, selector)
        self._join(group)
        self._groups[group.group_id] = group
        self.audience.changed()
        self._follow(is_new=True)
        return group

    def _join(self, group: Group) -> None:
        """Have a group begin at the oldest message kept."""
        cursors = [
            part.new_cursor(group, part.log.head_offset, part.log.head_sequence) for part in self._parts
        ]
        group.join(cursors[::-1])
        for part, cursor in zip(self._parts, cursors, strict=True):
            part.adopt(group.group_id, cursor)
            _pass_places(group, part, cursor)

    # what no group wants

    def policy_changed(self) -> None:
        """Keep what no group wants, or do so no more, as the queue's policy says."""
        self._follow(is_new=True)

    def _follow(self, *, is_new: bool = False) -> None:
        """Have a keeper as long as there may be something that no group wants, and it is not dropped.

        `is_new`: what was left for groups to come may be wanted now.
        """
        policy = self._parts[0].log.policy
        if policy.stream:
            return
        is_needed = policy.unmatched != DROP_UNMATCHED and not self.audience.wants_all()
        keeper = self.keeper
        if keeper is None:
            if is_needed:
                self._make_keeper()
        elif not is_needed and self._can_do_without(keeper):
            self._give_keeper_up(keeper)
        elif is_new:
            keeper.begin_again()

    def _make_keeper(self) -> None:
        keeper = self._blank_keeper()
        self._join(keeper)
        self._take_keeper(keeper)
        self._put_spec(keeper)
        keeper.want_dispatch()

    def _blank_keeper(self) -> Keeper:
        return Keeper(self._parts[0].log, self.audience, self._key_of, self._queue.note_dropped)

    def _take_keeper(self, keeper: Keeper) -> None:
        self.keeper = keeper
        for part, keeping in zip(reversed(self._parts), keeper.keepings, strict=True):
            part.keep_unmatched(keeping)

    def _can_do_without(self, keeper: Keeper) -> bool:
        """Return whether nothing but the log tells what the keeper has: it is known what was let go of, and
        no dead letter of it was refused.
        """
        return not keeper.failed_count() and all(part.retention.is_known for part in self._parts)

    def _give_keeper_up(self, keeper: Keeper) -> None:
        """Have none any more beside the groups there are: what none of those needs goes."""
        self._remove_keeper(keeper)
        for part, cursor in zip(reversed(self._parts), keeper.cursors, strict=True):
            if not part.log.durable:
                part.retention.trim_tail(0)
                continue
            free = released_by_all(part.cursors.values())
            free.discard_all(part.retention.payloads.released)
            part.retention.release_ranges(cursor.storage_id, free)

    def _remove_keeper(self, keeper: Keeper) -> None:
        self.keeper = None
        keeper.retire()
        for part, cursor in zip(reversed(self._parts), keeper.cursors, strict=True):
            part.keep_unmatched(None)
            del part.cursors[KEPT]
            part.farewell(cursor)
            if part.log.durable:
                self._forget_records(cursor)

    # specs

    def _put_spec(self, group: Group) -> None:
        """Put the specs of a group into the open commit."""
        if not self._parts[0].log.durable:
            return
        if not group.group_id:
            self._queue.write_spec()
            return
        for part in self._parts:
            part.write_group_spec(group)

    def restore(self, group: Group) -> None:
        """Take in a group that was made before the start."""
        self.audience.changed()
        if isinstance(group, Keeper):
            self._take_keeper(group)
        else:
            self._groups[group.group_id] = group

    def _begin_at(self, group: Group, places: Sequence[Place]) -> None:
        """Have a group that was just made begin at `places`, one for each log of the queue."""
        for part, place in zip(self._parts, places, strict=True):
            self._begin_log_at(part, part.cursors[group.group_id], *place)

    def _begin_log_at(self, part: Part, cursor: Cursor, position: int, sequence: int) -> None:
        log = part.log
        position = min(max(position, log.head_offset), log.next_offset)
        behind = RangeSet()
        behind.add(cursor.position, position)
        part.farewell(cursor)
        cursor.backlog.begin_at(position, sequence)
        cursor.progress.released.add_all(behind)
        cursor.progress.take_gaps()
        cursor.backlog.pass_released()
        part.welcome(cursor)
        if not log.durable:
            return
        cursor.stored.mark_dirty()
        if len(part.cursors) == 1:
            # no other group wants what it passes; of several groups the others keep it
            behind.discard_all(part.retention.payloads.released)
            part.retention.release_ranges(cursor.storage_id, behind)

    def history_known(self, now_ms: int) -> None:
        """Let groups begin that were made after a start: it is known now what was let go of."""
        waiting: dict[str, None] = {}
        for part in self._parts:
            if not part.retention.is_known:
                waiting.update(dict.fromkeys(cursor.group_id for cursor in part.history_known()))
        for group in self.with_keeper():
            if group.group_id in waiting:
                self._put_spec(group)
                group.loaded(now_ms)
        self._follow()
        if self.keeper is not None:
            self.keeper.want_dispatch()

    # ending

    def check_idle(self, group_id: str, *, force: bool) -> Group:
        """Return the group, if it may be reset or deleted now; raises GroupNotFound, PreconditionFailed."""
        group = self.find(group_id)
        for part in self._parts:
            if not part.retention.is_known:
                raise PreconditionFailed(f"what queue {self._queue.name!r} keeps is still being read")
            if part.retention.removals.is_full:
                raise PreconditionFailed(
                    f"queue {self._queue.name!r} is still letting go of what earlier groups kept"
                )
        if not force:
            if group.consumers.members:
                raise PreconditionFailed(f"consumer group {group_id!r} has consumers")
            if group.in_flight_count():
                raise PreconditionFailed(f"consumer group {group_id!r} has messages in flight")
        return group

    def delete(self, group_id: str, now_ms: int, *, force: bool = False) -> None:
        """Remove a group: its consumers are cancelled, its claims end, what only it kept goes.

        Of the queue's last group what it had not done stays with the queue, with what it did not want. Raises
        as `check_idle`.
        """
        group = self.check_idle(group_id, force=force)
        group.serving.end_message_groups()
        keeper = self.keeper if len(self._groups) == 1 else None
        kept: list[tuple[Cursor, GroupRemoval | None] | None] = [None] * len(self._parts)
        if keeper is not None:
            cursors = reversed(keeper.cursors)
            kept = [(cursor, _begin_removal(cursor, DELETE, now_ms)) for cursor in cursors]
            self._remove_keeper(keeper)
        ended: list[tuple[Part, Cursor, GroupRemoval | None, list[Message]]] = []
        for part in self._parts:
            cursor = part.cursors[group_id]
            unfinished = [claim.message for claim in cursor.claims.buckets.open_claims()]
            ended.append((part, cursor, _begin_removal(cursor, DELETE, now_ms), unfinished))
            del part.cursors[group_id]
        del self._groups[group_id]
        self.audience.changed()
        group.retire()
        for part, cursor, _, _ in ended:
            part.farewell(cursor)
        group.dismiss(f"consumer group {group_id!r} of queue {local_name(self._queue.name)!r} was deleted")
        for (part, cursor, removal, unfinished), left in zip(ended, kept, strict=True):
            if not part.log.durable:
                part.retention.trim_tail(0)
                continue
            self._forget_records(cursor)
            if removal is not None:
                _let_go_of_all(part, cursor, removal, unfinished, None if left is None else left[0])
            if left is not None and left[1] is not None:
                _let_go_of_failed(part, left[0], left[1])
        self._follow()

    def _forget_records(self, cursor: Cursor) -> None:
        commit = cursor.log.context.commit
        storage_id = cursor.storage_id
        commit.delete(claim_state.key(storage_id))
        commit.delete(group_position.key(storage_id))
        commit.delete(log_cursor.key(storage_id, cursor.log.log_id))
        commit.delete(skipped_offsets.key(storage_id))
        if cursor.group_id:
            commit.delete(queue_spec.key(storage_id))
        else:
            self._queue.write_spec()

    # resetting

    def reset(self, group: Group, places: Sequence[Place], now_ms: int, *, force: bool) -> Group:
        """Have a group go on at `places`, one for each log, as if it had done everything before them and
        nothing from there.

        What is not kept any more stays away; failed messages before a place stay failed. Gives the group that
        takes its place; its consumers stay, their claims end. Raises as `check_idle`.
        """
        self.check_idle(group.group_id, force=force)
        group.serving.end_message_groups()
        new = self.blank(group.name, group.pattern, group.selector)
        cursors = [
            part.new_cursor(new, *_bounded(part, place))
            for part, place in zip(self._parts, places, strict=True)
        ]
        removals = [_begin_removal(part.cursors[group.group_id], RESET, now_ms) for part in self._parts]
        held = [[] if part.log.durable else part.kept_before_head() for part in self._parts]
        new.join(cursors[::-1])
        group.retire()
        self._groups[group.group_id] = new
        self.audience.changed()
        for part, cursor, removal in zip(self._parts, cursors, removals, strict=True):
            old = part.cursors[group.group_id]
            part.farewell(old)
            part.cursors[group.group_id] = cursor
            cursor.reader.begin_at(0)
            cursor.claims.follow_on(old.claims)
            if removal is not None:
                _divide(part, old, cursor, removal, now_ms)
                cursor.stored.mark_dirty()
            part.welcome(cursor)
            _pass_places(new, part, cursor)
        for cursor, place, messages in zip(cursors, places, held, strict=True):
            cursor.begin_with(message for message in messages if message.offset >= place[0])
        new.move_consumers(group)
        group.loaded(now_ms)
        return new


def _pass_places(group: Group, part: Part, cursor: Cursor) -> None:
    """Have a group that begins in memory go past messages of which only the place is left."""
    gone = [] if part.log.durable else part.log.tail.released()
    gone = [offset for offset in gone if offset >= cursor.position]
    if gone:
        group.serving.go_out_of_order(cursor)
        cursor.progress.claim(gone)


def _bounded(part: Part, place: Place) -> Place:
    log = part.log
    return min(max(place[0], log.head_offset), log.next_offset), max(place[1], log.head_sequence)


def _begin_removal(cursor: Cursor, mode: int, now_ms: int) -> GroupRemoval | None:
    """Write down what the group has, for its buckets to be complete on the store; None if it has none."""
    log = cursor.log
    if not log.durable or log.policy.stream:
        return None
    cursor.claims.buckets.records.want_all_whole()
    if cursor.stored.is_dirty:
        cursor.write(log.context.commit, now_ms)
    return GroupRemoval(
        log,
        cursor.storage_id,
        log.context.new_number(),
        mode,
        claim_end=cursor.claims.buckets.end_number(),
    )


def _let_go_of_all(
    part: Part, cursor: Cursor, removal: GroupRemoval, unfinished: list[Message], kept: Cursor | None
) -> None:
    """Let go of what no other group needs of a deleted group. `kept`: of the queue's last group, what of it
    the keeper was not past stays.
    """
    retention = part.retention
    log = part.log
    others = list(part.cursors.values())
    if others:
        free = released_by_all(others)
    else:
        free = cursor.progress.taken()
        if kept is not None:
            passed = kept.progress.taken()
            free = free.intersection(passed)
            # the keeper's own release of it may have been for the next commit
            retention.payloads.released.add_all(cursor.progress.failed.intersection(passed))
        free.drop_before(log.head_offset)
        for message in unfinished:
            free.discard(message.offset, message.offset + 1)
        part.inherit(unfinished)
        log.write_head()  # it may not be written yet, and no group will tell any more
    free.discard_all(retention.payloads.released)
    free.discard_all(cursor.progress.failed)
    gone = retention.payloads.released.copy()
    gone.add(0, log.head_offset)
    row_free = cursor.progress.failed.intersection(gone)
    for other in others:
        row_free.discard_all(other.progress.failed)
    removal.row_free.add_all(row_free)
    retention.let_go(removal, free)


def _let_go_of_failed(part: Part, cursor: Cursor, removal: GroupRemoval) -> None:
    """Let go, of the keeper that goes with the last group, of dead letters that were refused."""
    gone = part.retention.payloads.released.copy()
    gone.add(0, part.log.head_offset)
    removal.row_free.add_all(cursor.progress.failed.intersection(gone))
    part.retention.let_go(removal, RangeSet())


def _divide(part: Part, old: Cursor, new: Cursor, removal: GroupRemoval, now_ms: int) -> None:
    """Divide the old cursor's messages: what comes again in the new one, what is let go of now or later."""
    retention = part.retention
    position = new.position
    removal.reset_at(new.claims.buckets.first_claim, position)
    again = old.progress.failed.copy()
    again.drop_before(position)
    new.progress.failed.add_all(old.progress.failed)
    new.progress.failed.discard_all(again)
    new.claims.buckets.begin_failed(old.claims.buckets.failed_count - again.count())
    for start, end in again.pairs():
        retention.payloads.keep_again(start, end)
    behind = RangeSet()
    behind.add(part.log.head_offset, position)
    behind.discard_all(keep_passed(old, new, now_ms))
    new.progress.released.add_all(retention.payloads.released)
    new.progress.released.add_all(behind)
    new.backlog.pass_released()
    others = others_than(new, retention.members)
    free = behind.intersection(released_by_all(others)) if others else behind
    free.discard_all(retention.payloads.released)
    retention.let_go(removal, free)
