"""What time brings for the messages of a queue, and what is too much of them."""

from __future__ import annotations

from heapq import heappop
from typing import TYPE_CHECKING

from config import limits
from queue_manager.ahead import Ahead
from queue_manager.dead_letters import EXPIRED, MAXLEN
from queue_manager.giving_up import RETENTION, dead_letters_wanted, give_up_fresh
from queue_manager.keeping.state import KeeperState
from queue_manager.loads import BodiesLoad
from queue_manager.model import AVAILABLE, Entry, Message
from queue_manager.nobody import Nobody
from queue_manager.overflow import drop_oldest, is_too_much, readers_of
from queue_manager.own_ttls import Expiring, Key, OwnTtls
from queue_manager.policy import DROP_HEAD
from storage.records import expiry

if TYPE_CHECKING:
    from queue_manager.group import Group


class Ending(KeeperState):
    """Gives up what has expired and what is too much, as far as it is at hand; what is not is read first."""

    __slots__ = ()

    def on_timer(self, now_ms: int) -> None:
        """Give up what has expired, as far as it is at hand; what is not is read and dealt with then."""
        if self.queue.deleted:
            return
        if not self.begin():
            self.call_at(now_ms)
            return
        try:
            self._end_waiting(now_ms)
            if self.own is not None:
                self._end_own(self.own, now_ms)
            self._sweep_all(now_ms)
            self._drop_too_many(now_ms)
        finally:
            self.end()

    def begin(self) -> bool:
        """Whether nothing of the queue is being given up; then it is now, until `end`.

        Dead letters may come back to this queue, and that must not begin it all again within; nor must a
        long row of queues, each with dead letters for the next, be gone through in one call.
        """
        lead = self.queue.whole().keep()
        manager = self.queue.manager
        if lead.is_busy or manager.busy_keepers >= limits.DEAD_LETTER_NESTING_MAX:
            return False
        lead.is_busy = True
        manager.busy_keepers += 1
        return True

    def end(self) -> None:
        """Others may begin."""
        self.queue.manager.busy_keepers -= 1
        self.queue.whole().keep().is_busy = False

    def _sweep_all(self, now_ms: int) -> None:
        policy = self.queue.policy
        if policy.message_ttl_ms:
            for group in self._groups():
                self._sweep(group, policy.message_ttl_ms, EXPIRED, now_ms)
        if policy.retention_age_ms and not self.queue.groups and not self._has_due(now_ms):
            self._sweep(self.nobody(), policy.retention_age_ms, RETENTION, now_ms)

    def _drop_too_many(self, now_ms: int) -> None:
        policy = self.queue.policy
        if policy.overflow == DROP_HEAD:
            self._drop_oldest(MAXLEN, now_ms)
        if policy.retains() and not self.queue.groups:
            self._drop_oldest(RETENTION, now_ms)

    def _drop_oldest(self, reason: str, now_ms: int) -> None:
        queue = self.queue.whole()
        if not any(is_too_much(readers, reason) for readers in readers_of(queue)):
            return
        for part in queue.parts():  # what has expired is not too much
            keeper = part.keep()
            keeper._end_waiting(now_ms)
            keeper._sweep_all(now_ms)
            if keeper._has_due(now_ms):
                return  # we are called again
        for readers in readers_of(queue):
            drop_oldest(readers, reason, now_ms)

    def _has_due(self, now_ms: int) -> bool:
        """Whether something may have expired that could not be given up yet."""
        if self._waiting and self._waiting[0][0] <= now_ms:
            return True
        if self.own is not None and self.own.has_due(now_ms):
            return True
        policy = self.queue.policy
        lives = policy.message_ttl_ms or (policy.retention_age_ms and not self.queue.groups)
        return lives > 0 and any(self.source(group).loading for group in self._groups())

    def _sweep(self, group: Group, ttl_ms: int, reason: str, now_ms: int) -> None:
        """Give up what is next for the group as long as it has been here for `ttl_ms`."""
        timers = self.queue.manager.timers
        source = self.source(group)
        seen_due_ms = self._seen_due_ms(source, ttl_ms, reason)
        if seen_due_ms > now_ms:
            timers.set(self, max(seen_due_ms, now_ms + limits.EXPIRY_READ_INTERVAL_MS))
            return
        step = 1
        while front := source.at_hand(step):
            step = limits.EXPIRY_STEP_MESSAGES
            count = 0
            expired = []
            for message in front:
                if not self.is_over_for(group, message):
                    if message.received_at_ms + ttl_ms > now_ms:
                        break
                    expired.append(message)
                count += 1
            given_up = give_up_fresh(group, expired, reason, now_ms)
            self.passed(group, expired[:given_up])
            passed = count if given_up == len(expired) else front.index(expired[given_up])
            if passed:
                self.pass_over(group, source, passed)
            if passed < count:
                retry_ms = now_ms + limits.EXPIRY_RETRY_MS
                source.front_seen = source.position, front[passed].received_at_ms, retry_ms
                timers.set(self, retry_ms)
                return
            if count < len(front):
                source.front_seen = source.position, front[count].received_at_ms, 0
                due_ms = front[count].received_at_ms + ttl_ms
                if source.position < self.queue.tail.first_offset:
                    due_ms = max(due_ms, now_ms + limits.EXPIRY_READ_INTERVAL_MS)
                timers.set(self, due_ms)
                return

    def _seen_due_ms(self, source: Group, ttl_ms: int, reason: str) -> int:
        """When to look at what is next in the log, if that was seen and would have to be read again; else 0.

        What was read is forgotten at once. Groups and parts of the queue that had theirs read anew whenever
        something was read for another one would so take turns for ever.
        """
        seen = source.front_seen
        if seen is None or seen[0] != source.position or source.position >= self.queue.tail.first_offset:
            return 0
        return max(seen[1] + ttl_ms, seen[2] if reason == EXPIRED else 0)

    def _end_own(self, own: OwnTtls, now_ms: int) -> None:
        """Have every group give up messages that have expired by themselves."""
        if self._is_loading:
            return
        queue = self.queue
        due = own.take_due(now_ms, limits.EXPIRY_STEP_MESSAGES)
        needs_body = dead_letters_wanted(queue.policy)
        missing = []
        groups = self._groups()
        for key, row in due:
            offset = key[1]
            message = row.message
            readers = [] if row.is_gone else [g for g in groups if not g.has_taken(offset)]
            needs_this = needs_body or (row.body_bytes == expiry.UNKNOWN_BYTES and self.bytes is not None)
            if needs_this and readers and message.body is None and not self._find_body(message):
                missing.append((key, row))
                continue
            if row.body_bytes == expiry.UNKNOWN_BYTES:
                row.body_bytes = len(message.body or b"")
            is_over = row.is_gone or offset < queue.head_offset or self.was_given_up(offset)
            if not is_over and not self._give_up_ahead(readers, message, row.body_bytes, now_ms):
                own.put_back(key, row)
                self.call_at(now_ms + limits.EXPIRY_RETRY_MS)
                continue
            if queue.durable:
                queue.manager.journal.delete(expiry.key(queue.name, *key))
        if self.ahead is not None:
            for group in groups:
                if group.selection is None:
                    group.pass_to(self.ahead.ranges.floor_from(group.position))
                if isinstance(group, Nobody) and queue.durable:
                    self.group_written(group, queue.manager.journal)
            if queue.durable:
                self.ahead.write(queue.name, queue.manager.journal)
        if missing:
            self._load_bodies(own, missing)
        elif len(due) == limits.EXPIRY_STEP_MESSAGES:
            queue.manager.timers.set(self, now_ms)

    def _find_body(self, message: Message) -> bool:
        tail = self.queue.tail
        if tail.holds(message.offset):
            message.body = tail.slice(message.offset, 1)[0].body
        return message.body is not None

    def _load_bodies(self, own: OwnTtls, missing: list[tuple[Key, Expiring]]) -> None:
        """Read the payloads of these; then they are due again."""
        self._is_loading = True
        for key, row in missing:
            own.put_back(key, row)
        wanted = {row.message.message_id: row for _, row in missing}

        def read(bodies: dict[int, bytes], read_count: int, now_ms: int) -> None:
            self._is_loading = False
            for message_id in list(wanted)[:read_count]:
                row = wanted[message_id]
                row.message.body = bodies.get(message_id)
                row.is_gone = row.message.body is None
            self.on_timer(now_ms)

        self.queue.manager.loads.append(BodiesLoad(list(wanted), read))

    def _give_up_ahead(self, readers: list[Group], message: Message, body_bytes: int, now_ms: int) -> bool:
        """Have `readers`, who are not there yet, and groups to come let go of a message; False: not now."""
        queue = self.queue
        offset = message.offset
        for group in readers:
            if not give_up_fresh(group, [message], EXPIRED, now_ms):
                return False
            if self.bytes is not None:
                self.bytes.of(group).gave_up(offset, body_bytes)
            if isinstance(group, Nobody):
                queue.released.add(offset, offset + 1)
                queue.manager.trimmable[queue] = None
        for group in queue.groups.values():
            # with the commit that holds the dead letters: a place before it would give it up again
            group.mark_dirty()
            group.flush_soon()
        if self.ahead is None:
            self.ahead = Ahead()
        self.ahead.add(offset)
        queue.tail.blank(offset)
        return True

    def _end_waiting(self, now_ms: int) -> None:
        """Give up claims that came back and have expired."""
        waiting = self._waiting
        if now_ms < self._end_again_ms and waiting:
            self.call_at(max(waiting[0][0], self._end_again_ms))
            return
        # each time all that waits in the group is looked through
        self._end_again_ms = now_ms + len(waiting) // limits.EXPIRY_RETURNED_PER_MS
        touched: dict[Group, list[Entry]] = {}
        while waiting and waiting[0][0] <= now_ms:
            entry = heappop(waiting)[2]
            if entry.state == AVAILABLE:
                touched.setdefault(entry.group, []).append(entry)
        if waiting:
            self.call_at(max(waiting[0][0], self._end_again_ms))
        for group, entries in touched.items():
            self.give_up_waiting(group, entries, EXPIRED, now_ms)
