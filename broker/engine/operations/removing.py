"""Taking one message out of a group, wherever it waits."""

from __future__ import annotations

from broker.engine.operations.pace import Pace, loaded
from broker.engine.shard import Shard
from config import limits
from queue_manager.claims.claim import Claim, Consumer
from queue_manager.errors import InvalidArgument, LimitReached
from queue_manager.group.group import Group
from queue_manager.model import Message
from queue_manager.moving.redrive import CLAIM_LEASE_MS, Drain
from queue_manager.queue.queue import Queue
from queue_manager.queue.stream import Stream


async def remove(shard: Shard, queue: Queue, group: Group, offset: int) -> bool:
    """Remove a message; see `MessageClient.remove`."""
    if isinstance(queue, Stream):
        raise InvalidArgument(f"queue {queue.name!r} is a stream: its messages stay")
    now_ms = shard.clock.now_ms()
    claim = group.consumers.find_claim(offset)
    if claim is not None:
        shard.manager.ack([claim], now_ms)
        group.write_soon()
        found = True
    elif not 0 <= offset < max(part.log.next_offset for part in queue.parts):
        return False
    else:
        found = await _remove_waiting(shard, queue, group, offset)
    shard.manager.dispatch(shard.clock.now_ms())
    shard.wake()
    await shard.barrier()
    return found


class _Nobody:
    """Takes what is claimed only to be ended."""

    def deliver(self, consumer: Consumer, messages: list[Message], claims: list[Claim] | None) -> bool:
        """See `queue_manager.claims.claim.Sink`."""
        return True

    def revoked(self, consumer: Consumer, claims: list[Claim]) -> None:
        """See `queue_manager.claims.claim.Sink`."""

    def cancelled(self, consumer: Consumer, reason: str) -> None:
        """See `queue_manager.claims.claim.Sink`."""


def _end_waiting(shard: Shard, queue: Queue, group: Group, claim: Claim) -> bool:
    """Claim and end what came back and waits, for its next attempt or for a consumer."""
    now_ms = shard.clock.now_ms()
    taker = shard.manager.consumption.puller(queue, _Nobody(), "remove", lease_ms=CLAIM_LEASE_MS, group=group)
    cursor = group.cursor_at(claim.message.offset)
    found = cursor.claim_again(claim, taker, now_ms)
    cursor.take_out([claim])
    if found:
        shard.manager.ack([claim], now_ms)
        group.write_soon()
    shard.manager.consumption.unsubscribe(taker, now_ms)
    return found


async def _remove_waiting(shard: Shard, queue: Queue, group: Group, offset: int) -> bool:
    """Claim what waits up to the message, end that one, and put the others back as if nothing had been."""
    cursor = group.cursor_at(offset)
    if cursor.progress.has_taken(offset):
        waiting = [claim for claim in cursor.waiting() if claim.message.offset == offset]
        if not waiting:
            return False
        return _end_waiting(shard, queue, group, waiting[0])
    found = False

    def end(message: Message, now_ms: int) -> bool:
        nonlocal found
        if message.offset != offset:
            return False
        found = True
        return True

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
