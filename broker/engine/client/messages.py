"""Messages of a shard, in whatever state: looked at, moved, redriven, removed; in steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection

from broker.engine.call_names import Name
from broker.engine.checking import checks_calls
from broker.engine.client import browsing, scheduled
from broker.engine.client.groups import Start, chosen, cursor_at
from broker.engine.client.queues import find
from broker.engine.log_steps import scan_prefix
from broker.engine.shard import Shard
from broker.engine.shard_ending import resolve
from config import limits
from queue_manager.api import OPERATOR, BrowsedPage, BrowseRequest, State, read_start
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.cursor.cursor import Cursor
from queue_manager.errors import InvalidArgument, LimitReached
from queue_manager.group.group import Group
from queue_manager.log.levels import priority_of
from queue_manager.model import Message
from queue_manager.moving.move import FailedMove, MoveTarget, append_copy, to_queue
from queue_manager.moving.redrive import CLAIM_LEASE_MS, Drain, FailedRedrive, to_origin
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream
from storage.encoding import prefix_end
from storage.records import done, failed


class Pace:
    """How many messages may go now, at `per_second` (None: as many as a step takes)."""

    def __init__(self, shard: Shard, per_second: float | None) -> None:
        if per_second is not None and not 0 < per_second < math.inf:
            raise InvalidArgument(f"a rate is above 0 messages per second, not {per_second}")
        self._clock = shard.clock
        self._ending = shard.ending
        self._per_second = per_second
        self._begin_s = shard.clock.monotonic()
        self._gone = 0

    async def next_step(self) -> int:
        """Wait until at least one may go; give how many. Raises BrokerStopped."""
        if self._per_second is None:
            await asyncio.sleep(0)
            self._ending.check()
            return limits.REDRIVE_STEP_MESSAGES_MAX
        while True:
            elapsed_s = self._clock.monotonic() - self._begin_s
            count = 1 + int(elapsed_s * self._per_second) - self._gone
            if count > 0:
                return min(count, limits.REDRIVE_STEP_MESSAGES_MAX)
            await self._ending.sleep(max(0.001, self._gone / self._per_second - elapsed_s))

    def went(self, count: int) -> None:
        """Count so many that went."""
        self._gone += count


def bounded(limit: int | None, most: int) -> int:
    """Return how many messages a call may touch; raises InvalidArgument."""
    if limit is not None and limit < 0:
        raise InvalidArgument(f"a limit is at least 0, not {limit}")
    return most if limit is None else min(limit, most)


def note(shard: Shard, pace: Pace, count: int) -> int:
    """Count so many: have them delivered and written."""
    pace.went(count)
    shard.follow_up()
    return count


async def loaded(shard: Shard, drain: Drain) -> None:
    """Wait for what is being read back."""
    if not shard.wakeups.is_running:
        await shard.load_once()
        return
    loaded = shard.ending.future()
    drain.consumer.group.when_loaded(lambda now_ms: resolve(loaded))
    shard.wake()
    await loaded


@checks_calls
class MessageClient:
    """Messages that wait, failed or are done. What changes is durable when a call returns."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.check = shard.ending.check

    async def browse(self, queue: Name, request: BrowseRequest, caller: str = OPERATOR) -> BrowsedPage:
        """Look at messages, a page at a time; with bodies a page ends early at some 32 MiB. Raises
        QueueNotFound, ResourceLocked, GroupNotFound, InvalidArgument.
        """
        found = find(self._shard, queue, caller)
        after = request.after
        if request.start is not None:
            if after is not None or request.state != "ready":
                raise InvalidArgument("start is for the first page of ready messages")
            after = await cursor_at(self._shard, found, request.start)
        return await browsing.read_page(
            self._shard,
            found,
            chosen(found, request.group),
            request.state,
            after=after,
            limit=request.limit,
            bodies=request.bodies,
            wanted=request.wanted,
        )

    async def move(
        self,
        queue: Name,
        to: Name,
        *,
        group: str | None = None,
        state: State = "ready",
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Move what a group has ready or failed to the end of another queue; give how many went.

        Each message is in one of the two at any moment, also after a crash; topic and properties stay. What
        the other queue does not take (full, too large), and what a message group has bound to a consumer,
        keeps its place. At most `limit` and at most `limits.MOVED_MESSAGES_PER_CALL_MAX`. Raises
        QueueNotFound, GroupNotFound, InvalidArgument (also for a stream, whose messages stay).
        """
        source, target = self._pair(queue, to)
        of_group = chosen(source, group)
        if isinstance(source, Stream):
            raise InvalidArgument(f"queue {source.name!r} is a stream: its messages stay; copy them")
        pace = Pace(self._shard, per_second)
        bound = bounded(limit, limits.MOVED_MESSAGES_PER_CALL_MAX)
        if state == "ready":
            moving = Drain(self._shard.manager, source, to_queue(target), bound, of_group)
            return await self._drain(moving, pace)
        if state == "failed":
            moved = 0
            for cursor in () if of_group is None or not source.durable else of_group.cursors:
                moved += await self._move_failed(source, FailedMove(cursor, target, bound - moved), pace)
            return moved
        raise InvalidArgument(f"only ready and failed messages can be moved, not {state}")

    async def copy(
        self,
        queue: Name,
        to: Name,
        *,
        group: str | None = None,
        state: State = "ready",
        start: Start | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Copy messages to the end of another queue: as `move`, but they stay, and any state but scheduled
        does. `start`: where in the queue to begin, an offset or a time.
        """
        shard = self._shard
        place = None if start is None else read_start("start", start)
        source, target = self._pair(queue, to)
        after = None if place is None else await cursor_at(shard, source, place)
        of_group = chosen(source, group)
        if state == "scheduled":
            raise InvalidArgument("scheduled messages can be cancelled, not copied")
        pace = Pace(shard, per_second)
        left = bound = bounded(limit, limits.MOVED_MESSAGES_PER_CALL_MAX)
        ends = [part.log.next_offset for part in source.parts]
        while left:
            count = min(left, await pace.next_step())
            found, more = await browsing.find(shard, source, of_group, state, after=after, limit=count)
            bodies, read_count = await browsing.read_bodies(shard, [item.message for item in found])
            copied = 0
            for item in found[:read_count]:
                after = item.cursor
                offset = item.message.offset
                body = bodies.get(item.message.message_id)
                if body is not None and offset < ends[priority_of(offset)]:  # what is newer came meanwhile
                    copied += append_copy(target, item.message, body, shard.clock.now_ms())
                elif offset >= ends[0] and len(ends) == 1:
                    more = False
            left -= copied
            note(shard, pace, copied)
            await shard.commits.room_to_write()
            if not more and read_count == len(found):
                break
        await shard.barrier()
        return bound - left

    async def redrive(
        self,
        queue: Name,
        group: str = "",
        *,
        offsets: Collection[int] | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Have a group try its failed messages again, at their original places; give how many it were.

        `offsets` are those meant, None is all; at most `limit`, and at most
        `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`. Raises QueueNotFound, GroupNotFound, InvalidArgument.
        """
        shard = self._shard
        pace = Pace(shard, per_second)
        source = find(shard, queue)
        of_group = source.groups.find(group)
        if not source.durable:
            return 0
        await shard.sweeper.retention_known()
        total = 0
        most = bounded(limit, limits.REDRIVEN_MESSAGES_PER_CALL_MAX)
        async with shard.redriving:
            await shard.sweeper.groups_removed(source)
            for cursor in of_group.cursors:
                if cursor.is_removed:
                    return total
                total += await self._redrive(FailedRedrive(cursor, most - total, offsets), pace)
        return total

    async def redrive_dead_letters(
        self,
        queue: Name,
        *,
        to: Name | None = None,
        limit: int | None = None,
        per_second: float | None = None,
    ) -> int:
        """Send dead letters, which is what the default group has waiting, back to where they came from, or to
        the queue `to`; give how many went.

        What cannot go keeps its place. At most `limit`, and at most `limits.REDRIVEN_MESSAGES_PER_CALL_MAX`.
        Raises QueueNotFound, InvalidArgument.
        """
        manager = self._shard.manager
        source = find(self._shard, queue)
        target = None if to is None else self._target(to)
        if target is source:
            raise InvalidArgument(f"queue {queue!r} cannot be redriven into itself")
        pace = Pace(self._shard, per_second)
        bound = bounded(limit, limits.REDRIVEN_MESSAGES_PER_CALL_MAX)
        return await self._drain(Drain(manager, source, to_origin(manager, source, target), bound), pace)

    async def remove(self, queue: Name, offset: int, *, group: str) -> bool:
        """Remove one message from a group that has not done it yet, claimed or not; False if there is none
        such. Raises QueueNotFound, GroupNotFound, InvalidArgument of a stream, LimitReached when too many
        wait before it.
        """
        shard, source = self._shard, find(self._shard, queue)
        of_group = source.groups.find(group) if group else source.group("")
        if isinstance(source, Stream):
            raise InvalidArgument(f"queue {source.name!r} is a stream: its messages stay")
        claim = of_group.consumers.find_claim(offset)
        if claim is not None:
            shard.manager.ack([claim], shard.clock.now_ms())
            of_group.write_soon()
            found = True
        elif not 0 <= offset < max(part.log.next_offset for part in source.parts):
            return False
        else:
            found = await self._remove_waiting(source, of_group, offset)
        shard.follow_up()
        await shard.barrier()
        return found

    async def cancel_scheduled(self, queue: Name, name: str) -> bool:
        """Cancel a scheduled message (`BrowsedMessage.name`); False if it is not there, or due. Raises
        QueueNotFound, InvalidArgument.
        """
        return await scheduled.cancel_scheduled(self._shard, queue, *browsing.scheduled_key(name))

    def _target(self, name: str) -> MoveTarget:
        """Return the queue of a name, of this shard or another; raises QueueNotFound."""
        foreign = self._shard.manager.queues.foreign.get(name)
        return find(self._shard, name) if foreign is None else foreign

    def _pair(self, queue: str, to: str) -> tuple[Queue, MoveTarget]:
        source, target = find(self._shard, queue), self._target(to)
        if source is target:
            raise InvalidArgument(f"queue {queue!r} cannot be moved or copied into itself")
        return source, target

    async def _drain(self, drain: Drain, pace: Pace) -> int:
        """Move what waits in a group, to its end; give how many messages went."""
        shard, bound = self._shard, drain.left
        try:
            while True:
                room = await pace.next_step()
                before = drain.left
                looked_at = drain.step(room, shard.clock.now_ms())
                note(shard, pace, before - drain.left)
                if looked_at is None:
                    await loaded(shard, drain)
                elif not looked_at:
                    break
                else:
                    await shard.commits.room_to_write()
        finally:
            drain.end(shard.clock.now_ms())
            shard.follow_up()
        await shard.barrier()
        return bound - drain.left

    async def _move_failed(self, source: Queue, moving: FailedMove, pace: Pace) -> int:
        shard, cursor, bound = self._shard, moving.cursor, moving.left
        await shard.sweeper.retention_known()
        async with shard.redriving:
            await shard.sweeper.groups_removed(source)
            start = failed.prefix(cursor.storage_id)
            while moving.left:
                cursor.stored.write_soon()
                await shard.barrier()
                rows = await shard.store.scan(start, prefix_end(failed.prefix(cursor.storage_id)), limit=1)
                if not rows:
                    break
                key, value = rows[0]
                asked = moving.wanted(value, await pace.next_step())
                if not asked:
                    start = key + b"\x00"
                    continue
                bodies, read_count = await shard.reader.read_payloads(asked)
                bucket_id = failed.parse_key(key)[1]
                done_value: bytes | None = None
                is_open = moving.is_open(bucket_id)  # then memory knows better than the record
                if not is_open:
                    # closed for good: what is durable now is all there will be
                    await shard.barrier()
                    value = await shard.store.get(key) or b""
                    done_value = await shard.store.get(done.key(cursor.storage_id, bucket_id))
                if cursor.is_over() or not value:
                    break
                if is_open and not moving.is_open(bucket_id):
                    continue
                now_ms = shard.clock.now_ms()
                moved = moving.move(bucket_id, value, done_value, bodies, asked[:read_count], now_ms)
                note(shard, pace, moved)
                await shard.commits.room_to_write()
            await shard.barrier()
        return bound - moving.left

    async def _redrive(self, redrive: FailedRedrive, pace: Pace) -> int:
        shard, cursor = self._shard, redrive.cursor
        total = 0
        await shard.barrier()
        prefix = failed.prefix(cursor.storage_id)
        async for key, value in scan_prefix(shard.store, prefix, limits.FAILED_ROWS_PER_SCAN):
            bucket_id = failed.parse_key(key)[1]
            if not redrive.wants(bucket_id, value):
                continue
            await pace.next_step()
            done_value = await shard.store.get(done.key(cursor.storage_id, bucket_id))
            if cursor.is_over():
                break
            count = redrive.take_closed(bucket_id, value, done_value, shard.clock.now_ms())
            total += note(shard, pace, count)
            await shard.commits.room_for_deletes()
        while redrive.left and not cursor.is_over():
            count = redrive.take_open(shard.clock.now_ms(), await pace.next_step())
            if not count:
                break
            total += note(shard, pace, count)
        await shard.barrier()
        return total

    async def _remove_waiting(self, queue: Queue, group: Group, offset: int) -> bool:
        """Claim what waits up to the message, end that one, and put the others back untried."""
        shard, cursor = self._shard, group.cursor_at(offset)
        if cursor.progress.has_taken(offset):
            waiting = [claim for claim in cursor.waiting() if claim.message.offset == offset]
            return bool(waiting) and self._end_waiting(queue, group, cursor, waiting[0])
        found = False

        def end(message: Message, now_ms: int) -> bool:
            nonlocal found
            found |= message.offset == offset
            return message.offset == offset

        pace = Pace(shard, None)
        ahead = Drain(shard.manager, queue, end, limits.REDRIVE_HELD_MESSAGES_MAX, group)
        try:
            while not found:
                room = await pace.next_step()
                looked_at = ahead.step(room, shard.clock.now_ms())
                if looked_at is None:
                    await loaded(shard, ahead)
                elif not looked_at:
                    break
        finally:
            ahead.end(shard.clock.now_ms())
        if not found and not cursor.progress.has_taken(offset) and not queue.deleted:
            most = limits.REDRIVE_HELD_MESSAGES_MAX
            raise LimitReached(f"more than {most} messages wait before this one: it can be removed later")
        return found

    def _end_waiting(self, queue: Queue, group: Group, cursor: Cursor, claim: Claim) -> bool:
        """Claim and end what came back and waits, for its next attempt or for a consumer."""
        manager, now_ms = self._shard.manager, self._shard.clock.now_ms()
        taker = manager.consumption.puller(queue, _Taker(), "remove", lease_ms=CLAIM_LEASE_MS, group=group)
        found = cursor.claim_again(claim, taker, now_ms)
        cursor.take_out([claim])
        if found:
            manager.ack([claim], now_ms)
            group.write_soon()
        manager.consumption.unsubscribe(taker, now_ms)
        return found


class _Taker:
    """A sink of what is claimed only to be ended. Implements `queue_manager.claims.claim.Sink`."""

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `queue_manager.claims.claim.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `queue_manager.claims.claim.Sink`."""
