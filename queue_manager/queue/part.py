"""One log of a queue with everything that belongs to it: the whole queue, or one priority of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queue_manager.cursor.cursor import NO_RULES, Cursor, Rules
from queue_manager.group.group import Group
from queue_manager.group.keeper import Keeping
from queue_manager.log.levels import first_offset, priority_of
from queue_manager.log.queue_log import QueueLog
from queue_manager.log.removals import QueueRemoval
from queue_manager.log.retention import Retention
from queue_manager.model import Message, MessageBatch
from queue_manager.policy import DROP_HEAD, NOT_PAUSED, Pause, QueuePolicy
from queue_manager.queue.purging import Purging
from queue_manager.rules.dead_letters import DeadLetters
from queue_manager.rules.expiry.log_rules import Levels, LogRules
from queue_manager.spec_records import encode_group_spec, encode_queue_spec
from storage.records import queue_meta, queue_spec, released_offsets


@dataclass(eq=False, repr=False, slots=True)
class Part:
    """A log, who has let go of what in it, its rules if it has any, and where its dead letters go.

    It has one method for each thing that happens to a log and that more than one of these has to know: they
    do not know each other. `cursors` are those of the groups, by group ID.
    Implements `queue_manager.shard.context.Appended`.
    """

    lets_expire = True
    """Whether messages expire that ask for it."""

    retention: Retention[Cursor]
    dead_letters: DeadLetters
    _levels: Levels
    log: QueueLog = field(init=False)
    cursors: dict[str, Cursor] = field(init=False)
    _rules: LogRules | None = field(default=None, init=False)
    _purging: Purging | None = field(default=None, init=False)  # once something was purged
    purged_to: int = field(default=0, init=False)
    """The end of the last purge: a message that is kept below was there then, and is claimed or done."""
    _keeping: Keeping | None = field(default=None, init=False)
    _has_choosers: bool = field(default=False, init=False)  # once a group was for certain messages only

    def __post_init__(self) -> None:
        self.log = self.retention.log
        self.cursors = self.retention.members
        self._follow_policy()

    # rules

    def _follow_policy(self) -> None:
        policy = self.log.policy
        has_limits = policy.message_ttl_ms or policy.bytes_max or policy.overflow == DROP_HEAD
        is_counted = self.log.is_counted and not policy.stream
        if has_limits or is_counted or policy.retains() or policy.last_value:
            self.use_rules()
        if self._rules is not None:
            self._rules.policy_changed()

    def set_policy(self, policy: QueuePolicy) -> None:
        """Follow another policy from now on."""
        self.log.follow(policy)
        self._follow_policy()

    def count_bytes(self, *, is_counted: bool) -> None:
        """Count from now on how many bytes wait, or not any more, unless the policy wants it."""
        self.log.is_counted = is_counted
        self._follow_policy()

    def use_rules(self) -> LogRules:
        """Return the log's rules, made if need be."""
        if self._rules is None:
            self._rules = LogRules(self.retention, self.dead_letters, self._levels)
            for cursor in self.cursors.values():
                cursor.follow(self._rules)
        return self._rules

    @property
    def has_rules(self) -> bool:
        """Whether there are any."""
        return self._rules is not None

    # appending

    def append(self, batch: MessageBatch) -> None:
        """Append messages, which expire alike, and tell the rules and the groups."""
        offset = self.log.append(batch)
        context = self.log.context
        if self.log.durable:
            context.appended[self] = None
        context.tailed[self.retention] = None
        if self._rules is not None or (batch.template.expires_at_ms and self.lets_expire):
            self.use_rules().count(batch, offset)
        if self._keeping is not None:
            self._keeping.appended(offset)
        if self._has_choosers:
            for cursor in self.cursors.values():
                if cursor.backlog.wants is not None:
                    cursor.appended(offset)
        if self._rules is not None:
            self._rules.appended(len(batch.bodies), batch.now_ms)
        # before they are durable, but for groups with consumers that are told offsets
        for cursor in self.cursors.values():
            if cursor.consumers.members and not cursor.backlog.waits:
                cursor.want_dispatch()

    def tell_offsets(self) -> None:
        """Take messages that tell the offsets of others: nobody is given those before they are durable, as
        what they tell of is then, too.
        """
        if not self.log.tells_offsets:
            self.log.tell_offsets()
            for cursor in self.cursors.values():
                cursor.backlog.wait()

    def write_log(self, now_ms: int) -> None:
        log = self.log
        if log.write(now_ms):
            log.context.commit.log_ends[self] = log.next_offset
            if self._rules is not None:
                self._rules.log_written()

    def became_durable(self, end_offset: int, tail_bytes_max: int) -> None:
        """See `queue_manager.shard.commit.WrittenLog`; groups that wait for it are given what that is."""
        self.log.became_durable(end_offset)
        self.retention.trim_tail(tail_bytes_max)
        for cursor in self.cursors.values():
            if cursor.backlog.waits:  # one that pulls waits, too, and is no consumer while it holds nothing
                cursor.want_dispatch()

    # groups

    def keep_unmatched(self, keeping: Keeping | None) -> None:
        """Have what is appended judged by this from now on: whether any group wants it (None: there is no
        need to).
        """
        self._keeping = keeping
        if keeping is not None:
            self.retention.read_ahead()

    def new_cursor(self, group: Group, position: int, sequence: int) -> Cursor:
        """Make a cursor for a group; it is not known yet."""
        cursor = Cursor(
            self.retention,
            group,
            begins_at=position,
            sequence=sequence,
            rules=self.rules,
            dead_letters=group.dead_letters_of(self.dead_letters),
            dispatcher=group.serving.in_order,
        )
        if self.log.tells_offsets:
            cursor.backlog.wait()
        if group.wants is not None:
            self._has_choosers = True
        return cursor

    def kept_before_head(self) -> list[Message]:
        """Return what groups have claimed and not settled, and the log does not give to one that begins, in
        order of offsets: in memory what all of them had claimed, on the store what was redriven from below
        the head.

        What is beyond the head the log gives again from now on.
        """
        log = self.log
        places = frozenset(() if log.durable else log.tail.released())
        found: dict[int, Message] = {}
        for cursor in self.cursors.values():
            if not log.durable or cursor.progress.failed.starts:
                for message in cursor.unfinished():
                    if message.offset in places:
                        log.tail.restore(message)
                    elif message.offset < log.head_offset:
                        found[message.offset] = message
        return [found[offset] for offset in sorted(found)]

    @property
    def is_purged(self) -> bool:
        """Whether some of what is kept was there at a purge."""
        return self.purged_to > self.log.head_offset

    def beginning(self) -> int:
        """Return where a group begins that is to have all there is for it: at the oldest message kept, or
        behind what was purged, but for what other groups have claimed and not settled, or not looked at yet.
        """
        head = self.log.head_offset
        if not self.is_purged or not self.cursors:
            return head  # the last group has left nothing that it had done
        kept = [cursor.position for cursor in self.cursors.values()]
        for cursor in self.cursors.values():
            kept += [message.offset for message in cursor.unfinished() if message.offset >= head]
        return min(self.purged_to, *kept)

    @property
    def rules(self) -> Rules:
        """The rules that cursors follow."""
        return NO_RULES if self._rules is None else self._rules

    def adopt(self, key: str, cursor: Cursor) -> None:
        """Take in the cursor of a group that was made, at the oldest message kept."""
        log = self.log
        retention = self.retention
        retention.welcome(cursor)
        if retention.removals:
            cursor.claims.buckets.begin_after(retention.removals.first_claim(cursor.group_id))
        self.welcome(cursor)
        self.cursors[key] = cursor
        if not log.durable:
            return
        others_past = len(self.cursors) > 1 and not retention.is_known
        if others_past and log.head_offset < log.tail.first_offset:
            # it is not known yet what the others let go of; until then it is given nothing
            cursor.await_history()
        else:
            cursor.stored.mark_dirty()
            if cursor.progress.gaps is not None:
                retention.payloads.note_gaps()

    def welcome(self, cursor: Cursor) -> None:
        """Begin with a group: what was let go of before is not for it."""
        if self._rules is not None:
            self._rules.welcome(cursor)
        self.retention.pass_expired(cursor)

    def farewell(self, cursor: Cursor) -> None:
        """Note that a group ends, or begins anew."""
        if self._rules is not None:
            self._rules.farewell(cursor)

    def inherit(self, messages: list[Message]) -> None:
        """Take over from the last group, which is gone and had not done these."""
        if self._rules is not None:
            self._rules.inherit(messages)

    def history_known(self) -> list[Cursor]:
        """Note, after a start, that it is known now what was let go of; give the cursors that waited for
        that.
        """
        log = self.log
        self.retention.become_known()
        if log.head_offset > first_offset(priority_of(log.head_offset)):
            self.retention.want_removal_below_head()  # what a crash kept from being trimmed
        waiting = []
        for cursor in self.cursors.values():
            if cursor.reset_keep is not None:
                cursor.reset_keep.arm()
            if cursor.awaits_history:
                waiting.append(cursor)
                cursor.history_known()
                if cursor.progress.gaps is not None:
                    self.retention.payloads.note_gaps()
        return waiting

    # records

    def write_spec(
        self,
        declared: QueuePolicy,
        topics: tuple[str, ...],
        arguments: Mapping[str, object] | None,
        default: Group | None,
        description: str = "",
        pause: Pause = NOT_PAUSED,
        user: str | None = None,
    ) -> None:
        """Put the spec of the log, with the default group's, into the open commit."""
        log = self.log
        cursor = self.cursors.get("")
        value = encode_queue_spec(
            declared,
            log.log_id,
            topics,
            arguments,
            None if default is None else default.selector,
            description=description,
            pause=pause,
            awaits_history=cursor is not None and cursor.awaits_history,
            purged_to=self.purged_to if self.is_purged else 0,
            user=user,
        )
        log.context.commit.put(queue_spec.key(log.name), value)

    def write_group_spec(self, group: Group) -> None:
        """Put the spec of a group that has a name or a pattern into the open commit."""
        log = self.log
        cursor = self.cursors[group.group_id]
        value = encode_group_spec(
            log.policy,
            log.title,
            group.name,
            group.pattern,
            group.selector,
            awaits_history=cursor.awaits_history,
        )
        log.context.commit.put(queue_spec.key(cursor.storage_id), value)

    # purging, deleting

    def purge(self) -> None:
        """Drop everything that waits."""
        if self._purging is None:
            self._purging = Purging(self.retention)
        self._purging.purge()
        if self.log.durable:
            self.purged_to = self.log.next_offset
        if not self.cursors and self._rules is not None:
            self._rules.purged_unread()

    def is_untouched(self) -> bool:
        """Return whether there was never a message in it, nor a rule that keeps records."""
        log = self.log
        is_new = log.next_offset == log.head_offset == 0
        return is_new and self._rules is None and not log.policy.stream and not self.retention.removals

    def delete(
        self, storage_ids: tuple[str, ...], now_ms: int, *, is_untouched: bool = False
    ) -> QueueRemoval | None:
        """End with the queue. The records go with this commit as far as memory knows them, the rest by the
        removal this gives. `is_untouched`: so is the whole queue.
        """
        log = self.log
        context = log.context
        log.delete()
        if self._rules is not None:
            self._rules.delete()
        context.appended.pop(self, None)
        self.retention.delete()
        if not log.durable:
            return None
        commit = context.commit
        for storage_id in storage_ids:
            commit.delete(queue_spec.key(storage_id))
        commit.delete(queue_meta.key(log.name))
        commit.delete(released_offsets.key(log.name))
        # the open blocks must reach the log, or their payloads would never be found again
        self.write_log(now_ms)
        purged = () if self._purging is None else self._purging.starts()
        # from here on the log stands for payloads, whether they may still be read or not
        kept_from = 0 if log.policy.stream else log.head_offset
        head_offset = min(kept_from, *purged, log.next_offset)
        released = self.retention.payloads.released.copy() if self.retention.is_known else None
        let_go = self.retention.payloads.let_go_lately()
        queue_removal = QueueRemoval(
            log.name, log.log_id, storage_ids, head_offset, released, let_go, is_untouched=is_untouched
        )
        if released is not None:
            for noted in self.retention.removals.take_noted():
                queue_removal.keep(noted.log_free.pairs())
        for pending in self.retention.removals:
            pending.of_queue = queue_removal
        self.retention.removals.take_own()  # for these the log stands still
        queue_removal.write(commit)
        context.removals.append(queue_removal)
        return queue_removal

    # after a start

    def begin_unknown(self, purged_to: int) -> None:
        """Begin after a start: what was let go of is known once the done records have been read."""
        self.retention.begin_unknown()
        self.purged_to = purged_to

    def restore_expired(self, number: int, ranges: list[tuple[int, int]]) -> None:
        """Take in offsets that had expired before the start."""
        self.use_rules()
        self.retention.use_expired().restore(number, ranges)

    def restore_future(self) -> None:
        """Know what groups to come will not get."""
        expired = self.retention.expired
        if expired.is_used and not self.cursors:
            self.retention.payloads.released.add_all(expired.ranges_from(self.log.head_offset))
            self.retention.want_trim()

    def watch_returned(self) -> None:
        """Have what came back before the start watched for its expiry."""
        for cursor in self.cursors.values():
            for claim in cursor.claims.waiting():
                if self._rules is not None or claim.message.template.expires_at_ms:
                    self.use_rules().returned(cursor, claim, None)
